"""Tests of the duels between paths, and of the refining of the fastest one, by a Bench that makes up what it measures."""

from dataclasses import replace
from pathlib import Path as FilePath

import pytest
from tests.planning.fake_bench import (
    FakeBench,
    chain,
    counted_in,
    kernels,
    set_strategy,
)

import pcp
from pcp.ir import Program
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.measuring.request import Request
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.strategy import Step

pytestmark = pytest.mark.usefixtures("bench")


def test_the_whole_decides_between_kernels_that_noise_confused_alone(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Evidence, "seconds_spent", 1.0)
    set_strategy(monkeypatch, often_seconds=10.0)
    bench.noise = {"tanh": [0.6] * 5}  # 0.2 in truth
    plan = pcp.plan(chain(), tolerance=1e-2, database=file)
    assert kernels(plan) == {"sine.fast": 6}
    bench.requests.clear()
    assert pcp.plan(chain(), tolerance=1e-2, database=file).path == plan.path
    assert bench.requests == []


def test_a_program_that_takes_long_is_not_measured_for_single_classes(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Evidence, "seconds_spent", 1.0)
    bench.noise = {"tanh": [0.6] * 5}
    assert kernels(pcp.plan(chain(), tolerance=1e-2, database=file)) == {"sine.middle": 6}
    assert len(bench.wholes) == 1


@pytest.mark.parametrize(("effort", "begun"), [(0.5, 1), (1.5, 2)])
def test_refining_begins_nothing_after_its_part_of_the_time(
    effort: float, begun: int, bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.noise = {"tanh": [0.6] * 5}
    clock = 0.0

    def takes_time(request: Request) -> None:
        nonlocal clock
        clock += 100.0 if request in bench.wholes else 1.0

    bench.fails = takes_time
    bench.seconds["tanh"] = 0.6  # so that every change loses
    set_strategy(monkeypatch, often_seconds=10.0)
    set_strategy(monkeypatch, effort=effort)
    monkeypatch.setattr(Evidence, "seconds_spent", property(lambda _: clock))
    pcp.plan(chain(), tolerance=1e-2, database=file, budget=1000.0)
    assert len(bench.duels) == begun  # after 109 seconds, 100 each
    assert bench.requests[-1] in bench.wholes
    assert (
        bench.requests[-1] not in bench.duels
    )  # the fastest is measured against the plain program once more


def test_refining_leaves_time_to_measure_the_fastest_again(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 0.0

    def takes_time(request: Request) -> None:
        nonlocal clock
        clock += 1.0 if request.timing_seconds else 0.0

    bench.fails = takes_time
    bench.noise = {"tanh": [0.6] * 5}
    bench.seconds["tanh"] = 0.6
    set_strategy(monkeypatch, often_seconds=10.0)
    set_strategy(monkeypatch, effort=10.0)
    set_strategy(monkeypatch, change_plausible=10.0)
    monkeypatch.setattr(Evidence, "seconds_spent", property(lambda _: clock))
    pcp.plan(chain(), tolerance=1e-2, database=file, budget=16)
    # Ten measurements besides that of the plain path, and duels until there is only a tenth of the time left.
    assert [each in bench.duels for each in bench.requests] == [False] * 10 + [True] * 5 + [False]


def mixed() -> Program:
    """A program of two sines and one logarithm."""
    return pcp.trace(lambda x: pcp.log1p(pcp.sin(pcp.sin(x) + 1.0)), pcp.spec((4, 4), "f32"))


@pytest.mark.parametrize(("in_the_whole", "taken"), [(0.9, True), (1.004, True), (1.5, False)])
def test_a_family_that_is_faster_alone_is_left_out_only_if_it_is_surely_slower_in_the_whole(
    in_the_whole: float,
    taken: bool,
    bench: FakeBench,
    file: FilePath,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Evidence, "seconds_spent", 1.0)
    set_strategy(monkeypatch, often_seconds=10.0)
    bench.noise = {"exponential_minus_one": [0.5] * 5}
    bench.seconds["exponential_minus_one"] = in_the_whole
    plan = pcp.plan(mixed(), tolerance=1e-2, database=file)
    assert kernels(plan)["sine.fast"] == 2
    assert (kernels(plan)["log1p.other"] == 1) is taken
    without = [each for each in bench.duels if not counted_in(each)["exponential_minus_one"]]
    assert bool(without) is not taken  # all that is faster alone, until a whole without it wins
    bench.requests.clear()
    assert pcp.plan(mixed(), tolerance=1e-2, database=file).path == plan.path
    assert bench.requests == []


def test_a_whole_that_was_measured_while_the_plain_program_was_disturbed_holds_nothing_up(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Evidence, "seconds_spent", 1.0)
    set_strategy(monkeypatch, often_seconds=100.0)
    bench.noise = {"tanh": [0.6] * 5}  # 0.2 in truth, so the first selection is not the fastest
    measure = bench.measure

    def disturbed(request: Request) -> Measurement:
        row = measure(request)
        slow = tuple(10 * seconds for seconds in row.plain_seconds)
        return replace(row, plain_seconds=slow) if len(bench.wholes) == 1 else row

    monkeypatch.setattr(bench, "measure", disturbed)
    assert kernels(pcp.plan(chain(), tolerance=1e-2, database=file)) == {"sine.fast": 6}


def test_kernels_of_all_families_are_measured_together_first_and_that_is_all_where_they_save_what_they_promise(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_strategy(monkeypatch, often_seconds=10.0)
    assert kernels(pcp.plan(mixed(), tolerance=1e-2, database=file)) == {"sine.fast": 2, "log1p.other": 1}
    first = next(each for each in bench.wholes if each.timing_seconds)
    assert (counted_in(first)["tanh"], counted_in(first)["exponential_minus_one"]) == (2, 1)
    assert all(counted_in(each)["exponential_minus_one"] for each in bench.wholes)  # no family is left out


def test_a_change_that_cannot_save_what_noise_leaves_to_see_is_not_tried(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_strategy(monkeypatch, often_seconds=1000.0)
    bench.noise = {"tanh": [0.6] * 5, "logistic": [0.62] * 5}
    bench.overhead = (
        20.0  # so that a class of two sites has a tenth of the time, and 0.02 + 0.6 of it may be gained
    )
    assert kernels(pcp.plan(chain(), tolerance=1e-2, database=file)) == {"sine.fast": 6}
    assert any(counted_in(each)["logistic"] for each in bench.duels)
    bench.overhead = 100.0
    bench.requests.clear()
    plan = pcp.plan(chain(), tolerance=1e-2, database=file.with_name("other.sqlite"))
    assert bench.duels == []
    said = "other kernels of single classes were not tried in the whole: each could save less than 0.5% of its time"
    assert said in str(plan)


def test_what_is_in_doubt_alone_is_not_waited_for_where_something_is_faster(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_strategy(monkeypatch, often_seconds=10.0)
    waited: list[float] = []
    monkeypatch.setattr("pcp.planning.search.evidence.time.sleep", waited.append)
    bench.noise = {"exponential_minus_one": [0.8, 1.1, 0.9, 1.2, 1.0]}  # as fast as the operation, or not
    assert kernels(pcp.plan(mixed(), tolerance=1e-2, database=file))["sine.fast"] == 2
    assert sum(waited) < 1.0
    bench.seconds |= {"tanh": 1.0, "logistic": 1.0, "cosine": 1.0}
    pcp.plan(mixed(), tolerance=1e-2, database=file.with_name("other.sqlite"))
    assert sum(waited) > 1.0


def test_a_family_that_saves_very_little_alone_is_not_tried(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_strategy(monkeypatch, often_seconds=10.0)
    set_strategy(monkeypatch, little=0.2)  # it saves 0.5 of 3 seconds
    set_strategy(monkeypatch, steps=tuple(step for step in Step if step is not Step.refinement))
    assert kernels(pcp.plan(mixed(), tolerance=1e-2, database=file)) == {"sine.fast": 2}
    assert bench.duels == []


def test_a_change_that_made_the_whole_slower_is_not_tried_again(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Evidence, "seconds_spent", 1.0)
    set_strategy(monkeypatch, often_seconds=10.0)
    bench.noise = {"tanh": [0.6] * 5}  # 0.2 in truth, so that all classes change, and are gone through again
    assert kernels(pcp.plan(chain(), tolerance=1e-2, database=file)) == {"sine.fast": 6}
    slower = [each for each in bench.duels if counted_in(each)["cosine"]]
    assert len(slower) == 3  # one for each class
