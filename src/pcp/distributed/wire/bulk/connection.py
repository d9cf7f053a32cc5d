"""One worker's bulk connection at the Shepherd: TLS and the responder, in turns that never wait for the worker."""

import contextlib
import logging
import select
import socket
import time
from enum import Enum, auto

from pcp.distributed.wire.bulk.channel import TlsChannel
from pcp.distributed.wire.bulk.responder import TransferResponder
from pcp.distributed.wire.frames import (
    CHUNK_PREFIX_BYTES,
    FRAME_MEMORY,
    HEADER_BYTES,
    TRANSFER_LIMITS,
    FrameDecoder,
    FrameError,
    FrameKind,
    kind_of,
)
from pcp.distributed.wire.limits import WireLimits
from pcp.distributed.wire.traffic import Statistics, Traffic

_log = logging.getLogger("pcp.wire.bulk")
_DRAIN_BYTES = 1 << 16
_LEAST_CHUNK_FRAME = 4 << 10
"""A chunk that nobody asked for is still read if it is small, so that its sender is told what is wrong."""


class Pause(Enum):
    """Why a turn is over."""

    READ = auto()  # nothing to do until the worker sends
    WRITE = auto()  # nothing to do until the worker takes what was sent
    AGAIN = auto()  # others may have a turn before it goes on
    END = auto()  # the connection is over


class BulkConnection:
    """A connection whose worker has proved who it is; used by one thread at a time, but for `interrupt`.

    Attributes:
        worker: the name in the certificate.
        deadline: when to give up unless something arrives or leaves.
        expired: set when that time came.
        moved_at: when something last arrived or left.
        interrupted: whether it is about to end.
    """

    def __init__(
        self,
        channel: TlsChannel,
        address: str,
        responder: TransferResponder,
        limits: WireLimits,
        statistics: Statistics,
    ) -> None:
        self.socket = channel.socket
        self._channel = channel
        self.worker = responder.peer
        self.expired = False
        self.interrupted = False
        self._address = address
        self._responder = responder
        self._limits = limits
        self._statistics = statistics
        self._traffic = Traffic(statistics.traffic)
        self._accepted = dict(TRANSFER_LIMITS)
        self._decoder = FrameDecoder(self._accepted)
        self._unsent = memoryview(b"")
        self._lingers = False
        self._extend()

    @property
    def idle(self) -> bool:
        """Whether no transfer is under way."""
        return (
            self._responder.idle
            and self._decoder.between_frames
            and not self._unsent
            and not self._channel.must_flush
        )

    def turn(self, maximum_bytes: int) -> Pause:
        """Does what can be done without waiting.

        Arguments:
            maximum_bytes: to move at most, about; a turn may also end earlier.
        """
        before = self._channel.moved
        try:
            if self.expired or (self._lingers and time.monotonic() > self.deadline):
                return self._stalled()
            while self._channel.moved - before < maximum_bytes:
                if not self._step():
                    return Pause.END
        except BlockingIOError:
            return Pause.WRITE if self._channel.must_flush and not self._lingers else Pause.READ
        except FrameError as error:
            self._statistics.count_refused(type(error).__name__, f"{self.worker} ({self._address}): {error}")
            return self._linger()
        except OSError as error:
            _log.info(
                "the bulk connection of %s (%s) broke: %s",
                self.worker,
                self._address,
                error.strerror or error,
            )
            return Pause.END
        finally:
            self._count_refusals()
            if self._channel.moved > before and not self._lingers:
                self._extend()
        return Pause.AGAIN

    def wait(self, pause: Pause, seconds: float) -> bool:
        """Waits a moment for the worker; returns whether there is something to do."""
        if self.interrupted:
            return True  # for its end
        poll = select.poll()
        poll.register(self.socket, select.POLLOUT if pause is Pause.WRITE else select.POLLIN)
        return bool(poll.poll(seconds * 1e3))

    def interrupt(self) -> None:
        """Breaks the connection from another thread; whoever has its next turn closes it."""
        self.interrupted = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the socket, and the file of a transfer under way."""
        self._responder.close()
        self._channel.close()

    def _step(self) -> bool:
        """Sends or receives once; returns whether the connection goes on."""
        if self._lingers:
            return bool(self.socket.recv(_DRAIN_BYTES))
        if self._unsent:
            self._unsent = self._unsent[self._channel.send(self._unsent) :]
            if not self._unsent:
                FRAME_MEMORY.give_back(self._unsent.obj)
            return True
        if self._responder.finished:
            self._channel.flush()
            self._linger()
            return True
        data = self._responder.next_frame()
        if data is not None:
            self._traffic.count_sent(kind_of(data), len(data))
            self._unsent = memoryview(data)
            return True
        self._channel.flush()
        chunk = CHUNK_PREFIX_BYTES + self._responder.expected_chunk_bytes
        self._accepted[FrameKind.CHUNK] = max(_LEAST_CHUNK_FRAME, chunk)
        count = self._channel.receive_into(self._decoder.space())
        if count == 0:
            return False
        frame = self._decoder.advance(count)
        if frame is not None:
            self._traffic.count_received(frame.kind, HEADER_BYTES + len(frame.payload))
            self._responder.receive(frame)
            if frame.kind is FrameKind.CHUNK:
                FRAME_MEMORY.give_back(frame.payload)
        return True

    def _linger(self) -> Pause:
        # Closing with unread bytes would reset the connection, and what was said last would be lost.
        self._lingers = True
        self._responder.close()
        self.deadline = time.monotonic() + self._limits.close_seconds
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
        return Pause.READ

    def _stalled(self) -> Pause:
        if not self._lingers and not self.idle:
            _log.info("the bulk connection of %s (%s) broke: no answer in time", self.worker, self._address)
        return Pause.END

    def _extend(self) -> None:
        self.moved_at = time.monotonic()
        self.deadline = self.moved_at + (
            self._limits.idle_seconds if self.idle else self._limits.stall_seconds
        )

    def _count_refusals(self) -> None:
        while self._responder.refusals:
            refusal = self._responder.refusals.popleft()
            self._statistics.count_refused(refusal.kind.name, refusal.reason)
