"""The Shepherd's process: the coordinator's host. It performs effects and feeds events; it decides nothing.

One asyncio loop handles events one at a time in the order they come; sums and evaluations run in threads of their own.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pcp.distributed.algorithms import DiLoCo
from pcp.distributed.coordinator import (
    Coordinator,
    DirectoryStorage,
    EventLog,
    RunConfig,
    TimeoutPolicy,
    encode,
)
from pcp.distributed.coordinator.effects import (
    Append,
    Close,
    Compact,
    DeleteBlob,
    Effect,
    Finish,
    Metrics,
    Report,
    RoundMerged,
    RunOuterStep,
    Send,
    WriteCheckpoint,
)
from pcp.distributed.coordinator.events import (
    BlobRefused,
    BlobStored,
    CheckpointDone,
    CheckpointFailed,
    ConnectionLost,
    Event,
    MemberJoined,
    MessageReceived,
    OuterStepDone,
    OuterStepFailed,
    Started,
    Tick,
)
from pcp.distributed.job import Job
from pcp.distributed.merger import Merger
from pcp.distributed.messages import Assign, Blob, Goodbye, Hello, Message, Update, Welcome
from pcp.distributed.programs import worker_programs
from pcp.distributed.reports import records_of
from pcp.distributed.wire import (
    Announcements,
    BlobStore,
    ControlConnection,
    Credentials,
    Revocations,
    WireServer,
)
from pcp.errors import PCPError
from pcp.training.recipe import Recipe
from pcp.training.run_folder import RunFolder, save_state

log = logging.getLogger("pcp.distributed.shepherd")

TICK_SECONDS = 0.25
MISSED_HEARTBEATS = 10
"""A worker whose connection stands but is silent may be compiling; one whose connection broke is known to be gone at once."""


class RunFailed(PCPError):
    """The run cannot go on; the message is the coordinator's reason."""


class Shepherd:
    """Hosts one run.

    Arguments:
        folder: the run's folder; blobs, the event log and checkpoints go there, and an interrupted run is found there.
        recipe: what is trained.
        credentials: the Shepherd's certificate.
        revocations: certificates of workers that are no longer admitted.
        report: receives records of metrics.
    """

    def __init__(
        self,
        folder: RunFolder,
        recipe: Recipe,
        credentials: Credentials,
        revocations: Revocations | None,
        report: Callable[[dict[str, Any]], None],
    ) -> None:
        self._folder = folder
        self._recipe = recipe
        self._credentials = credentials
        self._revocations = revocations
        self._report = report
        self._store = BlobStore(folder.path / "blobs")
        self._merger = Merger(recipe, self._store)
        self._log = EventLog(DirectoryStorage(folder.path / "coordinator"))
        records = list(self._log.records())
        self._coordinator = Coordinator.restore(records) if records else self._new_run()
        self._announcements = Announcements()
        self._connections: dict[int, ControlConnection] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._last_connection = 0
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._finished: asyncio.Future[str] | None = None
        # One thread for what the run waits for, one for what only informs.
        self._compute = ThreadPoolExecutor(1, "merge")
        self._evaluate = ThreadPoolExecutor(1, "evaluate")

    def _new_run(self) -> Coordinator:
        config = self._recipe.config
        step = self._recipe.step
        programs = worker_programs(step, self._recipe.parameters)
        blobs = {
            name: self._store.put(getattr(programs, name).artifact())
            for name in ("start", "adopt", "step", "delta")
        }
        tokens = self._store.put(self._folder.token_file.read_bytes())
        model = self._recipe.model
        job = Job(blobs, tokens, config.batch, model.context, config.seed, model.vocabulary)
        parameters, momentum = self._merger.begin()
        plan = RunConfig(
            run_id=f"{self._folder.path.name}-{step.digest[:12]}",
            workers=config.workers,
            rounds=config.steps // config.inner_steps,
            algorithm=DiLoCo(config.inner_steps, config.outer_learning_rate, config.outer_momentum),
            description=job.to_json(),
            blobs=job.blobs,
            update_bytes=parameters.size,
            tokens_per_batch=self._recipe.tokens_per_step,
            patience_seconds=60.0,
            missed_heartbeats=MISSED_HEARTBEATS,
            lease=TimeoutPolicy(initial_seconds=1800.0, slack=4.0, floor_seconds=30.0),
            checkpoint_every=max(1, (config.checkpoint_every or config.steps) // config.inner_steps),
        )
        return Coordinator.create(plan, parameters, momentum)

    async def run(self, host: str, port: int, ready: Callable[[int], None]) -> None:
        """Serve workers until every batch is merged.

        Arguments:
            host: address to listen on.
            port: port to listen on; 0 picks a free one.
            ready: told the port.

        Raises:
            PortInUse, CannotListen: the address cannot be listened on.
            RunFailed: the run cannot go on.
        """
        self._finished = asyncio.get_running_loop().create_future()
        server = await WireServer.start(
            host,
            port,
            self._credentials,
            self._serve,
            self._store,
            self._announcements,
            revocations=self._revocations,
        )
        ready(server.port)
        ticking = asyncio.create_task(self._tick())
        handling = asyncio.create_task(self._handle_events())
        try:
            self._events.put_nowait(Started(self._now()))
            ends: tuple[asyncio.Future[Any], ...] = (self._finished, handling)
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if handling.done():
                handling.result()  # a failure of the host itself, such as a full disk
            if failure := self._finished.result():
                raise RunFailed(f"the run failed: {failure}")
            await asyncio.gather(*self._closing, return_exceptions=True)
            await asyncio.to_thread(self._evaluate.shutdown)
        finally:
            for task in (ticking, handling):
                task.cancel()
            for connection in list(self._connections.values()):
                await connection.close(Goodbye(False, "the Shepherd stops"))
            await server.close()
            self._compute.shutdown(cancel_futures=True)
            self._evaluate.shutdown(cancel_futures=True)

    def _now(self) -> float:
        return time.monotonic()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._events.put_nowait(Tick(self._now()))

    async def _serve(self, connection: ControlConnection, hello: Hello) -> None:
        """One worker's connection, from its hello to its end."""
        self._last_connection += 1
        number = self._last_connection
        self._connections[number] = connection
        self._events.put_nowait(MemberJoined(self._now(), number, hello))
        try:
            async for message in connection:
                self._events.put_nowait(MessageReceived(self._now(), number, message))
                if isinstance(message, Update):
                    self._in_thread(self._compute, self._checked, message.pseudo_gradient)
        finally:
            if self._connections.pop(number, None) is not None:
                self._events.put_nowait(ConnectionLost(self._now(), number))

    async def _handle_events(self) -> None:
        while True:
            event = await self._events.get()
            for effect in self._coordinator.handle(event):
                self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(connection, message):
                self._send(connection, message)
            case Close(connection, reason):
                self._close(connection, reason)
            case Append(record, sync):
                self._log.append(encode(record), sync)
            case Compact(snapshot):
                self._log.compact(snapshot)
            case RunOuterStep():
                self._in_thread(self._compute, self._outer_step, effect)
            case WriteCheckpoint():
                self._in_thread(self._compute, self._checkpoint, effect)
            case DeleteBlob(blob):
                self._announcements.withdraw([blob])
                self._store.remove(blob.digest)
            case Finish(failure):
                if self._finished is not None and not self._finished.done():
                    self._finished.set_result(failure)
            case Report(metrics):
                self._tell(metrics)

    def _close(self, number: int, reason: str) -> None:
        if connection := self._connections.pop(number, None):
            log.info("closing the connection of %s: %s", connection.address, reason)
            task = asyncio.create_task(connection.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _tell(self, metrics: Metrics) -> None:
        if isinstance(metrics, RoundMerged):
            self._evaluate_if_due()
        for record in records_of(metrics, self._coordinator.state):
            self._report(record)

    def _send(self, number: int, message: Message) -> None:
        connection = self._connections.get(number)
        if connection is None:
            return
        if isinstance(message, Welcome):
            self._announcements.announce(message.blobs)
        elif isinstance(message, Assign):
            self._announcements.announce([message.lease.parameters])
            # Room for one pseudo-gradient, and one more for a retry with other content.
            self._announcements.allow_push(
                connection.peer.name, 2 * self._coordinator.state.run.config.update_bytes
            )
        try:
            connection.post(message)
        except PCPError as error:
            log.info("%s does not get %s: %s", connection.address, type(message).__name__, error)

    def _in_thread(
        self, pool: ThreadPoolExecutor, function: Callable[[Any], Event | None], argument: Any
    ) -> None:
        """Run a function in a thread; the event that it returns is handled like any other."""
        loop = asyncio.get_running_loop()

        def work() -> None:
            event = function(argument)
            if event is not None:
                loop.call_soon_threadsafe(self._events.put_nowait, event)

        pool.submit(work)

    def _checked(self, blob: Blob) -> Event:
        try:
            self._merger.check(blob)
        except PCPError as error:
            return BlobRefused(self._now(), blob, str(error))
        return BlobStored(self._now(), blob)

    def _outer_step(self, effect: RunOuterStep) -> Event:
        try:
            parameters, momentum = self._merger.merge(
                effect.contributions, effect.weights, effect.parameters, effect.optimizer_state, effect.round
            )
        except (PCPError, OSError) as error:
            return OuterStepFailed(self._now(), effect.round, str(error))
        return OuterStepDone(self._now(), effect.round, parameters, momentum)

    def _checkpoint(self, effect: WriteCheckpoint) -> Event:
        try:
            state = self._merger.load(effect.parameters, effect.optimizer_state)
            step = effect.version * self._recipe.config.inner_steps
            save_state(
                self._folder,
                step,
                state,
                {"tokens": effect.tokens, "round": effect.version},
                self._recipe.step.digest,
            )
        except (PCPError, OSError) as error:
            return CheckpointFailed(self._now(), effect.version, str(error))
        return CheckpointDone(self._now(), effect.version)

    def _evaluate_if_due(self) -> None:
        run, config = self._coordinator.state.run, self._recipe.config
        step = run.version * config.inner_steps
        every = config.evaluate_every
        due = run.complete or (every > 0 and step // every > (step - config.inner_steps) // every)
        if due:
            # The parameters are read now, because their blob may be deleted before the evaluation's turn comes.
            parameters = self._merger.load(run.parameters, None)["params"]
            self._in_thread(self._evaluate, self._evaluated, (step, parameters))

    def _evaluated(self, argument: tuple[int, Any]) -> None:
        step, parameters = argument
        loss = self._merger.validation_loss(parameters)
        self._report({"step": step, "validation_loss": loss})


def serve(
    shepherd: Shepherd,
    folder: RunFolder,
    host: str,
    port: int,
    announce: Callable[[str], None] = lambda _: None,
) -> None:
    """Run a Shepherd to the end of its run, in this thread.

    A run that goes on listens where it listened before, so that its workers find it.

    Arguments:
        shepherd: what to run.
        folder: where its address is written, for workers on this machine.
        host: address to listen on.
        port: port to listen on; 0 picks the one of before, or a free one.
        announce: told the address, `HOST:PORT`.
    """
    address_file = folder.path / "address.json"
    if port == 0 and address_file.exists():
        port = _port_of(address_file)

    def ready(bound: int) -> None:
        address_file.write_text(json.dumps({"host": host, "port": bound}), encoding="utf-8")
        announce(f"{host}:{bound}")

    asyncio.run(shepherd.run(host, port, ready))


def _port_of(path: Path) -> int:
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["port"])
    except (ValueError, KeyError, TypeError):
        return 0
