"""Asking for a transfer: the client's half of a bulk connection, as pure state machines.

    fetch: Fetch ->   <- Begin   <- chunk ...   Credit ->        (the last credit ends it)
    push:  Push ->    <- Begin   chunk ... ->   <- Credit ...    <- Stored

Every machine here and in `responder.py` is driven alike: send what `next_frame` gives until it gives None,
then `receive` one frame, until `finished`. A transfer that breaks is asked for again and goes on at the byte
where the receiver stopped.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pcp.distributed.messages import Blob
from pcp.distributed.wire.bulk.chunks import (
    ChunkReceiver,
    ChunkSender,
    Sink,
    Source,
    TransferRefused,
    TransferViolation,
)
from pcp.distributed.wire.bulk.messages import Begin, Credit, Fetch, Push, Stored
from pcp.distributed.wire.codec import decode_refusal, decode_transfer, encode_transfer
from pcp.distributed.wire.frames import MAXIMUM_CHUNK_BYTES, Frame, FrameKind
from pcp.errors import PCPError

PIECES_ASKED = 4
"""Pieces that a connection asks for ahead: what is under way should last for a round trip."""


class BadTransferSettings(PCPError):
    """The sizes asked for cannot work."""


@dataclass(frozen=True, slots=True)
class TransferSettings:
    """How blobs are cut.

    Arguments:
        chunk_bytes: largest chunk, at most 4 MiB.
        window_bytes: bytes on the way without credit; on a fast long link about twice rate times round trip.
    """

    chunk_bytes: int = 1 << 20
    window_bytes: int = 16 << 20

    def __post_init__(self) -> None:
        if not 1 <= self.chunk_bytes <= MAXIMUM_CHUNK_BYTES:
            raise BadTransferSettings(
                f"chunk_bytes is {self.chunk_bytes}; choose 1 to {MAXIMUM_CHUNK_BYTES} (4 MiB)"
            )
        if self.window_bytes < self.chunk_bytes:
            raise BadTransferSettings(
                f"window_bytes is {self.window_bytes}; it must hold at least one chunk of {self.chunk_bytes}"
            )


def _check_refusal(frame: Frame, what: str, blob: Blob) -> None:
    if frame.kind is FrameKind.REFUSAL:
        refusal = decode_refusal(frame)
        raise TransferRefused(
            refusal, f"the peer refused the {what} of blob {blob.digest.hex()[:16]}: {refusal.reason}"
        )


class FetchRequester:
    """Brings a blob, or the rest or a part of one, into a sink, and finishes it.

    Arguments:
        blob: what to fetch.
        sink: where it goes; its `offset` says where to go on.
        settings: how to cut it.
        stop: one past the last byte to fetch; the end of the blob unless given.
    """

    def __init__(
        self, blob: Blob, sink: Sink, settings: TransferSettings | None = None, stop: int | None = None
    ) -> None:
        self._blob = blob
        self._sink = sink
        self._stop = blob.size if stop is None else stop
        self._settings = settings or TransferSettings()
        self._request: Fetch | None = Fetch(
            blob, sink.offset, self._stop, self._settings.window_bytes, self._settings.chunk_bytes
        )
        self._receiver: ChunkReceiver | None = None
        self.finished = False
        if sink.offset == self._stop:  # the last attempt ended before the digest was checked
            self._finish()

    @property
    def taken(self) -> int:
        """Bytes of the blob that are here."""
        return self._sink.offset

    def next_frame(self) -> bytes | bytearray | None:
        """What to send now, if anything."""
        if self._request is not None:
            request, self._request = self._request, None
            return encode_transfer(request)
        if self._receiver is None:
            return None
        credit = self._receiver.next_frame()
        if self._receiver.finished and not self.finished:
            self._finish()
        return credit

    def receive(self, frame: Frame) -> None:
        """Takes a frame of the peer.

        Raises:
            TransferRefused: the peer does not give the blob.
            TransferViolation, MessageError: the peer does not keep to the protocol.
            StoreError: the sink cannot take the bytes.
        """
        _check_refusal(frame, "fetch", self._blob)
        if self._receiver is not None:
            if frame.kind is not FrameKind.CHUNK:
                raise TransferViolation(f"expected a chunk, received a {frame.kind.name} frame")
            self._receiver.receive(frame)
            return
        begin = _expect_begin(frame, self._settings)
        if (begin.offset, begin.stop) != (self._sink.offset, self._stop):
            raise TransferViolation(
                f"asked for bytes {self._sink.offset} to {self._stop}, was promised {begin.offset} to "
                f"{begin.stop}"
            )
        self._receiver = ChunkReceiver(self._sink, begin.stop, begin.window_bytes)

    def _finish(self) -> None:
        self._request = None
        self._sink.finish()
        self.finished = True


class Piece(Sink, Protocol):
    """A sink for the bytes `offset <= i < stop` of a blob."""

    stop: int


class PiecesRequester:
    """Brings pieces of a blob, one after the other, and asks for the next ones before the last is here.

    Arguments:
        blob: what to fetch from.
        take: gives the next piece, or None where there is none now; told whether to wait for one, and None then means
            that there will be none.
        settings: how to cut it.
    """

    def __init__(
        self, blob: Blob, take: Callable[[bool], Piece | None], settings: TransferSettings | None = None
    ) -> None:
        self._blob = blob
        self._take = take
        self._settings = settings
        self._asked: deque[FetchRequester] = deque()
        self.taken = 0  # bytes of pieces that are here
        self.finished = False

    def next_frame(self) -> bytes | bytearray | None:
        """What to send now, if anything."""
        if self._asked:
            frame = self._asked[0].next_frame()
            if self._asked[0].finished:
                self._asked.popleft()
            if frame is not None:
                return frame
        if len(self._asked) < PIECES_ASKED:
            piece = self._take(not self._asked)
            if piece is not None:
                self._asked.append(FetchRequester(self._blob, piece, self._settings, piece.stop))
                return self._asked[-1].next_frame()
            self.finished = not self._asked
        return None

    def receive(self, frame: Frame) -> None:
        """Takes a frame of the peer.

        Raises:
            TransferRefused: the peer does not give the blob.
            TransferViolation, MessageError: the peer does not keep to the protocol.
        """
        fetch = self._asked[0]
        before = fetch.taken
        fetch.receive(frame)
        self.taken += fetch.taken - before


class PushRequester:
    """Sends a blob or a part of it, as far as the peer lacks it.

    Arguments:
        blob: what to push.
        source: its bytes.
        settings: how to cut it; the peer may agree to less.
        part: the first byte to push, and one past the last; the whole blob unless given.
    """

    def __init__(
        self,
        blob: Blob,
        source: Source,
        settings: TransferSettings | None = None,
        part: tuple[int, int] | None = None,
    ) -> None:
        self._blob = blob
        self._source = source
        self._settings = settings or TransferSettings()
        self._offset, self._stop = part or (0, blob.size)
        self._request: Push | None = Push(
            blob, self._offset, self._stop, self._settings.window_bytes, self._settings.chunk_bytes
        )
        self._sender: ChunkSender | None = None
        self.taken = 0  # bytes that the peer had when this transfer began
        self.finished = False

    def next_frame(self) -> bytes | bytearray | None:
        """What to send now, if anything."""
        if self._request is not None:
            request, self._request = self._request, None
            return encode_transfer(request)
        return None if self._sender is None else self._sender.next_frame()

    def receive(self, frame: Frame) -> None:
        """Takes a frame of the peer.

        Raises:
            TransferRefused: the peer does not take the blob.
            TransferViolation, MessageError: the peer does not keep to the protocol.
        """
        _check_refusal(frame, "push", self._blob)
        if self._sender is None:
            begin = _expect_begin(frame, self._settings)
            if begin.stop != self._stop or not self._offset <= begin.offset <= begin.stop:
                raise TransferViolation(
                    f"offered bytes {self._offset} to {self._stop}, was asked for {begin.offset} to {begin.stop}"
                )
            self.taken = begin.offset
            self._sender = ChunkSender(
                self._source, begin.offset, begin.stop, begin.window_bytes, begin.chunk_bytes
            )
            return
        message = decode_transfer(frame) if frame.kind is FrameKind.TRANSFER else None
        if isinstance(message, Credit):
            self._sender.receive(message)
        elif isinstance(message, Stored) and self._sender.finished and message.digest == self._blob.digest:
            self.finished = True
        else:
            raise TransferViolation(f"received {message or frame.kind.name} in the middle of a push")


def _expect_begin(frame: Frame, settings: TransferSettings) -> Begin:
    message = decode_transfer(frame) if frame.kind is FrameKind.TRANSFER else None
    if not isinstance(message, Begin):
        raise TransferViolation(
            f"expected the beginning of a transfer, received {message or frame.kind.name}"
        )
    if not (
        1 <= message.chunk_bytes <= settings.chunk_bytes
        and 1 <= message.window_bytes <= settings.window_bytes
    ):
        raise TransferViolation(
            f"asked for chunks of {settings.chunk_bytes} bytes in a window of {settings.window_bytes}, was "
            f"promised {message.chunk_bytes} and {message.window_bytes}"
        )
    return message
