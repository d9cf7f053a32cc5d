"""Transfers as pure machines: both directions, cut off anywhere, resumed, refused, cheated."""

import random
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pcp.distributed.messages import Blob
from pcp.distributed.wire.blob_files import DigestMismatch, blob_of
from pcp.distributed.wire.blobs import BlobStore
from pcp.distributed.wire.bulk.chunks import ChunkReceiver, ChunkSender, TransferRefused, TransferViolation
from pcp.distributed.wire.bulk.messages import Begin, Credit, Fetch, Push, Stored
from pcp.distributed.wire.bulk.permissions import Announcements
from pcp.distributed.wire.bulk.responder import TransferResponder
from pcp.distributed.wire.bulk.transfer import (
    BadTransferSettings,
    FetchRequester,
    PushRequester,
    TransferSettings,
)
from pcp.distributed.wire.codec import decode_refusal, decode_transfer, encode_transfer
from pcp.distributed.wire.frames import (
    CHUNK_PREFIX_BYTES,
    Frame,
    FrameDecoder,
    FrameError,
    FrameKind,
    encode_frame,
)
from pcp.distributed.wire.refusal import RefusalCode

SMALL = TransferSettings(chunk_bytes=100, window_bytes=350)
CONTENT = random.Random(3).randbytes(3_333)
BLOB = blob_of(CONTENT)


class Machine(Protocol):
    def next_frame(self) -> bytes | None: ...
    def receive(self, frame: Frame) -> None: ...


class Pump:
    """Carries frames between two machines, counts blob bytes and the most on the way."""

    def __init__(self, client: Machine, server: Machine) -> None:
        self.machines = (client, server)
        self.on_the_way: tuple[list[Frame], list[Frame]] = ([], [])
        self.chunk_bytes = 0
        self.most_on_the_way = 0

    def step(self, side: int) -> bool:
        """Lets one machine send all it can and receive one frame; says whether anything happened."""
        machine, moved = self.machines[side], False
        while (data := machine.next_frame()) is not None:
            moved = True
            (frame,) = FrameDecoder().feed(data)
            if frame.kind is FrameKind.CHUNK:
                self.chunk_bytes += len(frame.payload) - CHUNK_PREFIX_BYTES
            self.on_the_way[1 - side].append(frame)
            waiting = sum(len(f.payload) - 8 for q in self.on_the_way for f in q if f.kind is FrameKind.CHUNK)
            self.most_on_the_way = max(self.most_on_the_way, waiting)
        if self.on_the_way[side]:
            machine.receive(self.on_the_way[side].pop(0))
            moved = True
        return moved

    def run(self, maximum_steps: int = 10_000) -> None:
        for _ in range(maximum_steps):
            if not any([self.step(0), self.step(1)]):
                return
        assert maximum_steps < 10_000, "the machines never come to rest"


@pytest.fixture
def here(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "worker")


@pytest.fixture
def there(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "shepherd")


def responder(store: BlobStore, *, fetch: bool = True, push_bytes: int | None = 10_000) -> TransferResponder:
    permissions = Announcements()
    if fetch:
        permissions.announce([BLOB])
    if push_bytes is not None:
        permissions.allow_push("ada", push_bytes)
    return TransferResponder("ada", store, permissions, SMALL)


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 350, 3_333])
def test_fetch_and_push_of_every_size(here: BlobStore, there: BlobStore, size: int) -> None:
    blob = there.put(CONTENT[:size])
    permissions = Announcements()
    permissions.announce([blob])
    server = TransferResponder("ada", there, permissions, SMALL)
    with here.begin(blob, "run") as sink:
        client = FetchRequester(blob, sink, SMALL)
        pump = Pump(client, server)
        pump.run()
    assert client.finished
    assert server.idle
    assert here.get(blob) == CONTENT[:size]
    assert pump.most_on_the_way <= 350
    assert pump.chunk_bytes == size

    there.remove(blob.digest)
    permissions.allow_push("ada", size)
    with here.open(blob) as source:
        push = PushRequester(blob, source, SMALL)
        pump = Pump(push, server)  # the same connection goes on
        pump.run()
    assert push.finished
    assert there.get(blob) == CONTENT[:size]
    assert pump.most_on_the_way <= 350
    assert pump.chunk_bytes == size

    with here.open(blob) as source:
        again = PushRequester(blob, source, SMALL)
        pump = Pump(again, server)
        pump.run()
    assert again.finished
    assert pump.chunk_bytes == 0


@pytest.mark.parametrize("direction", ["fetch", "push"])
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(0, 30), max_size=6))
def test_a_connection_may_break_anywhere(
    tmp_path_factory: pytest.TempPathFactory, direction: str, cuts: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    here, there = BlobStore(folder / "here"), BlobStore(folder / "there")
    (there if direction == "fetch" else here).put(CONTENT)
    receiver = here if direction == "fetch" else there
    moved = 0
    for cut in [*cuts, 9_999]:
        server = responder(there)
        if receiver.has(BLOB):
            break
        if direction == "fetch":
            with here.begin(BLOB, "run") as sink:
                pump = Pump(FetchRequester(BLOB, sink, SMALL), server)
                pump.run(cut)
        else:
            with here.open(BLOB) as source:
                pump = Pump(PushRequester(BLOB, source, SMALL), server)
                pump.run(cut)
        server.close()
        moved += pump.chunk_bytes
    assert receiver.get(BLOB) == CONTENT
    assert moved <= len(CONTENT) + 350 * len(cuts)  # at most a window is sent again after each break


def test_a_blob_that_was_complete_but_not_checked(here: BlobStore, there: BlobStore) -> None:
    with here.begin(BLOB, "run") as sink:
        sink.write(CONTENT)
    with here.begin(BLOB, "run") as sink:
        assert FetchRequester(BLOB, sink, SMALL).finished
    assert here.get(BLOB) == CONTENT
    with there.begin(BLOB, "ada") as sink:
        sink.write(CONTENT)
    with here.open(BLOB) as source:
        push = PushRequester(BLOB, source, SMALL)
        Pump(push, responder(there)).run()
    assert push.finished
    assert there.has(BLOB)


@pytest.mark.parametrize(
    ("options", "in_store", "code", "text"),
    [
        ({"fetch": False}, True, RefusalCode.NOT_ANNOUNCED, "of 3333 bytes is not announced to ada"),
        ({}, False, RefusalCode.MISSING, "it is announced, but not in the store"),
    ],
)
def test_a_refused_fetch(
    here: BlobStore, there: BlobStore, options: dict[str, bool], in_store: bool, code: RefusalCode, text: str
) -> None:
    if in_store:
        there.put(CONTENT)
    server = responder(there, fetch=options.get("fetch", True))
    with here.begin(BLOB, "run") as sink, pytest.raises(TransferRefused, match=text) as caught:
        Pump(FetchRequester(BLOB, sink, SMALL), server).run()
    assert caught.value.refusal.kind is code
    assert server.idle
    assert not server.finished  # another request may follow


@pytest.mark.parametrize(
    ("push_bytes", "limits", "code", "text"),
    [
        (None, {}, RefusalCode.NOT_ANNOUNCED, "ada was not asked for a blob"),
        (3_332, {}, RefusalCode.TOO_LARGE, "ada may push 3332 bytes and offers a blob of 3333"),
        (9_999, {"maximum_blob_bytes": 3_332}, RefusalCode.TOO_LARGE, "accepts at most 3332"),
        (9_999, {"maximum_total_bytes": 3_332}, RefusalCode.STORE_FULL, "the store has no room for it"),
    ],
)
def test_a_refused_push(
    tmp_path: Path, push_bytes: int | None, limits: dict[str, int], code: RefusalCode, text: str
) -> None:
    here, there = BlobStore(tmp_path / "here"), BlobStore(tmp_path / "there", **limits)
    here.put(CONTENT)
    server = responder(there, push_bytes=push_bytes)
    with here.open(BLOB) as source, pytest.raises(TransferRefused, match=text) as caught:
        Pump(PushRequester(BLOB, source, SMALL), server).run()
    assert caught.value.refusal.kind is code
    assert str(tmp_path) not in str(caught.value)
    assert [refusal.kind for refusal in server.refusals] == [code]
    assert not server.finished
    assert list(there.folder.iterdir()) == []


def test_pushes_are_charged_once_per_blob() -> None:
    permissions = Announcements()
    permissions.allow_push("ada", 4_000)
    for _ in range(3):
        permissions.check_push("ada", BLOB)
    with pytest.raises(Exception, match="ada may push 667 bytes and offers a blob of 1000"):
        permissions.check_push("ada", Blob(bytes(32), 1000))


class LyingSource:
    """Gives other bytes than those of the blob."""

    def read_into(self, offset: int, space: memoryview) -> None:  # noqa: ARG002
        space[:] = bytes(len(space))

    def close(self) -> None:
        """Nothing is open."""


def test_a_pushed_blob_with_wrong_bytes(there: BlobStore) -> None:
    server = responder(there)
    with pytest.raises(TransferRefused, match=r"have the digest .* they were removed") as caught:
        Pump(PushRequester(BLOB, LyingSource(), SMALL), server).run()
    assert caught.value.refusal.kind is RefusalCode.CORRUPT
    assert list(there.folder.iterdir()) == []
    assert not server.finished


def test_a_fetched_blob_with_wrong_bytes(here: BlobStore, there: BlobStore) -> None:
    there.put(CONTENT)
    there.path(BLOB.digest).write_bytes(bytes(len(CONTENT)))
    server = responder(there)
    with here.begin(BLOB, "run") as sink, pytest.raises(DigestMismatch, match="they were removed"):
        Pump(FetchRequester(BLOB, sink, SMALL), server).run()
    server.close()
    assert list(here.folder.iterdir()) == []


def test_a_file_that_shrinks_while_it_is_sent(here: BlobStore, there: BlobStore) -> None:
    there.put(CONTENT)
    server = responder(there)
    with here.begin(BLOB, "run") as sink, pytest.raises(TransferRefused, match="the store failed"):  # noqa: PT012
        pump = Pump(FetchRequester(BLOB, sink, SMALL), server)
        pump.run(4)
        there.path(BLOB.digest).write_bytes(b"")
        pump.run()
    assert server.finished  # chunks were on the way: the connection cannot go on


def told(server: TransferResponder, *frames: bytes) -> str:
    """What a responder says at last to a client that sends these frames, whatever it answers."""
    last = b""
    for data in frames:
        while (answer := server.next_frame()) is not None:
            last = answer
        server.receive(FrameDecoder().feed(data)[0])
    while (answer := server.next_frame()) is not None:
        last = answer
    (frame,) = FrameDecoder().feed(last)
    return decode_refusal(frame).reason if frame.kind is FrameKind.REFUSAL else "no refusal"


def chunk(offset: int, data: bytes) -> bytes:
    return encode_frame(FrameKind.CHUNK, offset.to_bytes(8, "little"), data)


PUSH = encode_transfer(Push(BLOB, 0, 3_333, 350, 100))
FETCH = encode_transfer(Fetch(BLOB, 0, 3_333, 350, 100))


@pytest.mark.parametrize(
    ("frames", "reason", "closes"),
    [
        ([chunk(0, b"x")], "received CHUNK between two transfers", True),
        ([encode_transfer(Credit(0))], "received Credit(offset=0) between two transfers", True),
        ([encode_frame(FrameKind.TRANSFER, b"junk")], "4 bytes from the peer are not a message", False),
        ([PUSH, PUSH], "in the middle of a transfer", True),
        ([FETCH] * 9, "in the middle of a transfer", True),
        ([PUSH, encode_transfer(Fetch(BLOB, 1, 3_333, 350, 100))], "in the middle of a transfer", True),
        ([FETCH, chunk(0, b"x")], "in the middle of a transfer", True),
        ([FETCH, encode_transfer(Credit(351))], "received credit up to byte 351, but bytes 0 to 350", True),
        ([PUSH, chunk(1, b"x")], "expected the chunk at byte 0, received 1", True),
        ([PUSH, chunk(0, b"")], "received a chunk frame of 8 bytes, which holds no data", True),
        ([PUSH, chunk(0, bytes(351))], "ends at 351; nothing beyond 350 is allowed", True),
        ([encode_transfer(Fetch(BLOB, 5, 4, 1, 1))], "asked for bytes 5 to 4 of 3333", False),
        ([encode_transfer(Fetch(BLOB, 0, 3_334, 1, 1))], "asked for bytes 0 to 3334 of 3333", False),
        ([encode_transfer(Fetch(BLOB, 0, 1, 0, 1))], "a window of 0", False),
        ([encode_transfer(Fetch(BLOB, 0, 1, 1, 0))], "asked for chunks of 0", False),
        ([encode_transfer(Push(BLOB, 0, 3_333, 0, 1))], "a window of 0", False),
    ],
)
def test_a_client_that_breaks_the_rules(
    there: BlobStore, frames: list[bytes], reason: str, closes: bool
) -> None:
    server = responder(there)
    if FETCH in frames:
        there.put(CONTENT)
    assert reason in told(server, *frames)
    assert server.finished is closes
    server.close()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Begin(1, 3_333, 350, 100), "asked for bytes 0 to 3333, was promised 1 to 3333"),
        (Begin(0, 3_332, 350, 100), "was promised 0 to 3332"),
        (Begin(0, 3_333, 351, 100), "was promised 100 and 351"),
        (Begin(0, 3_333, 350, 0), "in a window of 350, was promised 0 and 350"),
        (Stored(BLOB.digest), "expected the beginning of a transfer, received Stored"),
    ],
)
def test_a_server_that_breaks_the_rules_of_a_fetch(
    here: BlobStore, answer: Begin | Stored, reason: str
) -> None:
    with here.begin(BLOB, "run") as sink:
        client = FetchRequester(BLOB, sink, SMALL)
        with pytest.raises(TransferViolation, match=reason):
            client.receive(FrameDecoder().feed(encode_transfer(answer))[0])
    with here.begin(BLOB, "run") as sink:
        client = FetchRequester(BLOB, sink, SMALL)
        client.receive(FrameDecoder().feed(encode_transfer(Begin(0, 3_333, 350, 100)))[0])
        with pytest.raises(TransferViolation, match="expected a chunk, received a TRANSFER frame"):
            client.receive(FrameDecoder().feed(encode_transfer(answer))[0])


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([Begin(3_334, 3_333, 350, 100)], "offered bytes 0 to 3333, was asked for 3334 to 3333"),
        ([Begin(0, 3_332, 350, 100)], "was asked for 0 to 3332"),
        ([Begin(0, 3_333, 0, 100)], "was promised 100 and 0"),
        ([Begin(0, 3_333, 350, 100), Stored(BLOB.digest)], "in the middle of a push"),
        ([Begin(3_333, 3_333, 350, 100), Stored(bytes(32))], "in the middle of a push"),
        ([Begin(0, 3_333, 350, 100), Credit(1)], "but bytes 0 to 0 are on the way"),
    ],
)
def test_a_server_that_breaks_the_rules_of_a_push(
    here: BlobStore, answers: list[Begin | Stored | Credit], reason: str
) -> None:
    here.put(CONTENT)
    with here.open(BLOB) as source, pytest.raises(TransferViolation, match=reason):  # noqa: PT012
        client = PushRequester(BLOB, source, SMALL)
        for answer in answers:
            client.receive(FrameDecoder().feed(encode_transfer(answer))[0])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.sampled_from([PUSH, FETCH, encode_transfer(Credit(100))]),
            st.builds(chunk, st.integers(0, 400), st.binary(max_size=300)),
        ),
        max_size=20,
    )
)
def test_any_sequence_of_frames_is_survived(
    tmp_path_factory: pytest.TempPathFactory, stream: list[bytes]
) -> None:
    store = BlobStore(tmp_path_factory.mktemp("any"))
    server = responder(store)
    for data in stream:
        for frame in FrameDecoder().feed(data):
            server.receive(frame)
        while server.next_frame() is not None:
            pass
    server.close()
    assert not store.has(BLOB)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32))
def test_mutated_bytes_of_transfers_are_survived(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    rng = random.Random(seed)
    store = BlobStore(tmp_path_factory.mktemp("mutated"))
    server, decoder = responder(store), FrameDecoder()
    data = bytearray(
        PUSH
        + b"".join(chunk(offset, CONTENT[offset : offset + 100]) for offset in range(0, 1000, 100))
        + FETCH
    )
    for _ in range(rng.randint(1, 6)):
        place = rng.randrange(len(data))
        if rng.random() < 0.7:
            data[place] = rng.randrange(256)
        else:
            del data[place : place + rng.randint(1, 50)]
    try:
        for start in range(0, len(data), 97):
            for frame in decoder.feed(data[start : start + 97]):
                server.receive(frame)
            while server.next_frame() is not None:
                pass
            assert decoder.allocated_bytes < 5 << 20
    except FrameError:
        pass
    server.close()
    assert not store.has(BLOB)


def test_settings_that_cannot_work() -> None:
    with pytest.raises(BadTransferSettings, match="chunk_bytes is 5000000; choose 1 to 4194304"):
        TransferSettings(chunk_bytes=5_000_000)
    with pytest.raises(
        BadTransferSettings, match="window_bytes is 99; it must hold at least one chunk of 100"
    ):
        TransferSettings(chunk_bytes=100, window_bytes=99)


def test_sender_and_receiver_agree_on_every_window() -> None:
    rng = random.Random(11)
    for _ in range(50):
        size, window = rng.randint(1, 2000), rng.randint(1, 500)
        content, taken = rng.randbytes(size), bytearray()

        class Source:
            def read_into(self, offset: int, space: memoryview, content: bytes = content) -> None:
                space[:] = content[offset : offset + len(space)]

            def close(self) -> None: ...

        class Sink:
            offset = 0

            def write(self, data: bytes | bytearray | memoryview, taken: bytearray = taken) -> None:
                taken.extend(data)
                self.offset += len(data)

            def finish(self) -> None: ...
            def close(self) -> None: ...

        class SenderMachine:
            def __init__(self, sender: ChunkSender) -> None:
                self.next_frame, self.sender = sender.next_frame, sender

            def receive(self, frame: Frame) -> None:
                credit = decode_transfer(frame)
                assert isinstance(credit, Credit)
                self.sender.receive(credit)

        sender = ChunkSender(Source(), 0, size, window, rng.randint(1, window))
        receiver = ChunkReceiver(Sink(), size, window)
        Pump(SenderMachine(sender), receiver).run()
        assert bytes(taken) == content
        assert sender.finished
        assert receiver.finished
