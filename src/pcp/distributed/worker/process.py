"""The Worker's process: an asyncio loop, connections and a folder, for the logic's `Host`."""

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcp.distributed.gossip.exchanger import Exchanged
from pcp.distributed.job import Job
from pcp.distributed.messages import Blob, Goodbye, Message
from pcp.distributed.runtime import LoopRuntime
from pcp.distributed.wire import BlobStore, CertificateRefused, RefusalCode, RefusedByPeer, Traffic
from pcp.distributed.worker.artifacts import with_artifacts_for
from pcp.distributed.worker.effects import Stop
from pcp.distributed.worker.events import WorkersMet
from pcp.distributed.worker.host import Host
from pcp.distributed.worker.logic import WorkerLogic
from pcp.distributed.worker.offer import EVERYTHING, Offer
from pcp.distributed.worker.reports import Record, Reporter
from pcp.distributed.worker.state import WorkerConfig
from pcp.distributed.worker.tools import Trainer
from pcp.distributed.worker.ways.base import Carrier, Connection, Fetcher, Pusher, Way
from pcp.distributed.worker.workshop import Workshop
from pcp.errors import PCPError
from pcp.folders import cache_folder

log = logging.getLogger("pcp.distributed.worker")

TICK_SECONDS = 0.25

HOPELESS = frozenset({RefusalCode.CERTIFICATE, RefusalCode.VERSION, RefusalCode.IDENTITY})
"""Refusals that trying again would only repeat."""


@dataclass(frozen=True, slots=True)
class _Link:
    """A control connection, closed beside the loop's other work."""

    connection: Connection
    beside: Callable[[Coroutine[Any, Any, None]], None]

    def post(self, message: Message) -> None:
        self.connection.post(message)

    def close(self) -> None:
        self.beside(self.connection.close())


class _Fetches:
    """Fetches, which block a thread."""

    def __init__(self, fetcher: Fetcher, store: BlobStore) -> None:
        self._fetcher, self._store = fetcher, store

    async def fetch(self, blob: Blob) -> None:
        self._fetcher.fetch(blob, self._store)

    def close(self) -> None:
        self._fetcher.close()


class _Pushes:
    """Pushes, which block a thread."""

    def __init__(self, pusher: Pusher, store: BlobStore) -> None:
        self._pusher, self._store = pusher, store

    async def push(self, blob: Blob) -> None:
        self._pusher.push(blob, self._store)

    def close(self) -> None:
        self._pusher.close()


class _Transfers(_Fetches):
    """Fetches and pushes, which block a thread."""

    def __init__(self, carrier: Carrier, store: BlobStore) -> None:
        super().__init__(carrier, store)
        self._pushes = _Pushes(carrier, store)

    async def push(self, blob: Blob) -> None:
        await self._pushes.push(blob)


class WorkerProcess:
    """Hosts one worker.

    Arguments:
        way: to the Shepherd; knows the worker's name.
        folder: where blobs are kept; no other worker may use it.
        device: where to compute.
        memory_bytes: memory of the device.
        offer: what the run may take here.
        hardware: the digest of what it computes on.
        report: receives records of what the worker does, in the loop's thread.
    """

    def __init__(
        self,
        way: Way,
        folder: Path,
        device: str,
        memory_bytes: int,
        offer: Offer = EVERYTHING,
        hardware: str = "",
        report: Callable[[Record], None] = lambda _: None,
    ) -> None:
        self._way = way
        self._device = device
        self._folder = folder
        self._offer = offer
        self._reporter = Reporter(way.name, report)
        self._logic = WorkerLogic(
            WorkerConfig(
                way.name,
                os.urandom(16),
                (device,),
                memory_bytes if offer.memory_bytes is None else min(memory_bytes, offer.memory_bytes),
                hardware=hardware,
                # A busy machine must not look like a dead one; a Shepherd that is gone closes its connections.
                missed_heartbeats=10,
                abandon_seconds=120.0,
            )
        )
        self._closing: set[asyncio.Task[None]] = set()
        self._connecting: set[asyncio.Task[None]] = set()

    async def run(self) -> Stop:
        """Work until the run is complete, or `stop` is called.

        Raises:
            CertificateRefused, RefusedByPeer: the Shepherd will never admit this worker.
        PCPError: the run cannot be prepared here, and could not be by trying again.
        """
        self._outcome: asyncio.Future[Stop] = asyncio.get_running_loop().create_future()
        self._runtime, self._traffic = LoopRuntime(self._ended), Traffic()
        self._host = Host(
            self._logic,
            self._runtime,
            self._begin_to_connect,
            self._reporter,
            self._traffic,
            TICK_SECONDS,
            self._ended,
        )
        store = self._way.store(self._folder, self._offer.disk_bytes)
        workshop = self._make_workshop(store)
        try:
            await self._way.open(store)
            self._host.start(workshop)
            return await self._outcome
        finally:
            await self._way.close()
            await self._end(workshop)

    def stop(self, reason: str) -> None:
        """Leave the run; to be called in the loop's thread."""
        self._host.stop(reason)

    def _make_workshop(self, store: BlobStore) -> Workshop:
        way, offer = self._way, self._offer
        # Processes of the same run may take what one of them compiled.
        cache = cache_folder() / "runs" / hashlib.sha256(way.authority).hexdigest()[:16]
        down, up, aside = way.carriers(self._traffic)

        def narrowed(job: Job) -> Job:
            return job if offer.artifacts is None else with_artifacts_for(job, self._device, offer.artifacts)

        async def make_trainer(job: Job) -> Trainer:
            return way.trainer(job, store, self._device, self._outcome.done, offer, cache, self._met)

        return Workshop(
            store,
            _Fetches(down, store),
            _Pushes(up, store),
            _Transfers(aside, store),
            make_trainer,
            way.is_signed,
            self._runtime,
            self._host.post,
            narrowed,
        )

    def _met(self, exchanged: Exchanged, loss: float) -> None:
        met = WorkersMet(self._runtime.now(), exchanged.number, exchanged.partner, loss)
        self._runtime.soon(self._host.post, met)

    async def _end(self, workshop: Workshop) -> None:
        goodbye = Goodbye(False, "the worker failed; its log says why")  # else no connection is left here
        for link in self._host.connections.values():
            if isinstance(link, _Link):
                self._beside(link.connection.close(goodbye))
        await asyncio.gather(*self._closing, return_exceptions=True)  # the last words are on their way
        for task in self._connecting:
            task.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)
        await asyncio.to_thread(workshop.close)

    def _beside(self, closing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _begin_to_connect(self) -> None:
        task = asyncio.create_task(self._connect())
        self._connecting.add(task)
        task.add_done_callback(self._connection_ended)

    def _connection_ended(self, task: asyncio.Task[None]) -> None:
        self._connecting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._ended(error)

    def _ended(self, how: Stop | BaseException) -> None:
        """End the process: as the logic says, or because trying again would only repeat what happened."""
        if self._outcome.done():
            return
        if isinstance(how, Stop):
            self._outcome.set_result(how)
        else:
            self._outcome.set_exception(how)

    async def _connect(self) -> None:
        """Connect, and receive until the connection ends."""
        number = 0
        try:
            connection = await self._way.connect(self._logic.config.hello(), self._traffic)
            number = self._host.connected(_Link(connection, self._beside))
            if connection.answer is not None:
                self._host.received(number, connection.answer)
            async for message in connection:
                if not self._way.takes(message):
                    self._host.received(number, message)
            reason = "the Shepherd closed it"
        except PCPError as error:
            if isinstance(error, CertificateRefused) or (
                isinstance(error, RefusedByPeer) and error.refusal.kind in HOPELESS
            ):
                raise
            reason = str(error)
        self._host.disconnected(number, reason)
