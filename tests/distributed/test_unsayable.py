"""What a worker cannot say is an error that somebody sees, and its lease goes back."""

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pcp.distributed.messages import Assign, Failure, FailureKind, Message, Revoke, Update
from pcp.distributed.shepherd.host import Host as ShepherdHost
from pcp.distributed.wire import Traffic
from pcp.distributed.wire.codec import encode_control
from pcp.distributed.worker.effects import AbortLease, StartLease, UploadUpdate
from pcp.distributed.worker.events import LeaseTrained, NotSaid
from pcp.distributed.worker.host import Host
from pcp.distributed.worker.reports import Record, Reporter
from tests.distributed.worker.bench import LEASE, PAYLOAD, UPDATE, Bench

LONG = 140_000


class Now:
    """A runtime in which everything happens at once."""

    def now(self) -> float:
        return 0.0

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Later never comes."""

    def soon(self, action: Callable[..., None], *arguments: Any) -> None:
        action(*arguments)


class Line:
    """A connection that carries what fits the wire."""

    def __init__(self) -> None:
        self.said: list[Message] = []

    def post(self, message: Message) -> None:
        encode_control(message)
        self.said.append(message)

    def close(self) -> None:
        """It stays."""


def hosted(bench: Bench) -> tuple[Host, Line, list[Record]]:
    records: list[Record] = []
    runtime: Any = Now()
    ended: Any = records.append
    host = Host(bench.logic, runtime, lambda: None, Reporter("a", records.append), Traffic(), 1.0, ended)
    workshop: Any = type("Workshop", (), {"profile": None, "unusable": None, "perform": lambda *_: None})()
    host._workshop = workshop
    line = Line()
    host.connections[bench.connection] = line
    return host, line, records


def test_an_update_that_cannot_be_said_gives_the_lease_back(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.train()
    host, line, records = hosted(bench)
    push = bench.logic.state.pushes[21]
    push.update = replace(push.update, tokens=-1)
    with caplog.at_level(logging.ERROR):
        host._send(bench.connection, push.update)
    assert (
        "Update cannot be told to the Shepherd: Update has a value that the protocol cannot carry"
        in caplog.text
    )
    [failure] = line.said
    assert isinstance(failure, Failure)
    assert (failure.lease_id, bench.logic.state.pushes) == (21, {})
    assert "its update cannot be told: Update has a value" in failure.reason
    assert {"unsaid": 1}.items() <= records[-1].items()


def test_what_a_shepherd_cannot_say_is_an_error_that_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    nothing: Any = None
    runtime, store, disk = Now(), type("Store", (), {})(), type("Disk", (), {"lacks": None})()
    records: list[Record] = []
    host = ShepherdHost(
        *(nothing, nothing, store, nothing, disk, runtime),  # type: ignore[arg-type]  # as far as is needed
        mark=b"1", push_bytes=1, tick_seconds=1.0,
        revoked=nothing, paused=nothing, report=records.append, ended=nothing,
    )  # fmt: skip
    line: Any = Line()
    line.worker = "ada"
    host.connections[3] = line
    with caplog.at_level(logging.ERROR):
        for lease_id in (-1, 2**64, 7):
            host._send(3, Revoke(lease_id, "no"))
    assert line.said == [Revoke(7, "no")]
    assert "Revoke cannot be told to ada: Revoke has a value that the protocol cannot carry" in caplog.text
    assert [record["event"] for record in records] == ["trouble", "trouble"]
    assert records[1]["message"].endswith("(so far 2 such messages)")


def test_what_is_no_update_and_cannot_be_said_ends_nothing() -> None:
    bench = Bench()
    bench.train()
    bench.do(NotSaid(bench.now, Failure(-1, 0, ""), "too large"))
    assert bench.effects == []
    bench.do(NotSaid(bench.now, replace(UPDATE, lease_id=99), "too large"))
    assert bench.effects == []


def test_a_lease_of_many_steps_is_told() -> None:
    bench = Bench()
    bench.join()
    lease = replace(LEASE, data=replace(LEASE.data, count=LONG))
    bench.hear(Assign(lease))
    bench.fetched()
    bench.do(LeaseTrained(bench.now, 21, PAYLOAD, LONG, (2.0,) * LONG, 1e-310))
    bench.uploaded()
    [update] = bench.said()
    assert isinstance(update, Update)
    assert (update.steps, set(update.losses), update.seconds) == (LONG, {2.0}, 1e-9)
    assert len(encode_control(update)) < 10_000


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf, 1e308])
def test_a_loss_that_is_no_number_is_told_as_such(loss: float) -> None:
    bench = Bench()
    bench.join()
    bench.hear(Assign(LEASE))
    bench.fetched()
    assert bench.made(StartLease)
    bench.do(LeaseTrained(bench.now, 21, PAYLOAD, 400, (2.0, loss), 3.0))
    assert bench.said() == [Failure(11, 21, "a loss is not finite", FailureKind.DIVERGED)]
    assert bench.made(AbortLease)
    assert not bench.made(UploadUpdate)
    assert bench.logic.state.fresh_needed
