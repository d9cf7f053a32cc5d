"""Peers that say anything: valid messages in any order, with any numbers, damaged or not, over several connections.

python -m pytest -m long tests/distributed/wire/test_fuzz.py
"""

import hashlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from pcp.distributed.messages import Blob, Goodbye, Heartbeat, Hello, Ready
from pcp.distributed.wire.blob_files import blob_of
from pcp.distributed.wire.blobs import BlobStore
from pcp.distributed.wire.bulk.messages import Begin, Credit, Fetch, Push, Stored
from pcp.distributed.wire.bulk.permissions import Announcements
from pcp.distributed.wire.bulk.responder import TransferResponder
from pcp.distributed.wire.bulk.transfer import TransferSettings
from pcp.distributed.wire.codec import PROTOCOL_VERSION, encode_control, encode_refusal, encode_transfer
from pcp.distributed.wire.connection import ControlMachine, PeerClosed, Side
from pcp.distributed.wire.frames import PAYLOAD_LIMITS, FrameDecoder, FrameError, FrameKind, encode_frame
from pcp.distributed.wire.refusal import Refusal

from .loopback import open_descriptors

CONTENT = random.Random(8).randbytes(1000)
OFFERED = [blob_of(CONTENT), blob_of(CONTENT[:300]), blob_of(b"")]
LIES = [Blob(OFFERED[0].digest, 999), Blob(bytes(32), 1000), Blob(bytes(32), (1 << 63) + 1)]
NUMBERS = [0, 1, 7, 299, 300, 500, 999, 1000, 1001, 1 << 40, (1 << 64) - 1]
SMALL = TransferSettings(chunk_bytes=100, window_bytes=350)


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The bytes, or once in a while others."""
    if rng.random() > 0.03:
        return data
    changed = bytearray(data)
    changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed[: rng.choice([len(changed), rng.randrange(len(changed) + 1)])])


def request(rng: random.Random) -> bytes:
    """A message of a transfer."""
    blob, number = rng.choice(OFFERED + LIES), lambda: rng.choice(NUMBERS)
    first = rng.choice([0, 0, 250, 500, 750])
    last = min(blob.size, first + rng.choice([250, 1000])) if rng.random() < 0.9 else number()
    kind = rng.randrange(8)
    if kind < 3:
        return encode_transfer(
            Push(blob, first, last, rng.choice([350, number()]), rng.choice([100, number()]))
        )
    if kind < 5:
        return encode_transfer(Fetch(blob, first, last, rng.choice([350, number()]), 100))
    said = [Credit(number()), Begin(number(), number(), 1, 1), Stored(blob.digest)]
    return encode_transfer(rng.choice(said)) if kind < 7 else encode_refusal(Refusal(rng.randrange(99), "no"))


class Talker:
    """One connection: what its responder has asked for is mostly what it gets."""

    def __init__(self, name: str, store: BlobStore, permissions: Announcements) -> None:
        self.responder = TransferResponder(name, store, permissions, SMALL)
        self.decoder = FrameDecoder()
        self.wanted = 0

    def turn(self, rng: random.Random) -> bool:
        """Says something; returns whether the connection goes on."""
        receiver = self.responder._receiver
        if receiver is not None and rng.random() < 0.9:
            offset = receiver._sink.offset + (rng.choice(NUMBERS) if rng.random() < 0.02 else 0)
            length = rng.choice([1, 50, 100, 100, 100])
            good = CONTENT[offset : min(offset + length, receiver._stop)] or b"?"
            data = good if rng.random() < 0.99 else rng.randbytes(len(good))
            said = encode_frame(FrameKind.CHUNK, (offset % (1 << 64)).to_bytes(8, "little"), data)
        elif self.responder._senders and rng.random() < 0.8:
            said = encode_transfer(Credit(self.responder._senders[0]._sent))
        else:
            said = request(rng)
        try:
            frames = self.decoder.feed(damaged(said, rng))
        except FrameError:
            return False
        for frame in frames:
            self.responder.receive(frame)
        for _ in range(100):
            if self.responder.next_frame() is None:
                break
        else:
            pytest.fail("a responder never stops talking")
        assert len(self.responder._answers) == 0
        return self.decoder.error is None and not self.responder.finished


def transfers(seed: int, folder: Path) -> None:
    """Four connections of two workers on one store."""
    rng, store, permissions = random.Random(seed), BlobStore(folder), Announcements()
    permissions.announce(OFFERED)
    for name in ("ada", "bob"):
        permissions.allow_push(name, 5000)
    if rng.random() < 0.3:
        store.put(CONTENT)
    names = ["ada", "ada", "ada", "bob"]
    talkers = [Talker(name, store, permissions) for name in names]
    for _ in range(120):
        place = rng.randrange(len(talkers))
        if not talkers[place].turn(rng) or rng.random() < 0.01:
            talkers[place].responder.close()
            talkers[place] = Talker(names[place], store, permissions)
    for talker in talkers:
        talker.responder.close()
    for path in store.folder.iterdir():
        if path.suffix != ".part":
            assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
    assert store.total_bytes == sum(path.stat().st_size for path in store.folder.iterdir())


def conversation(seed: int, _: Path) -> None:
    """One control connection at the Shepherd."""
    rng, machine = random.Random(seed), ControlMachine(Side.SHEPHERD, "ada")
    hello = Hello(PROTOCOL_VERSION, "ada", b"incarnation", ("cpu:0",), 1)
    said = [hello, Heartbeat(1, 1, 1, 1, 1.0), Ready(1), Goodbye(True, ""), Hello(9, "bob", b"", (), 0)]
    events = machine.receive(encode_control(hello)) if rng.random() < 0.8 else []
    stream = b"".join(damaged(encode_control(rng.choice(said)), rng) for _ in range(20))
    while stream and not machine.is_closed:
        cut = rng.randint(1, 200)
        events += machine.receive(stream[:cut])
        stream = stream[cut:]
        assert machine._decoder.allocated_bytes <= 16 + PAYLOAD_LIMITS[FrameKind.CONTROL]
    events += machine.receive_end()
    assert machine.is_closed
    assert machine.receive(b"more") == machine.receive_end() == []
    assert sum(isinstance(event, PeerClosed) for event in events) <= 1
    assert machine.bytes_in_flight < 10_000


@pytest.mark.parametrize(
    "seeds", [150, pytest.param(5_000, marks=[pytest.mark.long, pytest.mark.timeout(3600)])]
)
@pytest.mark.parametrize("play", [transfers, conversation])
def test_peers_that_say_anything(tmp_path: Path, play: Callable[[int, Path], None], seeds: int) -> None:
    before = open_descriptors()
    for seed in range(seeds):
        try:
            play(seed, tmp_path / str(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert open_descriptors() <= before
