"""Messages to Cap'n Proto bytes and back, by a table with one row per message.

Only Cap'n Proto's serialisation is used. Decoding bounds how much of a message may be traversed, so that
a small payload cannot describe a large value, and whatever is wrong with the bytes becomes a
`MessageError`. The codec checks the shape of a message (types, the length of digests); what the values
mean is the coordinator's business.
"""

import dataclasses
import functools
import re
from collections.abc import Callable
from enum import StrEnum
from importlib import resources
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import capnp

from pcp.distributed import messages
from pcp.distributed.bounds import Bound, OutOfBounds, bound_of
from pcp.distributed.messages import (
    PROTOCOL_VERSION,
    Adoption,
    Blob,
    DataRange,
    Lease,
    Message,
    PeerAddress,
    Settlement,
    SiteMeasurement,
    Takeover,
)
from pcp.distributed.wire.bulk import messages as transfer_messages
from pcp.distributed.wire.bulk.messages import TransferMessage
from pcp.distributed.wire.frames import Frame, FrameKind, encode_frame
from pcp.distributed.wire.refusal import Refusal
from pcp.errors import PCPError

_TRANSFERS_KEPT = 512
"""Encoded and decoded messages of transfers that are remembered: of small blobs they are the same few."""
_NESTING_LIMIT = 8
_PLACE_IN_CAPNP = re.compile(r"^\S+\.c\+\+:\d+: failed: ")
_TRAVERSAL_SLACK_WORDS = 64

_schema_file = resources.files("pcp.distributed") / "protocol.capnp"
with resources.as_file(_schema_file) as _path:
    SCHEMA = capnp.load(str(_path))


class MessageError(PCPError):
    """The bytes are not a message of this protocol, or the values do not fit one."""


class PeerIsNewer(MessageError):
    """The message is of a kind that this version of PCP does not know."""


CONTROL_ROWS: dict[type, str] = {
    messages.Hello: "hello",
    messages.Welcome: "welcome",
    messages.Heartbeat: "heartbeat",
    messages.HeartbeatReply: "heartbeatReply",
    messages.Ready: "ready",
    messages.Assign: "assign",
    messages.Revoke: "revoke",
    messages.Merged: "merged",
    messages.Update: "update",
    messages.UpdateReply: "updateReply",
    messages.AskStates: "askStates",
    messages.States: "states",
    messages.Repeat: "repeat",
    messages.Repeated: "repeated",
    messages.Failure: "failure",
    messages.Goodbye: "goodbye",
    messages.Profile: "profile",
    messages.Peers: "peers",
    messages.Resume: "resume",
}
"""Message class -> member of the union `ControlMessage`."""

TRANSFER_ROWS: dict[type, str] = {
    transfer_messages.Fetch: "fetch",
    transfer_messages.Push: "push",
    transfer_messages.Begin: "begin",
    transfer_messages.Credit: "credit",
    transfer_messages.Stored: "stored",
}
"""Message class -> member of the union `TransferMessage`."""

_PARTS = (
    Blob,
    DataRange,
    Adoption,
    Lease,
    Settlement,
    SiteMeasurement,
    PeerAddress,
    Takeover,
)  # structs inside messages

_T = TypeVar("_T")


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    """One field of a struct: its two names, how its value is converted each way, and whether it may be None."""

    name: str
    wire_name: str
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    optional: bool


def _converters(hint: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """How values of a type annotation go into Cap'n Proto and come back, both within their bounds."""
    bound = bound_of(hint)
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if hint in _PARTS:
        return _to_dict, lambda reader: _from_reader(hint, reader)
    if hint is bool:
        return bool, bool
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return str, lambda text: hint(str(text))
    if bound is None:
        raise TypeError(f"no bound for fields of type {hint}")
    if get_origin(hint) is tuple:
        return _many(bound, *_converters(get_args(hint)[0]))
    if hint in (int, float, str, bytes):
        return bound.admitted, lambda value: bound.admitted(hint(value))
    raise TypeError(f"no conversion for fields of type {hint}")


def _many(
    bound: Bound, encode: Callable[[Any], Any], decode: Callable[[Any], Any]
) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    return (
        lambda values: [encode(value) for value in bound.admitted(values)],
        lambda reader: bound.admitted(tuple(decode(value) for value in reader)),
    )


def _named(struct: type, name: str, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same conversion, with an error that says which field it was."""

    def named(value: Any) -> Any:
        try:
            return convert(value)
        except OutOfBounds as error:
            raise OutOfBounds(f"{struct.__name__}.{name} {error}") from None

    return named


def _fields_of(struct: type) -> tuple[_Field, ...]:
    hints = get_type_hints(struct, include_extras=True)
    fields = []
    for field in dataclasses.fields(struct):
        hint = hints[field.name]
        optional = NoneType in get_args(hint)
        if optional:
            (hint,) = set(get_args(hint)) - {NoneType}
        encode, decode = (_named(struct, field.name, each) for each in _converters(hint))
        fields.append(_Field(field.name, _camel_case(field.name), encode, decode, optional))
    return tuple(fields)


def _to_dict(value: Any) -> dict[str, Any]:
    values = ((field, getattr(value, field.name)) for field in _FIELDS[type(value)])
    return {
        field.wire_name: field.encode(each) for field, each in values if not (field.optional and each is None)
    }


def _from_reader(struct: type[_T], reader: Any) -> _T:
    return struct(
        **{
            field.name: None
            if field.optional and not reader._has(field.wire_name)
            else field.decode(getattr(reader, field.wire_name))
            for field in _FIELDS[struct]
        }
    )


_FIELDS: dict[type, tuple[_Field, ...]] = {
    struct: _fields_of(struct) for struct in (*CONTROL_ROWS, *TRANSFER_ROWS, *_PARTS, Refusal)
}


def _encode(schema: Any, value: Any, what: str, member: str = "") -> bytes:
    try:
        content = _to_dict(value)
        message = schema.new_message()
        # A member of a union that is set before it is begun costs an exception inside of pycapnp, some 0.2 ms.
        (message.init(member) if member else message).from_dict(content)
        payload: bytes = message.to_bytes()
    except (OutOfBounds, capnp.KjException, TypeError, ValueError, OverflowError) as error:
        raise MessageError(f"{what} has a value that the protocol cannot carry: {_summary(error)}") from error
    return payload


def _encode_member(schema: Any, rows: dict[type, str], message: Any) -> bytes:
    name = type(message).__name__
    if type(message) not in rows:
        known = ", ".join(struct.__name__ for struct in rows)
        raise MessageError(f"a {name} is not a message of this connection; it carries {known}")
    return _encode(schema, message, name, rows[type(message)])


def _decode(schema: Any, payload: bytes | bytearray, read: Callable[[Any], _T]) -> _T:
    try:
        with schema.from_bytes(
            bytes(payload),  # read-only for as long as Cap'n Proto looks at it
            traversal_limit_in_words=len(payload) // 8 + _TRAVERSAL_SLACK_WORDS,
            nesting_limit=_NESTING_LIMIT,
        ) as reader:
            return read(reader)
    except (OutOfBounds, capnp.KjException, ValueError, MemoryError) as error:
        raise MessageError(
            f"{len(payload)} bytes from the peer are not a message of this protocol: {_summary(error)}"
        ) from error


def _summary(error: Exception) -> str:
    # Cap'n Proto names its own source lines and stack addresses, which help nobody.
    return _PLACE_IN_CAPNP.sub("", str(error).split("\nstack:")[0])


def _union_reader(rows: dict[type, str]) -> Callable[[Any], Any]:
    structs = {member: struct for struct, member in rows.items()}

    def read(reader: Any) -> Any:
        try:
            member = reader.which()
        except capnp.KjException as error:
            raise PeerIsNewer(
                f"the peer sent a kind of message that protocol version {PROTOCOL_VERSION} does not have; "
                "it runs a newer PCP: install the same version on both sides"
            ) from error
        return _from_reader(structs[member], getattr(reader, member))

    return read


_read_control = _union_reader(CONTROL_ROWS)
_read_transfer = _union_reader(TRANSFER_ROWS)


def encode_control(message: Message) -> bytes:
    """The frame of a control message.

    Arguments:
        message: one of the classes of `pcp.distributed.messages`.

    Returns:
        The bytes to put on a control connection.

    Raises:
        MessageError: a value is outside the bounds of its field, or text is not text.
        FrameError: the message is larger than a control frame may be.
    """
    return encode_frame(FrameKind.CONTROL, _encode_member(SCHEMA.ControlMessage, CONTROL_ROWS, message))


def decode_control(frame: Frame) -> Message:
    """The control message in a frame of kind `CONTROL`.

    Raises:
        PeerIsNewer: it is a message that this version does not know.
        MessageError: the payload is malformed.
    """
    message: Message = _decode(SCHEMA.ControlMessage, frame.payload, _read_control)
    return message


@functools.lru_cache(_TRANSFERS_KEPT)
def encode_transfer(message: TransferMessage) -> bytes:
    """The frame of a request or answer about a blob.

    Raises:
        MessageError: a value does not fit its field.
    """
    return encode_frame(FrameKind.TRANSFER, _encode_member(SCHEMA.TransferMessage, TRANSFER_ROWS, message))


def decode_transfer(frame: Frame) -> TransferMessage:
    """The request or answer in a frame of kind `TRANSFER`.

    Raises:
        PeerIsNewer: it is a message that this version does not know.
        MessageError: the payload is malformed.
    """
    return _transfer(bytes(frame.payload))


@functools.lru_cache(_TRANSFERS_KEPT)
def _transfer(payload: bytes) -> TransferMessage:
    message: TransferMessage = _decode(SCHEMA.TransferMessage, payload, _read_transfer)
    return message


def encode_refusal(refusal: Refusal) -> bytes:
    """The frame of a refusal; a long reason is cut to what the frame may hold."""
    plain = Refusal(int(refusal.code), refusal.reason)
    return encode_frame(FrameKind.REFUSAL, _encode(SCHEMA.Refusal, plain, "Refusal"))


def decode_refusal(frame: Frame) -> Refusal:
    """The refusal in a frame of kind `REFUSAL`.

    Raises:
        MessageError: the payload is malformed.
    """
    return _decode(SCHEMA.Refusal, frame.payload, lambda reader: _from_reader(Refusal, reader))
