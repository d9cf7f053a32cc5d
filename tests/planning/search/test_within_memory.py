"""The search for the fastest path that fits in memory: with kernels, and with values computed again."""

import re
import time
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

import pytest
from tests.planning.fake_bench import FakeBench, counted, counted_in, kernels, tried_together

import pcp
from pcp.backends import Target
from pcp.planning import ToleranceUnreachable
from pcp.planning.conditions import Conditions, evidence_of
from pcp.planning.fitting import Fit, MemoryUnreachable, fitted
from pcp.planning.measuring.measurement import Failure, Measurement
from pcp.planning.measuring.request import Request
from pcp.planning.search.found import Found
from pcp.planning.search.search import Search
from pcp.planning.search.whole import Whole
from pcp.planning.search.within_memory import _candidates
from pcp.tensor import Tensor

pytestmark = pytest.mark.usefixtures("bench")
LAYERS = 6


def there_and_back(x: Tensor) -> Tensor:
    """Values that are made on the way there and read on the way back; sorting is no site, and no compiler fuses it."""
    made = []
    for _ in range(LAYERS):
        x = pcp.sin(pcp.sort(x))
        made.append(x)
    for value in reversed(made):
        x = pcp.sort(x) * value
    return x.sum()


@pytest.fixture(scope="module")
def program() -> pcp.Program:
    return pcp.trace(
        there_and_back, pcp.spec((509, 64), "f32")
    )  # a prime number of rows cannot be cut into parts


@pytest.fixture(scope="module")
def limit(program: pcp.Program) -> int:
    return int(0.8 * peak(pcp.plan(program)))


def peak(plan: pcp.Plan) -> int:
    return plan.memory[str(plan.device)].peak


@pytest.mark.cpu
def test_the_fastest_path_computes_values_again(
    bench: FakeBench, program: pcp.Program, limit: int, file: FilePath
) -> None:
    unlimited = pcp.plan(program, tolerance=1e-2, database=file)
    plan = pcp.plan(program, tolerance=1e-2, memory=limit, database=file)
    assert kernels(plan) == kernels(unlimited) == {"sine.fast": LAYERS}
    assert peak(plan) <= limit < peak(unlimited)
    assert plan.fit is not None
    assert plan.fit.remade > 0
    assert counted(plan.lowered)["tanh"] > LAYERS
    assert plan.error is not None  # it was judged like every other
    assert plan.error > (unlimited.error or 0.0)
    bench.requests.clear()
    again = pcp.plan(program, tolerance=1e-2, memory=limit, database=file)
    assert (again.path, bench.requests) == (plan.path, [])


@pytest.mark.cpu
def test_what_fits_but_is_too_wrong_is_not_used(
    bench: FakeBench, program: pcp.Program, limit: int, file: FilePath
) -> None:
    def fails(request: Request) -> Failure | None:
        return Failure.inaccurate if sum(counted_in(request).values()) > LAYERS else None

    bench.fails = fails
    message = r"what was tried of .* [KM]iB misses the tolerance of 0.01: path [0-9a-f]{12}, which fits in memory, is not used"
    with pytest.raises(ToleranceUnreachable, match=message):
        pcp.plan(program, tolerance=1e-2, memory=limit, database=file)


@pytest.mark.cpu
def test_without_time_it_is_taken_unmeasured_and_the_plan_says_so(
    program: pcp.Program, limit: int, file: FilePath
) -> None:
    plan = pcp.plan(program, tolerance=1e-2, memory=limit, database=file, budget=0)
    assert peak(plan) <= limit
    assert plan.error is None
    assert f"path        {plan.path.digest[:12]}: not measured" in str(plan)
    assert "what fits in memory was not measured: " in str(plan)


def test_of_what_does_not_fit_the_least_is_named(program: pcp.Program, file: FilePath) -> None:
    with pytest.raises(MemoryUnreachable, match=r"the least takes .* KiB") as caught:
        pcp.plan(program, tolerance=1e-2, memory="600KiB", database=file)
    assert peak(pcp.plan(program, memory=caught.value.least)) <= caught.value.least


@pytest.mark.cpu
def test_looking_for_what_fits_takes_no_time_from_measurements(
    program: pcp.Program, limit: int, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, late = time.monotonic, 0.0

    def slowly(*given: Any) -> Fit:
        nonlocal late
        late += 1000.0
        return fitted(*given)

    monkeypatch.setattr(time, "monotonic", lambda: now() + late)
    monkeypatch.setattr("pcp.planning.search.within_memory.fitted", slowly)
    assert pcp.plan(program, tolerance=1e-2, memory=limit, database=file, budget=100).error is not None


@pytest.fixture(scope="module")
def divisible() -> pcp.Program:
    return pcp.trace(there_and_back, pcp.spec((512, 64), "f32"))


def of_the_plain(program: pcp.Program, share: float) -> int:
    return int(share * peak(pcp.plan(program)))


@pytest.mark.cpu
def test_kernels_are_searched_for_a_part_of_the_batch(
    bench: FakeBench, divisible: pcp.Program, file: FilePath
) -> None:
    limit = of_the_plain(divisible, 0.4)
    unlimited = pcp.plan(divisible, tolerance=1e-2, database=file)
    plan = pcp.plan(divisible, tolerance=1e-2, memory=limit, database=file)
    assert plan.fit is not None
    assert plan.path.parts == plan.fit.parts > 1
    assert f"the batch is computed in {plan.fit.parts} parts" in str(plan)
    assert kernels(plan) == kernels(unlimited) == {"sine.fast": LAYERS}
    assert peak(plan) <= limit < peak(unlimited)
    assert plan.error is not None
    parts = plan.fit.parts
    assert f"{LAYERS * parts} x sine (f32[{512 // parts},64])" in str(plan)  # measured as it is computed
    bench.requests.clear()
    again = pcp.plan(divisible, tolerance=1e-2, memory=limit, database=file)
    assert (again.path, bench.requests) == (plan.path, [])


@pytest.mark.cpu
def test_a_part_may_be_computed_by_other_kernels_than_the_whole(
    bench: FakeBench, divisible: pcp.Program, file: FilePath
) -> None:
    """In a loop the fastest is broken: what is transferred to a part is not used, and what a search of parts finds is."""

    def fails(request: Request) -> Failure | None:
        assert isinstance(request.candidate, pcp.Program)
        is_divided = "stablehlo.while" in request.candidate.text
        return Failure.crash if is_divided and counted_in(request)["tanh"] else None

    bench.fails = fails
    limit = of_the_plain(divisible, 0.4)
    plan = pcp.plan(divisible, tolerance=1e-2, memory=limit, database=file)
    assert plan.path.parts > 1
    assert kernels(plan) == {"sine.middle": LAYERS}
    assert peak(plan) <= limit


@pytest.mark.cpu
def test_kernels_that_save_no_time_are_used_where_fewer_parts_are_enough_with_them(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part more costs time here, and the slower kernels keep less."""
    program = pcp.trace(lambda x: there_and_back(pcp.log1p(pcp.exp(x))), pcp.spec((512, 64), "f32"))
    limit = of_the_plain(program, 0.7)

    def measured(request: Request) -> Measurement:
        row = measure(request)
        assert isinstance(request.candidate, pcp.Program)
        rows = min(int(size) for size in re.findall(r"tensor<(\d+)x64xf32>", request.candidate.text))
        return replace(row, seconds=tuple(each * 512 / rows for each in row.seconds))

    def fit(program: pcp.Program, path: pcp.Path, target: Target, limit: int) -> Fit:
        is_lean = any(choice.kernel == "log1p.other" for choice in path.choices.values())
        return fitted(program, path, target, limit if is_lean else limit // 2)

    measure = bench.measure
    monkeypatch.setattr(bench, "measure", measured)
    monkeypatch.setattr("pcp.planning.search.within_memory.fitted", fit)
    tried_together(monkeypatch, "sine.fast")
    tried_together(monkeypatch, "log1p.other")
    bench.seconds["exponential_minus_one"] = 1.3
    unlimited = pcp.plan(program, tolerance=1e-2, database=file)
    assert kernels(unlimited) == {"sine.fast": LAYERS}
    plan = pcp.plan(program, tolerance=1e-2, memory=limit, database=file)
    assert fit(program, unlimited.path, Target.of("cpu:0"), limit).parts > plan.path.parts == 2
    assert kernels(plan) == {"sine.fast": LAYERS}  # which a search of two parts finds to be the fastest there


def test_where_a_search_had_no_time_kernels_of_all_families_come_before_the_plain_path(
    file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried_together(monkeypatch, "sine.bitwise", "sine.fast")
    tried_together(monkeypatch, "log1p.other")
    program = pcp.trace(lambda x: pcp.sin(pcp.log1p(x)), pcp.spec((4, 4), "f32"))
    target = Target.of()
    conditions = Conditions(target, target.capacity, file)
    with evidence_of(conditions) as evidence:
        whole = Whole(program, 1e-2, target)
        search = Search(whole, evidence, conditions.memory_limit)

        def named(found: Found, used: str = "") -> list[list[str]]:
            options: list[Found] = []
            made = []
            for path in _candidates(found, search, options):
                made.append(sorted(choice.kernel for choice in path.choices.values()))
                if used in made[-1]:
                    options.append(Found(path))
            return made

        fast, exact = ["log1p.other", "sine.fast"], ["log1p.other", "sine.bitwise"]
        assert named(Found(whole.plain, complete=False)) == [fast, exact, []]
        assert named(Found(whole.plain, complete=False), used="sine.fast") == [fast]
        assert named(Found(whole.plain)) == [[], fast, exact]
        fastest = next(path for path in _candidates(Found(whole.plain, complete=False), search, []))
        assert named(Found(fastest)) == [fast, exact, []]
        in_parts = Found(fastest, fit=Fit(fastest, 1, 1, 2, parts=2))
        options: list[Found] = []
        for _ in _candidates(in_parts, search, options):
            options.append(in_parts)
        assert len(options) == 1  # in as many parts, nothing else keeps less
        evidence.budget = 0.0
        assert named(Found(whole.plain, complete=False)) == [[]]


@pytest.mark.cpu
def test_what_fits_without_parts_stays_whole(divisible: pcp.Program, file: FilePath) -> None:
    plan = pcp.plan(divisible, tolerance=1e-2, memory="1GiB", database=file)
    assert plan.path.parts == 1
    assert plan.fit is not None
    assert str(plan.fit).endswith("nothing is given up for that")


@pytest.mark.cpu
def test_paths_are_measured_beside_a_plain_one_that_fits(
    bench: FakeBench, program: pcp.Program, limit: int, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PCP_MEMORY_LIMIT", str(limit))
    target = Target.of("cpu:0")
    beside = {
        target.compile(request.subject).memory.peak <= limit for request in wholes(bench, program, file)
    }
    assert beside == {True}
    assert [request.subject for request in bench.begun] == [program]  # before anything was known
    bench.fails = lambda request: Failure.inaccurate if counted_in(request) else None
    plan = pcp.plan(program, tolerance=1e-3, database=file)
    assert not plan.path.choices
    assert plan.fit is not None
    assert plan.fit.remade > 0
    assert peak(plan) <= limit


def wholes(bench: FakeBench, program: pcp.Program, file: FilePath) -> list[Request]:
    """What was asked of the whole program in a search that may take no more memory."""
    plan = pcp.plan(program, tolerance=1e-2, database=file)
    assert kernels(plan) == {"sine.fast": LAYERS}
    return [request for request in bench.requests if len(request.subject.arguments) == 1 and request.exact]
