"""What is found is said with what showed it, and what could be done."""

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from tests.kernels.planted import Planted

from pcp.backends import Target
from pcp.planning.measuring.bench import Bench, PlainProgramFailed
from pcp.planning.measuring.measurement import Failed, Failure
from pcp.planning.measuring.process import TIMED, Apart, Away
from pcp.planning.measuring.request import PythonFunction, Request
from pcp.planning.verification import verify

SMALL = "[conditions]\nsizes = { rows = { at_least = 8, at_most = 8 }, columns = { at_least = 16, at_most = 16 } }"


TARGET = Target.of("cpu:0")


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench() as made:
        yield made


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Apart]:
    process = Apart(TARGET, tmp_path, 4 << 30)
    yield process
    process.end()


@pytest.mark.parametrize(
    ("source", "manifest", "messages"),
    [
        (
            "def kernel(x, axis):\n    return outside(lambda y: np.asarray(y), x, softmax(x, axis))",
            "",
            ["no gradient: ", 'say gradient = "reference" if that of the plain computation is to be used'],
        ),
        (
            "kept = {}\ndef kernel(x, axis):\n"
            "    return outside(lambda y: kept.setdefault(axis, np.array(y)), x, softmax(x, axis))",
            'gradient = "reference"\n',
            ["stale: it returned what it had returned for other operands [softmax (last_axis): x f32[8,16]]"],
        ),
        (
            "count = itertools.count()\ndef kernel(x, axis):\n"
            "    return outside(lambda y: y * np.float32(1 + 1e-5 * (next(count) % 2)), x, softmax(x, axis))",
            'gradient = "reference"\n',
            ["nondeterministic: at its site it returns something else for the same operands, by more than roundings"],
        ),
        (
            "def kernel(x, axis):\n    return softmax(x, axis) * (1 + 2e-5)",
            "",
            ["less accurate than it claims: the error of result 0 is 2e-05; the tolerance is 1e-05"],
        ),
        (
            "def kernel(x, axis):\n    raise KeyError('depth')",
            "",
            ["compile error: KeyError: 'depth' [softmax (last_axis): x f32[8,16]]"],
        ),
        (
            "def kernel(x, axis):\n    return softmax(x, axis).astype(f16)",
            "",
            ["wrong dtype: it returns f16[8,16]; expected f32[8,16]"],
        ),
    ],
)  # fmt: skip
def test_messages(source: str, manifest: str, messages: list[str], tmp_path: Path, bench: Bench) -> None:
    planted = Planted("softmax.planted", source, manifest=manifest + SMALL)
    verdict = verify(planted.plant(tmp_path), bench, TARGET, seed=11, keep_going=False)
    assert not verdict.accepted
    for message in messages:
        assert message in str(verdict)


def test_an_exact_kernel_has_the_bits_of_the_plain_program(tmp_path: Path, bench: Bench) -> None:
    kernel = "def kernel(x, axis):\n    return softmax(x, axis) * (1 + 2.0**-23)"
    planted = Planted("softmax.planted", kernel, effect="exact", manifest=SMALL)
    verdict = verify(planted.plant(tmp_path), bench, TARGET, seed=11, keep_going=False)
    assert "less accurate than it claims: result 0 is not bit for bit that of the plain program" in str(
        verdict
    )


def test_a_process_that_does_not_start_is_no_fault_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate = Planted("softmax.planted", "", manifest=SMALL).plant(tmp_path)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with Bench() as bench, pytest.raises(PlainProgramFailed, match="it ended with code 1"):
        verify(candidate, bench, TARGET)


@pytest.mark.parametrize(("disturbed", "is_found"), [(0, False), (2, False), (3, True)])
def test_calls_on_repeated_operands_seem_quick_each_time_before_a_kernel_is_refused_for_it(
    disturbed: int, is_found: bool
) -> None:
    quick = {"own": [3.0] * 8, "own_again": [1.0] * 8, "plain": [1.0] * 8, "plain_again": [1.0] * 8}
    noisy = quick | {"own": [1.0] * 3 + [3.0] * 5}  # most calls were disturbed, but not all
    told, least = iter([quick] * disturbed + [noisy]), []

    def times(_: object, at_least: float, __: float) -> dict[str, list[float]]:
        least.append(at_least)
        return next(told)

    away = cast(Away, SimpleNamespace(times_repeated=times))
    if is_found:
        with pytest.raises(
            Failed, match=r"the call before take 1/3\.0 of the time of calls on others"
        ) as failed:
            Away.check_repeating(away, [])
        assert failed.value.failure is Failure.skips_work
    else:
        Away.check_repeating(away, [])
    assert (
        least == [0.0, 0.3, 0.3][: disturbed + 1]
    )  # seconds: a busy machine may be so for all of a short time


MEMORY = {"arguments": 1, "results": 1, "aliased": 0, "temporaries": 0, "exact": True}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({}, "it takes None; expected bytes"),
        ({"memory": 7}, "it takes 7; expected bytes"),
        ({"memory": MEMORY}, r"\{'calls': None, 'changed': None\}; expected at most 1 calls"),
        ({"memory": MEMORY, "calls": "many", "changed": []}, "{'calls': 'many'"),
        ({"memory": MEMORY, "calls": -1, "changed": []}, "{'calls': -1"),
        ({"memory": MEMORY, "calls": 2, "changed": []}, "{'calls': 2"),
        ({"memory": MEMORY, "calls": 1, "changed": [99]}, r"\{'calls': 1, 'changed': \[99\]\}"),
        ({"memory": MEMORY, "calls": 1, "changed": [[]]}, r"\{'calls': 1, 'changed': \[\[\]\]\}"),
        ({"memory": MEMORY, "calls": 1, "changed": 7}, "{'calls': 1, 'changed': 7}"),
    ],
)
def test_what_a_process_answers_is_looked_at(
    said: dict[str, object], words: str, apart: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Failed, match=f"^its process says (that )?{words}") as failed:
        _run(said, apart, monkeypatch)
    assert failed.value.failure is Failure.crash


def test_results_that_are_not_there_are_a_fault(apart: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Failed, match=r"^its process hands over no result: .*No such file"):
        _run({"memory": MEMORY, "calls": 1, "changed": []}, apart, monkeypatch)


def _away(source: str, apart: Apart) -> tuple[Away, Any]:
    """A kernel of that source in a process, and operands for it, (8, 16) random numbers."""
    candidate = Planted("softmax.planted", source, manifest=SMALL).plant(apart.folder / "kernel")
    problem = candidate.problems[0]
    function = PythonFunction(str(candidate.folder / candidate.file), "kernel", problem.attributes)
    request = Request(problem.reference(), function, "path", target=TARGET)
    apart.ask(60.0, "execute", [function])
    x = np.random.default_rng().normal(size=problem.specs[0].shape).astype(np.float32)
    return apart.compiled(request, {"candidate": 60.0, "timing": 60.0}), x


def _run(said: dict[str, object], apart: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call in a process that says something else."""
    monkeypatch.setattr(apart, "ask", lambda *_: said)
    away, x = _away("", apart)
    away.calls([[x]], [0])


@pytest.mark.parametrize(
    "times", [7, {}, *({name: each for name in TIMED} for each in ([-1.0], [], [math.nan], 7))]
)
def test_times_that_are_none_are_a_fault(
    times: object, apart: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "ask", lambda *_: {"memory": MEMORY, "times": times})
    away, x = _away("", apart)
    with pytest.raises(Failed, match=r"^its process says that it took .*; expected seconds"):
        away.times_repeated([x], 0.0, 1.0)


def test_an_answer_that_a_kernel_writes_is_its_fault(tmp_path: Path, bench: Bench) -> None:
    source = """
import sys
def kernel(x, axis):
    frame = sys._getframe()
    while "parent" not in frame.f_locals:
        frame = frame.f_back
    frame.f_locals["parent"].say(token=frame.f_locals["token"], failure="boredom", detail="too dull")
    return softmax(x, axis)
"""
    planted = Planted("softmax.planted", source, manifest='gradient = "reference"\n' + SMALL)
    verdict = str(verify(planted.plant(tmp_path), bench, TARGET, keep_going=False))
    assert "crash: its process says that it failed by 'boredom', which is no failure" in verdict


def test_calls_are_timed_for_as_long_as_was_asked(apart: Apart) -> None:
    away, x = _away("def kernel(x, axis):\n    return softmax(x, axis)", apart)
    times = away.times_repeated([x], 0.5, 1.0)
    assert min(map(len, times.values())) > 25  # which is all, unless more are asked for


def test_what_is_timed_follows_a_call_of_the_same_program(apart: Apart) -> None:
    source = """
import time
calls = []
def slowly(x):
    calls.append(0)
    if len(calls) % 3 != 1:
        time.sleep(0.002)
    return np.asarray(x)

def kernel(x, axis):
    return outside(slowly, x, x)
"""
    away, x = _away(source, apart)
    times = away.times_repeated([x], 0.0, 1.0)
    assert min(times["own"] + times["own_again"]) >= 0.002  # the first of three calls is not timed
