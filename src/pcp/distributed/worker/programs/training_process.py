"""The process in which programs run, as seen by the Worker: it has a key and a network, and programs must
have neither.

The process is as confined as the one that verifies programs. It may be ended at any time: a program cannot be interrupted, but
its process can. A new one is started when the next lease begins, which must be a fresh one.
"""

import contextlib
import functools
import logging
import os
import random
import sqlite3
import stat
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pcp.backends.processors import core_count
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
from pcp.distributed.sandbox import Policy
from pcp.distributed.verification import VerificationCancelled
from pcp.distributed.wire.blobs import BlobStore
from pcp.distributed.worker.effects import Adopt, Shorten
from pcp.distributed.worker.offer import EVERYTHING, Offer, ProgramStopped
from pcp.distributed.worker.programs.confined_process import (
    LONGEST_LINE,
    ComputationFailed,
    ConfinedProcess,
    ProcessBug,
    printable,
)
from pcp.distributed.worker.training.repetition import RepetitionAborted
from pcp.distributed.worker.training.shards import ShardLender, ShardRefused
from pcp.distributed.worker.training.trainer import Later, LeaseAborted, LeaseRefused, Progress, Trained
from pcp.errors import PCPError
from pcp.folders import cache_folder
from pcp.interruption import all_of
from pcp.kernels import native
from pcp.temporary import CONFINED, TemporaryFolder

log = logging.getLogger("pcp.distributed.worker.programs")

_CHILD = "pcp.distributed.worker.programs.training_child"
_LEAST_FILE_BYTES = 1 << 30
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
        self._later: dict[
            int, Later
        ] = {}  # told of pushes that are made while the next lease is trained, by lease
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

        def meanwhile(said: dict[str, Any]) -> None:
            if "exchange" in said and self._meet is not None:
                offer, loss = said["offer"] and self._made(said["offer"]), float(said["loss"])
                process.send("partner", self._meet(int(said["exchange"]), offer, loss, aborted))
            elif not self._lent(process, said, aborted):
                progress(int(said["steps"]), float(said["seconds"]), int(said["batches"]))

        if later is not None:
            self._later[lease.lease_id] = later
        said = process.ask("train", lease, aborted=aborted, meanwhile=meanwhile, raises=LeaseAborted)
        if said.get("later"):
            return None
        self._later.pop(lease.lease_id, None)
        return self._trained(said)

    def _pushed(self, lease_id: int, answer: Callable[[], dict[str, Any]]) -> None:
        """The process says what a lease came to whose push it made while the next is trained."""
        later = self._later.get(lease_id)
        if later is None:
            return
        try:
            made: Trained | Exception = self._trained(answer())
        except (PCPError, ProcessBug) as error:
            made = error
        del self._later[lease_id]  # what makes no sense ends the process, and `train` says so
        later(made)

    def _trained(self, said: dict[str, Any]) -> Trained:
        return Trained(
            self._made(said["payload"]),
            int(said["tokens"]),
            tuple(float(loss) for loss in said["losses"]),
            float(said["seconds"]),
            float(said["overhead"]),
            float(said["waited"]),
            tuple(self._made(each) for each in said["states"]),
            tuple(Settlement(int(fragment), Outcome(outcome)) for fragment, outcome in said["settled"]),
            int(said["batches"]),
        )

    async def repeat(self, wanted: Repeat, aborted: Callable[[], bool]) -> tuple[Blob, Blob | None]:
        """Do a piece of another worker's lease again; see `Repeater.repeat`.

        Raises:
            ProgramStopped: the process died, or was ended.
        """
        process = self._alive(aborted)

        def meanwhile(said: dict[str, Any]) -> None:
            self._lent(process, said, aborted)

        said = process.ask("repeat", wanted, aborted=aborted, raises=RepetitionAborted, meanwhile=meanwhile)
        payload = said["payload"]
        return self._made(said["after"]), None if payload is None else self._made(payload)

    def _lent(self, process: ConfinedProcess, said: dict[str, Any], aborted: Callable[[], bool]) -> bool:
        """Whether the process spoke of shards; it has been answered then."""
        if self._shards is None or not said.keys() & {"shard", "shards"}:
            return False
        try:
            if "shard" in said:
                process.send("shard", self._shards.bring(str(said["shard"]), aborted))
            else:
                self._shards.expect(str(each) for each in said["shards"])
        except ShardRefused as error:
            process.end(ProgramStopped(FailureKind.CRASH, f"the process that runs programs lies: {error}"))
        return True

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
        builder = _Builder(self._process, cancelled, is_allowed=is_planned)
        arguments = (self._job.to_json(), str(self._store.folder.absolute()), self._device)
        said = self._process.ask(
            "prepare",
            *arguments,
            (limits.disk_bytes, limits.memory_bytes),
            self._shards and str(self._shards.folder.absolute()),
            only_artifacts,
            aborted=cancelled,
            raises=VerificationCancelled,
            meanwhile=lambda said: builder.begin(said["libraries"]),
        )
        self.profile = _profile(said.get("profile"))
        with self._guard:
            for adoption in [each for some in self._adoptions.values() for each in some]:
                self._process.send("adopt", adoption)

    def _made(self, named: Any) -> Blob:
        """A blob that the process says it made: a plain file of that size. The Shepherd checks its digest."""
        blob = Blob(bytes.fromhex(named[0]), int(named[1]))
        path = self._store.path(blob.digest)
        try:
            facts = os.lstat(path)
        except OSError as error:
            raise ComputationFailed(
                f"the process that runs programs made no file {path.name}: {error}"
            ) from None
        if len(blob.digest) != 32 or not stat.S_ISREG(facts.st_mode) or facts.st_size != blob.size:
            raise ComputationFailed(
                f"the process that runs programs made {path.name}, which is not a file of {blob.size} bytes"
            )
        return blob


def _profile(said: Any) -> Profile | None:
    """What the process says of its plan. The Shepherd checks it as what any stranger says."""
    if said is None:
        return None
    try:
        chosen, rows = said
        measured = [
            SiteMeasurement(str(subject), str(kernel), float(ratio)) for subject, kernel, ratio in rows
        ]
    except (TypeError, ValueError) as error:
        raise ComputationFailed(f"the process that runs programs told of no plan: {error}") from None
    return Profile(printable(str(chosen), LONGEST_LINE), tuple(measured))


class _Builder:
    """Builds native libraries for a process, which may run no compiler; it asks for them once.

    Arguments:
        process: it.
        cancelled: asked before each library whether to give up.
        is_allowed: whether the process may ask.
    """

    def __init__(self, process: ConfinedProcess, cancelled: Callable[[], bool], *, is_allowed: bool) -> None:
        self._process, self._cancelled, self._is_allowed = process, cancelled, is_allowed

    def begin(self, names: Any) -> None:
        """Build what is not there yet, on all cores, in another thread; the process is told when that is done."""
        is_known = isinstance(names, list) and sorted(map(str, names)) == [
            each for each in sorted(native.LIBRARIES) if each in names
        ]
        if not self._is_allowed or not is_known:
            words = f"the process that runs programs lies: it wants {str(names)[:80]!r} built"
            self._process.end(ProgramStopped(FailureKind.CRASH, words))
            return
        self._is_allowed = False
        threading.Thread(target=self._build, args=(names,), daemon=True).start()

    def _build(self, names: Sequence[str]) -> None:
        # Workers that begin together take different orders, so that each builds some.
        shuffled = random.sample(names, len(names))
        log.info("native libraries that the step may call: %s", ", ".join(names) or "none")
        try:
            all_of([functools.partial(self._have, name) for name in shuffled], core_count())
        finally:
            self._process.send("built")

    def _have(self, name: str) -> None:
        if not self._cancelled() and not self._process.ended:
            native.missing(name)


def _lend_profile(cache: Path) -> None:
    """Give the process a copy of this machine's measurements."""
    own, lent = (folder / "profile.sqlite" for folder in (cache_folder(), cache))
    if not own.exists() or (lent.exists() and lent.stat().st_mtime >= own.stat().st_mtime):
        return
    new = lent.with_suffix(f".{os.getpid()}")
    with contextlib.closing(sqlite3.connect(own)) as source, contextlib.closing(sqlite3.connect(new)) as copy:
        source.backup(copy)
    os.replace(new, lent)
