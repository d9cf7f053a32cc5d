"""A Worker as an actor: the host of every Worker, with Ray between it and its Shepherd."""

import asyncio
import fcntl
import logging
import os
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path

import ray

from pcp.backends import Target
from pcp.distributed.engines.ray.links import Link, Switchboard
from pcp.distributed.engines.ray.objects import SHEPHERD, ObjectCarrier, ObjectStore
from pcp.distributed.job import Job
from pcp.distributed.messages import Blob, FailureKind, Goodbye, Hello, Lease, Message, Repeat, Welcome
from pcp.distributed.wire import BlobStore, ConnectionLost, Credentials, Traffic, Unreachable
from pcp.distributed.worker.effects import Stop
from pcp.distributed.worker.failures import MustListen
from pcp.distributed.worker.offer import EVERYTHING, Offer
from pcp.distributed.worker.process import WorkerProcess
from pcp.distributed.worker.training.means import no_shards
from pcp.distributed.worker.training.shards import shards_of
from pcp.distributed.worker.training.trainer import InnerTrainer, Later, Progress, Trained, make_trainer
from pcp.distributed.worker.ways.base import Told
from pcp.planning.measuring.hardware import hardware_of
from pcp.temporary import WORKING, TemporaryFolder

log = logging.getLogger("pcp.distributed.engines.ray")

GREETING_SECONDS = 60.0
"""How long a Shepherd may take to answer: one that starts reads its data first."""


class WorkerActor(Switchboard):
    """One worker of a run.

    Arguments:
        name: the worker's.
        authority: certificate of the run's authority, which signed the run's programs.
        device: where to compute; of those that Ray lets this actor see.
        processors: how many to compute with; 0 for all.
    """

    def __init__(self, name: str, authority: bytes, device: str, processors: int) -> None:
        super().__init__()
        self._name, self._authority = name, authority
        self._device, self._processors = device, processors
        self._held: list[int] = []

    async def run(self) -> Stop:
        """Work until the run is complete."""
        logging.getLogger("pcp").setLevel(os.environ.get("PCP_LOG", "INFO"))
        if self._processors:
            self._held = hold_processors(self._processors)
        target = Target.of(self._device)
        capacity, hardware = target.capacity, hardware_of(target).digest_by(target.backend)
        with TemporaryFolder(WORKING) as folder:
            worker = WorkerProcess(
                RayWay(self._name, self._authority, self),
                folder.path / "blobs",
                self._device,
                capacity,
                EVERYTHING,
                hardware,
            )
            return await worker.run()

    async def process_id(self) -> int:
        """The number of the actor's process on its node."""
        return os.getpid()

    async def connect(self, hello: Hello) -> Link:
        """Become a member of the run.

        Raises:
            Unreachable: there is no Shepherd now.
            ConnectionLost: it went away, or does not answer.
        """
        number = uuid.uuid4().hex
        link = None
        try:
            async with asyncio.timeout(GREETING_SECONDS):
                shepherd = await asyncio.to_thread(ray.get_actor, SHEPHERD)
                link = self.open_link(number, hello.worker, "the Shepherd", shepherd)
                me = ray.get_runtime_context().current_actor
                await shepherd.join.remote(number, hello, me)
                self.watch(number, shepherd)
                answer = await link.receive()
            if isinstance(answer, Welcome | Goodbye):
                link.answer = answer
                return link
            problem: object = f"it answered Hello with {type(answer).__name__}"
        except ValueError:  # Ray says so of a name that nobody has
            raise Unreachable("the Shepherd does not run now") from None
        except (ray.exceptions.RayError, TimeoutError) as error:
            problem = error or "it does not answer"
        if link is not None:
            await link.close()
        raise ConnectionLost(f"the Shepherd is gone: {problem}")


class RayWay:
    """How a worker in a cluster that trusts itself reaches its Shepherd; see `Way`.

    Arguments:
        name: the worker's.
        authority: certificate of the run's authority.
        actor: the worker's.
    """

    def __init__(self, name: str, authority: bytes, actor: WorkerActor) -> None:
        self.name, self.authority = name, authority
        self.is_signed = Credentials(b"", b"", authority).is_signed
        self._actor = actor

    def store(self, folder: Path, _: int) -> ObjectStore:
        """See `Way`."""
        return ObjectStore(folder)

    async def open(self, _: BlobStore) -> None:
        """See `Way`; Ray hands objects on, so nobody else is let in."""

    async def close(self) -> None:
        """See `Way`."""

    async def connect(self, hello: Hello, _: Traffic) -> Link:
        """See `Way`."""
        return await self._actor.connect(hello)

    def takes(self, _: Message) -> bool:
        """See `Way`."""
        return False

    def carriers(self, traffic: Traffic) -> tuple[ObjectCarrier, ObjectCarrier, ObjectCarrier]:
        """See `Way`."""
        down, up, aside = (ObjectCarrier(self.name, traffic) for _ in range(3))
        self._aside = aside
        return down, up, aside

    def trainer(
        self,
        job: Job,
        store: BlobStore,
        device: str,
        cancelled: Callable[[], bool],
        _: Offer,
        __: Path,
        ___: Told,
    ) -> "TrainerHere":
        """See `Way`."""
        if job.exchange_every:
            raise MustListen(
                "the workers of this run exchange with each other, which they cannot on Ray; train it without "
                "--engine ray, or choose another --algorithm"
            )
        shards = shards_of(job, store, self._aside, EVERYTHING.shard_bytes)
        bring = no_shards if shards is None else lambda _: shards
        return TrainerHere(make_trainer(job, store, device, cancelled, bring))


class TrainerHere:
    """Trains in the actor's own process, where parameters are read as Ray holds them."""

    def __init__(self, trainer: InnerTrainer) -> None:
        self._trainer = trainer
        self.inbox, self.profile = trainer.inbox, trainer.profile

    async def train(
        self,
        lease: Lease,
        progress: Progress,
        aborted: Callable[[], bool],
        _: Later | None = None,
    ) -> Trained | None:
        """See `InnerTrainer.train`; one thread alone gives objects to Ray, so pushes are made before this returns."""
        return await self._trainer.train(lease, progress, aborted)

    async def repeat(self, wanted: Repeat, aborted: Callable[[], bool]) -> tuple[Blob, Blob | None]:
        """See `InnerTrainer.repeat`."""
        return await self._trainer.repeat(wanted, aborted)

    def end(self, _: FailureKind, words: str) -> None:
        """End the actor, since a program cannot be interrupted; it is made again."""
        log.error("%s", words)
        os._exit(1)

    def close(self) -> None:
        """Nothing more will be trained."""


def hold_processors(count: int) -> list[int]:
    """Keep this thread and those that it starts to processors that no other actor of this node holds.

    Ray counts processors but assigns none. Where too few are free all of them are used.

    Returns:
        Descriptors of locks, which the end of the process releases.
    """
    folder = Path(tempfile.gettempdir()) / f"pcp-processors-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    held: dict[int, int] = {}
    for processor in sorted(os.sched_getaffinity(0)):
        if len(held) == count:
            break
        lock = os.open(folder / str(processor), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held[processor] = lock
        except OSError:
            os.close(lock)
    if len(held) == count:
        os.sched_setaffinity(0, held)
        return list(held.values())
    for lock in held.values():
        os.close(lock)
    return []
