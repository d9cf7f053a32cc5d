"""A Worker's hands: it prepares, fetches, trains and uploads, in lanes beside the event loop.

Fetching, uploading and the states of audits have a lane and a connection each, so that a merged fragment does not wait behind a
push, and neither of them behind a state.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pcp.distributed.job import Job, check_same_run, check_signature
from pcp.distributed.messages import Blob, FailureKind, Lease, Profile, Repeat, SiteMeasurement
from pcp.distributed.runtime import Runtime
from pcp.distributed.worker.effects import (
    AbortLease,
    Adopt,
    CancelUpload,
    FetchBlob,
    FetchState,
    Follow,
    ForgetBlob,
    ForgetState,
    Prepare,
    RepeatPiece,
    SettlePush,
    Shorten,
    StartLease,
    UploadState,
    UploadUpdate,
)
from pcp.distributed.worker.events import (
    BlobFetched,
    BlobUnavailable,
    Event,
    LeaseFailed,
    LeaseProgress,
    LeaseStepped,
    LeaseTrained,
    PieceFailed,
    PieceRepeated,
    PreparationFailed,
    Prepared,
    StateUploadFailed,
    UpdateUploaded,
    UploadFailed,
)
from pcp.distributed.worker.failures import PASSING, NotOffered, kind_of
from pcp.distributed.worker.profiles import remember_received
from pcp.distributed.worker.tools import Fetches, Files, Inbox, Pushes, Trainer, Transfers
from pcp.distributed.worker.training.repetition import RepetitionAborted
from pcp.distributed.worker.training.trainer import LeaseAborted, Trained
from pcp.errors import PCPError

log = logging.getLogger("pcp.distributed.worker")

GRACE_SECONDS = 5.0
"""How long a step or a transfer that is under way may take to end when the worker stops."""

STUCK_SECONDS, LONGEST_STUCK_SECONDS = 30.0, 600.0
"""How long a program may go on after its lease was taken back: as long as it ran before, within these bounds."""

Work = (
    Prepare
    | FetchBlob
    | ForgetBlob
    | StartLease
    | Adopt
    | Shorten
    | Follow
    | SettlePush
    | AbortLease
    | UploadUpdate
    | CancelUpload
    | FetchState
    | ForgetState
    | UploadState
    | RepeatPiece
)
"""The effects that are performed here."""


@dataclass(slots=True)
class _UnderWay:
    """What is trained or repeated now.

    Arguments:
        what: in words.
        given_up: whether it is wanted no more.
        began: when.
        noticed: when it was first seen to go on although it is given up.
    """

    what: str
    given_up: Callable[[], bool]
    began: float
    noticed: float | None = None


class Workshop:
    """Performs the effects that take long, one after the other in each lane.

    Arguments:
        store: where blobs are.
        down: for what is fetched.
        up: for pushes.
        aside: for the states of audits.
        make_trainer: makes what trains a run.
        is_signed: whether the second is the signature of the first by the run's authority.
        runtime: what this process lives on.
        post: receives events.
        narrowed: leaves in a run what is fetched and run here.
    """

    def __init__(
        self,
        store: Files,
        down: Fetches,
        up: Pushes,
        aside: Transfers,
        make_trainer: Callable[[Job], Awaitable[Trainer]],
        is_signed: Callable[[bytes, bytes], bool],
        runtime: Runtime,
        post: Callable[[Event], None],
        narrowed: Callable[[Job], Job] = lambda job: job,
    ) -> None:
        self._narrowed = narrowed
        self._store, self._make_trainer, self._is_signed = store, make_trainer, is_signed
        self._now, self._soon, self._post = runtime.now, runtime.soon, post
        self._down, self._up, self._aside = down, up, aside
        self.run_id: str | None = None
        """The run that the Shepherd says it is of."""
        self._prepared_for: str | None = None
        self.received: tuple[SiteMeasurement, ...] = ()
        """What the Shepherd says that others measured."""
        self.profile: Profile | None = None
        """What was planned and measured here; None while nothing was."""
        self._fetches, self._uploads, self._states, self._training = (
            runtime.lane(name, post) for name in ("fetch", "upload", "states", "train")
        )
        self._trainer: Trainer | None = None
        self._lease_id = 0  # the lease that is trained; all others are given up
        self._repeating = 0  # the audit for which a piece is repeated; all others are given up
        self._wanted: dict[int, Blob] = {}  # uploads that are not given up, by lease
        self._encoding: set[int] = set()  # leases whose pushes are made, and not given up
        self._under_way: _UnderWay | None = None
        self._exchanges = False  # whether the run's workers exchange with each other
        self.unusable: Exception | None = None
        """Why the run can never be prepared here."""

    def perform(self, effect: Work) -> None:
        """Begin to perform an effect; to be called in the loop's thread."""
        match effect:
            case Prepare(run, blobs):
                self._fetches.submit(lambda: self._prepare(run, blobs))
            case FetchBlob(blob):
                self._fetches.submit(lambda: self._fetch(blob, self._down))
            case ForgetBlob(blob):
                self._fetches.submit(lambda: self._remove(blob))
            case FetchState() | ForgetState() | UploadState() | RepeatPiece():
                self._audit(effect)
            case StartLease(lease):
                self._lease_id, self._repeating = lease.lease_id, 0
                self._training.submit(lambda: self._train(lease))
            case Adopt() | SettlePush() | Shorten() | Follow():
                if self._trainer is not None:
                    self._hand_on(effect, self._trainer.inbox)
            case UploadUpdate(lease_id, blob):
                self._wanted[lease_id] = blob
                self._uploads.submit(lambda: self._upload(lease_id, blob))
            case CancelUpload() | AbortLease():
                self._cancel(effect)

    def _hand_on(self, effect: Adopt | SettlePush | Shorten | Follow, inbox: Inbox) -> None:
        match effect:
            case Adopt():
                inbox.adopt(effect)
            case SettlePush(lease_id, outcome):
                inbox.settle(lease_id, outcome)
            case Shorten():
                inbox.shorten(effect)
            case Follow(lease_id):
                inbox.follow(lease_id)

    def _audit(self, effect: FetchState | ForgetState | UploadState | RepeatPiece) -> None:
        match effect:
            case FetchState(blob):
                self._states.submit(lambda: self._fetch(blob, self._aside))
            case ForgetState(blob):
                self._states.submit(lambda: self._remove(blob))
            case UploadState(blob):
                self._states.submit(lambda: self._upload_state(blob))
            case RepeatPiece(wanted):
                self._repeating = wanted.audit
                self._training.submit(lambda: self._repeat(wanted))

    def _cancel(self, effect: CancelUpload | AbortLease) -> None:
        match effect:
            case CancelUpload(lease_id):
                if (blob := self._wanted.pop(lease_id, None)) and self._exchanges:
                    self._uploads.submit(lambda: self._drop(blob))
            case AbortLease(lease_id, reason):
                log.info("lease %d is given up: %s", lease_id, reason)
                self._give_up(lease_id)

    def _give_up(self, lease_id: int) -> None:
        self._wanted.pop(lease_id, None)
        self._encoding.discard(lease_id)
        if lease_id == self._lease_id:
            self._lease_id = 0
            if self._trainer is not None:
                self._trainer.inbox.wake()

    def close(self) -> None:
        """Give everything up, and give what is under way some time to end; may take long."""
        self._repeating = 0
        self._give_up(self._lease_id)
        self._wanted.clear()
        for transfers in (self._down, self._up, self._aside):
            transfers.close()
        if self._trainer is not None:
            self._trainer.close()
        for lane in (self._training, self._fetches, self._uploads, self._states):
            lane.close(GRACE_SECONDS)

    def end_stuck(self) -> None:
        """End the process of a program that goes on long after it was given up, such as one with an endless loop."""
        under_way, now = self._under_way, self._now()
        if under_way is None or self._trainer is None or not under_way.given_up():
            return
        if under_way.noticed is None:
            under_way.noticed = now
        ran = under_way.noticed - under_way.began
        if (going_on := now - under_way.noticed) < min(max(ran, STUCK_SECONDS), LONGEST_STUCK_SECONDS):
            return
        words = f"{under_way.what} was given up, but its program still ran {going_on:.0f} s later: its process was ended"
        log.warning("%s", words)
        self._trainer.end(FailureKind.ENDLESS, words)

    async def _prepare(self, run: str, blobs: tuple[Blob, ...]) -> Event:
        try:
            check_signature(run, self._is_signed, self.run_id)
            check_same_run(self._prepared_for, self.run_id)
            job = self._narrowed(Job.from_json(run))
            for blob in job.blobs:
                if blob not in blobs:
                    raise NotOffered(
                        f"the run names blob {blob.digest.hex()[:16]}, which the Shepherd does not offer"
                    )
            self._exchanges = job.exchange_every > 0
            # An earlier process of this worker may have left blobs behind.
            self._store.keep_only(blob.digest for blob in job.blobs)
            for blob in job.blobs:
                await self._bring(blob, self._down)
            if job.tolerance:
                remember_received(self.received)
            if self._trainer is not None:
                self._trainer.close()
            self._trainer = await self._make_trainer(job)
            self.profile, self._prepared_for = self._trainer.profile, self.run_id
        except (PCPError, OSError) as error:
            if not isinstance(error, PASSING):
                self.unusable = error
            return PreparationFailed(self._now(), run, str(error), kind_of(error))
        return Prepared(self._now(), run, job.overlap, self._exchanges)

    async def _fetch(self, blob: Blob, transfers: Fetches) -> Event:
        try:
            await self._bring(blob, transfers)
        except (PCPError, OSError) as error:
            return BlobUnavailable(self._now(), blob, str(error))
        return BlobFetched(self._now(), blob)

    async def _remove(self, blob: Blob) -> None:
        self._store.remove(blob.digest)

    async def _drop(self, blob: Blob) -> None:
        """Remove a push, unless one that is equal is still wanted."""
        if blob not in list(self._wanted.values()):
            self._store.remove(blob.digest)

    async def _bring(self, blob: Blob, transfers: Fetches) -> None:
        began = self._now()
        await transfers.fetch(blob)
        log.info("fetched %d bytes in %.1f ms", blob.size, 1e3 * (self._now() - began))

    async def _train(self, lease: Lease) -> Event | None:
        trainer = self._trainer
        if trainer is None or self._lease_id != lease.lease_id:
            return None

        def aborted() -> bool:
            return self._lease_id != lease.lease_id

        self._under_way = _UnderWay(f"lease {lease.lease_id}", aborted, self._now())
        self._encoding.add(lease.lease_id)
        try:
            done = await trainer.train(
                lease,
                lambda steps, seconds, batches=0: self._soon(
                    self._post, LeaseProgress(self._now(), lease.lease_id, steps, seconds, batches)
                ),
                aborted,
                lambda outcome: self._soon(self._pushed, lease, outcome),
            )
        except LeaseAborted:
            return None
        except (PCPError, OSError) as error:
            self._encoding.discard(lease.lease_id)
            return LeaseFailed(self._now(), lease.lease_id, str(error), kind_of(error))
        finally:
            self._under_way = None
        if done is None:
            return LeaseStepped(self._now(), lease.lease_id)
        self._encoding.discard(lease.lease_id)
        if not aborted():  # the push must stay, even if one before it was equal and is uploaded now
            self._wanted[lease.lease_id] = done.payload
        return self._trained(lease, done)

    def _pushed(self, lease: Lease, outcome: Trained | Exception) -> None:
        """A push was made while the next lease is trained, or cannot be."""
        wanted = lease.lease_id in self._encoding
        self._encoding.discard(lease.lease_id)
        if isinstance(outcome, Trained):
            if wanted:
                self._wanted[lease.lease_id] = outcome.payload
                self._post(self._trained(lease, outcome))
            else:
                self._uploads.submit(lambda: self._drop(outcome.payload))
        elif isinstance(outcome, PCPError | OSError):
            if wanted:
                self._post(LeaseFailed(self._now(), lease.lease_id, str(outcome), kind_of(outcome)))
        else:
            raise outcome

    def _trained(self, lease: Lease, done: Trained) -> LeaseTrained:
        log.info(
            "lease %d: %d steps in %.3f s (%.1f ms of it outside of the steps; waited %.3f s for fragments)%s",
            lease.lease_id,
            done.batches or lease.batches,
            done.seconds,
            1e3 * done.overhead_seconds,
            done.waited_seconds,
            f", loss {done.losses[-1]:.4f}" if done.losses else "",
        )
        return LeaseTrained(
            self._now(),
            lease.lease_id,
            done.payload,
            done.tokens,
            done.losses,
            done.seconds,
            done.states,
            done.settled,
            done.batches,
        )

    async def _repeat(self, wanted: Repeat) -> Event | None:
        trainer, began = self._trainer, self._now()
        if trainer is None or self._repeating != wanted.audit:
            return None

        def aborted() -> bool:
            return self._repeating != wanted.audit

        self._under_way = _UnderWay(f"the piece of audit {wanted.audit}", aborted, began)
        try:
            after, payload = await trainer.repeat(wanted, aborted)
        except RepetitionAborted:
            return None
        except (PCPError, OSError) as error:
            return PieceFailed(self._now(), wanted.audit, str(error))
        finally:
            self._under_way = None
        log.info("audit %d: %d steps repeated in %.3f s", wanted.audit, wanted.steps, self._now() - began)
        return PieceRepeated(self._now(), wanted.audit, after, payload)

    async def _upload_state(self, blob: Blob) -> Event | None:
        try:
            await self._aside.push(blob)
        except (PCPError, OSError) as error:
            return StateUploadFailed(self._now(), blob, str(error))
        return None

    async def _upload(self, lease_id: int, blob: Blob) -> Event | None:
        began = self._now()
        try:
            if lease_id in self._wanted:
                await self._up.push(blob)
        except (PCPError, OSError) as error:
            return UploadFailed(self._now(), lease_id, str(error))
        was_wanted = lease_id in self._wanted
        if not (was_wanted and self._exchanges):  # else another Shepherd may ask for it
            self._wanted.pop(lease_id, None)
            await self._drop(blob)
        if not was_wanted:
            return None
        log.info("pushed %d bytes in %.1f ms", blob.size, 1e3 * (self._now() - began))
        return UpdateUploaded(self._now(), lease_id)
