"""The same request in another process is answered by what the search came to before, without going through it again."""

import gc
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pytest
from tests.planning.fake_bench import FakeBench, chain, kernels

import pcp
from pcp.backends import xla
from pcp.backends.xla import XLABackend
from pcp.ir import Program
from pcp.kernels.registry import FAMILIES
from pcp.planning import chosen, settled
from pcp.planning.measuring.measurement import Failure
from pcp.planning.paths import kept, preparation
from pcp.planning.paths import path as path_module
from pcp.planning.profile.database import ProfileDatabase
from pcp.planning.search import this_process
from pcp.planning.search.search import Search

pytestmark = pytest.mark.usefixtures("bench")
BUDGET = 50.0


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The digests of programs that this process compiles, or loads."""
    digests: list[str] = []
    compile_one = XLABackend._compiled

    def noted(program: Program, *more: Any) -> Any:
        digests.append(program.digest)
        return compile_one(program, *more)

    monkeypatch.setattr(XLABackend, "_compiled", staticmethod(noted))
    return digests


@pytest.fixture
def begin_anew(bench: FakeBench, compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What a new process knows: nothing."""

    def begin() -> None:
        this_process._compared.clear()
        xla._alive.clear()
        path_module._applied.cache_clear()
        path_module._suits.cache_clear()
        preparation._prepared.cache_clear()
        bench.requests.clear()
        compiled.clear()

    monkeypatch.setattr(this_process, "_compared", set())
    begin()
    return begin


def forbid(monkeypatch: pytest.MonkeyPatch, *doing: tuple[Any, str]) -> None:
    """Let whoever does one of these things fail."""
    for where, name in doing:
        monkeypatch.setattr(where, name, lambda *_, name=name, **__: pytest.fail(f"{name} is called"))


def test_a_second_process_measures_nothing_and_compiles_only_what_it_runs(
    bench: FakeBench, file: FilePath, compiled: list[str], begin_anew: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compare(*given: Any) -> str | None:
        said = this_process.difference_here(*given)
        gc.collect()
        return said

    monkeypatch.setattr(chosen, "difference_here", compare)
    monkeypatch.setattr(this_process, "_compared_with_plain", lambda *_: None)  # these kernels are wrong
    program = chain()
    first = pcp.plan(program, tolerance=1e-2, database=file, budget=BUDGET)
    rng = np.random.default_rng(3)
    given = [rng.standard_normal(entry.spec.shape).astype(np.float32) for entry in program.arguments]
    wanted, described = (
        [np.asarray(each) for each in first.run(*given)],
        json.dumps(first.to_json()["classes"]),
    )
    assert not first.path.is_plain
    del first
    begin_anew()
    with monkeypatch.context() as patch:
        forbid(patch, (Search, "run"), (chosen, "that_fits"), (this_process._Called, "__call__"))
        second = pcp.plan(program, tolerance=1e-2, database=file, budget=BUDGET)
    assert bench.requests == []
    assert len(compiled) == 1  # the form that was compared is the plan's
    assert compiled == [second.lowered.digest]
    assert all(np.array_equal(*pair) for pair in zip(second.run(*given), wanted, strict=True))
    assert kernels(second) == {"sine.fast": 6}
    assert (second.error, second.to_json()["measurements"]) == (pytest.approx(6**0.5 * 1e-3), 0)
    assert json.dumps(second.to_json()["classes"]) == described
    assert len(second.site_measurements) == 9
    assert bench.requests == []


def test_another_request_is_searched_for(
    file: FilePath, begin_anew: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, begun = chain(), list[Search]()
    pcp.plan(program, tolerance=1e-2, database=file, budget=BUDGET)
    monkeypatch.setattr(Search, "__init__", noted(Search.__init__, begun))

    def searches(tolerance: float = 1e-2, **more: Any) -> bool:
        begun.clear()
        begin_anew()
        pcp.plan(program, tolerance=tolerance, database=file, **{"budget": BUDGET, **more})
        return bool(begun)

    assert not searches()
    assert not searches(budget=2 * BUDGET)  # nothing was left out
    assert searches(2e-2)
    assert not searches(2e-2)
    monkeypatch.setattr(settled, "code_digest", lambda: "other code")
    assert searches()
    assert not searches()
    database = ProfileDatabase(file)
    row = next(row for row in database.measurements() if row.error is not None and "@" not in row.path)
    database.add(replace(row, path="0" * 64, failure=Failure.crash, when=9e9))
    assert searches()  # more is known of the program
    assert not searches()


def test_what_was_cut_short_stands_until_a_larger_budget_is_given(
    bench: FakeBench, file: FilePath, begin_anew: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, settle = chain(), chosen.settle

    def is_searched(budget: float, changed: Callable[..., Any] = lambda found, *_: found) -> bool:
        begin_anew()
        begun = list[Search]()
        with monkeypatch.context() as patch:
            patch.setattr(Search, "__init__", noted(Search.__init__, begun))
            patch.setattr(chosen, "settle", lambda *given: settle(changed(*given), *given[1:]))
            plan = pcp.plan(program, tolerance=1e-2, database=file, budget=budget)
        assert kernels(plan) == ({"sine.fast": 6} if bench.requests or not begun or budget else {})
        assert bool(begun) or not bench.requests
        is_cut.append("not everything was measured; plan again with a larger budget" in str(plan))
        return bool(begun)

    is_cut = list[bool]()
    assert [is_searched(0.0), is_searched(0.0)] == [
        True,
        True,
    ]  # the plain path for want of time is no answer
    assert [is_searched(BUDGET, cut_without_an_answer), is_searched(BUDGET, cut)] == [True, True]
    is_cut.clear()
    assert [is_searched(budget) for budget in (BUDGET, 0.0, BUDGET / 2)] == [False] * 3
    assert is_cut == [True] * 3
    assert [is_searched(BUDGET + 1, cut), is_searched(BUDGET + 1), is_searched(BUDGET + 2)] == [
        True,
        False,
        True,
    ]
    is_cut.clear()
    assert not is_searched(1000.0)  # the last one ended by itself
    assert is_cut == [False]


def cut(found: Any, *_: Any) -> Any:
    """What a search comes to that had no time for something."""
    return replace(found, complete=False)


def cut_without_an_answer(found: Any, *given: Any) -> Any:
    """What a search comes to that had only time for the plain path."""
    whole, _, evidence = given
    row = evidence.known(whole.subject).get(whole.plain.digest)
    return replace(found, complete=False, path=whole.plain, measurement=row)


def noted(begin: Any, begun: list[Any]) -> Any:
    """The same, which notes what begins."""

    def beginning(self: Any, *given: Any) -> None:
        begun.append(self)
        begin(self, *given)

    return beginning


def test_a_large_program_that_a_path_makes_is_kept(
    file: FilePath, begin_anew: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "LARGE", 1)
    program = chain()
    path = pcp.plan(program, tolerance=1e-2, database=file, budget=BUDGET).path
    made = path.applied(program)
    begin_anew()
    with monkeypatch.context() as patch:
        forbid(patch, (path_module, "applied"))
        again = path.applied(program)
    assert (again, again.arguments, again.results) == (made, made.arguments, made.results)
    begin_anew()
    monkeypatch.setattr(kept, "code_digest", lambda: "other code")
    with pytest.MonkeyPatch.context() as patch:
        forbid(patch, (path_module, "applied"))
        with pytest.raises(pytest.fail.Exception, match="applied is called"):
            path.applied(program)


def test_the_prepared_form_of_a_large_program_is_kept(
    begin_anew: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = chain()
    begin_anew()
    made = preparation.prepared(program)
    assert made != program
    monkeypatch.setattr(kept, "LARGE", 1)
    begin_anew()
    assert preparation.prepared(program) == made  # nothing was kept of it so far
    begin_anew()
    with monkeypatch.context() as patch:
        forbid(patch, (preparation, "canonical"))
        again = preparation.prepared(program)
    assert (again, again.arguments, again.results) == (made, made.arguments, made.results)
    begin_anew()
    monkeypatch.setitem(FAMILIES, "added", replace(FAMILIES["attention"], name="added"))
    with monkeypatch.context() as patch:
        forbid(patch, (preparation, "canonical"))
        with pytest.raises(pytest.fail.Exception, match="canonical is called"):
            preparation.prepared(program)


def test_what_failed_for_a_reason_that_may_pass_is_searched_for_again_a_day_later(
    bench: FakeBench, file: FilePath, begin_anew: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.fails = lambda request: Failure.timeout if "tanh" in request.candidate.text else None
    now, clock = [0.0], time.time

    def is_searched() -> bool:
        begin_anew()
        begun = list[Search]()
        with monkeypatch.context() as patch:
            patch.setattr(Search, "__init__", noted(Search.__init__, begun))
            patch.setattr(time, "time", lambda: clock() + now[0])
            pcp.plan(chain(), tolerance=1e-2, database=file, budget=BUDGET)
        return bool(begun)

    assert [is_searched() for _ in range(5)] == [True, True, True, False, False]
    now[0] = 86_000.0
    assert not is_searched()
    now[0] = 86_500.0
    assert is_searched()
