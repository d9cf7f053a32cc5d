"""The control connection: who may say what, when; and what is said to a peer that breaks the rules."""

import dataclasses
import random
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcp.distributed.messages import (
    PROTOCOL_VERSION,
    Adoption,
    Assign,
    Blob,
    DataRange,
    Goodbye,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Lease,
    Merged,
    Message,
    Ready,
    Revoke,
    Welcome,
)
from pcp.distributed.wire import connection
from pcp.distributed.wire.codec import encode_control
from pcp.distributed.wire.connection import (
    ConnectionEvent,
    ConnectionRefused,
    ControlMachine,
    MessageNotAllowed,
    MessageReceived,
    PeerClosed,
    ProtocolViolation,
    Side,
    TooMuchInFlight,
)
from pcp.distributed.wire.frames import FrameKind, encode_frame
from pcp.distributed.wire.refusal import Refusal, RefusalCode

HELLO = Hello(PROTOCOL_VERSION, "ada", b"incarnation-1", ("cpu:0",), 1 << 30)
WELCOME = Welcome(4, 2, "run-1", 0.5, "{}")
BLOB = Blob(bytes(32), 5)
LEASE = Lease(1, 2, 3, DataRange(0, 20), 0, 0, (), True, (Adoption(0, 0, 0, BLOB, None),), 60.0)
FROM_WORKER = [Heartbeat(1, 2, 3, 4, 0.5), Ready(2), Goodbye(False, "enough")]
FROM_SHEPHERD = [
    HeartbeatReply(1),
    Assign(LEASE),
    Merged(0, 1, BLOB, None),
    Revoke(1, "late"),
    Goodbye(True, "done"),
]


def take(machine: ControlMachine) -> bytes:
    return b"".join(iter(machine.bytes_to_send, b""))


def exchange(sender: ControlMachine, receiver: ControlMachine) -> list[ConnectionEvent]:
    return receiver.receive(take(sender))


def opened(**options: Any) -> tuple[ControlMachine, ControlMachine]:
    shepherd, worker = ControlMachine(Side.SHEPHERD, "ada", **options), ControlMachine(Side.WORKER, **options)
    worker.send(HELLO)
    assert exchange(worker, shepherd) == [MessageReceived(HELLO)]
    shepherd.send(WELCOME)
    assert exchange(shepherd, worker) == [MessageReceived(WELCOME)]
    assert worker.is_open
    assert shepherd.is_open
    return shepherd, worker


def test_a_whole_conversation() -> None:
    shepherd, worker = opened()
    for message in FROM_WORKER[:-1]:
        worker.send(message)
    assert exchange(worker, shepherd) == [MessageReceived(message) for message in FROM_WORKER[:-1]]
    for message in FROM_SHEPHERD:
        shepherd.send(message)
    assert exchange(shepherd, worker) == [MessageReceived(message) for message in FROM_SHEPHERD]
    assert shepherd.receive_end() == [PeerClosed(orderly=True)]
    assert worker.receive_end() == [PeerClosed(orderly=True)]


@given(st.lists(st.integers(1, 400), max_size=60), st.integers(0, 2**32))
def test_how_the_stream_is_cut_does_not_matter(cuts: list[int], seed: int) -> None:
    shepherd, worker = opened()
    rng = random.Random(seed)
    said: list[Message] = [rng.choice(FROM_SHEPHERD[:-1]) for _ in range(20)]
    for message in said:
        shepherd.send(message)
    events: list[ConnectionEvent] = []
    for cut in cuts:
        events += worker.receive(shepherd.bytes_to_send(cut))
    events += exchange(shepherd, worker)
    assert events == [MessageReceived(message) for message in said]


def test_versions_that_differ() -> None:
    shepherd, worker = ControlMachine(Side.SHEPHERD), ControlMachine(Side.WORKER)
    worker.send(dataclasses.replace(HELLO, protocol_version=PROTOCOL_VERSION - 1))
    reason = (
        f"the Shepherd speaks protocol version {PROTOCOL_VERSION} and the worker version {PROTOCOL_VERSION - 1}; "
        "install the same version of PCP on both"
    )
    refusal = Refusal(RefusalCode.VERSION, reason)
    assert exchange(worker, shepherd) == [ConnectionRefused(refusal, by_peer=False)]
    assert shepherd.is_closed
    assert exchange(shepherd, worker) == [ConnectionRefused(refusal, by_peer=True)]
    assert worker.is_closed
    assert shepherd.receive_end() == []


def test_a_name_that_is_not_in_the_certificate() -> None:
    shepherd, worker = ControlMachine(Side.SHEPHERD, "grace"), ControlMachine(Side.WORKER)
    worker.send(HELLO)
    (event,) = exchange(worker, shepherd)
    assert isinstance(event, ConnectionRefused)
    assert event.refusal.kind is RefusalCode.IDENTITY
    assert "calls itself 'ada', but its certificate was issued to 'grace'" in event.refusal.reason


def test_a_shepherd_that_answers_hello_with_goodbye() -> None:
    shepherd, worker = ControlMachine(Side.SHEPHERD), ControlMachine(Side.WORKER)
    worker.send(HELLO)
    exchange(worker, shepherd)
    shepherd.send(Goodbye(True, "the run is complete"))
    assert exchange(shepherd, worker) == [MessageReceived(Goodbye(True, "the run is complete"))]
    (event,) = worker.receive(encode_control(WELCOME))
    assert event == ProtocolViolation("Welcome is not acceptable: the Shepherd has said Goodbye")


def test_messages_that_cross_a_goodbye_are_delivered() -> None:
    shepherd, worker = opened()
    worker.send(Goodbye(False, "stopping"))
    shepherd.send(Assign(LEASE))
    assert exchange(shepherd, worker) == [MessageReceived(Assign(LEASE))]
    assert exchange(worker, shepherd) == [MessageReceived(Goodbye(False, "stopping"))]
    with pytest.raises(MessageNotAllowed, match="the Worker cannot send Ready: the Worker has said Goodbye"):
        worker.send(Ready(2))
    (event,) = shepherd.receive(encode_control(Ready(2)))
    assert event == ProtocolViolation("Ready is not acceptable: the Worker has said Goodbye")


@pytest.mark.parametrize("message", [Ready(1), WELCOME, HeartbeatReply(1), Goodbye(False, "")], ids=repr)
def test_what_a_worker_may_not_say_first(message: Message) -> None:
    shepherd = ControlMachine(Side.SHEPHERD)
    (event,) = shepherd.receive(encode_control(message))
    assert isinstance(event, ProtocolViolation)
    assert f"{type(message).__name__} is not acceptable" in event.reason
    assert shepherd.is_closed
    (told,) = ControlMachine(Side.WORKER).receive(take(shepherd))
    assert told == ConnectionRefused(Refusal(RefusalCode.PROTOCOL, event.reason), by_peer=True)


@pytest.mark.parametrize("message", [HELLO, Assign(LEASE), Ready(1)], ids=repr)
def test_what_a_worker_may_not_receive_instead_of_welcome(message: Message) -> None:
    worker = ControlMachine(Side.WORKER)
    worker.send(HELLO)
    (event,) = worker.receive(encode_control(message))
    assert isinstance(event, ProtocolViolation)


def test_a_second_hello_is_a_violation() -> None:
    shepherd, _ = opened()
    (event,) = shepherd.receive(encode_control(HELLO))
    assert event == ProtocolViolation("Hello is not acceptable: Hello has passed already")


def test_own_mistakes_are_refused() -> None:
    with pytest.raises(MessageNotAllowed, match="cannot send Ready: the Worker's Hello must come first"):
        ControlMachine(Side.WORKER).send(Ready(1))
    shepherd, _ = opened()
    with pytest.raises(MessageNotAllowed, match="the Shepherd cannot send Ready: it is not a message of"):
        shepherd.send(Ready(1))
    shepherd.refuse(RefusalCode.OTHER, "stop")
    with pytest.raises(MessageNotAllowed, match="cannot send Goodbye: the connection is closed"):
        shepherd.send(Goodbye(False, ""))
    with pytest.raises(MessageNotAllowed, match="cannot refuse \\(again\\): the connection is closed"):
        shepherd.refuse(RefusalCode.OTHER, "again")


def test_unread_bytes_are_bounded() -> None:
    shepherd, _ = opened(maximum_bytes_in_flight=4000)
    with pytest.raises(TooMuchInFlight, match="already wait for the Worker to read, and 2"):  # noqa: PT012
        for _ in range(100):
            shepherd.send(Revoke(1, "x" * 2000))
    assert 2000 < shepherd.bytes_in_flight <= 4000
    take(shepherd)
    shepherd.send(Revoke(1, "x" * 2000))


def test_a_stream_that_ends_early() -> None:
    shepherd, worker = opened()
    assert worker.receive_end() == [PeerClosed(orderly=False)]
    worker = opened()[1]
    worker.receive(encode_control(Goodbye(True, "done")) + encode_control(Goodbye(True, "x"))[:9])
    assert worker.receive_end() == [PeerClosed(orderly=False)]  # a frame was cut
    assert shepherd.receive(b"") == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "expected a frame that starts with"),
        (encode_frame(FrameKind.CONTROL, b"junk"), "4 bytes from the peer are not a message"),
        (encode_frame(FrameKind.CHUNK, b"junk"), "received a frame of kind 3"),
        (encode_frame(FrameKind.REFUSAL, b"junk"), "4 bytes from the peer are not a message"),
    ],
)
def test_garbage_in_the_middle_of_a_conversation(data: bytes, reason: str) -> None:
    shepherd, _ = opened()
    events = shepherd.receive(encode_control(Ready(2)) + data + encode_control(Ready(3)))
    assert events[0] == MessageReceived(Ready(2))
    assert isinstance(events[1], ProtocolViolation)
    assert reason in events[1].reason
    assert len(events) == 2
    assert shepherd.receive(encode_control(Ready(4))) == []


@given(st.lists(st.binary(max_size=80), max_size=8))
def test_random_bytes_never_do_more_than_close(data: list[bytes]) -> None:
    shepherd = ControlMachine(Side.SHEPHERD)
    events = [event for piece in data for event in shepherd.receive(piece)] + shepherd.receive_end()
    assert len(events) <= 1
    assert all(isinstance(event, ProtocolViolation | PeerClosed) for event in events)


@given(st.integers(0, 2**32))
def test_a_conversation_with_mutated_bytes_ends_at_most_once(seed: int) -> None:
    """Bytes that were changed, cut out, repeated or inserted in the middle of what a worker says."""
    rng = random.Random(seed)
    said = b"".join(encode_control(message) for message in [HELLO, *FROM_WORKER[:-1] * 5])
    data = bytearray(said)
    for _ in range(rng.randint(1, 8)):
        place, length = rng.randrange(len(data)), rng.randint(1, 40)
        kind = rng.randrange(4)
        if kind == 0:
            data[place] = rng.randrange(256)
        elif kind == 1:
            del data[place : place + length]
        elif kind == 2:
            data[place:place] = data[place : place + length]
        else:
            data[place:place] = rng.randbytes(length)
        data = data or bytearray(b"P")
    shepherd = ControlMachine(Side.SHEPHERD, "ada")
    events: list[ConnectionEvent] = []
    while data:
        count = rng.randint(1, 200)
        events += shepherd.receive(bytes(data[:count]))
        del data[:count]
        if not shepherd.is_open and events == [MessageReceived(HELLO)]:
            shepherd.send(WELCOME)
    events += shepherd.receive_end()
    *before, last = events
    assert all(isinstance(event, MessageReceived) for event in before)
    assert isinstance(last, ProtocolViolation | ConnectionRefused | PeerClosed)
    assert shepherd.bytes_in_flight < 10_000
    told = ControlMachine(Side.WORKER)
    told.send(HELLO)
    told.receive(take(shepherd))  # what it answered is well-formed


def test_every_message_is_somebody_s_to_say() -> None:
    """A kind that nobody may send would be dropped, and those who wait for it would wait for ever."""
    sayable: frozenset[type] = frozenset().union(*connection._SAYS.values())
    assert sayable == frozenset(get_args(Message))
