"""Searches whose time does not suffice: what they begin with, what they keep for the end, and what they say."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path as FilePath

import pytest
from tests.planning.fake_bench import FakeBench, chain, counted_in, kernels, set_strategy, tried_together

import pcp
from pcp.kernels import Claims, Kernel
from pcp.kernels.storage import BF16_X3, TF32
from pcp.planning.measuring.bench import PlainProgramFailed
from pcp.planning.measuring.measurement import Failure, Measurement
from pcp.planning.measuring.request import Request
from pcp.planning.report import described
from pcp.planning.search.found import Found
from pcp.planning.search.site_classes import site_classes
from pcp.planning.search.tuning import MeasuredClass
from pcp.rewrite.row import Effect

pytestmark = pytest.mark.usefixtures("bench")


def takes(
    seconds: Callable[[Request], float], bench: FakeBench, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], float]:
    """Let every measurement take some seconds; returns the clock."""
    now, measure = [0.0], bench.measure

    def measured(request: Request) -> Measurement:
        now[0] += seconds(request)
        return measure(request)

    monkeypatch.setattr(bench, "measure", measured)
    monkeypatch.setattr("pcp.planning.search.evidence.time.monotonic", lambda: now[0])
    return lambda: now[0]


def of_both_families() -> pcp.Program:
    """Six sites of the first family and three of the second, of three sizes."""
    specs = [pcp.spec((size, size), "f32") for size in (4, 5, 6)]
    return pcp.trace(lambda *x: tuple(pcp.log1p(pcp.sin(pcp.sin(each) + 1.0)) for each in x), *specs)


def test_a_search_that_is_cut_short_says_so_and_goes_on(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes(lambda _: 1.0, bench, monkeypatch)
    plan = pcp.plan(chain(), tolerance=1e-2, database=file, budget=12)
    assert "not everything was measured" in str(plan)
    assert 0 < len(bench.requests) < 10


def test_what_there_was_no_time_for_is_named_with_what_it_might_save() -> None:
    program = chain()
    classes = [each for each in site_classes(program, "cpu") if each.family == "sine"]
    measured = [
        MeasuredClass(each, 0.0, [], might_save=saved)
        for each, saved in zip(classes, (0.5, 0.0, 0.2), strict=True)
    ]
    plain, chosen = (
        pcp.Path.of(program, kernels)
        for kernels in ({}, {site.key: classes[0].kernels[0] for site in classes[0].sites})
    )

    def last_line(path: pcp.Path, *, complete: bool = False) -> str:
        found = Found(path, look=lambda: measured, complete=complete)
        return described(path, found, 1e-2)[-1].removeprefix("  note        ")

    begin = "not everything was measured; plan again with a larger budget to go on"
    words = "by what they compute, kernels might save"
    assert (
        last_line(plain)
        == f"{begin}: {words} 70% of the time of all sites, of sine at 2 sites, sine at 2 sites"
    )
    assert last_line(chosen) == f"{begin}: {words} 20% of the time of all sites, of sine at 2 sites"
    measured[2] = replace(measured[2], might_save=0.0)
    assert last_line(chosen) == begin
    assert begin not in last_line(plain, complete=True)


def test_a_budget_of_0_takes_what_is_known(bench: FakeBench, file: FilePath) -> None:
    plan = pcp.plan(chain(), tolerance=1e-2, database=file, budget=0)
    assert plan.path.is_plain
    assert bench.requests == []
    assert "not everything was measured" in str(plan)
    assert "the error of the plain path is not known: the time was up" in str(plan)
    known = pcp.plan(chain(), tolerance=1e-2, database=file)
    bench.requests.clear()
    assert pcp.plan(chain(), tolerance=1e-2, database=file, budget=0).path == known.path
    assert bench.requests == []


def test_where_time_is_short_a_kernel_is_tried_everywhere_first(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_strategy(monkeypatch, large_seconds=0.0)
    tried_together(monkeypatch, "sine.middle", "sine.fast")
    monkeypatch.setattr(FakeBench, "measure", _stopping_after(2))
    plan = pcp.plan(chain(), tolerance=1e-2, database=file, budget=10)
    assert [counted_in(each)["logistic"] for each in bench.wholes] == [6, 0]
    assert kernels(plan) == {"sine.fast": 6}
    assert "not everything was measured" in str(plan)
    monkeypatch.undo()


def test_what_is_too_wrong_everywhere_is_tried_at_fewer_sites(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_strategy(monkeypatch, large_seconds=0.0)
    tried_together(monkeypatch, "sine.fast")
    bench.errors["tanh"] = 6e-3  # of six of them 1.5e-2, of two 8.5e-3
    monkeypatch.setattr(FakeBench, "measure", _stopping_after(2))
    plan = pcp.plan(chain(), tolerance=1e-2, database=file, budget=10)
    assert [counted_in(each)["tanh"] for each in bench.wholes] == [6, 2]
    assert kernels(plan) == {"sine.fast": 2}


def test_all_families_are_tried_together_and_the_fastest_where_they_are_exact_enough(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_strategy(monkeypatch, large_seconds=0.0)
    tried_together(monkeypatch, "sine.middle", "sine.fast")
    tried_together(monkeypatch, "log1p.other")
    bench.errors |= {"tanh": 6e-3, "logistic": 1e-3, "exponential_minus_one": 1e-3}
    monkeypatch.setattr(FakeBench, "measure", _stopping_after(4))
    plan = pcp.plan(of_both_families(), tolerance=1e-2, database=file, budget=10)
    found = [
        tuple(counted_in(each)[name] for name in ("tanh", "logistic", "exponential_minus_one"))
        for each in bench.wholes
    ]
    assert found[:3] == [(6, 0, 3), (5, 1, 3), (0, 6, 3)]
    fast = found[3][0]
    assert 0 < fast < 5
    assert found[3] == (fast, 6 - fast, 3)
    assert kernels(plan) == {"sine.fast": fast, "sine.middle": 6 - fast, "log1p.other": 3}


def test_of_kernels_that_are_too_wrong_everywhere_those_next_to_the_exact_ones_are_tried_at_fewer_sites(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fastest are so wrong that they fit nowhere, and those after them nearly everywhere."""
    set_strategy(monkeypatch, large_seconds=0.0)
    tried_together(monkeypatch, "sine.middle", "sine.bitwise", "sine.fast")
    tried_together(monkeypatch, "log1p.other")
    bench.errors |= {"tanh": 6e-2, "cosine": 4.5e-3, "logistic": 1e-4, "exponential_minus_one": 1e-4}
    monkeypatch.setattr(FakeBench, "measure", _stopping_after(6))
    pcp.plan(of_both_families(), tolerance=1e-2, database=file, budget=10)
    found = [
        tuple(counted_in(each)[name] for name in ("tanh", "cosine", "logistic")) for each in bench.wholes
    ]
    assert found[:5] == [(6, 0, 0), (5, 1, 0), (0, 6, 0), (0, 5, 1), (0, 0, 6)]
    next_to_them = found[5][1]
    assert 0 < next_to_them < 6
    assert found[5] == (0, next_to_them, 6 - next_to_them)


@pytest.mark.cpu
@pytest.mark.parametrize("fast_error", [1e-4, 6e-3])
def test_where_the_fastest_of_all_families_hold_together_nothing_is_measured_alone(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch, fast_error: float
) -> None:
    set_strategy(monkeypatch, large_seconds=0.0, settled_on=("cpu",))
    tried_together(monkeypatch, "sine.middle", "sine.fast")
    tried_together(monkeypatch, "log1p.other")
    bench.errors |= {"tanh": fast_error, "logistic": 1e-3, "exponential_minus_one": 1e-4}
    plan = pcp.plan(of_both_families(), tolerance=1e-2, database=file)
    alone = [request for request in bench.requests if request.timing_seconds and request not in bench.wholes]
    if fast_error < 1e-3:
        assert kernels(plan) == {"sine.fast": 6, "log1p.other": 3}
        assert not alone
        assert "no kernel was measured alone: the fastest of every family hold together" in str(plan)
        assert "not everything was measured" not in str(plan)
    else:
        assert alone


def test_a_path_is_not_used_before_its_kernels_were_verified_at_their_sites(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_strategy(monkeypatch, large_seconds=0.0)
    tried_together(monkeypatch, "sine.middle", "sine.fast")
    with monkeypatch.context() as patch:
        patch.setattr(FakeBench, "measure", _stopping_after(2, at_sites=False))
        assert kernels(pcp.plan(chain(), tolerance=1e-2, database=file, budget=10)) == {}
    bench.requests.clear()
    bench.fails = lambda request: Failure.not_finite if request.site and not request.timing_seconds else None
    with monkeypatch.context() as patch:
        patch.setattr(FakeBench, "measure", _stopping_after(0))
        assert kernels(pcp.plan(chain(), tolerance=1e-2, database=file, budget=10)) == {}
    claims = {Claims(Effect.lowers_precision, bits=storage.bits) for storage in (BF16_X3, TF32)}
    assert bench.requests
    assert {request.site for request in bench.requests} <= claims
    assert all(request.path.endswith("@1 at its site") for request in bench.requests)


def test_a_kernel_that_fails_everywhere_is_no_loss(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_strategy(monkeypatch, large_seconds=0.0)
    tried_together(monkeypatch, "sine.fast")
    bench.fails = lambda request: Failure.run_error if counted_in(request)["tanh"] == 6 else None
    plan = pcp.plan(chain(), tolerance=1e-2, database=file, budget=10)
    assert sum(counted_in(each)["tanh"] == 6 for each in bench.wholes) == 1
    assert kernels(plan)["sine.fast"] == 4
    bench.requests.clear()
    pcp.plan(chain(), tolerance=1e-2, database=file)
    assert bench.requests == []


def test_a_measurement_should_take_as_long_as_the_last_one_not_as_long_as_the_first(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of a program makes its exact results, too: 6 of 12 seconds, of which verifying keeps back 3.6."""
    monkeypatch.setattr(Kernel, "is_added", True)
    set_strategy(monkeypatch, large_seconds=0.0)
    tried_together(monkeypatch, "sine.middle", "sine.fast")
    tried_together(monkeypatch, "log1p.other")
    bench.errors |= {"tanh": 6e-3, "logistic": 1e-3, "exponential_minus_one": 1e-3}
    clock = takes(lambda _: 0.5 if clock() else 6.0, bench, monkeypatch)
    pcp.plan(of_both_families(), tolerance=1e-2, database=file, budget=12)
    assert 0 < counted_in(bench.wholes[3])["tanh"] < 5, "there was time for the fastest at fewer sites"


def of_two_settled_families(bench: FakeBench, monkeypatch: pytest.MonkeyPatch) -> pcp.Program:
    """A program of which nothing is measured alone; it has three classes of sites of each family."""
    set_strategy(monkeypatch, large_seconds=0.0, settled_on=("cpu",), most_kept_back=0.0, most_verified=0.1)
    tried_together(monkeypatch, "sine.middle", "sine.fast")
    tried_together(monkeypatch, "log1p.other")
    bench.errors |= {"tanh": 1e-4, "logistic": 1e-3, "exponential_minus_one": 1e-4}
    return of_both_families()


@pytest.mark.cpu
def test_a_later_search_verifies_what_there_was_no_time_for_in_a_part_of_its_budget(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verification takes 4 s: of 90 s the first search has 12 for that, and later ones take a tenth.

    Each is for another tolerance: the same request is answered by what the first came to.
    """
    program = of_two_settled_families(bench, monkeypatch)
    clock = takes(lambda request: 4.0 if request.site else 39.0, bench, monkeypatch)
    verified: list[list[str]] = []
    took = []
    for number in range(5):
        bench.requests.clear()
        began = clock()
        plan = pcp.plan(program, tolerance=1e-2 + number * 1e-4, database=file, budget=90.0)
        took.append(clock() - began)
        assert kernels(plan) == {"sine.fast": 6, "log1p.other": 3}
        verified.append([each.subject.digest for each in bench.requests if each.site])
    assert [len(each) for each in verified] == [2, 2, 2, 0, 0]
    assert took == [86.0, 8.0, 8.0, 0.0, 0.0]
    assert len({digest for each in verified for digest in each}) == 6, "each is verified once"


@pytest.mark.cpu
def test_kernels_from_outside_are_verified_as_long_as_there_is_time(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Kernel, "is_added", property(lambda kernel: kernel.name == "sine.fast"))
    program = of_two_settled_families(bench, monkeypatch)
    set_strategy(monkeypatch, most_verified=0.0)
    takes(lambda request: 4.0 if request.site else 39.0, bench, monkeypatch)
    assert kernels(pcp.plan(program, tolerance=1e-2, database=file, budget=80.0)) == {}
    assert kernels(pcp.plan(program, tolerance=1e-2, database=file, budget=80.0)) != {}
    verified = {each.path.partition("@")[0] for each in bench.requests if " at its site" in each.path}
    assert verified == {"sine.fast"}


def test_a_kernel_that_was_slow_alone_is_verified_where_the_whole_is_faster_with_it(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_strategy(monkeypatch, large_seconds=0.0)
    tried_together(monkeypatch, "sine.fast")
    bench.noise = {name: [1.5] * 5 for name in ("tanh", "logistic", "cosine")}
    plan = pcp.plan(chain(), tolerance=1e-2, database=file)
    assert kernels(plan) == {"sine.fast": 6}
    alone = [each for each in bench.requests if each.site and each.path == "sine.fast@1"]
    assert [each.worth for each in alone] == [1.15] * 3
    assert [each.path for each in bench.requests if each.path.endswith(" at its site")] == [
        "sine.fast@1 at its site"
    ] * 3
    bench.noise = {}
    bench.requests.clear()
    pcp.plan(chain(), tolerance=1e-2, database=file.with_name("other"))
    assert any(each.path == "sine.fast@1" for each in bench.requests)
    assert not any(each.path.endswith(" at its site") for each in bench.requests), "they are verified alone"


def _stopping_after(count: int, *, at_sites: bool = True) -> object:
    measure = FakeBench.measure

    def measured(self: FakeBench, request: Request) -> object:
        if len(self.requests) >= count and (request.timing_seconds or not at_sites):
            raise PlainProgramFailed("the machine is needed otherwise", is_of_all=False)
        return measure(self, request)

    return measured


@pytest.mark.parametrize(("most_kept_back", "taken"), [(0.3, "sine.fast"), (0.0, "sine.middle")])
def test_time_is_kept_back_to_verify_the_fastest_path_and_where_it_was_not_enough_the_next_best_is_taken(
    most_kept_back: float, taken: str, bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Kernel, "is_added", property(lambda kernel: kernel.name == "sine.fast"))
    tried_together(monkeypatch, "sine.fast", "sine.middle")
    set_strategy(monkeypatch, large_seconds=0.0, for_whole=0.0, most_kept_back=most_kept_back, site_calls=1)
    # A kernel alone takes long, so that the three classes are not gone through in time.
    clock = takes(lambda request: 10.0 if request.timing_seconds else 3.0, bench, monkeypatch)
    plan = pcp.plan(chain(), tolerance=1e-2, database=file, budget=50.0)
    assert kernels(plan) == {taken: 6}
    verified = {each.subject for each in bench.requests if each.path.startswith("sine.fast")}
    said = "0.20 of the plain time, is not used: sine.fast was not verified for sine (f32["
    if taken == "sine.fast":
        assert len(verified) == 3  # classes of sites
        assert said not in str(plan)
        assert clock() <= 50.0
    else:
        assert len(verified) < 3
        assert said in str(plan)
        assert "the time was up" in str(plan)
    assert "not everything was measured; plan again with a larger budget" in str(plan)
    monkeypatch.undo()
