"""The process in which programs run, as seen by the Worker: it has a key and a network, and programs must
have neither.

The process is as confined as the one that verifies programs. It may be ended at any time: a program cannot be interrupted, but
its process can. A new one is started when the next lease begins, which must be a fresh one.
"""

import contextlib
import logging
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pcp.distributed.bounds import LOSSES
from pcp.distributed.gossip.exchanger import Meet
from pcp.distributed.job import Job
from pcp.distributed.messages import (
    Blob,
    FailureKind,
    Lease,
    Outcome,
    Profile,
    Repeat,
    Settlement,
    SiteMeasurement,
)
from pcp.distributed.runtime import finished
from pcp.distributed.sandbox import Policy
from pcp.distributed.verification import VerificationCancelled
from pcp.distributed.wire.blobs import BlobStore
from pcp.distributed.worker.effects import Adopt, Shorten
from pcp.distributed.worker.offer import EVERYTHING, Offer, ProgramStopped
from pcp.distributed.worker.programs.confined_process import (
    ComputationFailed,
    ConfinedProcess,
)
from pcp.distributed.worker.programs.library_builder import LibraryBuilder
from pcp.distributed.worker.programs.sayings import (
    Done,
    ExpectsShards,
    Made,
    Meets,
    NeedsShard,
    Planned,
    Postponed,
    Prepared,
    Redone,
    Remark,
    SaidWrong,
    Stepped,
)
from pcp.distributed.worker.training.repetition import RepetitionAborted
from pcp.distributed.worker.training.shards import ShardLender, ShardRefused
from pcp.distributed.worker.training.trainer import Later, LeaseAborted, LeaseRefused, Progress, Trained
from pcp.errors import PCPError
from pcp.folders import cache_folder
from pcp.temporary import CONFINED, TemporaryFolder

log = logging.getLogger("pcp.distributed.worker.programs")

_CHILD = "pcp.distributed.worker.programs.training_child"
_LEAST_FILE_BYTES = 1 << 30
PROGRESS_SECONDS = 0.02
"""Between two reports of progress that are handed on, at least, however often the process tells."""
LOST = "training that this lease goes on from is lost here, with the process that programs ran in; a fresh lease is needed"


class TrainingProcess:
    """Stands for an `InnerTrainer` that lives in a confined process; see there for what it does.

    Arguments:
        job: what the Shepherd described; its blobs are in the store.
        store: where blobs are; the process reads and writes there, too.
        device: where to compute.
        cancelled: asked during verification whether to give up.
        offer: what programs may take.
        cache: where compiled programs are kept beyond this process, for processes that run programs of the same run.
        meet: exchanges with another worker, where the run's workers do.
        shards: brings shards of training data, where the run's data are shards.

    Raises:
        ProgramRefused: a program is forbidden, or the programs do not fit together.
        VerificationCancelled: `cancelled` said so.
        ProgramStopped: the process died, or took more than was offered.
    """

    def __init__(
        self,
        job: Job,
        store: BlobStore,
        device: str,
        cancelled: Callable[[], bool] = lambda: False,
        offer: Offer = EVERYTHING,
        cache: Path | None = None,
        meet: Meet | None = None,
        shards: ShardLender | None = None,
    ) -> None:
        self._meet, self._shards = meet, shards
        self._job, self._store, self._device, self._offer, self._cache = job, store, device, offer, cache
        self._temporary = TemporaryFolder(CONFINED)
        self._process: ConfinedProcess | None = None
        self._adoptions: dict[int, list[Adopt]] = {}
        # Told of pushes that are made while the next lease is trained, by lease, and how many batches that held.
        self._later: dict[int, tuple[Later, int]] = {}
        self._began = False  # whether this process has trained a lease
        self._guard = threading.Lock()
        self.inbox = self
        self.profile: Profile | None = None
        """What was chosen for the step, and measured of its sites; None where it runs as it is written."""
        try:
            self._start(cancelled)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the process, whatever it does."""
        self.end(FailureKind.OTHER, "the Worker stops")
        if self._shards is not None:
            self._shards.close()
        self._temporary.remove()

    def end(self, why: FailureKind, words: str) -> None:
        """End the process; who waits for it gets `ProgramStopped`. To be called in any thread."""
        if self._process is not None:
            self._process.end(ProgramStopped(why, words))

    def adopt(self, adoption: Adopt) -> None:
        """Hand on a fragment that a lease adopts."""
        with self._guard:
            self._adoptions.setdefault(adoption.lease_id, []).append(adoption)
            if self._process is not None:
                self._process.send("adopt", adoption)

    def settle(self, lease_id: int, outcome: Outcome) -> None:
        """Hand on the answer to a push."""
        if self._process is not None:
            self._process.send("settle", lease_id, outcome)

    def shorten(self, wanted: Shorten) -> None:
        """Hand on that the lease should end sooner."""
        if self._process is not None:
            self._process.send("shorten", wanted)

    def follow(self, lease_id: int) -> None:
        """Hand on that another lease follows this one."""
        if self._process is not None:
            self._process.send("follow", lease_id)

    def wake(self) -> None:
        """Have `train` and `repeat` ask whether they are still wanted."""
        if self._process is not None:
            self._process.wake()

    async def train(
        self, lease: Lease, progress: Progress, aborted: Callable[[], bool], later: Later | None = None
    ) -> Trained | None:
        """Run the inner steps of a lease, and encode its push; see `InnerTrainer.train`.

        Raises:
            ProgramStopped: the process died, or was ended.
        """
        if self._later and self._process is not None and self._process.ended:
            self._later.clear()
            raise self._process.died()  # with a push that it was making: nobody else would tell of that
        process = self._alive(aborted)
        if not lease.fresh and not self._began:
            raise LeaseRefused(LOST)
        self._began = True
        with self._guard:
            self._adoptions = {lease.lease_id: self._adoptions.get(lease.lease_id, [])}

        handed_on = 0.0

        def meanwhile(said: Remark) -> None:
            nonlocal handed_on
            match said:
                case Meets() if self._meet is not None:
                    offer = None if said.offer is None else self._made(said.offer)
                    met = finished(self._meet(said.exchange, offer, said.loss, aborted))
                    process.send("partner", met)
                case Stepped():
                    if max(said.steps, said.batches) > lease.batches:
                        raise SaidWrong(
                            f"the process that runs programs tells of {max(said.steps, said.batches)} steps of a lease of "
                            f"{lease.batches}"
                        )
                    now = time.monotonic()
                    if said.batches or now - handed_on >= PROGRESS_SECONDS:
                        handed_on = now
                        progress(said.steps, said.seconds, said.batches)
                case _:
                    self._lend(process, said, aborted)

        if later is not None:
            self._later[lease.lease_id] = later, lease.batches
        try:
            said = process.ask(
                "train",
                lease,
                aborted=aborted,
                meanwhile=meanwhile,
                raises=LeaseAborted,
                answers=(Postponed, Done),
            )
        except BaseException:
            # What is raised here says everything; the next lease has no part in it.
            self._later.pop(lease.lease_id, None)
            raise
        if isinstance(said, Postponed):
            if later is None:
                words = "the process that runs programs postpones a push, which nobody asked for"
                process.end(ProgramStopped(FailureKind.CRASH, words))
                raise process.died()
            return None
        self._later.pop(lease.lease_id, None)
        return self._trained(said, lease.batches)

    def _pushed(self, lease_id: int, answer: Callable[[], Done]) -> None:
        """The process says what a lease came to whose push it made while the next is trained."""
        if lease_id not in self._later:
            return
        later, batches = self._later[lease_id]
        try:
            outcome: Trained | Exception = self._trained(answer(), batches)
        except SaidWrong:
            raise  # which ends the process, and `train` says so
        except PCPError as error:
            outcome = error
        self._later.pop(lease_id, None)
        later(outcome)

    def _trained(self, said: Done, batches: int) -> Trained:
        trained = said.batches or batches
        if trained > batches or len(said.losses) > min(trained, LOSSES):
            raise ComputationFailed(
                f"the process that runs programs tells of {trained} steps of a lease of {batches}, and of "
                f"{len(said.losses)} losses; expected no more"
            )
        return Trained(
            self._made(said.payload),
            said.tokens,
            said.losses,
            said.seconds,
            said.overhead,
            said.waited,
            tuple(map(self._made, said.states)),
            tuple(Settlement(each.fragment, each.outcome) for each in said.settled),
            trained,
        )

    async def repeat(self, wanted: Repeat, aborted: Callable[[], bool]) -> tuple[Blob, Blob | None]:
        """Do a piece of another worker's lease again; see `Repeater.repeat`.

        Raises:
            ProgramStopped: the process died, or was ended.
        """
        process = self._alive(aborted)

        def meanwhile(said: Remark) -> None:
            self._lend(process, said, aborted)

        said = process.ask(
            "repeat",
            wanted,
            aborted=aborted,
            raises=RepetitionAborted,
            meanwhile=meanwhile,
            answers=(Redone,),
        )
        return self._made(said.after), None if said.payload is None else self._made(said.payload)

    def _lend(self, process: ConfinedProcess, said: Remark, aborted: Callable[[], bool]) -> None:
        """Answer a process that speaks of shards, which is all that it may speak of.

        Raises:
            SaidWrong: it does not.
        """
        try:
            match said:
                case NeedsShard(digest) if self._shards is not None:
                    process.send("shard", self._shards.bring(digest, aborted))
                case ExpectsShards(digests) if self._shards is not None and digests:
                    self._shards.expect(digests)
                case _:
                    raise SaidWrong(
                        f"the process that runs programs says {type(said).__name__}, which it must not here"
                    )
        except ShardRefused as error:
            raise SaidWrong(f"the process that runs programs lies: {error}") from None

    def _alive(self, cancelled: Callable[[], bool]) -> ConfinedProcess:
        if self._process is None or self._process.ended:
            self._start(cancelled)
        assert self._process is not None
        return self._process

    def _start(self, cancelled: Callable[[], bool]) -> None:
        limits, only_artifacts = self._offer, self._offer.artifacts is not None
        policy = Policy(
            self._temporary.path / "programs",
            self._device,
            writable=(self._store.folder.absolute(),),
            readable=() if self._shards is None else (self._shards.folder.absolute(),),
            cache=self._cache,
            processes=not only_artifacts,
            compiles=not only_artifacts,
            file_bytes=max(_LEAST_FILE_BYTES, limits.disk_bytes),
        )
        policy.prepare()
        is_planned = bool(self._job.tolerance) and not only_artifacts
        if is_planned:
            _lend_profile(policy.compiled)
        with self._guard:
            self._process, self._began = ConfinedProcess(_CHILD, policy, limits, self._pushed), False
            self._later.clear()
        builder = LibraryBuilder(self._process, cancelled, is_allowed=is_planned)
        arguments = (self._job.to_json(), str(self._store.folder.absolute()), self._device)
        said = self._process.ask(
            "prepare",
            *arguments,
            (limits.disk_bytes, limits.memory_bytes),
            self._shards and str(self._shards.folder.absolute()),
            only_artifacts,
            aborted=cancelled,
            raises=VerificationCancelled,
            meanwhile=builder.begin,
            answers=(Prepared,),
        )
        self.profile = _profile(said.profile)
        with self._guard:
            for adoption in [each for some in self._adoptions.values() for each in some]:
                self._process.send("adopt", adoption)

    def _made(self, named: Made) -> Blob:
        """A blob that the process says it made: a plain file of that size. The Shepherd checks its digest."""
        blob = Blob(named.digest, named.size)
        path = self._store.path(blob.digest)
        try:
            facts = os.lstat(path)
        except OSError as error:
            raise ComputationFailed(
                f"the process that runs programs made no file {path.name}: {error}"
            ) from None
        if not stat.S_ISREG(facts.st_mode) or facts.st_size != blob.size:
            raise ComputationFailed(
                f"the process that runs programs made {path.name}, which is not a file of {blob.size} bytes"
            )
        return blob


def _profile(said: Planned | None) -> Profile | None:
    """What the process says of its plan. The Shepherd checks it as what any stranger says."""
    if said is None:
        return None
    rows = tuple(SiteMeasurement(row.subject, row.kernel, row.ratio) for row in said.rows)
    return Profile(said.chosen, rows)


def _lend_profile(cache: Path) -> None:
    """Give the process a copy of this machine's measurements."""
    own, lent = (folder / "profile.sqlite" for folder in (cache_folder(), cache))
    if not own.exists() or (lent.exists() and lent.stat().st_mtime >= own.stat().st_mtime):
        return
    new = lent.with_suffix(f".{os.getpid()}")
    with contextlib.closing(sqlite3.connect(own)) as source, contextlib.closing(sqlite3.connect(new)) as copy:
        source.backup(copy)
    os.replace(new, lent)
