"""The Worker's process: the logic's host. It performs effects and feeds events; it decides nothing.

One asyncio loop handles events; transfers, preparation and training run in threads, of which training has one of its own.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pcp.distributed.job import Job
from pcp.distributed.messages import Blob, Hello, Lease, Message
from pcp.distributed.trainer import InnerTrainer, LeaseAborted
from pcp.distributed.wire import (
    BlobStore,
    BulkClient,
    CertificateRefused,
    ControlConnection,
    Credentials,
    connect,
)
from pcp.distributed.worker.effects import (
    AbortLease,
    Connect,
    Disconnect,
    Effect,
    FetchBlob,
    Notice,
    Prepare,
    SendMessage,
    StartLease,
    Stop,
    UploadUpdate,
)
from pcp.distributed.worker.events import (
    BlobFetched,
    BlobUnavailable,
    Connected,
    Disconnected,
    Event,
    LeaseFailed,
    LeaseProgress,
    LeaseTrained,
    MessageReceived,
    PreparationFailed,
    Prepared,
    Started,
    Stopping,
    Tick,
    UpdateUploaded,
    UploadFailed,
)
from pcp.distributed.worker.logic import WorkerLogic
from pcp.distributed.worker.state import WorkerConfig
from pcp.errors import PCPError

log = logging.getLogger("pcp.distributed.worker")

TICK_SECONDS = 0.25


class WorkerProcess:
    """Hosts one worker.

    Arguments:
        address: the Shepherd's, `HOST:PORT`.
        credentials: the worker's certificate; its name is the worker's.
        folder: where blobs are kept.
        device: where to compute.
        memory_bytes: memory of the device.
    """

    def __init__(
        self, address: str, credentials: Credentials, folder: Path, device: str, memory_bytes: int
    ) -> None:
        self._address = address
        self._credentials = credentials
        self._device = device
        self._store = BlobStore(folder)
        config = WorkerConfig(
            credentials.name, os.urandom(16), (device,), memory_bytes, abandon_seconds=120.0
        )
        self._logic = WorkerLogic(config)
        self._bulk = BulkClient(address, credentials)
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._connections: dict[int, ControlConnection] = {}
        self._last_connection = 0
        self._trainer: InnerTrainer | None = None
        self._aborted: set[int] = set()
        self._parameters: Blob | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped: Stop | None = None
        self._fatal: PCPError | None = None
        self._transfers = ThreadPoolExecutor(2, "transfer")
        self._training = ThreadPoolExecutor(1, "train")

    async def run(self) -> Stop:
        """Work until the run is complete, or `stop` is called.

        Raises:
            CertificateRefused: the Shepherd does not know this worker; trying again would not help.
        """
        self._loop = asyncio.get_running_loop()
        ticking = asyncio.create_task(self._tick())
        self._events.put_nowait(Started(self._now()))
        try:
            while self._stopped is None and self._fatal is None:
                for effect in self._logic.handle(await self._events.get()):
                    self._perform(effect)
        finally:
            ticking.cancel()
            for connection in self._connections.values():
                await connection.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(ticking, *self._tasks, return_exceptions=True)
            self._aborted.add(-1)
            self._bulk.close()
            self._training.shutdown(cancel_futures=True)
            self._transfers.shutdown(cancel_futures=True)
        if self._fatal is not None:
            raise self._fatal
        assert self._stopped is not None
        return self._stopped

    def stop(self, reason: str) -> None:
        """Leave the run; to be called in the loop's thread."""
        self._events.put_nowait(Stopping(self._now(), reason))

    def _now(self) -> float:
        return time.monotonic()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._events.put_nowait(Tick(self._now()))

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Connect(after_seconds):
                self._spawn(self._connect(after_seconds))
            case Disconnect(number, reason):
                if found := self._connections.pop(number, None):
                    log.info("closing the connection: %s", reason)
                    self._spawn(_close(found))
            case SendMessage(number, message):
                self._send(number, message)
            case Prepare(run, blobs):
                self._in_thread(self._transfers, lambda: self._prepare(run, blobs))
            case FetchBlob(blob):
                self._in_thread(self._transfers, lambda: self._fetch(blob))
            case StartLease(lease):
                self._in_thread(self._training, lambda: self._train(lease))
            case AbortLease(lease_id, reason):
                log.info("lease %d is given up: %s", lease_id, reason)
                self._aborted.add(lease_id)
            case UploadUpdate(lease_id, blob):
                self._in_thread(self._transfers, lambda: self._upload(lease_id, blob))
            case Notice(message):
                log.warning("%s", message)
            case Stop():
                self._stopped = effect

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, after_seconds: float) -> None:
        """Connect, and receive until the connection ends."""
        await asyncio.sleep(after_seconds)
        hello = Hello(
            self._logic.config.protocol_version,
            self._logic.config.worker,
            self._logic.config.incarnation,
            self._logic.config.devices,
            self._logic.config.memory_bytes,
        )
        try:
            connection = await connect(self._address, self._credentials, hello)
        except CertificateRefused as error:
            self._fatal = error
            self._events.put_nowait(Tick(self._now()))
            return
        except PCPError as error:
            self._events.put_nowait(Disconnected(self._now(), 0, str(error)))
            return
        self._last_connection += 1
        number = self._last_connection
        self._connections[number] = connection
        self._events.put_nowait(Connected(self._now(), number))
        reason = "the Shepherd closed it"
        try:
            async for message in connection:
                self._events.put_nowait(MessageReceived(self._now(), number, message))
        except PCPError as error:
            reason = str(error)
        if self._connections.pop(number, None) is not None:
            await connection.close()
            self._events.put_nowait(Disconnected(self._now(), number, reason))

    def _send(self, number: int, message: Message) -> None:
        connection = self._connections.get(number)
        if connection is None:
            return
        if isinstance(message, Hello):
            # The wire has said it already, and has the answer.
            if connection.welcome is not None:
                self._events.put_nowait(MessageReceived(self._now(), number, connection.welcome))
            return
        try:
            connection.post(message)
        except PCPError as error:
            log.info("the Shepherd does not get %s: %s", type(message).__name__, error)

    def _in_thread(self, pool: ThreadPoolExecutor, function: Callable[[], Event | None]) -> None:
        def work() -> None:
            event = function()
            if event is not None:
                self._post(event)

        pool.submit(work)

    def _post(self, event: Event) -> None:
        """Feed an event from any thread."""
        self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    def _prepare(self, run: str, blobs: tuple[Blob, ...]) -> Event:
        try:
            job = Job.from_json(run)
            for blob in job.blobs:
                if blob not in blobs:
                    raise PCPError(
                        f"the run names blob {blob.digest.hex()[:16]}, which the Shepherd does not offer"
                    )
                self._bulk.fetch(blob, self._store)
            self._trainer = InnerTrainer(job, self._store, self._device)
        except (PCPError, OSError) as error:
            return PreparationFailed(self._now(), run, str(error))
        return Prepared(self._now(), run)

    def _fetch(self, blob: Blob) -> Event:
        try:
            self._bulk.fetch(blob, self._store)
        except (PCPError, OSError) as error:
            return BlobUnavailable(self._now(), blob, str(error))
        if self._parameters is not None and self._parameters != blob:
            self._store.remove(self._parameters.digest)
        self._parameters = blob
        return BlobFetched(self._now(), blob)

    def _train(self, lease: Lease) -> Event | None:
        trainer = self._trainer
        if trainer is None or self._is_aborted(lease.lease_id):
            return None
        try:
            done = trainer.train(
                lease,
                lambda steps, seconds: self._post(LeaseProgress(self._now(), lease.lease_id, steps, seconds)),
                lambda: self._is_aborted(lease.lease_id),
            )
        except LeaseAborted:
            return None
        except (PCPError, OSError) as error:
            return LeaseFailed(self._now(), lease.lease_id, str(error))
        return LeaseTrained(
            self._now(), lease.lease_id, done.pseudo_gradient, done.tokens, done.losses, done.seconds
        )

    def _upload(self, lease_id: int, blob: Blob) -> Event:
        try:
            self._bulk.push(blob, self._store)
        except (PCPError, OSError) as error:
            return UploadFailed(self._now(), lease_id, str(error))
        self._store.remove(blob.digest)
        return UpdateUploaded(self._now(), lease_id)

    def _is_aborted(self, lease_id: int) -> bool:
        return lease_id in self._aborted or -1 in self._aborted


async def _close(connection: ControlConnection) -> None:
    await connection.close()
