"""Lines keep order and time, and tell the other end of a break, or not."""

import pytest
from benchmarks.distributed.fleets.lines import Lines

from pcp.distributed.messages import Heartbeat, HeartbeatReply, Message
from pcp.distributed.simulator.clock import VirtualClock

DELAY = 0.25


class Listener:
    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.heard: list[tuple[float, int, object]] = []

    def delivered(self, connection: int, message: Message) -> None:
        self.heard.append((self.clock.now, connection, message))

    def broken(self, connection: int) -> None:
        self.heard.append((self.clock.now, connection, "broken"))


@pytest.fixture
def connected() -> tuple[VirtualClock, Lines, Listener, Listener]:
    clock = VirtualClock()
    lines, shepherd, worker = Lines(clock, DELAY), Listener(clock), Listener(clock)
    lines.shepherd = shepherd
    numbers: list[int] = []
    lines.connect(worker, numbers.append)
    clock.run(10.0, lambda: False)
    assert numbers == [1]
    assert clock.now == 2 * DELAY
    return clock, lines, shepherd, worker


def test_messages_arrive_in_order_after_the_delay(
    connected: tuple[VirtualClock, Lines, Listener, Listener],
) -> None:
    clock, lines, shepherd, worker = connected
    beats = [Heartbeat(number, 1, 0, 0, 0.0) for number in range(3)]
    for beat in beats:
        lines.send(worker, 1, beat)
    lines.send(shepherd, 1, HeartbeatReply(7))
    clock.run(10.0, lambda: False)
    assert shepherd.heard == [(3 * DELAY, 1, beat) for beat in beats]
    assert worker.heard == [(3 * DELAY, 1, HeartbeatReply(7))]


@pytest.mark.parametrize("silent", [False, True])
def test_who_vanishes_is_missed_unless_silent(
    silent: bool, connected: tuple[VirtualClock, Lines, Listener, Listener]
) -> None:
    clock, lines, shepherd, worker = connected
    lines.vanish(worker, silent)
    lines.send(shepherd, 1, HeartbeatReply(7))
    clock.run(10.0, lambda: False)
    assert shepherd.heard == ([] if silent else [(3 * DELAY, 1, "broken")])
    assert worker.heard == []


def test_a_closed_connection_still_delivers_what_was_sent(
    connected: tuple[VirtualClock, Lines, Listener, Listener],
) -> None:
    clock, lines, shepherd, worker = connected
    lines.send(shepherd, 1, HeartbeatReply(7))
    lines.close(shepherd, 1)
    clock.run(10.0, lambda: False)
    assert [what for _, _, what in worker.heard] == [HeartbeatReply(7), "broken"]
    assert shepherd.heard == []


def test_nobody_answers_where_no_shepherd_is() -> None:
    clock = VirtualClock()
    lines, worker = Lines(clock, DELAY), Listener(clock)
    lines.connect(worker, lambda number: pytest.fail(f"connected as {number}"))
    clock.run(10.0, lambda: False)
    assert worker.heard == [(2 * DELAY, 0, "broken")]
