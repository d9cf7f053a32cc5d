"""The Shepherd's process: an asyncio loop, a listening port and the run's folder, for the coordinator's `Host`."""

import asyncio
import contextlib
import functools
import logging
import os
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from pcp.distributed.algorithm_choice import algorithm_of
from pcp.distributed.coordinator import Coordinator, EventLog
from pcp.distributed.job import Job, renewed
from pcp.distributed.messages import Blob, Goodbye, Hello, Message
from pcp.distributed.runtime import LoopRuntime
from pcp.distributed.shepherd.arrivals import ArrivalStore
from pcp.distributed.shepherd.calculation import Calculation
from pcp.distributed.shepherd.disk import Disk
from pcp.distributed.shepherd.door import Door, WorkerConnection
from pcp.distributed.shepherd.evaluation import Evaluator
from pcp.distributed.shepherd.host import Host
from pcp.distributed.shepherd.locking import POLL_SECONDS, locked
from pcp.distributed.shepherd.merger import Merger
from pcp.distributed.shepherd.new_run import new_run
from pcp.distributed.shepherd.reports import Record, counted_in, refusal_record
from pcp.distributed.shepherd.requests import Requests, attend
from pcp.distributed.shepherd.state_checks import StateChecks
from pcp.distributed.wire import (
    BlobStore,
    Credentials,
    PortInUse,
    RefusalCode,
    Revocations,
    WireLimits,
    WireServer,
)
from pcp.distributed.wire.identity.tls import check_not_revoked
from pcp.training.recipes.recipe import Recipe
from pcp.training.run_folder import RunFolder, save_state

log = logging.getLogger("pcp.distributed.shepherd")

TICK_SECONDS = 0.25
PUSHES_ALLOWED = 4
"""Pushes that a worker may begin to upload after each lease: its own, the one before, and another of each."""


STATES_ALLOWED = 4
"""Inner states that a worker may begin to upload after each lease or question: two of its own, and two that it is asked for."""


@dataclass(frozen=True, slots=True)
class _Link:
    """A control connection, closed beside the loop's other work."""

    connection: WorkerConnection
    beside: Callable[[Coroutine[Any, Any, None]], None]

    @property
    def worker(self) -> str:
        return self.connection.peer.name

    @property
    def serial(self) -> int:
        return self.connection.peer.serial

    @property
    def address(self) -> str:
        return self.connection.address

    def post(self, message: Message) -> None:
        self.connection.post(message)

    def close(self) -> None:
        self.beside(self.connection.close())

    def refuse(self, code: RefusalCode, reason: str) -> None:
        self.beside(self.connection.refuse(code, reason))


class Shepherd:
    """Hosts one run.

    Arguments:
        folder: the run's folder; blobs, the event log and checkpoints go there, and an interrupted run is found there.
        recipe: what is trained.
        credentials: the Shepherd's certificate.
        revocations: certificates of workers that are no longer admitted.
        report: receives records of metrics, in the loop's thread.
        sign: by the run's authority; None where its key is elsewhere, which only a new run needs.
        patience_seconds: how long to wait for a Shepherd that is just ending to let go of the folder.

    Raises:
        NothingToSignWith: the run is new, and nobody signs it.
        RunLocked: another Shepherd holds the folder.
        CorruptEventLog: what an earlier Shepherd wrote cannot be read.
        InvalidJob, JobForeign: another version of PCP began the run.
        JobExpired: what was signed when the run began holds no more, and nobody signs it again.
        BadWireLimits: the settings name limits that do not exist.
    """

    def __init__(
        self,
        folder: RunFolder,
        recipe: Recipe,
        credentials: Credentials,
        revocations: Revocations | None,
        report: Callable[[Record], None],
        patience_seconds: float = 0.0,
        sign: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self._credentials = credentials
        self._revocations = revocations
        self._report = report = counted_in(recipe.unit, report)
        self._limits = WireLimits.of(recipe.config.wire)
        self._requests = Requests(folder)
        self._storage = locked(folder.path / "coordinator", patience_seconds)
        self._log = EventLog(self._storage)
        self._store = BlobStore(folder.path / "blobs")
        self._shards = {Blob(bytes.fromhex(digest), size): path for digest, size, path in recipe.data.shards}
        self._store.lend(self._shards)
        records = list(self._log.records())
        restored = Coordinator.restore(records) if records else None
        if restored is not None:
            config = restored.state.run.config
            Job.from_json(config.description)
            restored.state.run.config = replace(
                config, description=renewed(config.description, sign, time.time())
            )
        algorithm = restored.state.run.config.algorithm if restored else algorithm_of(recipe.config)
        merger = Merger(recipe, algorithm, self._store)
        self._disk = Disk(folder.path, self._trouble, time.monotonic)
        states = StateChecks(recipe, algorithm, self._store, merger)
        # The digest is traced here, because MLIR is not to be used from two threads at once, and the lanes begin to compile.
        save = functools.partial(save_state, folder, program_digest=recipe.step.digest)
        self._calculation = Calculation(
            merger,
            states,
            Evaluator(recipe, self._store, merger.partition),
            lambda blob: self._store.remove(blob.digest),
            save,
            self._disk,
            recipe.config.workers * recipe.tokens_per_step,
            recipe.config.evaluate_every,
        )
        self._coordinator = restored or new_run(folder, recipe, algorithm, self._store, merger, sign)
        self._push_bytes = PUSHES_ALLOWED * max(merger.payload_bytes())
        if self._coordinator.state.run.config.audits.rate:
            self._push_bytes += STATES_ALLOWED * states.largest_bytes
        self._closing: set[asyncio.Task[None]] = set()

    async def run(
        self, host: str, port: int, ready: Callable[[int], None], patience_seconds: float = 0.0
    ) -> bool:
        """Serve workers until every batch is merged and the last parameters are evaluated, or until `stop` is called.

        Arguments:
            host: address to listen on.
            port: port to listen on; 0 picks a free one.
            ready: told the port.
            patience_seconds: how long to wait for a port that is in use.

        Returns:
            Whether the run is complete.

        Raises:
            PortInUse, CannotListen: the address cannot be listened on.
            RunFailed: the run cannot go on.
            EventLogWriteFailed: what the run decides cannot be kept, for the disk fails.
            NoRoom: the disk has been full for a day.
        """
        with contextlib.closing(self._storage):
            return await self._run(host, port, ready, patience_seconds)

    async def _run(self, host: str, port: int, ready: Callable[[int], None], patience_seconds: float) -> bool:
        self._outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._runtime = LoopRuntime(self._ended)
        self._host = Host(
            self._coordinator,
            self._log,
            self._store,
            self._calculation,
            self._disk,
            self._runtime,
            mark=os.urandom(16),
            push_bytes=self._push_bytes,
            tick_seconds=TICK_SECONDS,
            revoked=frozenset if self._revocations is None else self._revocations.serials,
            paused=lambda: self._requests.paused,
            report=self._report,
            ended=self._ended,
        )
        self._host.announcements.announce(self._shards)
        server = await self.listen(host, port, patience_seconds)
        state, seen = self._coordinator.state, server.statistics
        attention = asyncio.create_task(
            attend(self._requests, state, seen, self.stop, self._report, self._runtime.now)
        )
        attention.add_done_callback(self._attention_ended)
        try:
            self._host.start()
            ready(server.port)
            return await self._outcome
        finally:
            attention.cancel()
            self._host.stop()
            goodbye = Goodbye(False, "the Shepherd stops")
            left = [
                link.connection.close(goodbye)
                for link in self._host.connections.values()
                if isinstance(link, _Link)
            ]
            # Those that are being closed hear their last word, too.
            await asyncio.gather(attention, *left, *self._closing, return_exceptions=True)
            await server.close()
            await asyncio.to_thread(self._calculation.close)

    @property
    def arrivals(self) -> ArrivalStore:
        """What workers fetch from and push to; while it runs."""
        return self._host.arrivals

    async def listen(self, host: str, port: int, patience_seconds: float) -> Door:
        """Let workers in, each of which is served by `serve`; see `run` for what is given."""
        deadline = self._runtime.now() + patience_seconds
        while True:
            try:
                return await WireServer.start(
                    host,
                    port,
                    self._credentials,
                    self.serve,
                    self.arrivals,
                    self._host.announcements,
                    revocations=self._revocations,
                    limits=self._limits,
                    on_refused=lambda refused: self._runtime.soon(self._report, refusal_record(refused)),
                )
            except PortInUse:
                if self._runtime.now() >= deadline:
                    raise
            await asyncio.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """End before the run is complete; another Shepherd goes on with it. To be called in the loop's thread."""
        if not self._outcome.done():
            self._outcome.set_result(False)

    def _ended(self, error: BaseException | None) -> None:
        """End the process: the run is complete, or something failed that it cannot do without, such as the disk."""
        if self._outcome.done():
            return
        if error is None:
            self._outcome.set_result(True)
        else:
            self._outcome.set_exception(error)

    def _attention_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._ended(error)

    def _trouble(self, message: str) -> None:
        self._host.trouble(message)

    async def serve(self, connection: WorkerConnection, hello: Hello) -> None:
        """One worker's connection, from its hello to its end."""
        check_not_revoked(connection.peer, self._revocations)  # the list may have changed since the handshake
        number = self._host.joined(_Link(connection, self._beside), hello)
        try:
            async for message in connection:
                self._host.received(number, message)
        finally:
            self._host.left(number)

    def _beside(self, closing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
