"""What a confined process may say that was taken over: hundreds of hostile lines, none of which harms its Worker."""

import contextlib
import io
import json
import os
import pickle
import random
import socket
import string
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pcp.distributed.bounds import LOSSES
from pcp.distributed.job import Job
from pcp.distributed.losses import mean, told
from pcp.distributed.messages import Blob, DataRange, FailureKind, Lease
from pcp.distributed.runtime import finished
from pcp.distributed.wire.blobs import BlobStore
from pcp.distributed.worker.offer import ProgramStopped
from pcp.distributed.worker.programs import training_child
from pcp.distributed.worker.programs.confined_process import ProcessBug
from pcp.distributed.worker.programs.sayings import (
    ENDS,
    REMARKS,
    Done,
    Postponed,
    Prepared,
    Redone,
    SaidWrong,
    finite_or_named,
    look_at,
    read,
    seconds,
)
from pcp.distributed.worker.programs.training_process import TrainingProcess
from pcp.distributed.worker.training.trainer import Trained
from pcp.errors import PCPError
from pcp.processes import child
from tests.distributed.tiny_run import lease_of

FORMS = [(*ENDS, Prepared), (*ENDS, Postponed, Done), (*ENDS, Redone), REMARKS]
BATCHES = 4
DIGEST = "ab" * 32
DONE = {
    "payload": [DIGEST, 7],
    "tokens": 4,
    "losses": [1.0] * BATCHES,
    "seconds": 1.0,
    "overhead": 0.0,
    "waited": 0.0,
    "states": [],
    "settled": [],
    "batches": BATCHES,
}
STEPPED = {"steps": 1, "seconds": 0.5, "batches": 0}
MEETS = {"exchange": 1, "offer": None, "loss": 1.0}
DEEP = "[" * 100_000 + "]" * 100_000
PLAIN = (
    "Infinity -Infinity NaN 1e300 1e999 -1 -1e-9 5e-324 1e-310 1e308 null true [] {} [[]] [null] 1.5 [1,2]"
)
VALUES = [
    *PLAIN.split(),
    *(f'"{each}"' for each in ("", "x", "NaN", "1", "\\ud800", "\\u0000")),
    *("18446744073709551616", "-9223372036854775809", '{"a":1,"a":2}', '["ab",1]', '["../../key",7]'),
]
VALUES += [DEEP, '{"a":' * 5000 + "1" + "}" * 5000, "9" * 5000, "0." + "9" * 5000, json.dumps("x" * 100_000)]
LINES = [
    "",
    " ",
    "null",
    "7",
    '"x"',
    "[]",
    "{}",
    DEEP,
    "[" * 100_000,
    '{"number":',
    "\x00\xff",
    "x" * (5 << 20),
    '{"lease": 1}',
]


def replaced(whole: dict[str, Any], first: str = "") -> Iterator[str]:
    """Every record with one key missing, twice, or with a value that it must not have."""
    texts = {key: json.dumps(value) for key, value in whole.items()}

    def line(items: list[tuple[str, str]]) -> str:
        return "{" + ", ".join([first] * bool(first) + [f'"{key}": {text}' for key, text in items]) + "}"

    for key in texts:
        yield line([each for each in texts.items() if each[0] != key])
        yield line([*texts.items(), (key, texts[key])])
        for value in VALUES:
            yield line([(each, value if each == key else text) for each, text in texts.items()])


def test_whatever_is_said_is_a_record_within_bounds_or_refused() -> None:
    draw = random.Random(1)
    lines = [
        *LINES,
        *replaced(DONE, '"number": 2'),
        *replaced(STEPPED),
        *replaced(MEETS),
        *replaced({"bug": "x"}),
    ]
    lines += [*replaced({"error": "x", "reason": "y"}), *replaced({"profile": ["x", [["a", "b", 1.0]]]})]
    lines += [
        *replaced({"after": [DIGEST, 1], "payload": None}),
        *replaced({"shards": ["x"]}),
        *replaced({"lease": 1}),
    ]
    for _ in range(300):
        text = list(draw.choice(lines[:200])[:2000])
        for _ in range(draw.randint(1, 5)):
            text.insert(draw.randint(0, len(text)), draw.choice(string.printable))
        lines.append("".join(text))
    accepted = refused = longest = 0
    for text in lines:
        for forms in FORMS:
            try:
                record = look_at(read(text.encode("utf-8", "surrogatepass")), forms)
            except SaidWrong as error:
                refused += 1
                longest = max(longest, len(str(error)))
                continue
            accepted += 1
            if isinstance(record, Done):
                assert 0 <= record.tokens <= 2**62
                assert 0 <= record.seconds <= 1e9
                assert 0 <= record.payload.size <= 2**50
                json.dumps([*map(str, record.losses)]).encode()
    assert accepted > 100
    assert refused > 1000
    assert longest < 1000


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"steps": Infinity, "seconds": 1, "batches": 0}', "Infinity is no number of JSON"),
        ('{"steps": 1e300, "seconds": 1, "batches": 0}', r"steps is 1e\+300; expected a whole number"),
        ('{"steps": 1, "seconds": 1e-310, "batches": 0}', "seconds is 1e-310, a subnormal number; expected seconds"),
        ('{"steps": 1, "seconds": 1e999, "batches": 0}', "1e999 is larger than numbers are"),
        ('{"steps": -1, "seconds": 1, "batches": 0}', "steps is -1; expected a whole number from 0"),
        ('{"steps": true, "seconds": 1, "batches": 0}', "steps is True; expected a whole number"),
        ('{"steps": 1, "seconds": 1}', "batches is missing"),
        ('{"steps": 1, "steps": 2, "seconds": 1, "batches": 0}', "a key stands there twice"),
        ("[" * 100_000, "it is nested too deeply"),
        ("[1]", "it is no JSON object"),
        ('{"steps": ' + "9" * 5000 + "}", "a number has 5000 digits"),
        ('{"says": 1}', "expected steps or exchange or shard or shards or libraries"),
        ('{"exchange": 1, "offer": ["ab", 1], "loss": 1}', "digest is wrong: a digest has 32 bytes; received 1"),
        ('{"exchange": 1, "offer": [7, 1, 1], "loss": 1}', "a list of 3 stands for Made; expected 2"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_was_said_and_what_was_expected(line: str, message: str) -> None:
    with pytest.raises(SaidWrong, match=f"the process that runs programs said b.*{message}"):
        look_at(read(line.encode()), REMARKS)


def test_a_loss_that_is_not_finite_travels_by_its_name() -> None:
    said = finite_or_named([1.5, float("nan"), float("inf"), float("-inf")])
    assert said == [1.5, "NaN", "Infinity", "-Infinity"]
    line = json.dumps(DONE | {"losses": said}, allow_nan=False).encode()
    assert str(look_at(read(line), (Done,)).losses) == "(1.5, nan, inf, -inf)"
    assert [seconds(each) for each in (-1e-9, 0.0, 2.5, 1e300)] == [0.0, 0.0, 2.5, 1e9]


class Child:
    """Stands for a process: it says that it is prepared, and to a request for training what a test has it say."""

    says: Callable[[Callable[[str], None]], None]

    def __init__(self, *_: object, **__: object) -> None:
        self.pid, self.code = os.getpid(), None
        self._pairs = [socket.socketpair() for _ in range(2)]
        self.stdin, self.stdout = self._pairs[0][0].makefile("wb"), self._pairs[1][0].makefile("rb")
        self.stderr = io.BytesIO()
        requests, answers = self._pairs[0][1].makefile("rb"), self._pairs[1][1].makefile("wb")
        threading.Thread(target=self._run, args=(requests, answers), daemon=True).start()

    def _run(self, requests: Any, answers: Any) -> None:
        def say(line: str) -> None:
            answers.write(line.encode("utf-8", "surrogatepass") + b"\n")
            answers.flush()

        with contextlib.suppress(OSError, ValueError), requests, answers:
            while len(size := requests.read(8)) == 8:
                kind = pickle.loads(requests.read(int.from_bytes(size, "little")))[0]
                if kind == "prepare":
                    say('{"prepared": true, "number": 1}')
                if kind == "train":
                    type(self).says(say)
        self.end()

    def end(self) -> None:
        self.code = -9
        for each in [one for pair in self._pairs for one in pair]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()  # once its files are closed

    def poll(self) -> int | None:
        return self.code

    def wait(self, _: float | None = None) -> int:
        self.end()
        return -9


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[TrainingProcess]:
    """What stands for a process in which programs run, without one."""
    stand_in = SimpleNamespace(Popen=Child, PIPE=subprocess.PIPE)
    monkeypatch.setattr(child, "subprocess", stand_in)
    monkeypatch.setattr(child, "end_group", lambda child: child.end())
    noise = list[object]()
    monkeypatch.setattr(threading, "excepthook", noise.append)
    store = BlobStore(tmp_path / "blobs", shared=True)
    (tmp_path / "blobs" / DIGEST).write_bytes(b"x" * 7)
    job = Job({"step": store.put(b"step")}, store.put(b"data"), 1, 1, 1, 1)
    made = TrainingProcess(job, store, "cpu:0", cache=tmp_path / "compiled")
    yield made
    made.close()
    assert not noise


def trained(process: TrainingProcess, lease: Lease, told: list[Any] | None = None) -> Any:
    later = None if told is None else told.append
    return finished(process.train(lease, lambda *_: None, lambda: False, later))


def test_the_losses_of_a_million_steps_are_a_short_line_with_the_same_mean() -> None:
    steps = 1_000_000
    losses = [1 + step / steps for step in range(steps)]
    made = Trained(Blob(b"p" * 32, 7), steps, told(losses), 1.0, 0.1, batches=steps)
    line = json.dumps(training_child._done(made) | {"number": 2}, allow_nan=False).encode()
    said = look_at(read(line), (Done,))
    assert len(line) < 100_000
    assert said.batches == steps
    assert mean(said.losses, said.batches) == pytest.approx(1.5, rel=1e-5)
    longer = json.dumps(DONE | {"losses": losses[: LOSSES + 1]}).encode()
    with pytest.raises(SaidWrong, match="losses holds 1025; expected 1024 at most"):
        look_at(read(longer), (Done,))


@pytest.mark.parametrize("aside", [False, True])
def test_a_process_tells_of_no_more_losses_than_steps(process: TrainingProcess, aside: bool) -> None:
    lease, said = lease_of(1, DataRange(0, BATCHES), Blob(b"p" * 32, 1)), DONE | {"batches": 1}
    heard, failed = threading.Event(), list[Any]()

    def later(made: Any) -> None:
        failed.append(made)
        heard.set()

    def says(say: Callable[[str], None]) -> None:
        if aside:
            say('{"number": 2, "later": true}')
        say(json.dumps(({"lease": 1} if aside else {"number": 2}) | said))

    Child.says = staticmethod(says)
    if aside:
        finished(process.train(lease, lambda *_: None, lambda: False, later))
        assert heard.wait(20)
    else:
        with pytest.raises(PCPError) as refused:
            trained(process, lease)
        failed.append(refused.value)
    assert "tells of 1 steps of a lease of 4, and of 4 losses" in str(failed[0])


def test_after_every_hostile_saying_the_next_lease_is_trained(process: TrainingProcess) -> None:
    """Beside the answer, as the answer, and aside; each fails at once and is told why, or does no harm."""
    lease = lease_of(1, DataRange(0, BATCHES), Blob(b"p" * 32, 1))
    honest = json.dumps(DONE | {"number": 2})
    harmful = [
        *LINES[3:],
        *(f'{{"steps": {value}, "seconds": 1, "batches": 0}}' for value in ("Infinity", "1e300", "-1", DEEP, "5")),
        *(f'{{"lease": {value}, "tokens": 1}}' for value in ("1", "Infinity", "-1", DEEP, '"x"', "1e300", "null")),
        '{"lease": 1, "bug": ' + DEEP + "}",
        *(json.dumps(DONE | {"number": 2, "tokens": value}) for value in (-1, 1e300, None)),
        *(json.dumps({"number": 2} | each) for each in ({}, {"later": 1}, {"aborted": True}, {"bug": "no"}, {"number": 3})),
        json.dumps(DONE | {"number": 2, "losses": [1.0] * (BATCHES + 1)}),
        json.dumps(DONE | {"number": 2, "settled": [[0, "burnt"]]}),
        json.dumps(MEETS), '{"shard": "../../key"}', '{"shards": []}', '{"libraries": ["products"]}',
    ]  # fmt: skip
    for line in harmful:
        Child.says = staticmethod(lambda say, line=line: say(line))
        began = time.monotonic()
        with pytest.raises(PCPError, match="the process that runs programs") as failed:
            trained(process, lease, [])
        assert not isinstance(failed.value, ProgramStopped) or failed.value.why is FailureKind.CRASH
        assert time.monotonic() - began < 20
        Child.says = staticmethod(lambda say: say(honest))
        process.end(FailureKind.OTHER, "begin anew")
        assert trained(process, lease, []).tokens == 4


def test_what_is_said_aside_of_no_lease_is_not_heard_and_a_flood_of_it_is_harmless(
    process: TrainingProcess,
) -> None:
    def says(say: Callable[[str], None]) -> None:
        for number in range(300):
            say(json.dumps({"lease": 1000 + number} | DONE))
            say(json.dumps(STEPPED))
        say(json.dumps(DONE | {"number": 2}))

    Child.says = staticmethod(says)
    lease, told = lease_of(1, DataRange(0, BATCHES), Blob(b"p" * 32, 1)), list[Any]()
    assert trained(process, lease, told).batches == BATCHES
    assert told == []


def test_a_push_that_is_made_aside_is_told_or_its_failure_is(process: TrainingProcess) -> None:
    lease = lease_of(1, DataRange(0, BATCHES), Blob(b"p" * 32, 1))
    for said, kind in (
        (DONE, "Trained"),
        ({"bug": "no"}, "ProcessBug"),
        ({"error": "OSError", "reason": "x"}, "ComputationFailed"),
    ):
        told, heard = list[Any](), threading.Event()

        def later(made: Any, told: list[Any] = told, heard: threading.Event = heard) -> None:
            told.append(made)
            heard.set()

        def says(say: Callable[[str], None], said: Any = said) -> None:
            say('{"number": 2, "later": true}')
            say(json.dumps({"lease": 1} | said))

        Child.says = staticmethod(says)
        Child.says = staticmethod(says)
        with contextlib.suppress(
            ProcessBug
        ):  # it may have ended the process before it is known that the steps are done
            assert finished(process.train(lease, lambda *_: None, lambda: False, later)) is None
        assert heard.wait(10)
        assert type(told[0]).__name__ == kind
        process.end(FailureKind.OTHER, "begin anew")
