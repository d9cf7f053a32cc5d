"""Moving a range of a blob in chunks, within a credit window: the sending half and the receiving half. Pure.

The receiver gives credit for what it has taken; the sender never has more than the window on the way. So a
slow disk at one end cannot fill the memory of the other.
"""

import struct
from typing import Protocol

from pcp.distributed.wire.bulk.messages import Credit
from pcp.distributed.wire.codec import encode_transfer
from pcp.distributed.wire.frames import CHUNK_PREFIX_BYTES, Frame, begin_chunk
from pcp.distributed.wire.refusal import Refusal
from pcp.errors import PCPError

_OFFSET = struct.Struct("<Q")
_CREDITS_PER_WINDOW = 4


class TransferError(PCPError):
    """A blob could not be moved."""


class TransferViolation(TransferError):
    """The peer sent what does not belong into this transfer; the connection cannot go on."""


class TransferRefused(TransferError):
    """The peer refused the transfer.

    Arguments:
        refusal: why.
        message: what to tell a person.
    """

    def __init__(self, refusal: Refusal, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal


class Source(Protocol):
    """Where the bytes of a blob come from."""

    def read_into(self, offset: int, space: memoryview) -> None:
        """Fills the space with the bytes from the offset on."""

    def close(self) -> None:
        """Nothing more will be read."""


class Sink(Protocol):
    """Where the bytes of a blob go; `offset` is the position of the next one."""

    offset: int

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Takes the next bytes; their memory may be used again afterwards."""

    def finish(self) -> None:
        """All bytes are here: check and publish the blob."""

    def close(self) -> None:
        """Nothing more will be written now."""


class ChunkSender:
    """Cuts the bytes `offset <= i < stop` of a source into chunk frames.

    Arguments:
        source: where they come from.
        offset: first byte to send.
        stop: one past the last.
        window_bytes: bytes that may be on the way without credit.
        chunk_bytes: largest chunk.
    """

    def __init__(self, source: Source, offset: int, stop: int, window_bytes: int, chunk_bytes: int) -> None:
        self._source = source
        self._sent = self._credited = offset
        self._stop = stop
        self._window = window_bytes
        self._chunk = chunk_bytes

    @property
    def all_sent(self) -> bool:
        """Whether nothing is left to send."""
        return self._sent == self._stop

    @property
    def finished(self) -> bool:
        """Whether the receiver has taken every byte."""
        return self._credited == self._stop

    def next_frame(self) -> bytearray | None:
        """The next chunk, or None until there is credit for one (or all is sent)."""
        room = self._window - (self._sent - self._credited)
        length = min(self._chunk, self._stop - self._sent, room)
        if length <= 0:
            return None
        frame, data = begin_chunk(self._sent, length)
        self._source.read_into(self._sent, data)
        self._sent += length
        return frame

    def receive(self, credit: Credit) -> None:
        """Takes note of credit.

        Raises:
            TransferViolation: it is for bytes that were not sent.
        """
        if not self._credited <= credit.offset <= self._sent:
            raise TransferViolation(
                f"received credit up to byte {credit.offset}, but bytes {self._credited} to {self._sent} are "
                "on the way"
            )
        self._credited = credit.offset


class ChunkReceiver:
    """Writes chunk frames into a sink, in order, and says how much was taken.

    Arguments:
        sink: where the bytes go; its `offset` is where they begin.
        stop: one past the last byte that may arrive.
        window_bytes: what the sender may have on the way.
    """

    def __init__(self, sink: Sink, stop: int, window_bytes: int) -> None:
        self._sink = sink
        self._credited = sink.offset
        self._stop = stop
        self._window = window_bytes

    @property
    def complete(self) -> bool:
        """Whether every byte has arrived."""
        return self._sink.offset == self._stop

    @property
    def finished(self) -> bool:
        """Whether every byte has arrived and the sender was told."""
        return self._credited == self._stop

    def receive(self, frame: Frame) -> None:
        """Takes a chunk.

        Raises:
            TransferViolation: it is not the next one, or more than the window allows.
            StoreError: the sink cannot take it.
        """
        payload = memoryview(frame.payload)
        if len(payload) <= CHUNK_PREFIX_BYTES:
            raise TransferViolation(f"received a chunk frame of {len(payload)} bytes, which holds no data")
        (offset,) = _OFFSET.unpack_from(payload)
        data = payload[CHUNK_PREFIX_BYTES:]
        if offset != self._sink.offset:
            raise TransferViolation(f"expected the chunk at byte {self._sink.offset}, received {offset}")
        limit = min(self._stop, self._credited + self._window)
        if offset + len(data) > limit:
            raise TransferViolation(
                f"the chunk at byte {offset} ends at {offset + len(data)}; nothing beyond {limit} is allowed"
            )
        self._sink.write(data)

    def next_frame(self) -> bytes | None:
        """Credit for the sender, when it is due."""
        taken = self._sink.offset - self._credited
        if taken and (self.complete or taken * _CREDITS_PER_WINDOW >= self._window):
            self._credited = self._sink.offset
            return encode_transfer(Credit(self._credited))
        return None
