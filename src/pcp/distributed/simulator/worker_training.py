"""The training of a simulated worker: the Worker's own trainer, whose steps take virtual time, and a witness that looks on."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pcp.distributed.gossip.exchanger import Exchanged
from pcp.distributed.gossip.slow_weights import SlowWeights
from pcp.distributed.job import Job
from pcp.distributed.messages import Blob, FailureKind, Lease, Profile, Repeat, SiteMeasurement
from pcp.distributed.round_arithmetic.replica import Encoded, Encoding, Replica, Runs
from pcp.distributed.simulator import runtime, training
from pcp.distributed.wire.blobs import BlobStore
from pcp.distributed.worker.effects import Adopt
from pcp.distributed.worker.offer import ProgramStopped
from pcp.distributed.worker.training.inbox import Inbox
from pcp.distributed.worker.training.kept_states import KeptStates
from pcp.distributed.worker.training.repetition import Repeater, Shelf
from pcp.distributed.worker.training.trainer import InnerTrainer, Later, LeaseRefused, Progress, Trained
from pcp.errors import PCPError

if TYPE_CHECKING:
    from pcp.distributed.simulator.worker_process import WorkerProcess

PROFILE = Profile("as it is written", (SiteMeasurement("add f32[4] f32[4]", "plain", 1.0),))


class TrainingFailed(PCPError):
    """A simulated step failed."""


class WorkerTraining:
    """Stands for the confined process of a Worker: it trains one lease at a time, and may be ended.

    Arguments:
        process: of the worker.
        job: the run.
    """

    def __init__(self, process: "WorkerProcess", job: Job) -> None:
        self.process, self._job = process, job
        self.inbox: Inbox = VirtualInbox(self)
        self.profile: Profile | None = PROFILE
        self.adopting: dict[int, int] = {}  # versions of the fragments that are adopted next
        self.lease: Lease | None = None
        self.pushing: Lease | None = None  # whose push was made last
        self.batches: list[int] = []
        """Numbers of those that the lease trained so far."""
        self._is_stuck = False
        self._step: runtime.Later | None = None
        self._ended: ProgramStopped | None = None
        self.trainer: InnerTrainer | None = None

    async def train(
        self, lease: Lease, progress: Progress, aborted: Callable[[], bool], later: Later | None = None
    ) -> Trained | None:
        """See `TrainingProcess.train`."""
        self.lease, self._is_stuck = lease, self.process.is_stuck
        if self.trainer is None:
            if not lease.fresh:
                raise LeaseRefused("training that this lease goes on from is lost here")
            self.trainer = self._make()
        self.batches = []

        def offered(number: int, own: Blob | None, loss: float) -> None:
            assert self.process.neighbour is not None, "who exchanges listens"
            self.process.neighbour.meet(self.inbox, number, own, loss, aborted)

        return await self.trainer.train(lease, progress, aborted, offered, later=later)

    def batch(self, index: int) -> Any:
        """A batch by its number; it is noted."""
        self.batches.append(index)
        return self._source.batch(index)

    @property
    def tokens_per_batch(self) -> int:
        """See `Batches`."""
        return self._source.tokens_per_batch

    async def repeat(self, wanted: Repeat, aborted: Callable[[], bool]) -> tuple[Blob, Blob | None]:
        """See `TrainingProcess.repeat`."""
        self._is_stuck = False
        trainer = self.trainer or self._make()
        return await trainer.repeat(wanted, aborted)

    def end(self, why: FailureKind, words: str) -> None:
        """See `TrainingProcess.end`."""
        self._ended = ProgramStopped(why, words)
        if self._step is not None:
            self._step.come()

    def close(self) -> None:
        """See `TrainingProcess.close`."""

    async def step(self, loss: Any) -> None:  # noqa: ARG002 - time is all that passes
        """Wait until a step is done; a stuck one never is.

        Raises:
            ProgramStopped: the process was ended meanwhile.
            TrainingFailed: training is unreliable now.
        """
        self._step = runtime.Later()
        if not self._is_stuck:
            self.process.runtime.after(self.process.next_step_seconds(), self._step.come)
        await self._step
        self._step = None
        self.live()
        faults, random = self.process.world.faults, self.process.world.random
        if faults.training_fails and random.random() < 0.3:
            raise TrainingFailed("out of memory")

    def live(self) -> None:
        """Go on, unless the process was ended.

        Raises:
            ProgramStopped: it was.
        """
        if self._ended is not None:
            ended, self._ended, self.trainer = self._ended, None, None
            raise ended

    def _make(self) -> InnerTrainer:
        world, blobs = self.process.world, self.process.blobs
        means = world.course.means(self._job, blobs)
        fragments = world.scenario.config.algorithm.fragments
        self._source = means.batches
        replica, store, slow = WitnessedReplica(self, means.plans), cast("BlobStore", blobs), None
        if self._job.exchange_every:
            slow = SlowWeights(means.plans["gossip.0"], replica, store)
        return InnerTrainer(
            replica,
            Repeater(means.plans, fragments, means.batches.batch, HostileShelf(self, blobs, means.shelf)),
            self,
            KeptStates(lambda blob: blobs.remove(blob.digest)),
            self._job.pieces,
            self.inbox,
            slow=slow,
            exchange_every=self._job.exchange_every,
            now=self.process.runtime.now,
            aside=VirtualAside(self),
            ready=self.step,
        )


class VirtualAside:
    """Work beside training, in virtual time: it is done at once, some time after it began."""

    def __init__(self, owner: WorkerTraining) -> None:
        self._owner = owner

    def begin(self, work: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """See `Aside`."""
        owner, done = self._owner, runtime.Later()
        trainer = owner.trainer

        def act() -> None:
            if owner.trainer is trainer:  # else the process was ended, and this with it
                work()
            done.come()

        seconds = owner.process.world.random.uniform(0.0, 2.0) * owner.process.next_step_seconds()
        owner.process.runtime.after(seconds, act)

        async def ended() -> None:
            await done
            owner.live()

        return ended


class VirtualInbox(Inbox):
    """An inbox in virtual time."""

    def __init__(self, owner: WorkerTraining) -> None:
        super().__init__()
        self._owner = owner
        self._later: runtime.Later | None = None

    def wake(self) -> None:
        """See `Inbox`."""
        if self._later is not None:
            later, self._later = self._later, None
            later.come()

    async def wait_for(
        self, lease_id: int, fragment: int, version: int, given_up: Callable[[], bool]
    ) -> Adopt | None:
        """See `Inbox`."""
        adopted = await super().wait_for(lease_id, fragment, version, given_up)
        if adopted is not None:
            self._owner.adopting[adopted.fragment] = adopted.version
        return adopted

    async def wait_to_meet(self, given_up: Callable[[], bool]) -> Exchanged | None:  # noqa: ARG002 - see below
        """See `Inbox`. As between two processes an answer always comes: who exchanges notices itself that it shall stop."""
        return await super().wait_to_meet(lambda: False)

    async def _wait(self) -> None:
        self._later = runtime.Later()
        await self._later


class WitnessedReplica(Replica):
    """An inner state whose every adoption and push is witnessed."""

    def __init__(self, owner: WorkerTraining, plans: Mapping[str, Runs]) -> None:
        super().__init__(plans)
        self._owner, self._witness = owner, owner.process.world.witness
        self._versions: dict[int, int] = {}
        self._chain = 0

    def fresh(self, vectors: Sequence[Any], step: int) -> None:
        """See `Replica`."""
        self._chain = self._witness.new_chain()
        for fragment, vector in enumerate(vectors):
            self._adopts(fragment, vector)
        super().fresh(vectors, step)

    def adopt(self, fragment: int, vector: Any) -> None:
        """See `Replica`."""
        self._adopts(fragment, vector)
        super().adopt(fragment, vector)

    def begin_push(self, fragment: int) -> Encoding:
        """See `Replica`."""
        lease, chain = self._owner.lease, self._chain
        assert lease is not None, "a push belongs to a lease"
        encoding = super().begin_push(fragment)

        def witnessed(
            encoded: Encoded, versions: dict[int, int], anchors: list[Any], batches: list[int]
        ) -> None:
            value = self._witness.value_of_push(fragment, encoded.payload, encoded.error)
            self._witness.trained(chain, lease, value, versions, anchors, batches)
            self._owner.pushing = lease

        seen = partial(
            witnessed,
            versions=dict(self._versions),
            anchors=list(self._anchors),
            batches=list(self._owner.batches),
        )
        return WitnessedEncoding(encoding.plan, encoding.arguments, seen)

    def _adopts(self, fragment: int, vector: Any) -> None:
        version = self._owner.adopting[fragment]
        self._witness.adopted(self._owner.process.name, fragment, version, vector)
        self._versions[fragment] = version


@dataclass(frozen=True, slots=True)
class WitnessedEncoding(Encoding):
    """A push of which somebody is told when it is made.

    Arguments:
        seen: told.
    """

    seen: Callable[[Encoded], None]

    def run(self) -> Encoded:
        """See `Encoding`."""
        encoded = Encoding.run(self)
        self.seen(encoded)
        return encoded


class HostileShelf:
    """A shelf on which pushes may be spoilt."""

    def __init__(self, owner: WorkerTraining, blobs: Any, shelf: Shelf) -> None:
        self._owner, self._blobs, self._shelf = owner, blobs, shelf
        self.inner, self.vector, self.change, self.put_inner = (
            shelf.inner,
            shelf.vector,
            shelf.change,
            shelf.put_inner,
        )

    def put_push(self, payload: dict[str, Any]) -> Blob:
        """Store an encoded push, or bytes that are no push."""
        lease, blob = self._owner.pushing, self._shelf.put_push(payload)
        if lease is not None and self._owner.process.spoils_push(lease.lease_id):
            blob = self._blobs.put(training.spoilt(self._blobs.get(blob)))
        return blob
