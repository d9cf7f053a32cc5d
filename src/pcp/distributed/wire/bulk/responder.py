"""Answering requests for transfers: the server's half of a bulk connection, as a pure state machine."""

from collections import deque
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from pcp.distributed.messages import Blob
from pcp.distributed.wire.blob_files import (
    BlobMissing,
    BlobTooLarge,
    DigestMismatch,
    PartialReplaced,
    StoreError,
    StoreFull,
)
from pcp.distributed.wire.bulk.chunks import ChunkReceiver, ChunkSender, Sink, Source, TransferViolation
from pcp.distributed.wire.bulk.messages import Begin, Credit, Fetch, Push, Stored
from pcp.distributed.wire.bulk.permissions import NotAnnounced, Permissions, PushTooLarge
from pcp.distributed.wire.bulk.transfer import TransferSettings
from pcp.distributed.wire.codec import MessageError, decode_transfer, encode_refusal, encode_transfer
from pcp.distributed.wire.frames import MAXIMUM_CHUNK_BYTES, Frame, FrameKind
from pcp.distributed.wire.refusal import Refusal, RefusalCode
from pcp.errors import PCPError

_REFUSALS: dict[type[PCPError], RefusalCode] = {
    NotAnnounced: RefusalCode.NOT_ANNOUNCED,
    PushTooLarge: RefusalCode.TOO_LARGE,
    BlobTooLarge: RefusalCode.TOO_LARGE,
    BlobMissing: RefusalCode.MISSING,
    StoreFull: RefusalCode.STORE_FULL,
    DigestMismatch: RefusalCode.CORRUPT,
    PartialReplaced: RefusalCode.BUSY,
    TransferViolation: RefusalCode.PROTOCOL,
    MessageError: RefusalCode.PROTOCOL,
}

# Errors of the store name folders of this machine, which the peer must not learn.
_SAID_OF_THE_STORE: dict[RefusalCode, str] = {
    RefusalCode.MISSING: "it is announced, but not in the store",
    RefusalCode.STORE_FULL: "the store has no room for it",
    RefusalCode.OTHER: "the store failed",
}


class Storage(Protocol):
    """What the responder needs of a blob store."""

    def has(self, blob: Blob) -> bool:
        """Whether the blob is complete."""

    def open(self, blob: Blob) -> Source:
        """The blob, for reading."""

    def begin(self, blob: Blob, owner: str) -> Sink:
        """The blob, for writing."""


class PieceSink(Sink, Protocol):
    """Where a part of a blob goes; `was_last` says, once it is finished, whether the blob became complete with it."""

    was_last: bool


@runtime_checkable
class PieceStorage(Storage, Protocol):
    """A store in which blobs may arrive in pieces, over several connections."""

    def begin_piece(self, blob: Blob, owner: str, offset: int, stop: int) -> PieceSink:
        """The bytes `offset <= i < stop` of the blob, for writing."""


MAXIMUM_FETCHES = 8
"""Fetches of one connection that may wait or be under way."""


class TransferResponder:
    """Answers one peer's requests for as long as its connection lives: pushes one at a time, fetches in their order.

    A fetch may be asked for while others are under way. Its bytes follow theirs at once, without a round trip between.

    Arguments:
        peer: the authenticated name of the other side.
        storage: where blobs are.
        permissions: which of them this peer may move.
        settings: the largest chunk and window that this side agrees to.
        memory: for chunks of this transfer, in bytes; asked when one begins.
    """

    def __init__(
        self,
        peer: str,
        storage: Storage,
        permissions: Permissions,
        settings: TransferSettings | None = None,
        memory: Callable[[], int] = lambda: MAXIMUM_CHUNK_BYTES,
    ) -> None:
        self.peer = peer
        self._storage = storage
        self._permissions = permissions
        self._settings = settings or TransferSettings(window_bytes=64 << 20)
        self._memory = memory
        self._chunk_bytes = 0
        self._answers: deque[bytes] = deque()
        self._blob: Blob | None = None
        self._fetches: deque[Fetch] = deque()  # that wait for those before them to be sent
        self._source: Source | None = None  # of the last sender
        # All but the last have sent everything, and wait for credit.
        self._senders: deque[ChunkSender] = deque()
        self._sink: Sink | None = None
        self._receiver: ChunkReceiver | None = None
        self._must_close = False
        self.refusals: deque[Refusal] = deque()

    @property
    def idle(self) -> bool:
        """Whether no transfer is under way."""
        return not self._fetching and self._receiver is None and not self._answers

    @property
    def _fetching(self) -> int:
        return len(self._fetches) + len(self._senders)

    @property
    def finished(self) -> bool:
        """Whether the connection must end, because a transfer was cut off."""
        return self._must_close and not self._answers

    @property
    def expected_chunk_bytes(self) -> int:
        """The largest chunk that may arrive now: none where no push was granted, so that nothing is held for it."""
        return self._chunk_bytes if self._receiver is not None else 0

    def next_frame(self) -> bytes | bytearray | None:
        """What to send now, if anything."""
        if self._answers:
            return self._answers.popleft()
        try:
            if self._fetching:
                return self._next_chunk()
        except PCPError as error:
            self._refuse(error)
            return self._answers.popleft()
        return self._next_answer_to_push()

    def receive(self, frame: Frame) -> None:
        """Takes a frame of the peer; whatever is wrong with it becomes a refusal for `next_frame`."""
        if self._must_close:
            return
        try:
            self._receive(frame)
        except PCPError as error:
            self._refuse(error)

    def close(self) -> None:
        """The connection has ended: closes the files of a transfer under way."""
        if self._source is not None:
            self._source.close()
        if self._sink is not None:
            self._sink.close()
        self._blob = self._source = self._sink = self._receiver = None
        self._senders.clear()
        self._fetches.clear()

    def _receive(self, frame: Frame) -> None:
        if frame.kind is FrameKind.CHUNK and self._receiver is not None:
            self._receiver.receive(frame)
            return
        message = decode_transfer(frame) if frame.kind is FrameKind.TRANSFER else None
        if isinstance(message, Credit) and self._senders:
            self._senders[0].receive(message)
            if self._senders[0].finished:
                self._senders.popleft()
        elif isinstance(message, Fetch) and self._receiver is None and self._fetching < MAXIMUM_FETCHES:
            self._fetches.append(message)
        elif isinstance(message, Push) and self.idle:
            self._begin_push(message)
        else:
            self._must_close = True
            raise TransferViolation(
                f"received {message or frame.kind.name} "
                f"{'between two transfers' if self.idle else 'in the middle of a transfer'}"
            )

    def _next_chunk(self) -> bytes | bytearray | None:
        if self._source is not None:
            frame = self._senders[-1].next_frame()
            if self._senders[-1].all_sent:
                self._source.close()
                self._source = None
            return frame
        if not self._fetches:
            return None
        self._begin_fetch(self._fetches.popleft())
        return self._answers.popleft()

    def _agree(self, request: Fetch | Push) -> tuple[int, int]:
        if request.chunk_bytes < 1 or request.window_bytes < 1:
            raise TransferViolation(
                f"asked for chunks of {request.chunk_bytes} bytes in a window of {request.window_bytes}"
            )
        window = min(request.window_bytes, self._settings.window_bytes)
        self._chunk_bytes = min(request.chunk_bytes, self._settings.chunk_bytes, self._memory())
        return window, self._chunk_bytes

    def _begin_fetch(self, request: Fetch) -> None:
        blob = request.blob
        if not request.offset <= request.stop <= blob.size:
            raise TransferViolation(f"asked for bytes {request.offset} to {request.stop} of {blob.size}")
        window, chunk = self._agree(request)
        self._permissions.check_fetch(self.peer, blob)
        source = self._storage.open(blob)
        self._answers.append(encode_transfer(Begin(request.offset, request.stop, window, chunk)))
        if request.offset == request.stop:
            source.close()
            return
        self._source = source
        self._senders.append(ChunkSender(source, request.offset, request.stop, window, chunk))

    def _begin_push(self, request: Push) -> None:
        blob, stop = request.blob, request.stop
        whole = (request.offset, stop) == (0, blob.size)
        if not whole and not request.offset < stop <= blob.size:
            raise TransferViolation(f"offered bytes {request.offset} to {stop} of {blob.size}")
        window, chunk = self._agree(request)
        self._permissions.check_push(self.peer, blob)
        if self._storage.has(blob):
            self._answers.append(encode_transfer(Begin(stop, stop, window, chunk)))
            self._answers.append(encode_transfer(Stored(blob.digest)))
            return
        if whole:
            self._sink = self._storage.begin(blob, self.peer)
        elif isinstance(self._storage, PieceStorage):
            self._sink = self._storage.begin_piece(blob, self.peer, request.offset, stop)
        else:
            raise TransferViolation("only whole blobs are taken here")
        self._blob = blob
        self._receiver = ChunkReceiver(self._sink, stop, window)
        self._answers.append(encode_transfer(Begin(self._sink.offset, stop, window, chunk)))

    def _next_answer_to_push(self) -> bytes | None:
        if self._receiver is None or self._sink is None or self._blob is None:
            return None
        credit = self._receiver.next_frame()
        if self._receiver.finished:
            blob = self._blob
            try:
                self._sink.finish()
            except StoreError as error:
                self._receiver = None  # nothing is on the way: the connection may go on
                self._refuse(error)
            else:
                self._answers.append(encode_transfer(Stored(blob.digest)))
            self.close()
        if credit is None and self._answers:
            return self._answers.popleft()
        return credit

    def _refuse(self, error: PCPError) -> None:
        # While chunks are on the way, the stream has no place where a next request could begin.
        self._must_close = self._must_close or self._fetching > 0 or self._receiver is not None
        code = next((code for kind, code in _REFUSALS.items() if isinstance(error, kind)), RefusalCode.OTHER)
        refusal = Refusal(code, _SAID_OF_THE_STORE.get(code, str(error)))
        self.refusals.append(Refusal(code, f"a transfer of {self.peer}: {error}"))
        self._answers.append(encode_refusal(refusal))
        self.close()
