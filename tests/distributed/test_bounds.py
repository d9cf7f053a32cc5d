"""Every field of a message has a bound, which both sides of the wire are held to; what is outside is refused by name."""

import dataclasses
import math
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from pcp.distributed import messages
from pcp.distributed.bounds import LOSS, LOSSES, SECONDS, Many, Real, Whole, Words, bound_of
from pcp.distributed.losses import mean, told, usable
from pcp.distributed.messages import Blob, Failure, Goodbye, Heartbeat, Hello, Lease, Update
from pcp.distributed.wire.codec import CONTROL_ROWS, SCHEMA, MessageError, decode_control, encode_control
from pcp.distributed.wire.frames import Frame, FrameDecoder, FrameKind

BLOB = Blob(bytes(32), 1)
LEASE = Lease(1, 1, 0, messages.DataRange(0, 4), 0, 0, (), True, (), 10.0)
SAMPLES: dict[type, Any] = {
    messages.Welcome: messages.Welcome(1, 1, "run", 1.0, "{}"),
    Heartbeat: Heartbeat(1, 1, 1, 1, 0.5),
    Update: Update(1, 1, 0, BLOB, 4, 40, (2.0,), 1.0),
    messages.Assign: messages.Assign(LEASE),
    messages.Resume: messages.Resume(LEASE),
}
NUMBERS = {
    "NaN": math.nan,
    "infinite": math.inf,
    "negative infinity": -math.inf,
    "a subnormal number": 5e-324,
    "a negative number": -1.0,
}


def real_fields() -> list[tuple[type, str, str]]:
    """Of each kind of message: its fields that hold a real number, and those of the lease that it names."""
    found = []
    for struct in SAMPLES:
        inner = {"": struct, "lease": Lease} if "lease" in get_type_hints(struct) else {"": struct}
        for within, part in inner.items():
            for name, hint in get_type_hints(part, include_extras=True).items():
                element = get_args(get_args(hint)[0])[0] if isinstance(bound_of(hint), Many) else hint
                if isinstance(bound_of(element), Real):
                    found.append((struct, within, name))
    return found


def changed(struct: type, within: str, name: str, value: Any) -> Any:
    message = SAMPLES[struct]
    part = getattr(message, within) if within else message
    many = isinstance(getattr(part, name), tuple)
    part = dataclasses.replace(part, **{name: (value,) if many else value})
    return dataclasses.replace(message, **{within: part}) if within else part


def frame_of(struct: type, content: dict[str, Any]) -> Frame:
    payload = SCHEMA.ControlMessage.new_message(**{CONTROL_ROWS[struct]: content}).to_bytes()
    return Frame(FrameKind.CONTROL, payload)


def test_no_number_that_is_none_is_said_or_heard() -> None:
    fields = real_fields()
    assert {name for _, _, name in fields} == {
        "heartbeat_seconds",
        "seconds_per_step",
        "seconds",
        "losses",
        "deadline_seconds",
    }
    for struct, within, name in fields:
        for words, value in NUMBERS.items():
            if name == "losses" and words == "a negative number":
                continue
            with pytest.raises(MessageError, match=rf"\.{name} is .*{words}; expected (seconds|a loss), "):
                encode_control(changed(struct, within, name, value))
            first, *others = name.split("_")
            content: Any = {
                first + "".join(map(str.capitalize, others)): [value] if name == "losses" else value
            }
            digest = {"payload": {"digest": bytes(32)}} if struct is Update else {}
            content = {"lease": content} if within else content | digest
            with pytest.raises(MessageError, match=rf"\.{name} is .*{words}; expected"):
                decode_control(frame_of(struct, content))


@pytest.mark.parametrize("value", [1e-310, 1e-9 / 2, 1e10, 1e308])
def test_seconds_have_a_size(value: float) -> None:
    with pytest.raises(
        MessageError, match=r"Heartbeat.seconds_per_step is .*expected seconds, 0 or from 1e-09 to 1e\+09"
    ):
        encode_control(Heartbeat(1, 1, 1, 1, value))
    assert SECONDS.admitted(SECONDS.clamped(value)) in (SECONDS.least, SECONDS.most)


def test_a_zero_has_no_sign() -> None:
    (frame,) = FrameDecoder().feed(encode_control(Heartbeat(1, 1, 1, 1, -0.0)))
    heard = decode_control(frame)
    assert isinstance(heard, Heartbeat)
    assert math.copysign(1.0, heard.seconds_per_step) == 1.0


def test_prose_is_cut_on_both_sides() -> None:
    long = "é" * (1 << 18)
    for message, struct, name in (
        (Failure(1, 1, long), Failure, "reason"),
        (Goodbye(False, long), Goodbye, "reason"),
    ):
        (frame,) = FrameDecoder().feed(encode_control(message))
        assert getattr(decode_control(frame), name) == long[:400]
        assert getattr(decode_control(frame_of(struct, {name: long})), name) == long[:400]
    heard = decode_control(frame_of(Hello, {"worker": "a", "devices": ["x" * 1000] * 900}))
    assert isinstance(heard, Hello)
    assert heard.devices == ("x" * 100,) * 16


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Hello(4, "a" * 201, b"", (), 1), "Hello.worker is text of 201 letters; expected text of 200 letters at most"),
        (Hello(4, "a", bytes(65), (), 1), "Hello.incarnation is wrong: an incarnation has 0 to 64 bytes; received 65"),
        (Heartbeat(2**64, 1, 1, 1, 0.0), "Heartbeat.sequence is 18446744073709551616; expected a whole number from 0"),
        (Heartbeat(1, 1, 1, 2**63, 0.0), "Heartbeat.steps_done is 9223372036854775808; expected a whole number from 0 to 46"),
        (dataclasses.replace(SAMPLES[Update], losses=(1.0,) * 1025), "Update.losses holds 1025; expected 1024 at most"),
        (dataclasses.replace(SAMPLES[Update], commitments=(b"",)), "Update.commitments is wrong: a digest has 32 bytes"),
        (Heartbeat(1, 1, 1, 10**400, 0.0), "Heartbeat.steps_done is a number of many digits"),
    ],
)  # fmt: skip
def test_what_is_outside_is_refused_by_name(message: Any, text: str) -> None:
    with pytest.raises(MessageError, match=text):
        encode_control(message)


def test_every_field_has_a_bound() -> None:
    for struct in CONTROL_ROWS:
        for name, hint in get_type_hints(struct, include_extras=True).items():
            inner = get_args(hint)[0] if get_origin(hint) is Annotated else hint
            if inner in (int, float, str, bytes) or get_origin(inner) is tuple:
                assert bound_of(hint) is not None, f"{struct.__name__}.{name}"


def test_bounds_are_what_they_say() -> None:
    assert Whole(3).admitted(3) == 3
    assert Words(2).admitted("abc") == "ab"
    assert [SECONDS.clamped(each) for each in (math.nan, -1.0, 0.0, 1e-310, 1e308)] == [
        0.0,
        0.0,
        0.0,
        1e-9,
        1e9,
    ]
    assert [LOSS.clamped(each) for each in (1e-310, -1e308, -2.0)] == [0.0, -LOSS.most, -2.0]
    assert np.float32(LOSS.most) == np.finfo(np.float32).max == LOSS.most, (
        "what is more would be infinite in f32"
    )


@pytest.mark.parametrize("steps", [1, LOSSES - 1, LOSSES, LOSSES + 1, 5 * LOSSES + 3, 140_000])
def test_losses_of_many_steps_are_means_with_the_same_mean(steps: int) -> None:
    losses = [math.sin(step) + 2 for step in range(steps)]
    said = told(losses)
    assert len(said) == min(steps, LOSSES)
    assert mean(said, steps) == pytest.approx(math.fsum(losses) / steps, rel=1e-12)
    assert told(said) == said
    update = dataclasses.replace(SAMPLES[Update], steps=steps, losses=said)
    (frame,) = FrameDecoder().feed(encode_control(update))
    assert decode_control(frame) == update


def test_what_is_no_loss_stays_none() -> None:
    for bad in (math.nan, math.inf, -math.inf, 1e308):
        said = told([1.0] * 3000 + [bad])
        assert not usable(said)
        assert sum(map(math.isnan, said)) == 1
    assert told([]) == ()
