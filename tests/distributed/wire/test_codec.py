"""Messages survive the wire unchanged; bytes that are no message become typed errors."""

import contextlib
import dataclasses
import random
import struct
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import capnp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pcp.distributed import messages
from pcp.distributed.messages import PROTOCOL_VERSION, Blob, Message, Ready, Revoke, Update, Welcome
from pcp.distributed.wire import codec
from pcp.distributed.wire.bulk.messages import Fetch, TransferMessage
from pcp.distributed.wire.codec import (
    CONTROL_ROWS,
    SCHEMA,
    TRANSFER_ROWS,
    MessageError,
    PeerIsNewer,
    decode_control,
    decode_refusal,
    decode_transfer,
    encode_control,
    encode_refusal,
    encode_transfer,
)
from pcp.distributed.wire.frames import Frame, FrameDecoder, FrameError, FrameKind
from pcp.distributed.wire.refusal import Refusal, RefusalCode

from .message_values import control_messages, instance_strategy, transfer_messages

UPDATE = Update(7, 3, 11, Blob(bytes(range(32)), 123_456), 50, 38_400, (3.5, 3.25), 61.5)


def frame_of(data: bytes) -> Frame:
    (frame,) = FrameDecoder().feed(data)
    return frame


@pytest.mark.parametrize("struct", CONTROL_ROWS, ids=lambda struct: struct.__name__)
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_control_message_survives(struct: type, data: st.DataObject) -> None:
    message = data.draw(instance_strategy(struct))
    assert decode_control(frame_of(encode_control(message))) == message


@pytest.mark.parametrize("struct", TRANSFER_ROWS, ids=lambda struct: struct.__name__)
@settings(max_examples=20)
@given(data=st.data())
def test_every_transfer_message_survives(struct: type, data: st.DataObject) -> None:
    message = data.draw(instance_strategy(struct))
    assert decode_transfer(frame_of(encode_transfer(message))) == message


@given(instance_strategy(Refusal))
def test_a_refusal_survives(refusal: Refusal) -> None:
    assert decode_refusal(frame_of(encode_refusal(refusal))) == refusal


def test_a_long_refusal_is_cut_and_an_unknown_code_is_other() -> None:
    refusal = decode_refusal(frame_of(encode_refusal(Refusal(60_000, "é" * 10_000))))
    assert refusal.reason == "é" * 800
    assert refusal.kind is RefusalCode.OTHER


def test_every_message_has_a_row_and_every_field_a_place_in_the_schema() -> None:
    assert set(CONTROL_ROWS) == set(get_args(Message))
    assert set(TRANSFER_ROWS) == set(get_args(TransferMessage))
    for rows, union in ((CONTROL_ROWS, SCHEMA.ControlMessage), (TRANSFER_ROWS, SCHEMA.TransferMessage)):
        assert set(rows.values()) == set(union.schema.union_fields)
    for message_class, fields in codec._FIELDS.items():
        schema_fields = set(getattr(SCHEMA, message_class.__name__).schema.fieldnames)
        assert {field.wire_name for field in fields} == schema_fields
        assert [field.name for field in fields] == [field.name for field in dataclasses.fields(message_class)]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Ready(-1), "Ready has a value that the protocol cannot carry"),
        (Ready(2**64), "Ready has a value that the protocol cannot carry"),
        (Revoke(1, "\ud800"), "Revoke has a value that the protocol cannot carry"),
        (dataclasses.replace(UPDATE, payload=Blob(b"short", 5)), "a digest has 32 bytes; received 5"),
        (Blob(bytes(32), 1), "a Blob is not a message of this connection; it carries Hello, Welcome"),
        (Fetch(Blob(bytes(32), 1), 0, 1, 1, 1), "a Fetch is not a message of this connection"),
    ],
)
def test_values_that_do_not_fit(message: Any, text: str) -> None:
    with pytest.raises(MessageError, match=text):
        encode_control(message)


def test_a_message_larger_than_a_frame() -> None:
    with pytest.raises(FrameError, match="a CONTROL frame may hold 1048576 bytes"):
        encode_control(Welcome(1, 1, "run", 1.0, "x" * 2_000_000))


@given(st.binary(max_size=200))
def test_random_bytes_are_an_error_or_a_message(payload: bytes) -> None:
    for decode, kind in ((decode_control, FrameKind.CONTROL), (decode_transfer, FrameKind.TRANSFER)):
        with contextlib.suppress(MessageError):
            assert type(decode(Frame(kind, payload))) in {*CONTROL_ROWS, *TRANSFER_ROWS}


@settings(max_examples=25, deadline=None)
@given(st.one_of(control_messages, transfer_messages), st.integers(0, 2**32))
def test_five_thousand_mutated_messages(message: Any, seed: int) -> None:
    is_control = type(message) in CONTROL_ROWS
    data = frame_of(encode_control(message) if is_control else encode_transfer(message))
    decode = decode_control if is_control else decode_transfer
    rng = random.Random(seed)
    for _ in range(200):
        mutated = bytearray(data.payload)
        for _ in range(rng.randint(1, 6)):
            mutated[rng.randrange(len(mutated))] = rng.randrange(256)
        if rng.random() < 0.3:
            del mutated[rng.randrange(len(mutated)) :]
        try:
            received = decode(Frame(data.kind, mutated))
        except MessageError:
            continue
        assert type(received) in (CONTROL_ROWS if is_control else TRANSFER_ROWS)


def test_a_digest_of_another_length_is_refused_on_arrival() -> None:
    content = {"update": {"payload": {"digest": b"../../etc/passwd", "size": 1}}}
    payload = SCHEMA.ControlMessage.new_message(**content).to_bytes()
    with pytest.raises(MessageError, match="a digest has 32 bytes; received 16"):
        decode_control(Frame(FrameKind.CONTROL, payload))


def test_an_outcome_of_another_version_is_refused_on_arrival() -> None:
    payload = SCHEMA.ControlMessage.new_message(updateReply={"outcome": "postponed"}).to_bytes()
    with pytest.raises(MessageError, match="'postponed' is not a valid Outcome"):
        decode_control(Frame(FrameKind.CONTROL, payload))


def test_what_is_said_about_bytes_that_are_no_message() -> None:
    with pytest.raises(
        MessageError, match="3 bytes from the peer are not a message of this protocol"
    ) as caught:
        decode_control(Frame(FrameKind.CONTROL, b"abc"))
    assert "stack" not in str(caught.value)


def test_a_small_message_cannot_describe_a_large_one() -> None:
    # A list of 2^29-1 structs of no words each fits a payload of a few words.
    payload = bytearray(SCHEMA.ControlMessage.new_message(welcome={"blobs": [{"size": 1}]}).to_bytes())
    tag = payload.rindex(
        bytes([4, 0, 0, 0, 1, 0, 1, 0])
    )  # the list's tag: one struct of one word, one pointer
    payload[tag : tag + 8] = ((2**29 - 1) << 2).to_bytes(4, "little") + bytes(4)
    with pytest.raises(MessageError, match="are not a message of this protocol"):
        decode_control(Frame(FrameKind.CONTROL, payload))


def test_parts_that_are_shared_many_times_are_refused() -> None:
    devices = ["a" * 4000, *["b"] * 100]
    content = {"hello": {"devices": devices}}
    payload = bytearray(SCHEMA.ControlMessage.new_message(**content).to_bytes())
    words = list(struct.unpack(f"<{len(payload) // 8}Q", payload))
    first = next(
        place for place, word in enumerate(words) if word >> 32 == (4001 << 3) | 2
    )  # pointer to "aaa..."
    for index in range(1, 101):
        words[first + index] = words[first] - (index << 2)  # the same target, seen from further on
    with pytest.raises(MessageError, match="not a message of this protocol: Exceeded message trav"):
        decode_control(Frame(FrameKind.CONTROL, struct.pack(f"<{len(words)}Q", *words)))


def test_a_message_of_a_newer_peer(tmp_path: Path) -> None:
    text = (resources.files("pcp.distributed") / "protocol.capnp").read_text()
    newer = text.replace("merged @11 :Merged;", f"merged @11 :Merged; newest @{len(CONTROL_ROWS)} :Goodbye;")
    newer = newer.replace(
        "settled @9 :List(Settlement);\n}\n\nstruct UpdateReply",
        "settled @9 :List(Settlement);\n  joules @10 :Float64;\n}\n\nstruct UpdateReply",
    )
    assert newer.count("joules") == 1
    (tmp_path / "newer.capnp").write_text(newer.replace("@0xb3f1c2d97a5e4460", "@0xb3f1c2d97a5e4461"))
    schema = capnp.load(str(tmp_path / "newer.capnp"))

    unknown = schema.ControlMessage.new_message(newest={"reason": "x"}).to_bytes()
    with pytest.raises(
        PeerIsNewer,
        match=f"a kind of message that protocol version {PROTOCOL_VERSION} does not have; it runs a newer",
    ):
        decode_control(Frame(FrameKind.CONTROL, unknown))

    extended = schema.ControlMessage.new_message(ready={"generation": 4}).to_bytes()
    assert decode_control(Frame(FrameKind.CONTROL, extended)) == messages.Ready(4)
    with_joules = {"leaseId": 1, "payload": {"digest": bytes(32)}, "joules": 3.0}
    grown = decode_control(
        Frame(FrameKind.CONTROL, schema.ControlMessage.new_message(update=with_joules).to_bytes())
    )
    assert isinstance(grown, Update)
    assert grown.lease_id == 1
