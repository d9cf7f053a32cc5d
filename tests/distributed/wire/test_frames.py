"""Frames: any cut of a valid stream gives the same frames; nothing else gets in."""

import itertools
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcp.distributed.wire.frames import (
    CONTROL_LIMITS,
    HEADER_BYTES,
    MAGIC,
    PAYLOAD_LIMITS,
    TRANSFER_LIMITS,
    FrameDecoder,
    FrameError,
    FrameKind,
    FrameMemory,
    encode_frame,
)

frames = st.lists(st.tuples(st.sampled_from(FrameKind), st.binary(max_size=300)), max_size=6)


def header(kind: int, size: int, *, magic: bytes = MAGIC, checksum_error: int = 0) -> bytes:
    fields = struct.pack("<4sB3xI", magic, kind, size)
    return fields + struct.pack("<I", zlib.crc32(fields) ^ checksum_error)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:stop] for start, stop in itertools.pairwise(places)]


@given(frames, st.lists(st.integers(0, 10_000), max_size=12))
def test_any_cut_gives_the_same_frames(sent: list[tuple[FrameKind, bytes]], cuts: list[int]) -> None:
    stream = b"".join(encode_frame(kind, payload) for kind, payload in sent)
    decoder = FrameDecoder()
    received = [frame for piece in pieces(stream, cuts) for frame in decoder.feed(piece)]
    assert [(frame.kind, bytes(frame.payload)) for frame in received] == sent
    assert decoder.between_frames


@given(frames)
def test_receiving_in_place_gives_the_same_frames(sent: list[tuple[FrameKind, bytes]]) -> None:
    stream = b"".join(encode_frame(kind, payload) for kind, payload in sent)
    decoder, received = FrameDecoder(), []
    while stream:
        space = decoder.space()
        count = min(len(space), len(stream), 7)
        space[:count], stream = stream[:count], stream[count:]
        frame = decoder.advance(count)
        if frame is not None:
            received.append((frame.kind, bytes(frame.payload)))
    assert received == sent


@given(
    st.lists(
        st.one_of(st.binary(max_size=64), st.builds(header, st.integers(0, 255), st.integers(0, 2**32 - 1)))
    )
)
def test_garbage_is_refused_within_the_limits(stream: list[bytes]) -> None:
    decoder = FrameDecoder()
    for piece in stream:
        try:
            decoder.feed(piece)
        except FrameError:
            with pytest.raises(FrameError, match="nothing is accepted after a bad frame"):
                decoder.feed(b"x")
            break
        assert decoder.allocated_bytes <= HEADER_BYTES + max(PAYLOAD_LIMITS.values())


@given(frames, st.lists(st.integers(0, 10_000), max_size=12))
def test_frames_before_a_bad_one_are_seen_however_the_stream_is_cut(
    sent: list[tuple[FrameKind, bytes]], cuts: list[int]
) -> None:
    stream = b"".join(encode_frame(kind, payload) for kind, payload in sent) + b"GET / HTTP/1.1\r\n\r\n"
    decoder, received = FrameDecoder(), []
    for piece in pieces(stream, cuts):
        try:
            received += decoder.feed(piece)
        except FrameError:
            break
    assert [(frame.kind, bytes(frame.payload)) for frame in received] == sent
    assert decoder.error is not None


@pytest.mark.parametrize("kind", FrameKind)
def test_the_limit_of_every_kind(kind: FrameKind) -> None:
    limit = PAYLOAD_LIMITS[kind]
    decoder = FrameDecoder()
    assert decoder.feed(header(kind, limit)) == []
    assert decoder.allocated_bytes == HEADER_BYTES + limit
    with pytest.raises(
        FrameError, match=f"a {kind.name} frame of {limit + 1} bytes exceeds the limit of {limit}"
    ):
        FrameDecoder().feed(header(kind, limit + 1))
    with pytest.raises(
        FrameError, match=f"may hold {limit} bytes and was given {limit + 1}; send large values"
    ):
        encode_frame(kind, bytes(limit + 1))


def test_what_is_said_about_a_stream_of_another_protocol() -> None:
    with pytest.raises(
        FrameError, match=r"starts with b'PCP\\x01' and received b'GET '; the connection must be"
    ):
        FrameDecoder().feed(b"GET / HTTP/1.1\r\n")


def test_what_is_said_about_a_damaged_header() -> None:
    with pytest.raises(FrameError, match="the checksum of a frame header is wrong"):
        FrameDecoder().feed(header(1, 10, checksum_error=1))


def test_a_connection_accepts_only_its_own_kinds() -> None:
    with pytest.raises(
        FrameError, match="received a frame of kind 3; this connection accepts CONTROL, REFUSAL"
    ):
        FrameDecoder(CONTROL_LIMITS).feed(encode_frame(FrameKind.CHUNK, b"abc"))
    with pytest.raises(FrameError, match="of kind 1; this connection accepts TRANSFER, CHUNK, REFUSAL"):
        FrameDecoder(TRANSFER_LIMITS).feed(encode_frame(FrameKind.CONTROL, b"abc"))
    with pytest.raises(FrameError, match="received a frame of kind 77"):
        FrameDecoder().feed(header(77, 0))


def test_memory_of_frames_is_used_again_within_its_bound() -> None:
    memory = FrameMemory(250)
    first, second = memory.take(100), memory.take(100)
    assert first is not second
    memory.give_back(first)
    memory.give_back(b"not a buffer")
    assert memory.take(60) is not first
    assert memory.take(100) is first
    third = bytearray(100)
    for buffer in (first, second, third):  # one too many: those before it are forgotten
        memory.give_back(buffer)
    assert memory.take(100) is third
    assert not any(memory.take(100) is each for each in (first, second))
