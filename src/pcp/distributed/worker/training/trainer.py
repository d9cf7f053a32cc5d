"""What a Worker computes: the inner steps of its leases, and what it pushes at their ends."""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pcp.distributed.gossip.exchanger import Exchanged
from pcp.distributed.gossip.slow_weights import SlowWeights
from pcp.distributed.job import Job
from pcp.distributed.losses import told
from pcp.distributed.messages import Adoption, Blob, Lease, Profile, Repeat, Settlement
from pcp.distributed.pieces import borders
from pcp.distributed.round_arithmetic.replica import Encoded, Encoding, Replica, Runs
from pcp.distributed.verification import ProgramRefused
from pcp.distributed.wire.blobs import BlobStore
from pcp.distributed.worker.effects import Adopt
from pcp.distributed.worker.profiles import profile_of
from pcp.distributed.worker.training.aside import Aside, PushAside, Threads
from pcp.distributed.worker.training.course import Course
from pcp.distributed.worker.training.inbox import Inbox
from pcp.distributed.worker.training.kept_states import KeptStates
from pcp.distributed.worker.training.means import means_of, no_shards
from pcp.distributed.worker.training.plans import Build, admitted, planned_within, ready_on
from pcp.distributed.worker.training.repetition import Repeater
from pcp.distributed.worker.training.work import Work
from pcp.errors import PCPError
from pcp.training.data.shards.batches import Shards
from pcp.training.data.shards.index import ShardIndex

log = logging.getLogger("pcp.distributed.worker.training.trainer")

LAST_STEP = 2**31 - 1
NOT_MADE = Blob(b"", 0)


class LeaseRefused(PCPError):
    """A lease that cannot be trained: it has numbers that no program takes, or fragments that are not there."""


class LeaseAborted(Exception):
    """The lease was revoked while it was trained; not an error."""


@dataclass(frozen=True, slots=True)
class Trained:
    """The outcome of a lease.

    Arguments:
        payload: the encoded push of the lease's fragment; in the store.
        tokens: tokens trained on.
        losses: of every step, or of many steps the means of equal pieces; NaN where they are not finite.
        seconds: that it took, less those of waiting.
        overhead_seconds: what of these was spent before the first and after the last step.
        waited_seconds: for fragments that were not merged, or not here, at the step where they are adopted.
        states: the inner states at the borders of the lease's pieces, for audits; in the store.
        settled: what was told of earlier pushes, applied before this one.
        batches: that were trained, as the lease may have ended sooner.
    """

    payload: Blob
    tokens: int
    losses: tuple[float, ...]
    seconds: float
    overhead_seconds: float
    waited_seconds: float = 0.0
    states: tuple[Blob, ...] = ()
    settled: tuple[Settlement, ...] = ()
    batches: int = 0


class Progress(Protocol):
    """Told the steps done and the seconds that each took, and once, after how many the lease ends if that is sooner."""

    def __call__(self, steps: int, seconds: float, batches: int = 0) -> None:
        """Tell."""


Later = Callable[["Trained | Exception"], None]
"""Told what a lease came to, in any thread, where its push is made while the next one is trained."""


class Batches(Protocol):
    """Where batches come from."""

    @property
    def tokens_per_batch(self) -> int:
        """Tokens of each."""

    def batch(self, index: int) -> Any:
        """A batch by its number."""


class InnerTrainer:
    """Runs the inner steps of leases, one lease at a time, and keeps the worker's inner state between them.

    `train` runs in one thread; the inbox may be filled by another meanwhile.

    Arguments:
        replica: the worker's inner state.
        repeater: for pieces of other workers' leases.
        batches: where batches come from.
        kept: which states are kept for audits.
        pieces: of a lease, at whose borders a state is stored; 0 where nothing is audited.
        inbox: what reaches it while it trains.
        profile: what was chosen for the step, and measured of its sites; None where it runs as it is written.
        slow: what is exchanged with other workers; None where they do not.
        exchange_every: so many steps.
        now: the time, in seconds.
        aside: where pushes are made while the next lease is trained.
        ready: waits until the step that leads to a loss is done.
    """

    def __init__(
        self,
        replica: Replica,
        repeater: Repeater,
        batches: Batches,
        kept: KeptStates,
        pieces: int,
        inbox: Inbox,
        profile: Profile | None = None,
        slow: SlowWeights | None = None,
        exchange_every: int = 0,
        now: Callable[[], float] = time.monotonic,
        aside: Aside | None = None,
        *,
        ready: Callable[[Any], Awaitable[None]],
    ) -> None:
        self._replica, self._repeater, self._batches = replica, repeater, batches
        self._shelf, self._kept, self._pieces = repeater.shelf, kept, pieces
        self._slow, self._exchange_every = slow, exchange_every
        self._now, self._ready = now, ready
        self._pushed: dict[int, int] = {}  # fragments of unsettled pushes, by lease
        self._aside = aside or Threads()
        self._push_aside: PushAside | None = None
        self.inbox = inbox
        self.profile = profile

    async def train(
        self,
        lease: Lease,
        progress: Progress,
        aborted: Callable[[], bool],
        offered: Callable[[int, Blob | None, float], None] = lambda _number, _offer, _loss: None,
        later: Later | None = None,
    ) -> Trained | None:
        """Run the inner steps of a lease, and encode its push.

        Where the inbox says that another lease follows, the push is encoded while that one is trained: then this returns
        None, and `later` is told.

        Arguments:
            lease: the batches, and what is adopted before which step; the inbox tells when it is in the store.
            progress: see `Progress`.
            aborted: asked before every step, and while waiting, whether to stop.
            offered: told the number of an exchange, and then also the offer, with the mean loss since the last; the inbox
                has the answers.
            later: see above; None: the push is made before this returns.

        Raises:
            LeaseAborted: `aborted` said so.
            LeaseRefused: the lease names steps or fragments that are not there.
            ArraysRefused: what is to be adopted is not what the programs take.
        """
        self._check(lease)
        work, course = Work(lease, aborted, self._now), Course(lease, self._exchange_every)
        self.inbox.forget_others(lease.lease_id)
        if lease.fresh:
            await self._begin_afresh(work)
        await self._adopt(work, 0)
        self._replica.begin(lease.first_step, lease.fragments)
        if self._slow is not None:
            self._slow.begin(lease.fresh)
        before = work.seconds
        losses: list[Any] = []
        cuts = borders(lease.batches, self._pieces) if self._pieces else ()
        states = [self._shelf.put_inner(self._replica)] if cuts else []
        for done, batch in enumerate(course):
            if done and done in cuts:
                states.append(self._shelf.put_inner(self._replica))
            await self._adopt(work, done)
            if aborted():
                raise LeaseAborted
            if course.stretched:
                self._replica.count(course.step)
            losses.append(self._replica.step(self._batches.batch(batch))["loss"])
            if done:
                # One step ahead of the device, no more: progress is then what happened, and an abort is quick.
                await self._ready(losses[-2])
                progress(done, work.seconds / done)
            if self._slow is not None and (done + 1) % self._exchange_every == 0:
                await self._exchange(self._slow, work, losses[-self._exchange_every :], offered)
            wanted = self.inbox.shortened(lease.lease_id) if self._slow is not None else None
            if wanted is not None and course.shorten(wanted, done + 1):
                progress(done, work.seconds / (done + 1), course.batches)
        for loss in losses[-1:]:
            await self._ready(loss)
        values = told([float(loss) for loss in losses])
        stepped = work.seconds
        await self._adopt(work, LAST_STEP)
        self._replica.finish()
        await self._end_push()
        trained = Trained(
            NOT_MADE,
            course.batches * self._batches.tokens_per_batch,
            values,
            0.0,
            before - stepped,
            states=tuple(states),
            settled=self._settle(),
            batches=course.batches,
        )
        return self._push(work, trained, later)

    def _push(self, work: Work, trained: Trained, later: Later | None) -> Trained | None:
        """Push what was trained, now or while the next lease is trained."""
        lease = work.lease
        encoding = self._replica.begin_push(lease.fragment)
        self._pushed[lease.lease_id] = lease.fragment
        if later is not None and not trained.states and self.inbox.is_followed(lease.lease_id):
            self._begin_aside(lease.fragment, encoding, _timed(trained, work), later)
            return None
        blob = self._shelf.put_push(self._replica.end_push(lease.fragment, encoding.run()))
        if trained.states:
            trained = replace(trained, states=(*trained.states, self._shelf.put_inner(self._replica)))
            self._kept.keep(trained.states)
        return _timed(replace(trained, payload=blob), work)

    def _begin_aside(self, fragment: int, encoding: Encoding, trained: Trained, later: Later) -> None:
        def make() -> Encoded:
            encoded = encoding.run()
            later(replace(trained, payload=self._shelf.put_push(encoded.payload)))
            return encoded

        self._push_aside = PushAside(fragment, self._aside, make, later)

    async def _end_push(self) -> None:
        """Wait for the push of the lease before, if it is still made."""
        under_way, self._push_aside = self._push_aside, None
        if under_way is not None:
            await under_way.end(self._replica)

    async def repeat(self, wanted: Repeat, aborted: Callable[[], bool]) -> tuple[Blob, Blob | None]:
        """Do a piece of another worker's lease again; see `Repeater.repeat`. The worker's own state stays as it is."""
        return await self._repeater.repeat(wanted, aborted, self._ready)

    def _check(self, lease: Lease) -> None:
        first, count = lease.first_step, lease.batches
        if min(each.count for each in lease.ranges) < 0 or max(first + count, lease.last_step) > LAST_STEP:
            raise LeaseRefused(
                f"lease {lease.lease_id} asks for {count} steps from step {first} on; expected none or more, "
                f"and none beyond {LAST_STEP}"
            )
        named = {lease.fragment, *lease.fragments, *(each.fragment for each in lease.adopt)}
        there = set(range(self._repeater.fragments))
        if unknown := named - there:
            raise LeaseRefused(
                f"lease {lease.lease_id} names fragment {min(unknown)}; the run has {len(there)}, from 0 on"
            )
        begun = sorted(each.fragment for each in lease.adopt if each.step == 0)
        if lease.fresh and begun != sorted(there):
            raise LeaseRefused(
                f"lease {lease.lease_id} begins afresh from fragments {begun}; expected each of {len(there)} once"
            )

    async def _begin_afresh(self, work: Work) -> None:
        if self._push_aside is not None:
            under_way, self._push_aside = self._push_aside, None
            await under_way.forget()
        self.inbox.outcomes()
        self._pushed.clear()
        first: dict[int, Any] = {}
        for adoption in work.due(0):
            adopted = await self._received(work, adoption)
            if adopted.is_change:
                raise LeaseRefused(f"a change of fragment {adoption.fragment} was sent; a beginning is whole")
            first[adoption.fragment] = self._vector(adopted)
        self._replica.fresh([first[number] for number in range(len(first))], work.lease.first_step)

    async def _adopt(self, work: Work, step: int) -> None:
        """Adopt what is due before a step."""
        for adoption in work.due(step):
            adopted = await self._received(work, adoption)
            self._replica.adopt(adopted.fragment, self._vector(adopted))

    async def _received(self, work: Work, adoption: Adoption) -> Adopt:
        began = self._now()
        adopted = await self.inbox.wait_for(
            work.lease.lease_id, adoption.fragment, adoption.version, work.aborted
        )
        work.waited += self._now() - began
        if adopted is None:
            raise LeaseAborted
        return adopted

    async def _exchange(
        self,
        slow: SlowWeights,
        work: Work,
        losses: Sequence[Any],
        offered: Callable[[int, Blob | None, float], None],
    ) -> None:
        loss = sum(float(each) for each in losses) / len(losses)

        async def swap(number: int, own: Blob | None) -> Exchanged:
            began = self._now()
            offered(number, own, loss)
            exchanged = await self.inbox.wait_to_meet(work.aborted)
            work.waited += self._now() - began
            if exchanged is None:
                raise LeaseAborted
            return exchanged

        await slow.exchange(swap)

    def _vector(self, adopted: Adopt) -> Any:
        """The flat parameters of a fragment that is here."""
        if not adopted.is_change:
            return self._shelf.vector(adopted.fragment, adopted.blob)
        return self._replica.received(adopted.fragment, self._shelf.change(adopted.fragment, adopted.blob))

    def _settle(self) -> tuple[Settlement, ...]:
        settled = []
        for lease_id, outcome in self.inbox.outcomes().items():
            if (fragment := self._pushed.pop(lease_id, None)) is not None:
                self._replica.settle(fragment, outcome)
                settled.append(Settlement(fragment, outcome))
        return tuple(settled)


def make_trainer(
    job: Job,
    store: BlobStore,
    device: str,
    cancelled: Callable[[], bool] = lambda: False,
    shards: Callable[[ShardIndex], Shards] = no_shards,
    only_artifacts: bool = False,
    build: Build = lambda _: None,
) -> InnerTrainer:
    """The trainer of a run.

    Arguments:
        job: what the Shepherd described; its blobs are in the store.
        store: where blobs are.
        device: where to compute.
        cancelled: asked during verification whether to give up.
        shards: brings those of an index, where the data of the run are shards.
        only_artifacts: whether the job was narrowed to artifacts (`with_artifacts_for`), and nothing is compiled.
        build: has native libraries built that the step may call; without, they are built when they are first asked for.

    Raises:
        ProgramRefused: a program is forbidden, or the programs do not fit together.
        InvalidArtifact, ArtifactForeign: an artifact is damaged, or is not for the chip.
        VerificationCancelled: `cancelled` said so.
        BlobMissing, DigestMismatch: a blob is not in the store, or was changed there.
    """
    plans: dict[str, Runs] = {}
    means = means_of(
        job,
        store,
        shards,
        lambda artifacts: admitted(artifacts, job, device, cancelled, plans, only_artifacts, build),
    )
    profile = None
    if job.tolerance and not only_artifacts:
        plans["step"] = planned = planned_within(means.programs["step"], job, device, cancelled)
        profile = profile_of(planned)
    means.bind(plans)
    replica, slow = Replica(plans), None
    if job.exchange_every:
        if "gossip.0" not in plans:
            raise ProgramRefused("the workers of the run exchange, but the run lacks the program 'gossip.0'")
        slow = SlowWeights(plans["gossip.0"], replica, store)
    return InnerTrainer(
        replica,
        means.repeater(plans),
        means.batches,
        KeptStates(lambda blob: store.remove(blob.digest)),
        job.pieces,
        Inbox(),
        profile,
        slow,
        job.exchange_every,
        ready=ready_on(device),
    )


def _timed(trained: Trained, work: Work) -> Trained:
    """What a lease came to, with the seconds that it took until now."""
    overhead = work.seconds + trained.overhead_seconds
    return replace(trained, seconds=work.seconds, overhead_seconds=overhead, waited_seconds=work.waited)
