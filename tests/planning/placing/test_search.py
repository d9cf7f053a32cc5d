"""A plan for several places tries operations elsewhere where their times say that it should pay, and takes what does."""

import itertools
from pathlib import Path as FilePath

import numpy as np
import pytest
from tests.planning.fake_bench import FakeBench, chain

import pcp
import pcp.planning.chosen as planning_chosen
from pcp.backends import Placement, Target
from pcp.ir import Program
from pcp.planning.measuring.bench import Bench
from pcp.planning.placing import search
from pcp.planning.placing.cheapest import CopyCost
from pcp.planning.placing.operations import operations_in, placed
from pcp.planning.placing.search import Placing
from pcp.rewrite.regions import UnknownOperation

PLACES = ["cpu:0", "arena:cpu"]


@pytest.fixture(autouse=True)
def copies_cost_the_same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        search, "copy_costs", lambda _: dict.fromkeys([(0, 1), (1, 0)], CopyCost(latency=0.05, rate=1e9))
    )


def products_and_a_sine() -> Program:
    """The only operation at which the arena is faster stands between two others."""
    return pcp.trace(lambda x: pcp.log1p(pcp.sin(pcp.log1p(x))), pcp.spec((8,), "f32"))


def with_a_fast_sine(bench: FakeBench) -> None:
    bench.seconds = dict.fromkeys(bench.seconds, 1.0)  # no kernel pays
    bench.elsewhere, bench.alone, bench.placed = {"arena": (4.0, 1e-6)}, {"sine": 0.1}, 0.6


def test_operations_that_are_faster_elsewhere_run_there(bench: FakeBench, file: FilePath) -> None:
    with_a_fast_sine(bench)
    program = products_and_a_sine()
    plan = pcp.plan(program, PLACES, tolerance=1e-2, database=file)
    found = operations_in(program)
    [key] = [key for key, name in zip(found.keys, found.names, strict=True) if name == "sine"]
    assert plan.path.placement == Placement(((key, "arena:cpu:0"),))
    assert (plan.backend.name, plan.path.backend) == ("xla", "xla")
    text = str(plan)
    assert "regions     3: 2 on cpu:0 by xla, 1 on cpu:0 by arena; 2 values of 64 bytes are copied" in text
    assert "with 1 on arena:cpu:0 operations: the whole takes 0.60 of the plain path's time" in text
    x = np.linspace(0.1, 0.9, 8, dtype=np.float32)
    np.testing.assert_allclose(plan.run(x), np.log1p(np.sin(np.log1p(x))), rtol=1e-6)
    again = pcp.plan(program, PLACES[0], path=pcp.Path.from_json(plan.path.to_json()))
    np.testing.assert_array_equal(again.run(x), plan.run(x))
    count = len(bench.requests)
    known = pcp.plan(program, PLACES, tolerance=1e-2, database=file, budget=0)
    assert (known.path, len(bench.requests)) == (plan.path, count)


def test_what_is_no_faster_as_a_whole_is_not_taken(bench: FakeBench, file: FilePath) -> None:
    with_a_fast_sine(bench)
    bench.placed = 1.01
    plan = pcp.plan(products_and_a_sine(), PLACES, tolerance=1e-2, database=file)
    assert plan.path.placement is None
    assert "with 1 on arena:cpu:0 operations: the whole takes 1.01 of the plain path's time" in str(plan)


def test_what_computes_something_else_in_this_process_is_not_taken(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_a_fast_sine(bench)
    monkeypatch.setattr(
        planning_chosen,
        "difference_here",
        lambda _, path, *__: None if path.placement is None else "result 0 is 7 apart",
    )
    plan = pcp.plan(products_and_a_sine(), PLACES, tolerance=1e-2, database=file)
    assert plan.path.placement is None
    assert "with 1 on arena:cpu:0 operations results differ in this process: result 0 is 7 apart" in str(plan)


def test_where_no_placement_should_pay_none_is_measured(bench: FakeBench, file: FilePath) -> None:
    with_a_fast_sine(bench)
    bench.alone = {}
    pcp.plan(products_and_a_sine(), PLACES, tolerance=1e-2, database=file)
    assert not [request for request in bench.requests if request.placement is not None]


def test_where_going_there_takes_longer_than_the_whole_no_operation_is_measured(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_a_fast_sine(bench)
    slow = dict.fromkeys([(0, 1), (1, 0)], CopyCost(latency=2.0, rate=1e9))
    monkeypatch.setattr(search, "copy_costs", lambda _: slow)
    plan = pcp.plan(products_and_a_sine(), PLACES, tolerance=1e-2, database=file)
    assert (
        "note        no operation was tried elsewhere: to go there and back takes longer than the whole"
        in str(plan)
    )
    assert not [request for request in bench.requests if " on " in request.path]


def test_paths_with_placements_come_lazily_the_best_first(bench: FakeBench, file: FilePath) -> None:
    with_a_fast_sine(bench)
    program = products_and_a_sine()
    pcp.plan(program, PLACES, tolerance=1e-2, database=file)
    found = list(itertools.islice(pcp.paths(program, PLACES, database=file), 40))
    assert len({path.digest for path in found}) == len(found)
    assert [path.backend for path in found if path.backend != "xla"] == ["arena"]
    placements = [path.placement for path in found if path.placement is not None]
    assert len(placements) == 2**3 - 2  # but all at home, and all elsewhere
    names = dict(zip(operations_in(program).keys, operations_in(program).names, strict=True))
    assert [names[key] for key, _ in placements[0].operations] == ["sine"]
    deep = chain(tuple(range(2, 32)))  # 2^120 placements
    assert len(list(itertools.islice(pcp.paths(deep, PLACES, database=file), 3))) == 3


def test_exploring_measures_placements_too(bench: FakeBench, file: FilePath) -> None:
    with_a_fast_sine(bench)
    program = products_and_a_sine()
    explored = list(pcp.explore(program, PLACES, database=file))
    assert {(each.path.backend, each.path.placement is not None) for each in explored} == {
        ("xla", False),
        ("xla", True),
        ("arena", False),
    }
    assert all(
        each.measurement.ratio == pytest.approx(0.6) for each in explored if each.path.placement is not None
    )
    assert not any(each.is_new for each in pcp.explore(program, PLACES, database=file))


def test_a_placement_is_measured_in_a_child_and_judged() -> None:
    from pcp.planning.judging.oracle import widened
    from pcp.planning.measuring.request import Request

    program = products_and_a_sine()
    placement = Placement.of(dict.fromkeys(operations_in(program).keys[1:2], "arena:cpu:0"))
    request = Request(
        program,
        program,
        "placed",
        exact=widened(program),
        tolerance=1e-3,
        timing_seconds=0.02,
        target=Target.of(),
        placement=placement,
    )
    with Bench() as real:
        row = real.measure(request)
    assert (row.failure, len(row.seconds) >= 3) == (None, True)
    assert row.error is not None
    assert row.error < 1e-6


def test_operations_are_placed_by_their_names_or_keys() -> None:
    program = products_and_a_sine()
    found = operations_in(program)
    path = placed(program, {"sine": "arena:cpu", found.keys[0]: "xla:cpu:0"})
    assert path.placement is not None
    assert dict(path.placement.operations) == {found.keys[0]: "xla:cpu:0", found.keys[1]: "arena:cpu:0"}
    with pytest.raises(
        UnknownOperation,
        match=r"'tan' is told to run on arena:cpu, and is no .*; expected a key, .* log_plus_one, sine",
    ):
        placed(program, {"tan": "arena:cpu"})


def test_times_of_operations_alone_are_scaled_to_the_whole_where_they_are_fused() -> None:
    program = products_and_a_sine()
    placing = Placing.of(program, pcp.Path.plain(program), Target.of(), [Target.of("arena:cpu")])
    placing._times.update({(number, 1): (1.0, 2.0) for number in range(3)})
    fused, apart = placing.costs(1.5), placing.costs(6.0)
    assert fused.seconds == ((0.5, 2.0),) * 3
    assert (
        apart.seconds == ((1.0, 2.0),) * 3
    )  # what takes longer together than alone is slow for another reason
