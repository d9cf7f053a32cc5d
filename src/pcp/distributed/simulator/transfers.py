"""Transfers of blobs, chunk by chunk, by the wire's own machines; anything may strike between two chunks."""

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pcp.distributed.messages import Blob
from pcp.distributed.simulator.network import SHEPHERD, WORKER
from pcp.distributed.simulator.runtime import Later
from pcp.distributed.simulator.stranger import NAME as STRANGER
from pcp.distributed.simulator.witness import require
from pcp.distributed.wire.blob_files import DigestMismatch, PartialReplaced
from pcp.distributed.wire.bulk.chunks import TransferRefused
from pcp.distributed.wire.bulk.client import TransferFailed
from pcp.distributed.wire.bulk.permissions import Permissions
from pcp.distributed.wire.bulk.responder import Storage, TransferResponder
from pcp.distributed.wire.bulk.transfer import FetchRequester, PushRequester
from pcp.distributed.wire.frames import HEADER_BYTES, Frame, FrameKind
from pcp.distributed.wire.refusal import RETRYABLE, RefusalCode
from pcp.errors import PCPError

if TYPE_CHECKING:
    from pcp.distributed.simulator.shepherd_process import ShepherdProcess
    from pcp.distributed.simulator.worker_process import WorkerProcess

STALL_SECONDS = 5.0  # without a frame, after which a connection counts as broken
ATTEMPTS = 4


_KIND_AT = 4  # in a frame's header


def frames_of(message: list[bytes]) -> list[Frame]:
    """Return frames that were sent together; a simulated network damages none of them."""
    return [Frame(FrameKind(each[_KIND_AT]), each[HEADER_BYTES:]) for each in message]


class BulkServer:
    """The Shepherd's end of a bulk connection, or that of a worker which listens.

    Arguments:
        process: that serves.
        worker: that is served.
        storage, permissions: see `TransferResponder`.
    """

    def __init__(
        self,
        process: "ShepherdProcess | WorkerProcess",
        worker: str,
        storage: Storage,
        permissions: Permissions,
    ) -> None:
        self.process, self._worker = process, worker
        self._responder = TransferResponder(worker, storage, permissions, process.world.course.settings)
        self._ready = 0.0

    def delivered(self, connection: int, message: list[bytes]) -> None:
        """Take frames, once the process is awake and the disk has taken what came before."""
        frames = frames_of(message)
        if not self.process.blobs.disk.slow:
            self._next(lambda: self._receive(connection, frames))
            return
        for frame in frames:
            self._next(partial(self._receive, connection, [frame]))

    def broken(self, connection: int) -> None:  # noqa: ARG002 - one connection, one end
        """Close the files; what arrived stays."""
        self._next(self._responder.close)

    def _next(self, action: Callable[[], None]) -> None:
        clock = self.process.world.clock
        self._ready = max(self._ready, clock.now) + self.process.blobs.disk.seconds()
        if self._ready > clock.now:
            clock.at(self._ready, lambda: self.process.when_awake(action))
        else:
            self.process.when_awake(action)

    def _receive(self, connection: int, frames: list[Frame]) -> None:
        world, is_stranger = self.process.world, self._worker == STRANGER
        before = self.process.blobs.held() if is_stranger else None
        for frame in frames:
            if frame.kind is FrameKind.CHUNK and not is_stranger:
                world.faults.chunk_passed(self._worker)
                if not self.process.alive:
                    return
            self._responder.receive(frame)
            if not self.process.alive:  # the power failed in the middle of a write
                return
        require(
            not is_stranger or self.process.blobs.held() == before,
            "a stranger changed what the Shepherd holds",
        )
        answers: list[bytes | bytearray] = []
        while (answer := self._responder.next_frame()) is not None:
            answers.append(answer)
        if answers:
            world.network.send(connection, WORKER, answers)
        if self._responder.finished:
            world.network.close(connection, SHEPHERD)


class SimulatedTransfers:
    """Transfers of a worker with the Shepherd, one at a time."""

    def __init__(self, process: "WorkerProcess") -> None:
        self._process = process

    async def fetch(self, blob: Blob) -> None:
        """See `workshop.Fetches`."""
        await self._move(blob, push=False)

    async def push(self, blob: Blob) -> None:
        """See `workshop.Transfers`."""
        await self._move(blob, push=True)

    def close(self) -> None:
        """See `workshop.Fetches`."""

    async def _move(self, blob: Blob, push: bool) -> None:
        await moved(Transfer(self._process, blob, push))


async def moved(transfer: "Transfer", within: float = math.inf) -> None:
    """Make a transfer.

    Arguments:
        within: seconds that it may take.

    Raises:
        TransferFailed, TransferRefused: it ended otherwise.
    """
    ended = Later()
    transfer.done = ended.come
    if within < math.inf:
        transfer.process.runtime.after(within, transfer.give_up)
    transfer.start()
    await ended
    if transfer.refused is not None:
        raise transfer.refused
    if transfer.problem:
        raise TransferFailed(transfer.problem)


class Transfer:
    """A worker's transfer of one blob, tried again where it breaks; the blob goes on where it ended.

    Arguments:
        push: whether it goes there, or comes from there.
        to: the worker there; the Shepherd without.
        attempts: how often it is tried.
    """

    def __init__(
        self, process: "WorkerProcess", blob: Blob, push: bool, to: str = "", attempts: int = ATTEMPTS
    ) -> None:
        self.process, self._blob, self._push, self._to, self._most = process, blob, push, to, attempts
        self.problem = ""
        """What went wrong in the end."""
        self.refused: TransferRefused | None = None
        """By another worker."""
        self.done: Callable[[], None] = lambda: None
        self._attempts = 0
        self._turn = 0  # what an earlier attempt planned does not concern the next one
        self._wrong = 0
        self._connection = 0
        self._machine: FetchRequester | PushRequester | None = None
        self._close_file: Callable[[], None] = lambda: None
        self._heard = 0.0
        self._ended = False

    def start(self) -> None:
        """Begin, or try again."""
        if not self.process.alive or self._ended:
            return
        blobs = self.process.blobs
        if not self._push and blobs.has(self._blob):
            self._end("")
            return
        self._attempts += 1
        self._turn += 1
        turn = self._turn
        self._connection, self._machine = 0, None
        world = self.process.world
        self._heard = world.clock.now
        world.network.connect(
            self.process.name, self, lambda number: self._connected(turn, number), True, self._to
        )
        self._watch(turn)

    def delivered(self, connection: int, message: list[bytes]) -> None:
        """Take a frame, once the process is awake."""
        self.process.when_awake(lambda: self._receive(connection, message))

    def broken(self, connection: int) -> None:
        """Try again, if that connection is the one in use."""
        if connection == self._connection:
            self._failed("the connection broke", again=True)

    def _watch(self, turn: int) -> None:
        def look() -> None:
            clock = self.process.world.clock
            if self._ended or turn != self._turn or not self.process.alive:
                return
            if clock.now - self._heard > STALL_SECONDS:
                self._failed("no answer in time", again=True)
            else:
                clock.at(self._heard + STALL_SECONDS + 0.1, look)

        self.process.world.clock.after(STALL_SECONDS + 0.1, look)

    def _connected(self, turn: int, connection: int) -> None:
        world = self.process.world
        if turn != self._turn or self._ended or not self.process.alive:
            world.network.close(connection, WORKER)
            return
        self._connection = connection
        try:
            blobs, settings = self.process.blobs, world.course.settings
            if self._push:
                source = blobs.open(self._blob)
                self._machine, self._close_file = PushRequester(self._blob, source, settings), source.close
            else:
                sink = blobs.begin(self._blob, "fetch")
                self._machine, self._close_file = FetchRequester(self._blob, sink, settings), sink.close
        except PCPError as error:
            self._judge(error)
            return
        self._advance()

    def _receive(self, connection: int, message: list[bytes]) -> None:
        if connection != self._connection or self._machine is None or self._ended:
            return
        world = self.process.world
        self._heard = world.clock.now
        for frame in frames_of(message):
            if frame.kind is FrameKind.CHUNK:
                world.faults.chunk_passed(self.process.name)
                if not self.process.alive or connection != self._connection:
                    return
            try:
                self._machine.receive(frame)
            except PCPError as error:
                self._judge(error)
                return
        self._advance()

    def _advance(self) -> None:
        machine, network = self._machine, self.process.world.network
        assert machine is not None
        frames: list[bytes | bytearray] = []
        try:
            while (frame := machine.next_frame()) is not None:
                frames.append(frame)
        except PCPError as error:
            self._judge(error)
            return
        if frames:
            network.send(self._connection, SHEPHERD, frames)
        if machine.finished:
            self._end("")

    def _judge(self, error: PCPError) -> None:
        refused = error.refusal.kind if isinstance(error, TransferRefused) else None
        if self._to and isinstance(error, TransferRefused):
            self.refused = error
        if isinstance(error, DigestMismatch) or refused is RefusalCode.CORRUPT:
            self._wrong += 1
            self._failed(str(error), again=self._wrong == 1)
        else:
            self._failed(str(error), again=refused in RETRYABLE or isinstance(error, PartialReplaced))

    def _failed(self, reason: str, again: bool) -> None:
        if self._ended:
            return
        world = self.process.world
        world.network.close(self._connection, WORKER)
        self._connection, self._machine = 0, None
        self._close_file()
        self._turn += 1
        if again and self._attempts < self._most:
            pause = 0.2 * 2**self._attempts * world.random.uniform(0.5, 1.0)
            world.clock.after(pause, self.start)
        else:
            self._end(reason)

    def give_up(self) -> None:
        """Go on no longer."""
        self._failed("it took too long", again=False)

    def _end(self, problem: str) -> None:
        self._ended, self.problem = True, problem
        self._close_file()
        self.process.world.network.close(self._connection, WORKER)
        self.done()
