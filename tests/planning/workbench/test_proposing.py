"""Asking goes on with what came of the last answer, and ends at its limits."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.planning.workbench.stub_endpoint import Behaviour, drips, says, sends, stub

import pcp
from pcp.backends import Target
from pcp.ir import Program
from pcp.kernels import Claims
from pcp.kernels.candidate import read_candidate
from pcp.planning.added.lowering_process import KernelNotLowered, as_the_user
from pcp.planning.measuring.bench import Bench, PlainProgramFailed
from pcp.planning.measuring.measurement import Failure, Measurement
from pcp.planning.measuring.request import Request
from pcp.planning.verification import refused, verify
from pcp.planning.workbench import (
    Endpoint,
    EndpointFailed,
    Limits,
    Round,
    Task,
    proposals,
    proposing,
    write_proposed,
)
from pcp.planning.workbench.proposing import code_in
from pcp.rewrite.row import Effect

CODE = "```python\ndef kernel(x):\n    return x\n```"
TIMES = tuple(1e-3 + 1e-6 * count for count in range(9))
PLAIN = Measurement("s", "plain", "h", "v", TIMES, TIMES, error=1e-7, plain_error=1e-7)


class FakeBench:
    """Measures what it is told to, in turn."""

    def __init__(self, *rows: Measurement) -> None:
        self.rows = itertools.chain(rows, itertools.repeat(rows[-1]) if rows else ())
        self.requests: list[Request] = []

    def measure(self, request: Request) -> Measurement:
        self.requests.append(request)
        return next(self.rows)


def times(ratio: float, error: float = 1e-6) -> Measurement:
    return replace(PLAIN, seconds=tuple(ratio * each for each in TIMES), error=error)


WRONG = replace(PLAIN, seconds=(), failure=Failure.inaccurate, detail="the error of result 0 is 0.5")


def _fault(turn: Round) -> str:
    return next((each.fault.value for each in turn.verdict.findings), "")


@pytest.fixture
def task() -> Task:
    region = pcp.trace(lambda x: pcp.softmax(x, 1), pcp.spec((4, 8), "f32"))
    return Task(region, "softmax", Target.of("cpu:0"), 1e-3, PLAIN)


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Codes that were lowered; those that say so fail."""
    found: list[str] = []

    def lower(candidate: Any, *_: object) -> Program:
        text = (candidate.folder / candidate.file).read_text()
        found.append(text)
        if "fail" in text:
            raise KernelNotLowered("kernel cannot be lowered: NameError: fail")
        return cast(Program, candidate.region)

    monkeypatch.setattr(proposing, "lowered", lower)
    return found


@pytest.fixture
def ask(task: Task, lowered: list[str], tmp_path: Path) -> Callable[..., list[Round]]:  # noqa: ARG001
    def asked(url: str, bench: FakeBench, limits: Limits = Limits()) -> list[Round]:  # noqa: B008  (a frozen value)
        return list(proposals(task, Endpoint(url), limits, cast(Bench, bench), tmp_path, as_the_user))

    return asked


def test_wrong_then_slow_then_right(ask: Callable[..., list[Round]], task: Task, tmp_path: Path) -> None:
    with stub(says(CODE)) as server:
        found = ask(server.url, FakeBench(WRONG, times(2.0), times(0.5)))
    assert [_fault(each) for each in found] == ["less accurate than it claims", "too slow", ""]
    first, second, third = (each["messages"] for each in server.asked)
    assert [each["role"] for each in first] == ["system", "user"]
    assert "Compute what `region.mlir` computes" in first[1]["content"]
    assert "largest error that is admitted | 0.001" in first[1]["content"]
    assert second[2:] == [
        {"role": "assistant", "content": CODE},
        {
            "role": "user",
            "content": "softmax.for_"
            + task.region.digest[:8]
            + ": refused (1 problems, 30 calls, seed 0)\n"
            + "  less accurate than it claims: the error of result 0 is 0.5 [its region]\nWrite the whole file again, better.",
        },
    ]
    assert "it takes 2.00 of the region's own time (2.004 ms beside 1.002 ms)" in third[-1]["content"]
    assert len(third) == 6
    assert found[-1].verdict.ratio == pytest.approx(0.5)
    write_proposed(task, found[-1], tmp_path / "kept")
    kept = read_candidate(tmp_path / "kept")
    assert (kept.name, kept.file, kept.function) == (task.default_name, "kernel.mlir", None)
    assert (tmp_path / "kept" / "proposed.py").read_text() == "def kernel(x):\n    return x\n"


def test_only_the_last_two_answers_are_sent_again(ask: Callable[..., list[Round]]) -> None:
    with stub(says(CODE)) as server:
        assert len(ask(server.url, FakeBench(WRONG), Limits(rounds=5))) == 5
    assert [len(each["messages"]) for each in server.asked] == [2, 4, 6, 6, 6]


def test_what_is_no_kernel_is_told(ask: Callable[..., list[Round]], lowered: list[str]) -> None:
    failing = "```\ndef kernel(x):\n    fail\n```"
    with stub(says("I would rather not."), says(failing), says(CODE)) as server:
        found = ask(server.url, FakeBench(times(0.5)))
    assert [_fault(each) for each in found] == ["no kernel", "not lowered", ""]
    assert (
        "the answer holds no block of python that defines `kernel`"
        in server.asked[1]["messages"][-1]["content"]
    )
    assert "NameError: fail" in server.asked[2]["messages"][-1]["content"]
    assert len(lowered) == 2


@pytest.mark.parametrize("behaviour", [sends(b"?", 500), sends(b"garbage")])
def test_an_endpoint_that_fails_three_times_is_not_asked_again(
    ask: Callable[..., list[Round]], behaviour: Behaviour
) -> None:
    with stub(behaviour, says(CODE), behaviour) as server:
        with pytest.raises(EndpointFailed, match="the endpoint failed 3 times in a row; at last: "):
            ask(server.url, FakeBench(WRONG), Limits(rounds=9))
        assert len(server.asked) == 5


def test_the_time_is_kept(ask: Callable[..., list[Round]]) -> None:
    with stub(drips) as server:
        limits = Limits(rounds=9, seconds=1.3, answer_seconds=0.4)
        [found] = ask(server.url, FakeBench(WRONG), limits)  # less than a second is left then
    assert _fault(found) == "no answer"
    assert "did not answer within 0.4 s" in found.verdict.findings[0].detail


def test_a_gain_that_is_not_sure_is_measured_again(ask: Callable[..., list[Round]]) -> None:
    bench = FakeBench(times(0.99))
    with stub(says(CODE)) as server:
        [found] = ask(server.url, bench, Limits(rounds=1))
    assert _fault(found) == "too slow"
    assert len(bench.requests) == 3
    assert [each.site for each in bench.requests] == [
        Claims(Effect.lowers_precision, is_added=True),
        None,
        None,
    ]
    assert math.isclose(bench.requests[0].tolerance or 0.0, 1e-3)


def test_a_kernel_that_breaks_the_region_beside_it_is_refused(task: Task, tmp_path: Path) -> None:
    class Broken(FakeBench):
        def measure(self, request: Request) -> Measurement:
            if request.path != "plain":
                raise PlainProgramFailed("it ended with SIGSEGV with the plain program")
            return super().measure(request)

    write_proposed(task, Round(1, refused("x", Failure.no_kernel, ""), "", task.region), tmp_path / "kernel")
    candidate = read_candidate(tmp_path / "kernel")
    found = verify(candidate, cast(Bench, Broken(PLAIN)), task.target, program=task.region)
    assert f"{task.default_name}: refused (1 problems" in str(found)
    assert "  crash: beside it the region itself fails: it ended with SIGSEGV" in str(found)


@pytest.mark.parametrize(
    ("effect", "claimed", "limit"),
    [
        ("exact", "tolerance = 0.5", 0.0),
        ("reassociating", "", 1e-5),
        ("reassociating", "tolerance = 1e-6", 1e-6),
        ("reassociating", "tolerance = 0.5", 1e-5),
        ("lowers precision", "tolerance = 0.5", 0.5),
        ("lowers precision", "", 1e-5),
    ],
)
def test_what_a_kernel_may_err_follows_from_what_it_claims(
    task: Task, tmp_path: Path, effect: str, claimed: str, limit: float
) -> None:
    write_proposed(task, Round(1, refused("x", Failure.no_kernel, ""), "", task.region), tmp_path / "kernel")
    manifest = (tmp_path / "kernel" / "kernel.toml").read_text()
    manifest = manifest.replace("lowers precision", effect).replace(
        f"tolerance = {task.tolerance!r}", claimed
    )
    (tmp_path / "kernel" / "kernel.toml").write_text(manifest)
    candidate = read_candidate(tmp_path / "kernel")
    bench = FakeBench(times(0.5))
    found = verify(candidate, cast(Bench, bench), task.target, program=task.region)
    assert found.accepted
    assert found.limit == bench.requests[-1].tolerance == pytest.approx(limit)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("```python\nx = 1\n```\nthen\n```py\ndef kernel(x): pass\n```", "def kernel(x): pass\n"),
        ("```\r\ndef kernel(x): pass\n``` and ```bash\npip install evil\n```", "def kernel(x): pass\n"),
        ("def kernel(x): pass", "def kernel(x): pass"),
        ("no kernel", ""),
        ("```python\nx = 1\n```", ""),
        ("```python\ndef kernel(x): never ends", ""),
        ("", ""),
    ],
)
def test_the_code_of_an_answer(said: str, code: str) -> None:
    assert code_in(said) == code


def test_what_a_strangers_code_says_reaches_no_terminal_raw() -> None:
    shown = str(refused("softmax.x", Failure.not_lowered, "ValueError: \x1b[2Jadmitted\x07\u202e"))
    assert shown == "softmax.x: refused\n  not lowered: ValueError:  [2Jadmitted  "
