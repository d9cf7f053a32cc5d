"""Time limits that follow from what was measured, and the measured past of a worker."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from pcp.distributed.coordinator.config import TimeoutPolicy

SHORTEST = 1e-6  # seconds; a virtual clock may stand still
PAST = 16  # durations remembered for each worker
CLOSE_ENOUGH = 0.9  # of a range; it is not cut for mere noise


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
class Pace:
    """The past of one worker; it outlives the worker's connection and process.

    Arguments:
        step_seconds: seconds for each step of its last leases by the Shepherd's clock: transfers and waiting
            included. Time limits follow from it.
        work_seconds: seconds of training for each step, as the worker told, and no more than the Shepherd's
            clock allows. The worker's share of the work follows from it.
        expired: leases in a row that it let expire; each doubles the next limit, so that no limit can be
            too short for ever.
        failed: leases in a row that it gave up or that were refused.
        fenced: live processes in a row that another process of the same worker replaced before an update
            came.
        unusable: updates in a row that were not finite or otherwise unusable.
        rest_until: no lease before this time.
    """

    step_seconds: tuple[float, ...] = ()
    work_seconds: tuple[float, ...] = ()
    expired: int = 0
    failed: int = 0
    fenced: int = 0
    unusable: int = 0
    rest_until: float = 0.0

    def succeeded(self, elapsed: float, worked: float, steps: int) -> None:
        """Remember a fulfilled lease.

        Arguments:
            elapsed: seconds since it was granted.
            worked: seconds of training, as the worker told.
            steps: of its data.
        """
        self.expired = self.failed = self.fenced = self.unusable = 0
        if steps:
            elapsed = max(elapsed, SHORTEST)
            worked = worked if 0 < worked < elapsed else elapsed
            self.step_seconds = (*self.step_seconds[-(PAST - 1) :], elapsed / steps)
            self.work_seconds = (*self.work_seconds[-(PAST - 1) :], worked / steps)

    def rest(self, now: float, unit_seconds: float) -> None:
        """Keep a failing worker from failing in a tight loop: it pauses, twice as long each time."""
        self.failed += 1
        self.rest_until = now + unit_seconds * 2 ** min(self.failed - 1, 6)


@dataclass(slots=True)
class RoundClock:
    """The times of a round in flight.

    Arguments:
        opened: when it opened for this process.
        speed: steps that the ready workers do together in a second; 0 where nothing was measured.
        end: when its work should be done if nobody idles.
        quorum: when it had its quorum; None before.
        close: when it then closes with what it has.
    """

    opened: float
    speed: float = 0.0
    end: float = 0.0
    quorum: float | None = None
    close: float = 0.0


def typical_step_seconds(everybody: Iterable[Pace]) -> float:
    """Return the median worker's median seconds for each step; 0 before anything was measured."""
    medians = [median(each.work_seconds) for each in everybody if each.work_seconds]
    return median(medians) if medians else 0.0


def joint_speed(everybody: Iterable[Pace], typical: float) -> float:
    """Return the steps that workers do together in a second; those without a past count as typical."""
    if not typical:
        return 0.0
    return sum(1 / (median(each.work_seconds) if each.work_seconds else typical) for each in everybody)


def lease_seconds(pace: Pace, steps: int, typical: float, policy: TimeoutPolicy) -> float:
    """Return the time limit of a lease.

    Arguments:
        pace: of the worker.
        steps: inner steps of the lease.
        typical: see `typical_step_seconds`; bounds the limit of a worker without a past from below.
        policy: of leases.
    """
    if pace.step_seconds:
        seconds = bounded(steps * spread_limit(pace.step_seconds, policy), policy)
    else:
        seconds = max(policy.initial_seconds, policy.slack * steps * typical)
    return seconds * 2.0 ** min(pace.expired, 20)


def expected_seconds(pace: Pace, steps: int, policy: TimeoutPolicy) -> float:
    """Return how long after it was granted a lease will very likely have been fulfilled."""
    return steps * spread_limit(pace.step_seconds, policy) if pace.step_seconds else policy.initial_seconds


def step_budget(pace: Pace, clock: RoundClock, now: float, pending: int, available: int) -> int:
    """Return the steps that a worker does until its round should end, so that slow and fast end together.

    The end of the round is when the workers' joint speed has done its work. Where it is over and work is
    left all the same, the rest is shared by speed once more.

    Arguments:
        pace: of the worker.
        clock: of the round.
        now: the time.
        pending: batches of the round that nobody has yet.
        available: length of the range at hand, at most which is returned, and at least 1.

    Source: after Liu et al., "Asynchronous Local-SGD Training for Language Modeling" (2401.09135), dynamic
    local updates.
    """
    if not pace.work_seconds or not clock.speed:
        return available
    left = max(clock.end - now, pending / clock.speed)
    steps = left / median(pace.work_seconds)
    return available if steps > CLOSE_ENOUGH * available else max(1, int(steps))
