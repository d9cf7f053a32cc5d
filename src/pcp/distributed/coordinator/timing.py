"""Time limits that follow from what was measured, and the measured past of a worker."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median, median_low

from pcp.distributed.bounds import SECONDS
from pcp.distributed.coordinator.config import TimeoutPolicy
from pcp.distributed.coordinator.log.records import MeasuredPace

SHORTEST = 1e-6  # seconds; a virtual clock may stand still
PAST = 16  # durations remembered for each worker
SHORT_REST = 16  # units: the longest pause of a worker that fails
LONGEST_REST_SECONDS = (
    3600.0  # of a worker whose leases expire beside others that deliver, unless `Waits` says more
)
FREE_WAITS = 3  # of the longest length; as many as are waited for while rests double


def spread_limit(durations: Sequence[float], policy: TimeoutPolicy) -> float:
    """Return max(slack * median, median + deviations * MAD) of the durations, unbounded.

    Arguments:
        durations: at least one, in seconds.
        policy: gives slack and deviations.
    """
    middle = median(durations)
    deviation = median(abs(each - middle) for each in durations)
    return max(policy.slack * middle, middle + policy.deviations * deviation)


def bounded(seconds: float, policy: TimeoutPolicy) -> float:
    """Return the seconds within the policy's floor and cap."""
    return min(max(seconds, policy.floor_seconds), policy.cap_seconds)


@dataclass(slots=True)
class Waits:
    """How long others waited for a worker, less a sixteenth of the time in which they did not.

    Arguments:
        seconds: that.
        longest: of the waits in it.
        at: when the last of them ended.
    """

    seconds: float = 0.0
    longest: float = 0.0
    at: float = 0.0

    def add(self, now: float, waited: float) -> float:
        """Add a wait that ends now; return the rest after which all of them are a seventeenth of the time, but for a few."""
        before = max(0.0, self.seconds - max(0.0, now - self.at - waited) / SHORT_REST)
        self.longest = max(waited, self.longest if before else 0.0)
        self.seconds, self.at = before + waited, now
        return SHORT_REST * max(0.0, before - FREE_WAITS * self.longest)


@dataclass(slots=True)
class Pace:
    """The past of one worker; it outlives the worker's connection and process.

    A lease takes an overhead (fetching, waiting, uploading), however short it is, and the work of its steps.

    Arguments:
        work_seconds: seconds of training for each step of its last leases, as the worker told, and no more
            than the Shepherd's clock allows.
        overhead_seconds: by the Shepherd's clock, what else its last leases took.
        fetching_overhead_seconds: likewise of those with which whole fragments were fetched, not changes of them.
        expired: leases in a row that it let expire; each doubles the next limit where no peers bound it.
        delivers: whether its last lease ended with a usable push.
        failed: leases in a row that it gave up or that were refused.
        fenced: live processes in a row that another process of the same worker replaced before an update
            came.
        unusable: updates in a row that were not finite or otherwise unusable.
        rest_until: no lease before this time.
        waits: what others lost by it; time makes up for that.
        saved: seconds that its leases saved the others, less those for which they waited for it to deliver them.
        sat_out: rounds that opened since it was last given work by its budget.
        told_seconds: of a step of the lease under way, as the worker tells; 0 where it tells nothing.
    """

    work_seconds: tuple[float, ...] = ()
    overhead_seconds: tuple[float, ...] = ()
    fetching_overhead_seconds: tuple[float, ...] = ()
    expired: int = 0
    delivers: bool = False
    failed: int = 0
    fenced: int = 0
    unusable: int = 0
    rest_until: float = 0.0
    waits: Waits = field(default_factory=Waits)
    saved: float = 0.0
    sat_out: int = 0
    told_seconds: float = 0.0
    _usual: tuple[float, float] = (0.0, 0.0)

    @classmethod
    def remembered(cls, measured: MeasuredPace) -> "Pace":
        """Return the past of a worker that an earlier Shepherd measured."""
        pasts = (measured.step_seconds, measured.overhead_seconds, measured.fetching_overhead_seconds)
        past, overhead, fetching = ((seconds,) if seconds else () for seconds in pasts)  # 0: never measured
        if past and not fetching:
            overhead = (measured.overhead_seconds,)  # no time at all, then
        pace = cls(past, overhead, fetching, measured.expired)
        pace.delivers = bool(past) and not measured.expired
        pace._note_usual()
        return pace

    def measured(self, worker_id: int) -> MeasuredPace:
        """Return what the Shepherd after this one shall know."""
        pasts = (self.work_seconds, self.overhead_seconds, self.fetching_overhead_seconds)
        step, overhead, fetching = (round(median(past), 6) if past else 0.0 for past in pasts)
        return MeasuredPace(worker_id, step, overhead, fetching, self.expired)

    def trained(self, elapsed: float, worked: float, steps: int, whole: bool = False) -> None:
        """Remember how long a lease took.

        Arguments:
            elapsed: seconds since it was granted.
            worked: seconds of training, as the worker told.
            steps: of its data.
            whole: whether whole fragments were fetched.
        """
        if not steps:
            return
        elapsed = min(max(elapsed, SHORTEST), SECONDS.most)
        worked = worked if 0 < worked < elapsed else elapsed
        self.work_seconds = _remembered(self.work_seconds, SECONDS.clamped(worked / steps))
        if whole:
            self.fetching_overhead_seconds = _remembered(self.fetching_overhead_seconds, elapsed - worked)
        else:
            self.overhead_seconds = _remembered(self.overhead_seconds, elapsed - worked)
        self._note_usual()

    def _note_usual(self) -> None:
        overheads = (self.overhead_seconds, self.fetching_overhead_seconds)
        overhead = max((median(past) for past in overheads if past), default=0.0)
        self._usual = (median(self.work_seconds) if self.work_seconds else 0.0, overhead)

    def delivered(self, now: float, saved: float, late: float) -> None:
        """Take note of a lease that is trained: who is late now and then is worth waiting for if it saves others more.

        Arguments:
            now: the time.
            saved: seconds that it saves the others.
            late: seconds that it took longer than others take.
        """
        self.saved = min(self.saved, LONGEST_REST_SECONDS) + saved - late
        if self.saved < 0:
            self.rest_until = max(self.rest_until, now + self.waits.add(now, -self.saved))
            self.saved = 0.0

    def succeeded(self) -> None:
        """Forgive everything: a push was usable."""
        self.expired = self.failed = self.fenced = self.unusable = 0
        self.delivers = True

    def rest(self, now: float, unit_seconds: float, waited_seconds: float = 0.0) -> None:
        """Keep a failing worker from failing in a tight loop: it pauses, twice as long each time.

        The pause is up to sixteen units, and up to sixteen times as long as others waited for it. Who delivers now and then
        begins anew with short ones, until others have waited for it for a seventeenth of the time; then no rest is shorter.

        Arguments:
            now: the time.
            unit_seconds: of the pause.
            waited_seconds: how long others that deliver waited for it; 0 where nobody did.
        """
        self.failed += 1
        self.delivers = False
        pause = unit_seconds * min(2 ** min(self.failed - 1, 20), SHORT_REST)
        times = min(2 ** min(max(self.failed, self.expired), 20), SHORT_REST)
        waited = min(LONGEST_REST_SECONDS, waited_seconds * times)
        owed = self.waits.add(now, waited_seconds) if waited_seconds > 0 else 0.0
        self.rest_until = max(self.rest_until, now + max(pause, waited, owed))

    def let_expire(self, now: float, unit_seconds: float, waited_seconds: float) -> None:
        """Take note that a lease expired, after which it pauses; see `rest`."""
        self.expired += 1
        self.rest(now, unit_seconds, waited_seconds)

    def seconds(self, steps: int, whole: bool, of: Callable[[Sequence[float]], float]) -> float:
        """Return how long a lease takes, each part of its past summed up by a function; needs a past."""
        overheads = self.fetching_overhead_seconds if whole else self.overhead_seconds
        return of(overheads or self.fetching_overhead_seconds or self.overhead_seconds) + steps * of(
            self.work_seconds
        )

    def step_seconds(self, typical: float) -> float:
        """Return the seconds of a step; those of the typical worker where nothing is known."""
        return median(self.work_seconds) if self.work_seconds else self.told_seconds or typical

    def told(self, seconds: float) -> None:
        """Take note of what a worker says that a step of its lease takes; 0 while it has done none."""
        if 0 < seconds < math.inf:
            self.told_seconds = SECONDS.clamped(seconds)

    @property
    def usual(self) -> tuple[float, float] | None:
        """The median seconds of a step, and of what a lease takes besides; None of a worker that does not deliver."""
        return self._usual if self.delivers and self.work_seconds else None

    @property
    def known(self) -> bool:
        """Whether anything is known of how fast it is."""
        return bool(self.work_seconds or self.told_seconds)


def smoothed(past: float, seconds: float) -> float:
    """Return what a duration usually is, after one more; 0 for the past where there is none."""
    return (past + seconds) / 2 if past else seconds


def _remembered(past: tuple[float, ...], seconds: float) -> tuple[float, ...]:
    return (*past[-(PAST - 1) :], seconds)


@dataclass(slots=True)
class RoundClock:
    """The times of a round in flight.

    Arguments:
        opened: when it opened for this process.
        end: when its work should be done if nobody idles.
        owed: steps that the leases granted so far are short of it by rounding.
        planned_for: times that cells had been returned when the end was worked out.
        passed_over: idle workers that get nothing until the end is worked out again.
        equal: workers that get a segment each, as they hardly differ, and have not yet; until cells are returned.
        quorum: when it had its quorum; None before.
        close: when it then closes with what it has.
        closed: when its outer step began.
    """

    opened: float
    end: float = 0.0
    owed: float = 0.0
    planned_for: int = 0
    passed_over: set[int] = field(default_factory=set)
    equal: set[int] = field(default_factory=set)
    quorum: float | None = None
    close: float = 0.0
    closed: float = 0.0


def typical_step_seconds(everybody: Iterable[Pace]) -> float:
    """Return the median worker's seconds for each step; 0 before anything is known."""
    medians = [each.step_seconds(0.0) for each in everybody if each.known]
    return median_low(medians) if medians else 0.0


def lease_seconds(pace: Pace, steps: int, whole: bool, typical: float, policy: TimeoutPolicy) -> float:
    """Return the time limit of a lease, as far as its worker alone is concerned.

    Arguments:
        pace: of the worker.
        steps: inner steps of the lease.
        whole: whether whole fragments are fetched.
        typical: see `typical_step_seconds`; bounds the limit of a worker without a past from below.
        policy: of leases.
    """
    if pace.work_seconds:
        seconds = bounded(pace.seconds(steps, whole, lambda past: spread_limit(past, policy)), policy)
    else:
        seconds = max(policy.initial_seconds, policy.slack * steps * typical)
    return min(seconds * 2.0 ** min(pace.expired, 20), policy.cap_seconds)


def expected_seconds(pace: Pace, steps: int, whole: bool, policy: TimeoutPolicy) -> float:
    """Return how long after it was granted a lease will very likely have been fulfilled."""
    if not pace.work_seconds:
        return policy.initial_seconds
    return pace.seconds(steps, whole, lambda past: spread_limit(past, policy))
