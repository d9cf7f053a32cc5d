"""Tests of the search: every branch of it, forced by a Bench that makes up what it measures."""

import logging
from dataclasses import replace
from pathlib import Path as FilePath

import numpy as np
import pytest
from tests.planning.fake_bench import (
    FakeBench,
    chain,
    counted,
    counted_in,
    kernels,
    set_strategy,
    tried_together,
)

import pcp
from pcp.ir import Program
from pcp.planning.measuring.bench import PlainProgramFailed
from pcp.planning.measuring.measurement import Failure, Measurement
from pcp.planning.measuring.request import Request
from pcp.planning.paths.path import Path
from pcp.planning.profile.database import ProfileDatabase
from pcp.planning.search.evidence import Progress
from pcp.planning.search.search import ToleranceUnreachable
from pcp.tensor import Tensor

pytestmark = pytest.mark.usefixtures("bench")


def test_the_fastest_kernels_are_taken_and_each_class_is_measured_once(
    bench: FakeBench, file: FilePath
) -> None:
    plan = pcp.plan(chain(), tolerance=1e-2, database=file)
    assert kernels(plan) == {"sine.fast": 6}
    assert plan.error == pytest.approx(6**0.5 * 1e-3)
    assert plan.plain_error == pytest.approx(6**0.5 * 1e-7)
    assert len(bench.requests) == 3 * 3 + 1  # kernels of three classes of two sites, and the whole
    assert counted(plan.path.applied(plan.program))["tanh"] == 6


def test_the_second_time_it_is_answered_from_the_database(bench: FakeBench, file: FilePath) -> None:
    first = pcp.plan(chain(), tolerance=1e-2, database=file)
    bench.requests.clear()
    second = pcp.plan(chain(), tolerance=1e-2, database=file)
    assert bench.requests == []
    assert second.path == first.path
    assert (second.error, second.to_json()["measurements"]) == (first.error, 0)


def test_without_a_tolerance_nothing_is_searched(bench: FakeBench, file: FilePath) -> None:
    plan = pcp.plan(chain(), database=file)
    assert plan.path.is_plain
    assert plan.error is None
    assert bench.requests == []
    assert not file.exists()
    assert "no tolerance was given" in str(plan)


def test_what_is_too_wrong_moves_to_more_exact_kernels(file: FilePath) -> None:
    plan = pcp.plan(chain(), tolerance=1.7e-3, database=file)  # two fast sites have 1.4e-3
    assert kernels(plan) == {"sine.fast": 2, "sine.middle": 4}
    assert plan.error is not None
    assert plan.error <= 1.7e-3


def test_the_model_learns_which_class_spoils_the_whole(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = FakeBench._error

    def error(
        self: FakeBench, counts: dict[str, int]
    ) -> float:  # a fast kernel costs 100 times as much as alone
        return whole(self, counts) * (100.0 if sum(counts.values()) > 1 else 1.0)

    monkeypatch.setattr(FakeBench, "_error", error)
    plan = pcp.plan(chain(), tolerance=1e-2, database=file)
    assert kernels(plan) == {"sine.middle": 6}
    assert len(bench.wholes) == 2


def test_a_kernel_that_is_too_wrong_alone_is_not_tried_in_the_whole(bench: FakeBench, file: FilePath) -> None:
    plan = pcp.plan(chain(), tolerance=1e-4, database=file)
    assert kernels(plan) == {"sine.middle": 6}
    assert len(bench.wholes) == 1


def test_a_kernel_that_fails_only_in_the_whole_is_found_and_left_out(
    bench: FakeBench, file: FilePath
) -> None:
    program = chain((4, 5, 6, 7, 8))

    def fails(request: Request) -> Failure | None:
        assert isinstance(request.candidate, Program)
        is_whole = sum(counted(request.subject).values()) > 1
        return Failure.run_error if is_whole and "tanh %" in _line(request.candidate, "5x5") else None

    bench.fails = fails
    plan = pcp.plan(program, tolerance=1e-2, database=file)
    assert kernels(plan) == {"sine.fast": 8, "sine.middle": 2}
    assert "sine.fast does not run for sine (f32[5,5]) -> f32[5,5] in the whole program: run error" in str(
        plan
    )
    assert len(bench.wholes) <= 5
    bench.requests.clear()
    assert pcp.plan(program, tolerance=1e-2, database=file).path == plan.path
    assert bench.requests == []


def _line(program: Program, shape: str) -> str:
    lines = [line for line in program.text.splitlines() if f"tensor<{shape}xf32>" in line]
    return "\n".join(line for line in lines if "stablehlo." in line)


def test_a_kernel_that_seems_faster_is_measured_again_until_that_is_sure(
    bench: FakeBench, file: FilePath
) -> None:
    bench.seconds |= {"tanh": 0.7, "logistic": 2.0, "cosine": 2.0}
    bench.noise = {"tanh": [0.7, 0.72, 2.2, 0.71, 3.0]}  # as a busy machine has it
    program = chain((4,))
    plan = pcp.plan(program, tolerance=1e-2, database=file)
    fast = [request for request in bench.requests if request.path.startswith("sine.fast")]
    assert len(fast) == 3
    bench.requests.clear()
    assert pcp.plan(program, tolerance=1e-2, database=file).path == plan.path
    assert bench.requests == []


def test_few_calls_are_no_reason_to_measure_again_and_again(bench: FakeBench, file: FilePath) -> None:
    bench.seconds |= {"tanh": 0.7, "logistic": 2.0, "cosine": 2.0}
    bench.noise = {"tanh": [0.9, 0.9, 3.0, 3.0]}  # of a large region there is no time for more
    program = chain((4,))
    plan = pcp.plan(program, tolerance=1e-2, database=file)
    bench.requests.clear()
    assert pcp.plan(program, tolerance=1e-2, database=file).path == plan.path
    assert bench.requests == []


def test_kernels_that_fail_alone_are_not_used(bench: FakeBench, file: FilePath) -> None:
    bench.fails = lambda request: Failure.timeout if counted_in(request)["tanh"] else None
    plan = pcp.plan(chain(), tolerance=1e-2, database=file)
    assert kernels(plan) == {"sine.middle": 6}
    assert "sine.fast failed (timeout)" in str(plan)


def test_what_is_not_faster_in_the_whole_program_leaves_it_plain(bench: FakeBench, file: FilePath) -> None:
    bench.overhead = 1000.0
    plan = pcp.plan(chain(), tolerance=1e-2, database=file)
    assert plan.path.is_plain
    assert plan.error == pytest.approx(6**0.5 * 1e-7)
    assert "half of them are left out" in str(plan)


def test_what_should_win_but_lost_once_is_measured_again_before_it_is_rejected(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = bench.measure

    def disturbed(request: Request) -> Measurement:
        row = measure(request)
        lost = tuple(1.5 * seconds for seconds in row.plain_seconds)
        return (
            replace(row, seconds=lost, plain_seconds=lost) if len(bench.wholes) == 1 and row.seconds else row
        )

    monkeypatch.setattr(bench, "measure", disturbed)
    plan = pcp.plan(chain(), tolerance=1e-2, database=file)
    assert kernels(plan) == {"sine.fast": 6}
    again = [each for each in bench.wholes if counted_in(each)["tanh"] == 6]
    assert len(again) == 2
    assert plan.measurement is not None
    assert plan.measurement.ratio == pytest.approx(0.2)  # the disturbed block is left out
    bench.requests.clear()
    assert pcp.plan(chain(), tolerance=1e-2, database=file).path == plan.path
    assert bench.requests == []


def test_a_loss_that_is_confirmed_stays_one(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_strategy(monkeypatch, often_seconds=100.0)
    bench.noise = {"tanh": [0.2] * 5, "logistic": [2.0] * 5, "cosine": [2.0] * 5}
    bench.seconds["tanh"] = 1.0  # in the whole
    plan = pcp.plan(chain((4,)), tolerance=1e-2, database=file)
    assert plan.path.is_plain
    assert len(bench.wholes) == 4
    bench.requests.clear()
    assert pcp.plan(chain((4,)), tolerance=1e-2, database=file).path.is_plain
    assert bench.requests == []


def test_near_ties_keep_what_there_is(bench: FakeBench, file: FilePath) -> None:
    first = pcp.plan(chain(), tolerance=1e-4, database=file)
    bench.errors["tanh"] = 1e-6
    bench.seconds["tanh"] = 0.495  # one per cent better than what is known
    regions = {request.subject.digest for request in bench.requests} - {first.program.digest}
    for digest in regions:  # so that the kernels are measured again, and the whole once more
        ProfileDatabase(file).prune(subject=digest)
    second = pcp.plan(chain(), tolerance=1e-4, database=file)
    assert len(bench.wholes) == 2
    assert second.path == first.path
    assert kernels(second) == {"sine.middle": 6}


def test_of_kernels_that_are_about_as_fast_the_first_registered_is_taken(
    bench: FakeBench, tmp_path: FilePath
) -> None:
    bench.seconds |= {"tanh": 0.5, "logistic": 0.48}
    near = pcp.plan(chain((4,)), tolerance=1e-2, database=tmp_path / "near.sqlite")
    assert kernels(near) == {"sine.fast": 2}
    bench.seconds["logistic"] = 0.46
    clear = pcp.plan(chain((4,)), tolerance=1e-2, database=tmp_path / "clear.sqlite")
    assert kernels(clear) == {"sine.middle": 2}


def test_a_kernel_that_another_beats_is_not_measured_again(bench: FakeBench, file: FilePath) -> None:
    bench.noise = {"logistic": [0.7, 0.72, 2.2, 0.71, 3.0]}
    pcp.plan(chain((4,)), tolerance=1e-2, database=file)
    order = [each.path.partition("@")[0] for each in bench.requests]
    assert order.count("sine.middle") == 1
    assert order.index("sine.fast") < order.index("sine.middle")


def test_tolerance_0_takes_only_the_bits_of_the_plain_path(bench: FakeBench, file: FilePath) -> None:
    bench.seconds["cosine"] = 0.5
    plan = pcp.plan(chain(), tolerance=0.0, database=file)
    assert kernels(plan) == {"sine.bitwise": 6}
    assert {request.tolerance for request in bench.wholes} == {0.0}
    assert all(counted_in(request)["tanh"] == 0 for request in bench.requests)


def test_tolerance_0_leaves_out_whatever_changes_a_bit_in_the_whole(bench: FakeBench, file: FilePath) -> None:
    bench.seconds["cosine"] = 0.5
    bench.fails = lambda request: Failure.inaccurate if request.tolerance == 0.0 else None
    plan = pcp.plan(chain(), tolerance=0.0, database=file)
    assert plan.path.is_plain
    assert "the bits of the plain path are asked for" in str(plan)


def test_tolerance_0_simplifies_nothing(bench: FakeBench, file: FilePath) -> None:
    def function(x: Tensor) -> Tensor:
        return pcp.sin(pcp.sin((x + 1.0).T.T)).sum()

    program = pcp.trace(function, pcp.spec((4, 4), "f32"))
    bench.seconds["cosine"] = 0.5
    exact = pcp.plan(program, tolerance=0.0, database=file)
    [request] = bench.wholes
    assert isinstance(request.candidate, Program)
    assert request.candidate.text.count("stablehlo.transpose") == 2
    assert kernels(exact) == {"sine.bitwise": 2}
    assert Path.from_json(exact.path.to_json()).applied(program).digest == request.candidate.digest
    loose = pcp.plan(program, tolerance=1e-2, database=file)
    assert "stablehlo.transpose" not in loose.path.applied(program).text
    bench.requests.clear()
    nothing = pcp.trace(lambda x: (x + 1.0).T.T, pcp.spec((4, 4), "f32"))
    assert pcp.plan(nothing, tolerance=0.0, database=file).path.is_plain
    assert bench.requests == []


def test_bits_and_errors_are_different_questions(bench: FakeBench, file: FilePath) -> None:
    bench.seconds["cosine"] = 0.5
    pcp.plan(chain(), tolerance=1.0, database=file)
    bench.requests.clear()
    pcp.plan(chain(), tolerance=0.0, database=file)
    assert len(bench.wholes) == 1  # a known error of a path does not say that its bits are the same


def test_a_tolerance_that_nothing_satisfies(file: FilePath) -> None:
    with pytest.raises(
        ToleranceUnreachable,
        match=r"the plain path of program \w+ misses the tolerance of 1e-09: the error of result 0 is 2\.45e-07; no path is "
        r"within .* Give a tolerance of at least 2\.6e-07, .* leave that result out by judge=\{'0': 'ignore'\}",
    ):
        pcp.plan(chain(), tolerance=1e-9, database=file)


def test_ctrl_c_keeps_what_was_measured(bench: FakeBench, file: FilePath) -> None:
    def interrupt() -> None:
        if len(bench.requests) == 5:
            raise KeyboardInterrupt

    bench.before = interrupt
    with pytest.raises(KeyboardInterrupt):  # no path of the whole program is known yet
        pcp.plan(chain(), tolerance=1e-2, database=file)
    assert len(ProfileDatabase(file).measurements()) == 6  # with that of the plain path
    bench.before = lambda: None
    plan = pcp.plan(chain(), tolerance=1e-2, database=file)
    assert kernels(plan) == {"sine.fast": 6}
    assert len(bench.requests) == 10  # the five known ones are not measured again


def test_ctrl_c_while_refining_takes_the_best_known(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> None:
        if len(bench.requests) == 10:
            raise KeyboardInterrupt

    bench.before = interrupt
    bench.seconds["tanh"] = 0.6
    set_strategy(monkeypatch, often_seconds=10.0)
    plan = pcp.plan(chain(), tolerance=1e-2, database=file, budget=1000.0)
    assert not plan.path.is_plain
    assert "it was interrupted; what was measured is kept" in str(plan)
    assert len(bench.requests) == 10


def test_a_database_that_cannot_be_used_is_a_warning(
    file: FilePath, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_bytes(b"this is no database" * 100)
    with caplog.at_level(logging.WARNING):
        plan = pcp.plan(chain(), tolerance=1e-2, database=file)
    assert kernels(plan) == {"sine.fast": 6}
    assert "is not usable" in caplog.text


def test_a_plain_program_that_does_not_run_says_nothing_of_its_paths(
    bench: FakeBench, file: FilePath
) -> None:
    def fail() -> None:
        if len(bench.requests) >= 9:
            raise PlainProgramFailed("the plain program cannot be measured: it ended with SIGKILL")

    bench.before = fail
    plan = pcp.plan(chain(), tolerance=1e-2, database=file)
    assert plan.path.is_plain
    assert "the whole program was not measured: the plain program cannot be measured" in str(plan)
    assert "nothing more was measured, as all paths are held against the plain one" in str(plan)
    bench.before = lambda: None
    assert kernels(pcp.plan(chain(), tolerance=1e-2, database=file)) == {"sine.fast": 6}


def test_rows_of_other_hardware_and_versions_do_not_count(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    pcp.plan(chain(), tolerance=1e-2, database=file)
    bench.requests.clear()
    monkeypatch.setattr("pcp.planning.search.evidence.versions", lambda *_: "others")
    monkeypatch.setattr("tests.planning.fake_bench.versions", lambda *_: "others")
    pcp.plan(chain(), tolerance=1e-2, database=file)
    assert len(bench.requests) == 10
    assert counted_in(bench.requests[0])["tanh"] == 1  # what was fastest elsewhere is tried first


def test_a_path_that_needs_too_much_memory_is_not_taken(file: FilePath) -> None:
    program = chain((4,))
    pcp.plan(program, tolerance=1e-2, database=file)
    assert kernels(pcp.plan(program, tolerance=1e-2, database=file, memory=1001)) == {"sine.fast": 2}
    assert pcp.plan(program, tolerance=1e-2, database=file, memory=999).path.is_plain


def test_an_example_is_what_it_is_measured_on(bench: FakeBench, file: FilePath) -> None:
    rng = np.random.default_rng(0)
    program = chain((4,))
    example = (rng.standard_normal((4, 4), np.float32),)
    pcp.plan(program, tolerance=1e-2, database=file)
    bench.requests.clear()
    pcp.plan(program, tolerance=1e-2, database=file, example=example)
    [request] = bench.requests  # what is known of sites holds; errors of the whole depend on the arguments
    [[array]] = request.inputs  # type: ignore[misc]  # a list of lists, not a recipe
    assert np.array_equal(array, example[0])


def test_progress_is_told(file: FilePath) -> None:
    told: list[Progress] = []
    pcp.plan(chain(), tolerance=1e-2, database=file, progress=told.append)
    assert [each.done for each in told] == list(range(11))
    assert told[-1].what.startswith("the whole program by ")
    assert told[0].what == "the plain path"
    assert told[1].what.startswith("sine.")


def test_what_failed_for_a_passing_reason_is_tried_again_the_next_time_and_three_times_a_day(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1e9]
    monkeypatch.setattr("pcp.planning.search.evidence.time.time", lambda: now[0])

    def tries(failure: Failure) -> int:
        bench.fails = lambda request: failure if counted_in(request)["tanh"] else None
        bench.requests.clear()
        now[0] += 60.0
        assert kernels(pcp.plan(chain(), tolerance=1e-2, database=file)) == {"sine.middle": 6}
        return sum(bool(counted_in(request)["tanh"]) for request in bench.requests)

    assert [tries(Failure.timeout) for _ in range(5)] == [3, 3, 3, 0, 0]  # one for each class of sites
    now[0] += 86400.0
    assert [tries(Failure.inaccurate) for _ in range(3)] == [3, 0, 0]


def test_paths_are_equal_whoever_writes_them_down(file: FilePath) -> None:
    path = pcp.plan(chain(), tolerance=1e-2, database=file).path
    assert Path.from_json(path.to_json()) == path
    assert Path.from_json(path.to_json()).digest == path.digest


@pytest.mark.parametrize("is_large", [False, True])
def test_a_search_whose_plain_program_does_not_run_asks_for_it_once_and_ends(
    is_large: bool, bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_large:
        set_strategy(monkeypatch, large_seconds=0.0)
        tried_together(monkeypatch, "sine.fast", "sine.middle")
        tried_together(monkeypatch, "log1p.other")
    asked, measure = [], FakeBench.measure

    def measured(self: FakeBench, request: Request) -> Measurement:
        if request.site is not None:
            return measure(self, request)
        asked.append(request.path)
        raise PlainProgramFailed("it cannot be measured: memory ran out")

    monkeypatch.setattr(FakeBench, "measure", measured)
    plan = pcp.plan(chain(), tolerance=1e-2, database=file, budget=1000.0)
    assert plan.path.is_plain
    assert asked == [plan.path.digest]
    assert not bench.requests, "no kernel is measured alone"
    said = str(plan)
    assert "the error of the plain path is not known: it cannot be measured: memory ran out" in said
    assert "nothing more was measured, as all paths are held against the plain one; if memory ran out" in said
    assert "plan again with a larger budget" not in said
    monkeypatch.undo()


def test_where_the_results_of_one_path_cannot_be_judged_others_are_measured(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = FakeBench.measure

    def measured(self: FakeBench, request: Request) -> Measurement:
        if request.site is None and request.timing_seconds and counted_in(request)["tanh"]:
            raise PlainProgramFailed("memory ran out", is_of_all=False)
        return measure(self, request)

    monkeypatch.setattr(FakeBench, "measure", measured)
    set_strategy(monkeypatch, large_seconds=0.0, attempts=3)
    tried_together(monkeypatch, "sine.middle")
    tried_together(monkeypatch, "log1p.other")
    plan = pcp.plan(chain(), tolerance=1e-2, database=file, budget=1000.0)
    assert kernels(plan) == {"sine.middle": 6}
    assert bench.requests
