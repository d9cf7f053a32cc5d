"""Time limits that follow from what was measured, and the measured past of a worker."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from pcp.distributed.coordinator.config import TimeoutPolicy

PAST = 16  # durations remembered for each worker
CLOSE_ENOUGH = 0.9  # of the typical speed; ranges are not cut for mere noise


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
    """The past of one worker, by the Shepherd's own clock; it outlives the worker's connection and process.

    Arguments:
        step_seconds: seconds for each step of its last leases, transfers included.
        expired: leases in a row that it let expire; each doubles the next limit, so that no limit can be
            too short for ever.
        failed: leases in a row that it gave up or that were refused.
        fenced: live processes in a row that another process of the same worker replaced before an update
            came.
        unusable: updates in a row that were not finite or otherwise unusable.
        rest_until: no lease before this time.
    """

    step_seconds: tuple[float, ...] = ()
    expired: int = 0
    failed: int = 0
    fenced: int = 0
    unusable: int = 0
    rest_until: float = 0.0

    def succeeded(self, seconds: float, steps: int) -> None:
        """Remember a fulfilled lease."""
        self.step_seconds = (*self.step_seconds[-(PAST - 1) :], seconds / steps)
        self.expired = self.failed = self.fenced = self.unusable = 0

    def rest(self, now: float, unit_seconds: float) -> None:
        """Keep a failing worker from failing in a tight loop: it pauses, twice as long each time."""
        self.failed += 1
        self.rest_until = now + unit_seconds * 2 ** min(self.failed - 1, 6)


def typical_step_seconds(everybody: Iterable[Pace]) -> float:
    """Return the median worker's median seconds for each step; 0 before anything was measured."""
    medians = [median(each.step_seconds) for each in everybody if each.step_seconds]
    return median(medians) if medians else 0.0


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


def step_budget(pace: Pace, typical: float, inner_steps: int) -> int:
    """Return the steps that a worker does in the time in which the median worker does a whole range.

    Source: Liu et al., "Asynchronous Local-SGD Training for Language Modeling" (2401.09135), dynamic local
    updates.
    """
    if not pace.step_seconds or not typical:
        return inner_steps
    share = typical / median(pace.step_seconds)
    return inner_steps if share > CLOSE_ENOUGH else max(1, int(inner_steps * share))
