"""Frames: how one byte stream becomes a sequence of bounded pieces. Pure: bytes in, frames out.

A frame is a header of 16 bytes and a payload:

    magic (4 bytes) | kind (1) | zero (3) | payload length (u32) | CRC-32 of the 12 bytes before it (u32)

all little-endian. The header's checksum does not protect the payload (TLS does that); it tells a peer
that lost its place in the stream, or never spoke this protocol, from one that announces a large frame.
The length is checked against the kind's limit before anything is allocated.
"""

import struct
import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

from pcp.errors import PCPError

MAGIC = b"PCP\x01"
HEADER_BYTES = 16
_FIELDS = struct.Struct("<4sB3xI")
_CHECKSUM = struct.Struct("<I")


class FrameKind(IntEnum):
    """What a payload holds."""

    CONTROL = 1  # one control message (Cap'n Proto)
    TRANSFER = 2  # one request or answer about a blob (Cap'n Proto)
    CHUNK = 3  # offset (u64) and bytes of a blob
    REFUSAL = 4  # why the peer will not go on (Cap'n Proto)


CHUNK_PREFIX_BYTES = 8
_CHUNK_DATA = HEADER_BYTES + CHUNK_PREFIX_BYTES
MAXIMUM_CHUNK_BYTES = 4 << 20

PAYLOAD_LIMITS: Mapping[FrameKind, int] = MappingProxyType(
    {
        FrameKind.CONTROL: 1 << 20,
        FrameKind.TRANSFER: 4 << 10,
        FrameKind.CHUNK: CHUNK_PREFIX_BYTES + MAXIMUM_CHUNK_BYTES,
        FrameKind.REFUSAL: 4 << 10,
    }
)

CONTROL_LIMITS: Mapping[FrameKind, int] = MappingProxyType(
    {kind: PAYLOAD_LIMITS[kind] for kind in (FrameKind.CONTROL, FrameKind.REFUSAL)}
)
"""What may arrive on a control connection."""

TRANSFER_LIMITS: Mapping[FrameKind, int] = MappingProxyType(
    {kind: PAYLOAD_LIMITS[kind] for kind in (FrameKind.TRANSFER, FrameKind.CHUNK, FrameKind.REFUSAL)}
)
"""What may arrive on a bulk connection."""


class FrameError(PCPError):
    """The byte stream is not a sequence of frames that this side accepts; the connection cannot go on."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One piece of the stream.

    Arguments:
        kind: what the payload holds.
        payload: the bytes between two headers.
    """

    kind: FrameKind
    payload: bytes | bytearray


class FrameMemory:
    """Buffers of large frames that are used again, from any thread: the system takes longer to give fresh memory than it
    takes to fill it.

    Arguments:
        maximum_bytes: what is kept, at most.
    """

    def __init__(self, maximum_bytes: int) -> None:
        self._maximum = maximum_bytes
        self._lock = threading.Lock()
        self._kept: dict[int, list[bytearray]] = {}
        self._bytes = 0

    def take(self, size: int) -> bytearray:
        """A buffer of that size, which holds anything."""
        with self._lock:
            if kept := self._kept.get(size):
                self._bytes -= size
                return kept.pop()
        return bytearray(size)

    def give_back(self, buffer: object) -> None:
        """Keeps a buffer that nobody reads any more; what is no `bytearray` is left alone."""
        if isinstance(buffer, bytearray):
            with self._lock:
                if self._bytes + len(buffer) > self._maximum:  # some may be of sizes that nobody wants now
                    self._kept.clear()
                    self._bytes = 0
                self._kept.setdefault(len(buffer), []).append(buffer)
                self._bytes += len(buffer)


FRAME_MEMORY = FrameMemory(16 << 20)


def encode_frame(kind: FrameKind, *payload: bytes | bytearray | memoryview) -> bytes:
    """The bytes of one frame.

    Arguments:
        kind: what the payload holds.
        payload: its bytes, in pieces that are joined.

    Returns:
        Header and payload.

    Raises:
        FrameError: the payload is larger than its kind allows.
    """
    size = sum(len(piece) for piece in payload)
    limit = PAYLOAD_LIMITS[kind]
    if size > limit:
        raise FrameError(
            f"a {kind.name} frame may hold {limit} bytes and was given {size}; send large values as blobs"
        )
    return b"".join((_header(kind, size), *payload))


def begin_chunk(offset: int, size: int) -> tuple[bytearray, memoryview]:
    """A chunk frame, and the part of it where that many bytes of the blob, from this offset on, belong."""
    frame = FRAME_MEMORY.take(_CHUNK_DATA + size)
    frame[:HEADER_BYTES] = _header(FrameKind.CHUNK, CHUNK_PREFIX_BYTES + size)
    frame[HEADER_BYTES:_CHUNK_DATA] = offset.to_bytes(CHUNK_PREFIX_BYTES, "little")
    return frame, memoryview(frame)[_CHUNK_DATA:]


def _header(kind: FrameKind, size: int) -> bytes:
    fields = _FIELDS.pack(MAGIC, kind, size)
    return fields + _CHECKSUM.pack(zlib.crc32(fields))


def kind_of(frame: bytes | bytearray) -> FrameKind:
    """The kind of an encoded frame."""
    return FrameKind(frame[len(MAGIC)])


class FrameDecoder:
    """Turns a stream of bytes, cut anywhere, into frames.

    Either `feed` bytes, or receive straight into `space()` and report them by `advance(count)`, which saves a
    copy.
    After a `FrameError` it accepts nothing more.

    Arguments:
        limits: the kinds that may arrive, each with the largest payload that is accepted; its owner may change the
            numbers while frames arrive.
    """

    def __init__(self, limits: Mapping[FrameKind, int] = PAYLOAD_LIMITS) -> None:
        self._limits = limits
        self._header = bytearray(HEADER_BYTES)
        self._kind: FrameKind | None = None  # None while the header is being read
        self._target = self._header
        self._filled = 0
        self._error: str | None = None

    @property
    def between_frames(self) -> bool:
        """Whether the stream may end here without cutting a frame."""
        return self._kind is None and self._filled == 0

    @property
    def error(self) -> str | None:
        """Why nothing more is accepted, once that is so."""
        return self._error

    @property
    def allocated_bytes(self) -> int:
        """Memory held for the frame that is being read."""
        return HEADER_BYTES + (0 if self._kind is None else len(self._target))

    def space(self) -> memoryview:
        """Where the next bytes of the stream belong; never empty.

        Raises:
            FrameError: an earlier part of the stream was not acceptable.
        """
        self._refuse_after_error()
        return memoryview(self._target)[self._filled :]

    def advance(self, count: int) -> Frame | None:
        """Takes note of `count` bytes that were written to `space()`.

        Returns:
            The frame that these bytes complete, if they do.

        Raises:
            FrameError: the header is not one that this side accepts.
        """
        self._refuse_after_error()
        self._filled += count
        if self._filled < len(self._target):
            return None
        if self._kind is None:
            kind, size = self._read_header()
            if size:
                self._kind, self._target, self._filled = kind, FRAME_MEMORY.take(size), 0
                return None
            frame = Frame(kind, b"")
        else:
            frame = Frame(self._kind, self._target)
        self._kind, self._target, self._filled = None, self._header, 0
        return frame

    def feed(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        """Takes the next bytes of the stream.

        Arguments:
            data: any number of bytes.

        Returns:
            The frames that are complete now, in order; `error` says if something unacceptable follows them.

        Raises:
            FrameError: the stream is not acceptable, and no frame was completed before that showed.
        """
        self._refuse_after_error()
        frames: list[Frame] = []
        rest = memoryview(data)
        while rest:
            space = self.space()
            count = min(len(space), len(rest))
            space[:count] = rest[:count]
            rest = rest[count:]
            try:
                frame = self.advance(count)
            except FrameError:
                if frames:
                    return frames  # how the stream was cut must not decide whether they are seen
                raise
            if frame is not None:
                frames.append(frame)
        return frames

    def _read_header(self) -> tuple[FrameKind, int]:
        magic, kind, size = _FIELDS.unpack_from(self._header)
        (checksum,) = _CHECKSUM.unpack_from(self._header, _FIELDS.size)
        if magic != MAGIC:
            self._fail(f"expected a frame that starts with {MAGIC!r} and received {magic!r}")
        if zlib.crc32(self._header[: _FIELDS.size]) != checksum:
            self._fail("the checksum of a frame header is wrong")
        accepted = {int(known): known for known in self._limits}
        if kind not in accepted:
            names = ", ".join(known.name for known in self._limits)
            self._fail(f"received a frame of kind {kind}; this connection accepts {names}")
        limit = self._limits[accepted[kind]]
        if size > limit:
            self._fail(f"a {accepted[kind].name} frame of {size} bytes exceeds the limit of {limit}")
        return accepted[kind], size

    def _fail(self, reason: str) -> None:
        self._error = f"{reason}; the connection must be closed"
        raise FrameError(self._error)

    def _refuse_after_error(self) -> None:
        if self._error is not None:
            raise FrameError(f"nothing is accepted after a bad frame: {self._error}")
