"""Bytes from others where arrays, messages, sayings and descriptions are expected: what reads them refuses, and no more."""

import json
import struct
from collections.abc import Callable, Hashable
from random import Random
from typing import Any

import numpy as np

from pcp.distributed.job import InvalidJob, Job
from pcp.distributed.messages import Blob, Heartbeat, Update
from pcp.distributed.round_arithmetic.array_blobs import ArraysRefused
from pcp.distributed.round_arithmetic.flat_blobs import VECTOR, load_vector
from pcp.distributed.round_arithmetic.inner_state import load_inner
from pcp.distributed.round_arithmetic.program_fit import Arrays
from pcp.distributed.simulator.arrays.store import temporary_folder
from pcp.distributed.simulator.fuzz.corpus import Choices, Plan
from pcp.distributed.simulator.fuzz.honest import blob_named
from pcp.distributed.simulator.fuzz.witness import Broken
from pcp.distributed.wire.blobs import BlobStore
from pcp.distributed.wire.codec import MessageError, PeerIsNewer, decode_control, encode_control
from pcp.distributed.wire.frames import FrameDecoder, FrameError
from pcp.distributed.worker.programs import sayings
from pcp.errors import PCPError
from pcp.ir import DType, TensorSpec
from pcp.ir.tree import LEAF
from pcp.training.data.safetensors_file import pieces_of

SIZE = 10
"""Numbers in a push."""
ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1,
    SIZE,
    2**31,
    2**63 - 1,
    2**64,
    10**400,
    0.5,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "F32",
    "x" * 10_000,
    "\ud800",
    "../../x",
    [],
    {},
    [0] * 70,
    [1] * 70,
)
JOB = {
    "version": 6,
    "programs": {"inner_step": {"digest": "00" * 32, "size": 9}},
    "tokens": {"digest": "00" * 32, "size": 9},
    "batch": 1,
    "context": 8,
    "seed": 0,
    "vocabulary": 9,
    "overlap": False,
    "sizes": {"inner_step": {"batch": 4}},
}
UPDATE = Update(1, 2, 3, blob_named("push"), 4, 40, (2.0,) * 4, 1.0, (bytes(32),))
SAYING = {
    "number": 1,
    "lease": 2,
    "payload": ["00" * 32, 40],
    "tokens": 1,
    "losses": [1.0, "NaN"],
    "seconds": 1.0,
    "overhead": 0.1,
    "waited": 0.0,
    "states": [],
    "settled": [[0, "admitted"]],
}


class PushesLife:
    """Some bytes for each that reads what others send.

    Arguments:
        plan: the seed of all that is random; see `corpus.py`.
        wild: how many each reads.
    """

    def __init__(self, plan: Plan | int, wild: int = 12) -> None:
        self.choices, self.wild, self.events = Choices("pushes", plan), wild, 0
        self.random = self.choices.random
        self.happened: dict[Hashable, int] = {}

    def run(self) -> None:
        """Live.

        Raises:
            Broken: something was read that is nothing, or refused by an error that its reader does not announce.
        """
        with temporary_folder() as folder:
            self.store = BlobStore(folder)
            for _ in range(self.wild):
                self.choices.act()
                for reader, (refusals, read) in READERS.items():
                    self.events += 1
                    try:
                        read(self)
                    except refusals as error:
                        self.happened.setdefault((reader, type(error)), self.choices.actions)
                    except PCPError as error:
                        raise Broken(
                            f"{reader} is refused as {type(error).__name__}: {error!s:.200}"
                        ) from error

    def stored(self, content: bytes) -> Blob:
        """A blob of some bytes."""
        return self.store.put(content)

    def spoiled(self, content: bytes) -> bytes:
        """Bytes of which some are others, or too few or too many; once in a while as they were."""
        random, changed = self.random, bytearray(content)
        for _ in range(random.choice((0, 1, 1, 2, 8))):
            place = random.randrange(len(changed) + 1)
            match random.randrange(4):
                case 0 if changed:
                    changed[place % len(changed)] = random.choice(
                        (0, 1, 127, 128, 255, random.randrange(256))
                    )
                case 1:
                    del changed[place:]
                case 2:
                    changed[place:place] = random.choice((b"\0" * 8, b"\xff" * 8, changed[:16], b"[" * 5000))
                case _:
                    del changed[place : place + random.randrange(9)]
        return bytes(changed)

    def odd_json(self, value: Any) -> bytes:
        """JSON that is much like a value, or bytes that are much like JSON."""
        if self.random.random() < 0.8:
            value = _changed(self.random, value)
        text = json.dumps(value)
        if self.random.random() < 0.2:  # what no writer of JSON writes
            brackets = self.random.choice(("[", '{"a":')) * 100_000
            text = text.replace(
                self.random.choice(("1", "9", '"', "[")),
                self.random.choice((brackets, "1e999", "NaN", "")),
                1,
            )
        content = text.encode()
        return self.spoiled(content) if self.random.random() < 0.2 else content

    def arrays(self, arrays: dict[str, Any]) -> Blob:
        """A file much like that of some arrays."""
        whole = b"".join(bytes(piece) for piece in pieces_of(arrays))
        length = int.from_bytes(whole[:8], "little")
        header, data = whole[8 : 8 + length], whole[8 + length :]
        if self.random.random() < 0.7:
            header = self.odd_json(json.loads(header))
        odd = (len(header), 0, 2**63, 2**64 - 1, len(header) + 1)
        said = len(header) if self.random.random() < 0.9 else self.random.choice(odd)
        content = struct.pack("<Q", said) + header + data
        return self.stored(self.spoiled(content) if self.random.random() < 0.2 else content)


def _changed(random: Random, value: Any) -> Any:
    """A value of JSON with something odd in the place of a part of it."""
    if isinstance(value, dict) and value and random.random() < 0.9:
        key = random.choice(sorted(value))
        if random.random() < 0.15:
            return {each: item for each, item in value.items() if each != key}
        return value | {key: _changed(random, value[key])}
    if isinstance(value, list) and value and random.random() < 0.9:
        place = random.randrange(len(value))
        return [*value[:place], _changed(random, value[place]), *value[place + 1 :]]
    return random.choice(ODD)


def _read_push(life: PushesLife) -> None:
    vector = load_vector(life.store, life.arrays({VECTOR: np.ones(SIZE, np.float32)}), SIZE, finite=True)
    if vector.shape != (SIZE,) or not np.isfinite(vector).all():
        raise Broken(f"a push of shape {vector.shape} is taken for one of {SIZE} numbers")


def _read_state(life: PushesLife) -> None:
    spec = TensorSpec((SIZE,), DType.f32)
    arrays = {"state": np.ones(SIZE, np.float32)}
    arrays |= {f"{name}.0": np.ones(SIZE, np.float32) for name in ("anchors", "references", "residuals")}
    load_inner(life.store, life.arrays(arrays), Arrays(LEAF, (spec,)), [Arrays(LEAF, (spec,))])


def _read_messages(life: PushesLife) -> None:
    said = Heartbeat(1, 2, 3, 4, 0.5) if life.random.random() < 0.5 else UPDATE
    decoder = FrameDecoder()
    for frame in decoder.feed(life.spoiled(encode_control(said))):
        decode_control(frame)


def _read_saying(life: PushesLife) -> None:
    said = sayings.read(life.odd_json(SAYING))
    sayings.look_at(said, (sayings.Done, *sayings.REMARKS, *sayings.ENDS))


def _read_job(life: PushesLife) -> None:
    Job.from_json(life.odd_json(JOB).decode(errors="surrogateescape"))


READERS: dict[str, tuple[tuple[type[Exception], ...], Callable[[PushesLife], None]]] = {
    "a push": ((ArraysRefused,), _read_push),
    "a state": ((ArraysRefused,), _read_state),
    "a message": ((FrameError, MessageError, PeerIsNewer), _read_messages),
    "a saying": ((sayings.SaidWrong,), _read_saying),
    "a job": ((InvalidJob,), _read_job),
}
