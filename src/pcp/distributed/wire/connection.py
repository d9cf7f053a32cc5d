"""One control connection as a pure state machine: bytes in, events out, bytes to send.

It knows who may say what and when, nothing of sockets, clocks or the run:

    worker    -> Hello                      shepherd -> Welcome, Goodbye, or a refusal
    worker    -> Heartbeat, Ready, ...      shepherd -> Assign, Merged, ...
    either    -> Goodbye                    nothing follows

Heartbeats, leases and deadlines are the coordinator's business.
"""

from dataclasses import dataclass
from enum import Enum, auto

from pcp.distributed import messages
from pcp.distributed.messages import PROTOCOL_VERSION, Goodbye, Hello, Message, Welcome
from pcp.distributed.wire.codec import (
    MessageError,
    PeerIsNewer,
    decode_control,
    decode_refusal,
    encode_control,
    encode_refusal,
)
from pcp.distributed.wire.frames import CONTROL_LIMITS, Frame, FrameDecoder, FrameError, FrameKind
from pcp.distributed.wire.refusal import Refusal, RefusalCode
from pcp.errors import PCPError


class Side(Enum):
    """Which end of the connection a machine is."""

    SHEPHERD = "Shepherd"
    WORKER = "Worker"

    @property
    def other(self) -> "Side":
        """The end that this one talks to."""
        return Side.WORKER if self is Side.SHEPHERD else Side.SHEPHERD


_SAYS: dict[Side, frozenset[type]] = {
    Side.WORKER: frozenset(
        {
            messages.Hello,
            messages.Heartbeat,
            messages.Ready,
            messages.Update,
            messages.States,
            messages.Repeated,
            messages.Profile,
            messages.Resume,
            messages.Failure,
            messages.Goodbye,
        }
    ),
    Side.SHEPHERD: frozenset(
        {
            messages.Welcome,
            messages.HeartbeatReply,
            messages.Assign,
            messages.Revoke,
            messages.Merged,
            messages.UpdateReply,
            messages.AskStates,
            messages.Repeat,
            messages.Peers,
            messages.Goodbye,
        }
    ),
}
_OPENS: dict[Side, type] = {Side.WORKER: Hello, Side.SHEPHERD: Welcome}


class _Phase(Enum):
    HELLO = auto()  # the worker's Hello has not passed yet
    WELCOME = auto()  # Hello has passed, Welcome has not
    OPEN = auto()
    CLOSED = auto()


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """The peer said something that it may say now."""

    message: Message


@dataclass(frozen=True, slots=True)
class ConnectionRefused:
    """One side will not go on with the other; the connection is over.

    Arguments:
        refusal: why.
        by_peer: whether the other side refused (else this side did, and the bytes to send tell the peer).
    """

    refusal: Refusal
    by_peer: bool


@dataclass(frozen=True, slots=True)
class ProtocolViolation:
    """The peer sent what it may not send; the connection is over, and the bytes to send tell it why."""

    reason: str


@dataclass(frozen=True, slots=True)
class PeerClosed:
    """The stream ended.

    Arguments:
        orderly: a Goodbye, either way, had passed before, and no frame was cut.
    """

    orderly: bool


ConnectionEvent = MessageReceived | ConnectionRefused | ProtocolViolation | PeerClosed


class MessageNotAllowed(PCPError):
    """This side may not send that message now; a defect of the caller, never of the peer."""


class TooMuchInFlight(PCPError):
    """The peer does not take what it is sent fast enough, and the limit of unsent bytes is reached."""


class ControlMachine:
    """The state of one end of a control connection.

    Arguments:
        side: which end this is.
        certified_name: for the Shepherd, the name in the worker's certificate; Hello must carry the same.
        maximum_bytes_in_flight: unsent bytes that `send` may leave waiting.
    """

    def __init__(
        self,
        side: Side,
        certified_name: str | None = None,
        *,
        maximum_bytes_in_flight: int = 4 << 20,
    ) -> None:
        self.side = side
        self._certified_name = certified_name
        self._maximum = maximum_bytes_in_flight
        self._decoder = FrameDecoder(CONTROL_LIMITS)
        self._phase = _Phase.HELLO
        self._to_send = bytearray()
        self._goodbye_from: set[Side] = set()

    @property
    def is_open(self) -> bool:
        """Whether Hello and Welcome have passed and nothing has ended the connection."""
        return self._phase is _Phase.OPEN

    @property
    def is_closed(self) -> bool:
        """Whether nothing more will be sent or accepted (bytes may still wait to be sent)."""
        return self._phase is _Phase.CLOSED

    @property
    def bytes_in_flight(self) -> int:
        """Bytes that were said and not taken yet."""
        return len(self._to_send)

    def bytes_to_send(self, maximum: int = 1 << 18) -> bytes:
        """Takes bytes that belong on the stream now.

        Arguments:
            maximum: how many at most.

        Returns:
            The next bytes; empty when nothing waits.
        """
        piece = bytes(memoryview(self._to_send)[:maximum])
        del self._to_send[: len(piece)]
        return piece

    def send(self, message: Message) -> None:
        """Puts a message on the stream.

        Arguments:
            message: what to say.

        Raises:
            MessageNotAllowed: it is the other side's message, or it is too early or too late for it.
            TooMuchInFlight: the peer has left too many bytes unread; close the connection.
            MessageError, FrameError: the message does not fit the protocol.
        """
        problem = self._order_problem(self.side, message)
        if problem:
            raise MessageNotAllowed(f"the {self.side.value} cannot send {type(message).__name__}: {problem}")
        data = encode_control(message)
        if len(self._to_send) + len(data) > self._maximum:
            raise TooMuchInFlight(
                f"{len(self._to_send)} bytes already wait for the {self.side.other.value} to read, and "
                f"{len(data)} more exceed the limit of {self._maximum}; the connection should be closed"
            )
        self._to_send += data
        self._passed(self.side, message)

    def refuse(self, code: RefusalCode, reason: str) -> None:
        """Ends the connection and tells the peer why.

        Raises:
            MessageNotAllowed: the connection is over already.
        """
        if self._phase is _Phase.CLOSED:
            raise MessageNotAllowed(
                f"the {self.side.value} cannot refuse ({reason}): the connection is closed"
            )
        self._to_send += encode_refusal(Refusal(code, reason))
        self._phase = _Phase.CLOSED

    def receive(self, data: bytes) -> list[ConnectionEvent]:
        """Takes the next bytes of the stream.

        Arguments:
            data: any number of bytes, cut anywhere.

        Returns:
            What they mean, in order; after an event that ends the connection there are no others.
        """
        if self._phase is _Phase.CLOSED:
            return []
        events: list[ConnectionEvent] = []
        try:
            frames = self._decoder.feed(data)
        except FrameError as error:
            return [self._violation(str(error))]
        for frame in frames:
            events.append(self._receive_frame(frame))
            if self.is_closed:
                return events
        if self._decoder.error is not None:
            events.append(self._violation(self._decoder.error))
        return events

    def receive_end(self) -> list[ConnectionEvent]:
        """Takes note that the stream has ended: no more bytes will come."""
        if self._phase is _Phase.CLOSED:
            return []  # the reason was reported when it closed
        self._phase = _Phase.CLOSED
        return [PeerClosed(orderly=bool(self._goodbye_from) and self._decoder.between_frames)]

    def _receive_frame(self, frame: Frame) -> ConnectionEvent:
        try:
            if frame.kind is FrameKind.REFUSAL:
                refusal = decode_refusal(frame)
                self._phase = _Phase.CLOSED
                return ConnectionRefused(refusal, by_peer=True)
            message = decode_control(frame)
        except PeerIsNewer as error:
            return self._refusal(RefusalCode.VERSION, str(error))
        except MessageError as error:
            return self._violation(str(error))
        problem = self._order_problem(self.side.other, message)
        if problem:
            return self._violation(f"{type(message).__name__} is not acceptable: {problem}")
        if isinstance(message, Hello):
            mismatch = self._hello_problem(message)
            if mismatch is not None:
                return self._refusal(*mismatch)
        self._passed(self.side.other, message)
        return MessageReceived(message)

    def _order_problem(self, speaker: Side, message: Message) -> str | None:
        kind = type(message)
        if self._phase is _Phase.CLOSED:
            return "the connection is closed"
        if speaker in self._goodbye_from:
            return f"the {speaker.value} has said Goodbye"
        if kind not in _SAYS[speaker]:
            return f"it is not a message of the {speaker.value}"
        opens = kind is _OPENS[speaker]
        if self._phase is _Phase.OPEN:
            return f"{kind.__name__} has passed already" if opens else None
        turn = Side.WORKER if self._phase is _Phase.HELLO else Side.SHEPHERD
        if (opens and speaker is turn) or (kind is Goodbye and self._phase is _Phase.WELCOME):
            return None
        return f"the {turn.value}'s {_OPENS[turn].__name__} must come first"

    def _hello_problem(self, hello: Hello) -> tuple[RefusalCode, str] | None:
        if hello.protocol_version != PROTOCOL_VERSION:
            return RefusalCode.VERSION, (
                f"the Shepherd speaks protocol version {PROTOCOL_VERSION} and the worker version "
                f"{hello.protocol_version}; install the same version of PCP on both"
            )
        if self._certified_name is not None and hello.worker != self._certified_name:
            return RefusalCode.IDENTITY, (
                f"the worker calls itself {hello.worker!r}, but its certificate was issued to "
                f"{self._certified_name!r}; use the key file that was made for this worker"
            )
        return None

    def _passed(self, speaker: Side, message: Message) -> None:
        if isinstance(message, Hello):
            self._phase = _Phase.WELCOME
        elif isinstance(message, Welcome):
            self._phase = _Phase.OPEN
        elif isinstance(message, Goodbye):
            self._goodbye_from.add(speaker)

    def _refusal(self, code: RefusalCode, reason: str) -> ConnectionRefused:
        self.refuse(code, reason)
        return ConnectionRefused(Refusal(code, reason), by_peer=False)

    def _violation(self, reason: str) -> ProtocolViolation:
        self.refuse(RefusalCode.PROTOCOL, reason)
        return ProtocolViolation(reason)
