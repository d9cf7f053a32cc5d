"""What a worker says whose process was taken over: wrong updates, updates that lie, and bytes that are no message."""

import math
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pcp.distributed.bounds import LOSS, LOSSES, SECONDS
from pcp.distributed.messages import Blob, Update
from pcp.distributed.wire.codec import SCHEMA, encode_control
from pcp.distributed.wire.frames import HEADER_BYTES, MAGIC, PAYLOAD_LIMITS, FrameKind, encode_frame

Change = Callable[[Update, int], Update]

WRONG: dict[str, Change] = {
    "of the membership before": lambda update, _: replace(update, generation=update.generation - 1),
    "of a membership to come": lambda update, _: replace(update, generation=update.generation + 1),
    "of a lease that is not": lambda update, _: replace(update, lease_id=update.lease_id + 500_000_000),
    "of the lease of another": lambda update, other: replace(update, lease_id=other),
    "of the next round": lambda update, _: replace(update, round=update.round + 1),
    "of one step more": lambda update, _: replace(update, steps=update.steps + 1, tokens=update.tokens + 7),
    "of ten times the tokens": lambda update, _: replace(update, tokens=10 * update.tokens + 1),
    "with more losses than steps": lambda update, _: replace(
        update, losses=(1.5,) * min(LOSSES, update.steps + 1)
    ),
    "of another size": lambda update, _: replace(
        update, payload=Blob(update.payload.digest, update.payload.size + 1)
    ),
}
"""Updates that must be refused, by what is wrong with them. What they hold, the wire carries.

They are made from the honest one and the number of another lease.
"""

LIES: dict[str, Change] = {
    "no time": lambda update, _: replace(update, seconds=0.0),
    "the least time": lambda update, _: replace(update, seconds=SECONDS.least),
    "the longest time": lambda update, _: replace(update, seconds=SECONDS.most),
    "the largest losses": lambda update, _: replace(update, losses=(LOSS.most,) * len(update.losses)),
    "the least losses": lambda update, _: replace(update, losses=(-LOSS.least,) * len(update.losses)),
}
"""Updates that nobody can tell from honest ones, by what they say: they are admitted, and the run ends all the same."""


def _field(name: str, value: Any) -> Callable[[Update], bytes]:
    """The update with a value that no encoder admits."""

    def encoded(update: Update) -> bytes:
        with SCHEMA.ControlMessage.from_bytes(encode_control(update)[HEADER_BYTES:]) as reader:
            content = reader.to_dict()
        content["update"][name] = value
        return encode_frame(FrameKind.CONTROL, SCHEMA.ControlMessage.new_message(**content).to_bytes())

    return encoded


def _beyond(update: Update) -> bytes:
    """The header of a frame that is larger than a message may be, and the beginning of that."""
    header = struct.pack("<4sB3xI", MAGIC, FrameKind.CONTROL, PAYLOAD_LIMITS[FrameKind.CONTROL] + 1)
    return header + struct.pack("<I", zlib.crc32(header)) + encode_control(update)


NO_MESSAGES: dict[str, Callable[[Update], bytes]] = {
    "a loss that is no number": _field("losses", [math.nan]),
    "an infinite loss": _field("losses", [math.inf]),
    "a subnormal loss": _field("losses", [5e-324]),
    "a loss beyond f32": _field("losses", [1e308]),
    "more losses than one message holds": _field("losses", [1.5] * (LOSSES + 1)),
    "a subnormal time": _field("seconds", 5e-324),
    "a negative time": _field("seconds", -1.0),
    "a time that is no number": _field("seconds", math.nan),
    "an endless time": _field("seconds", math.inf),
    "more steps than can be counted": _field("steps", 2**64 - 1),
    "a digest of five bytes": _field("payload", {"digest": b"short", "size": 9}),
    "a commitment of no bytes": _field("commitments", [b""]),
    "a frame of a transfer": lambda update: encode_frame(
        FrameKind.TRANSFER, encode_control(update)[HEADER_BYTES:]
    ),
    "a damaged header": lambda update: b"PCP\x02" + encode_control(update)[4:],
    "a message that points beyond itself": lambda _: encode_frame(
        FrameKind.CONTROL, struct.pack("<IIQ", 0, 1, 0x7FFF_0001_0000_0000)
    ),
    "a frame that is too large": _beyond,
    "half a message": lambda update: encode_frame(FrameKind.CONTROL, encode_control(update)[HEADER_BYTES:-8]),
}
"""Bytes that no worker of ours sends, by what they hold: the Shepherd's end of the connection refuses all of them."""
