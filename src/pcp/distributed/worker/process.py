"""The Worker's process: the logic's host. It performs effects and feeds events; it decides nothing.

One asyncio loop handles events; transfers and preparation run in one lane beside it, training in another.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from pcp.distributed.job import Job
from pcp.distributed.lane import Lane
from pcp.distributed.messages import Blob, Goodbye, Hello, Lease, Message
from pcp.distributed.trainer import InnerTrainer, LeaseAborted
from pcp.distributed.verification import VerificationCancelled
from pcp.distributed.wire import (
    BlobStore,
    BulkClient,
    CertificateRefused,
    ConnectionLost,
    ControlConnection,
    Credentials,
    RefusalCode,
    RefusedByPeer,
    StoreError,
    TransferError,
    Unreachable,
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
GRACE_SECONDS = 5.0
"""How long a step or a transfer that is under way may take to end when the worker stops."""

HOPELESS = frozenset({RefusalCode.CERTIFICATE, RefusalCode.VERSION, RefusalCode.IDENTITY})
"""Refusals that trying again would only repeat."""

PASSING = (TransferError, ConnectionLost, Unreachable, StoreError, VerificationCancelled, OSError)
"""What may go wrong while a run is prepared and not go wrong the next time."""


class NotOffered(PCPError):
    """The description of a run names a blob that the Shepherd did not offer."""


class WorkerProcess:
    """Hosts one worker.

    Arguments:
        address: the Shepherd's, `HOST:PORT`.
        credentials: the worker's certificate; its name is the worker's.
        folder: where blobs are kept; no other worker may use it.
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
        self._logic = WorkerLogic(
            WorkerConfig(
                credentials.name,
                os.urandom(16),
                (device,),
                memory_bytes,
                # A busy machine must not look like a dead one; a Shepherd that is gone closes its connections.
                missed_heartbeats=10,
                abandon_seconds=120.0,
            )
        )
        self._bulk = BulkClient(address, credentials)
        self._connections: dict[int, ControlConnection] = {}
        self._last_connection = 0
        self._trainer: InnerTrainer | None = None
        self._unusable: Exception | None = None
        self._parameters: Blob | None = None
        self._lease_id = 0  # the lease that is trained; all others are given up
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()

    async def run(self) -> Stop:
        """Work until the run is complete, or `stop` is called.

        Raises:
            CertificateRefused, RefusedByPeer: the Shepherd will never admit this worker.
        PCPError: the run cannot be prepared here, and could not be by trying again.
        """
        self._loop = asyncio.get_running_loop()
        self._outcome: asyncio.Future[Stop] = self._loop.create_future()
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._transfers = Lane("transfer", self._post, self._fail_from_thread)
        self._training = Lane("train", self._post, self._fail_from_thread)
        self._spawn(self._tick())
        self._spawn(self._handle_events())
        self._events.put_nowait(Started(self._now()))
        try:
            return await self._outcome
        finally:
            await self._end()

    def stop(self, reason: str) -> None:
        """Leave the run; to be called in the loop's thread."""
        self._events.put_nowait(Stopping(self._now(), reason))

    async def _end(self) -> None:
        self._lease_id = -1
        goodbye = Goodbye(False, "the worker failed; its log says why")  # else no connection is left here
        self._closing |= {asyncio.create_task(found.close(goodbye)) for found in self._connections.values()}
        await asyncio.gather(*self._closing, return_exceptions=True)  # the last words are on their way
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._bulk.close)
        lanes = (self._training, self._transfers)
        await asyncio.gather(*(asyncio.to_thread(lane.close, GRACE_SECONDS) for lane in lanes))

    def _now(self) -> float:
        return time.monotonic()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._events.put_nowait(Tick(self._now()))

    async def _handle_events(self) -> None:
        while not self._outcome.done():
            event = await self._events.get()
            for effect in self._logic.handle(event):
                self._perform(effect)
            if isinstance(event, PreparationFailed) and self._unusable is not None:
                self._fail(self._unusable)  # after the Shepherd was told

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Prepare() | FetchBlob() | StartLease() | AbortLease() | UploadUpdate():
                self._work(effect)
            case Connect(after_seconds):
                self._spawn(self._connect(after_seconds))
            case Disconnect(number, reason):
                if found := self._connections.pop(number, None):
                    log.info("closing the connection: %s", reason)
                    task = asyncio.create_task(found.close())
                    self._closing.add(task)
                    task.add_done_callback(self._closing.discard)
            case SendMessage(number, message):
                self._send(number, message)
            case Notice(message):
                log.warning("%s", message)
            case Stop():
                if not self._outcome.done():
                    self._outcome.set_result(effect)

    def _work(self, effect: Prepare | FetchBlob | StartLease | AbortLease | UploadUpdate) -> None:
        match effect:
            case Prepare(run, blobs):
                self._transfers.submit(lambda: self._prepare(run, blobs))
            case FetchBlob(blob):
                self._transfers.submit(lambda: self._fetch(blob))
            case StartLease(lease):
                self._lease_id = lease.lease_id
                self._training.submit(lambda: self._train(lease))
            case AbortLease(lease_id, reason):
                log.info("lease %d is given up: %s", lease_id, reason)
                if lease_id == self._lease_id:
                    self._lease_id = 0
            case UploadUpdate(lease_id, blob):
                self._transfers.submit(lambda: self._upload(lease_id, blob))

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """End the process: something happened that nobody foresaw, or that trying again would only repeat."""
        if not self._outcome.done():
            self._outcome.set_exception(error)

    def _fail_from_thread(self, error: BaseException) -> None:
        self._loop.call_soon_threadsafe(self._fail, error)

    def _post(self, event: Event) -> None:
        """Feed an event from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    async def _connect(self, after_seconds: float) -> None:
        """Connect, and receive until the connection ends."""
        await asyncio.sleep(after_seconds)
        config = self._logic.config
        hello = Hello(
            config.protocol_version, config.worker, config.incarnation, config.devices, config.memory_bytes
        )
        number = 0
        try:
            connection = await connect(self._address, self._credentials, hello)
            self._last_connection += 1
            number = self._last_connection
            self._connections[number] = connection
            self._events.put_nowait(Connected(self._now(), number))
            if connection.answer is not None:
                self._events.put_nowait(MessageReceived(self._now(), number, connection.answer))
            async for message in connection:
                self._events.put_nowait(MessageReceived(self._now(), number, message))
            reason = "the Shepherd closed it"
        except PCPError as error:
            if isinstance(error, CertificateRefused) or (
                isinstance(error, RefusedByPeer) and error.refusal.kind in HOPELESS
            ):
                raise
            reason = str(error)
        if not number:
            self._events.put_nowait(Disconnected(self._now(), 0, reason))
        elif (found := self._connections.pop(number, None)) is not None:
            await found.close()
            self._events.put_nowait(Disconnected(self._now(), number, reason))

    def _send(self, number: int, message: Message) -> None:
        connection = self._connections.get(number)
        if connection is None or isinstance(message, Hello):  # the wire says hello when it connects
            return
        try:
            connection.post(message)
        except PCPError as error:
            log.info("the Shepherd does not get %s: %s", type(message).__name__, error)

    def _prepare(self, run: str, blobs: tuple[Blob, ...]) -> Event:
        try:
            job = Job.from_json(run)
            for blob in job.blobs:
                if blob not in blobs:
                    raise NotOffered(
                        f"the run names blob {blob.digest.hex()[:16]}, which the Shepherd does not offer"
                    )
            # An earlier process of this worker may have left blobs behind.
            self._store.keep_only(blob.digest for blob in job.blobs)
            for blob in job.blobs:
                self._bring(blob)
            self._trainer = InnerTrainer(job, self._store, self._device, self._outcome.done)
        except (PCPError, OSError) as error:
            if not isinstance(error, PASSING):
                self._unusable = error
            return PreparationFailed(self._now(), run, str(error))
        return Prepared(self._now(), run)

    def _fetch(self, blob: Blob) -> Event:
        try:
            self._bring(blob)
        except (PCPError, OSError) as error:
            return BlobUnavailable(self._now(), blob, str(error))
        if self._parameters is not None and self._parameters != blob:
            self._store.remove(self._parameters.digest)
        self._parameters = blob
        return BlobFetched(self._now(), blob)

    def _train(self, lease: Lease) -> Event | None:
        trainer = self._trainer
        if trainer is None or self._is_given_up(lease.lease_id):
            return None
        try:
            done = trainer.train(
                lease,
                lambda steps, seconds: self._post(LeaseProgress(self._now(), lease.lease_id, steps, seconds)),
                lambda: self._is_given_up(lease.lease_id),
            )
        except LeaseAborted:
            return None
        except (PCPError, OSError) as error:
            return LeaseFailed(self._now(), lease.lease_id, str(error))
        log.info(
            "lease %d: %d steps in %.3f s (%.1f ms of it outside of the steps), loss %.4f",
            lease.lease_id,
            lease.data.count,
            done.seconds,
            1e3 * done.overhead_seconds,
            done.losses[-1],
        )
        return LeaseTrained(
            self._now(), lease.lease_id, done.pseudo_gradient, done.tokens, done.losses, done.seconds
        )

    def _upload(self, lease_id: int, blob: Blob) -> Event | None:
        began = time.monotonic()
        try:
            if not self._is_given_up(lease_id):
                self._bulk.push(blob, self._store)
        except (PCPError, OSError) as error:
            return UploadFailed(self._now(), lease_id, str(error))
        self._store.remove(blob.digest)
        if self._is_given_up(lease_id):
            return None
        log.info("pushed %d bytes in %.1f ms", blob.size, 1e3 * (time.monotonic() - began))
        return UpdateUploaded(self._now(), lease_id)

    def _bring(self, blob: Blob) -> None:
        """Fetch a blob."""
        began = time.monotonic()
        self._bulk.fetch(blob, self._store)
        log.info("fetched %d bytes in %.1f ms", blob.size, 1e3 * (time.monotonic() - began))

    def _is_given_up(self, lease_id: int) -> bool:
        return lease_id != self._lease_id
