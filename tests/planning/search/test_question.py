"""Questions and the loop that answers them: what is known is not measured, and what is raised reaches who asked."""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any

import pytest

import pcp
from pcp.backends import Target
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.measuring.request import Request
from pcp.planning.profile.best_effort_database import BestEffortDatabase
from pcp.planning.profile.database import ProfileDatabase
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.loop import Over, answered, next_asked, walked
from pcp.planning.search.question import Answer, Asking, Here, Question, Rest

PROGRAM = pcp.trace(lambda x: x + 1.0, pcp.spec((2,), "f32"))
TIMES = (1.0, 1.0, 1.0)


class Bench:
    """Measures in no time, and tells what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.raises: BaseException | None = None

    def measure(self, request: Request) -> Measurement:
        self.asked.append(request.path)
        if self.raises is not None:
            raise self.raises
        hardware, versions = self.here
        return Measurement("", request.path, hardware, versions, TIMES, TIMES, error=0.0, plain_error=0.0)

    here: tuple[str, str] = "", ""


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def evidence(bench: Bench, tmp_path: FilePath, request: pytest.FixtureRequest) -> Iterator[Evidence]:
    database, budget = (
        BestEffortDatabase(ProfileDatabase(tmp_path / "profile.sqlite")),
        getattr(request, "param", 60.0),
    )
    with Evidence(database, lambda: contextlib.nullcontext(bench), Target.of("cpu:0"), budget) as evidence:
        bench.here = evidence.hardware.digest, evidence.versions
        yield evidence


def question(label: str, **more: Any) -> Question:
    request = Request(PROGRAM, PROGRAM, label, target=Target.of("cpu:0"))
    return Question(PROGRAM.digest, label, lambda: request, lambda _: True, label, **more)


def asking(*labels: str) -> Asking[list[Answer]]:
    answers = []
    for label in labels:
        answers.append((yield question(label)))
    return answers


def both(*labels: str) -> Asking[tuple[int, int]]:
    first = yield from asking(*labels)
    second = yield from asking(*labels)
    return len(first), sum(row is not None for row in second)


def test_each_question_is_measured_once(evidence: Evidence, bench: Bench) -> None:
    assert answered(lambda _: both("a@1", "b@1"), evidence) == (2, 2)
    assert bench.asked == ["a@1", "b@1"]
    assert evidence.measured == 2


def test_without_time_nothing_is_measured_but_what_is_known_is_answered(
    evidence: Evidence, bench: Bench
) -> None:
    answered(lambda _: asking("a@1"), evidence)
    with evidence.leaving(1.0):
        known, unknown = answered(lambda _: asking("a@1", "b@1"), evidence)
        assert (known is not None, unknown, evidence.trouble) == (True, None, "the time was up")
    assert answered(lambda _: asking("b@1"), evidence)[0] is not None
    assert bench.asked == ["a@1", "b@1"]


def test_a_question_may_leave_time_for_others(evidence: Evidence) -> None:
    def leaving() -> Asking[Answer]:
        with evidence.leaving(1.0, of=120.0):
            return (yield question("a@1"))

    assert answered(lambda _: leaving(), evidence) is None


def test_what_is_left_for_later_counts_as_kept_for_verifying(evidence: Evidence) -> None:
    evidence.keep_back(lambda: 20.0)
    kept = [evidence.kept_back]
    for part in (0.1, 0.5):
        with evidence.leaving(part):
            kept.append(evidence.kept_back)
    assert [*kept, evidence.kept_back] == pytest.approx([20.0, 14.0, 0.0, 20.0])


@pytest.mark.parametrize("evidence", [math.inf], indirect=True)
def test_a_budget_without_end_has_parts(evidence: Evidence) -> None:
    with evidence.leaving(0.5), evidence.leaving(0.0):
        assert answered(lambda _: asking("a@1"), evidence) != [None]


def test_ctrl_c_is_raised_where_it_was_asked_and_ends_the_measuring(evidence: Evidence, bench: Bench) -> None:
    bench.raises = KeyboardInterrupt()

    def patient() -> Asking[str]:
        try:
            yield question("a@1")
        except KeyboardInterrupt:
            evidence.interrupt()
            row = yield question("b@1")
            return f"stopped, and then {row}"
        return "not stopped"

    with evidence.leaving(0.5):
        assert answered(lambda _: patient(), evidence) == "stopped, and then None"
    assert (bench.asked, evidence.seconds_left) == (["a@1"], 0.0)


def test_an_error_that_nobody_expects_reaches_the_caller(evidence: Evidence, bench: Bench) -> None:
    bench.raises = ValueError("broken")
    with pytest.raises(ValueError, match="broken"):
        answered(lambda _: both("a@1"), evidence)


def test_what_is_asked_next_is_a_function_of_evidence_that_stays_as_it_is(
    evidence: Evidence, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(_: Evidence) -> Asking[int]:
        first = yield from Here("something", lambda: len(bench.asked)).asked()
        yield from asking("a@1", "b@1")
        return first

    def key() -> str:
        asked = next_asked(search, evidence)
        return f"over: {asked.result}" if isinstance(asked, Over) else asked.what

    assert key() == key() == "something"
    walk = walked(search, evidence)
    steps = []

    def note(request: Request) -> Measurement:
        steps.append(key())
        return Bench.measure(bench, request)

    monkeypatch.setattr(bench, "measure", note)
    assert list(walk) == []
    assert steps == bench.asked == ["a@1", "b@1"]
    assert (key(), evidence.measured, bench.asked) == ("over: 0", 2, ["a@1", "b@1"])


def test_what_does_not_count_takes_no_time_from_the_budget(
    evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(
        "pcp.planning.search.question.time.monotonic", lambda: now.__setitem__(0, now[0] + 5.0) or now[0]
    )
    monkeypatch.setattr(evidence._telling, "_began", 0.0)
    left = []

    def search(evidence: Evidence) -> Asking[None]:
        for counts in (True, False):
            yield from Here("something", lambda: None, counts).asked()
            left.append(evidence.seconds_left)

    answered(search, evidence)
    assert left == [50.0, 45.0]  # each looks at the clock before and after


def test_waiting_ends_where_there_is_no_time_for_it(
    evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("pcp.planning.search.evidence.time.sleep", slept.append)

    def search(_: Evidence) -> Asking[list[bool]]:
        yield from asking("a@1")
        rested = []
        for label, seconds in waits:
            rested.append((yield from Rest(PROGRAM.digest, label, seconds).asked()))
        return rested

    waits = [("never", 5.0), ("a@1", 5.0), ("a@1", 100.0)]
    assert answered(search, evidence) == [True, True, False]
    assert [round(each) for each in slept] == [5]
    assert evidence.trouble == "the time was up"
