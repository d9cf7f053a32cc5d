"""How many steps a lease holds, so that slow and fast workers end a round together.

Source: after Liu et al., "Asynchronous Local-SGD Training for Language Modeling" (2401.09135), dynamic local updates.
"""

import math
from collections.abc import Iterable
from statistics import median

from pcp.distributed.algorithms import overlaps, segment_steps
from pcp.distributed.coordinator.rounds.adoptions import fetches_whole
from pcp.distributed.coordinator.rounds.fragments import Round
from pcp.distributed.coordinator.state import Member, Turn
from pcp.distributed.messages import DataRange

SHORT = 0.25  # of a segment; a shorter lease is not worth its push where its round can do without
_ROUNDING = 1e-6  # steps; what is a whole number may have become slightly less


def share(turn: Turn, member: Member, round: Round, data: DataRange) -> int:
    """Return how many of a round's pending batches a worker gets: 0 where others are done with them sooner.

    With step budgets, who delivered nothing yet gets half as much after each lease that it let expire.

    Arguments:
        turn: the turn in which the lease is granted.
        member: who gets it.
        round: the lease's.
        data: the batches at hand.
    """
    state = turn.state
    length, pace = segment_steps(state.run.config.algorithm), turn.pace(member.worker_id)
    if not state.run.config.step_budgets:
        return min(data.count, length - data.start % length)
    if not pace.work_seconds and pace.expired:
        return min(data.count, max(1, length >> pace.expired))
    if not state.typical:
        return min(data.count, length)
    clock = state.clocks[round.number]
    if turn.now >= clock.end or clock.planned_for < state.pending.returned:
        plan_end(turn, round)
    step_seconds = _step_seconds(turn, member)
    seconds = clock.end - turn.now - _overhead(turn, member, _will_fetch(turn, member, round))
    steps = max(0.0, seconds / step_seconds) + clock.owed
    # What is left over costs somebody a lease of its own, so rather a fast worker does one step more.
    above = math.ceil(steps - _ROUNDING)
    count = above if (above - steps) * step_seconds <= state.typical else above - 1
    if can_spare(turn, round):
        least = math.ceil(SHORT * segment_steps(state.run.config.algorithm))
        count = count if count >= least else 0
    elif overlaps(state.run.config.algorithm):
        count = max(1, count)  # who leaves a round for the next may soon have to wait for it
    count = min(data.count, max(0, count))
    clock.owed = max(-1.0, min(1.0, steps - count))
    return count


def can_spare(turn: Turn, round: Round) -> bool:
    """Return whether a round has its quorum without what is pending, and workers may go on to the next."""
    state = turn.state
    config = state.run.config
    if config.quorum == 1 or not overlaps(config.algorithm):
        return False
    return round.wanted - state.pending.total(round.fragment, round.limit) >= config.quorum * round.wanted


def plan_end(turn: Turn, round: Round) -> None:
    """Work out when everything that is pending for a round will be trained, if nobody idles meanwhile."""
    state = turn.state
    clock = state.clocks[round.number]
    work = state.pending.total(round.fragment, round.limit)
    clock.end, clock.owed, clock.planned_for = turn.now, 0.0, state.pending.returned
    if state.typical and state.roster.ready:
        members = [state.members[worker_id] for worker_id in sorted(state.roster.ready)]
        clock.end = common_end(
            work,
            [(_free(turn, each, round), 1 / _step_seconds(turn, each)) for each in members],
        )


def common_end(work: float, workers: Iterable[tuple[float, float]]) -> float:
    """Return when workers have done some work together, each from the time on at which it is free.

    The least E with sum over the workers of max(0, E - free) * speed = work.

    Arguments:
        work: steps.
        workers: at least one; when each is free, and the steps that it does in a second.
    """
    done = speed = 0.0  # what those who are free would have done since time 0, and do in a second
    end = float("inf")
    for free, own in sorted(workers):
        if end <= free:
            break
        done, speed = done + free * own, speed + own
        end = (work + done) / speed
    return end


def _free(turn: Turn, member: Member, round: Round) -> float:
    """When a worker can begin to train its next lease."""
    state = turn.state
    overhead = _overhead(turn, member, _will_fetch(turn, member, round))
    if not member.training:
        return max(turn.now, turn.pace(member.worker_id).rest_until) + overhead
    held = state.leases[member.training]
    begun = held.granted + _overhead(turn, member, fetches_whole(held.lease.adopt))
    return max(turn.now, begun + held.lease.data.count * _step_seconds(turn, member)) + overhead


def _will_fetch(turn: Turn, member: Member, round: Round) -> bool:
    """Whether a worker will fetch the whole fragment: to begin anew, or a second time in a round from the same place."""
    fragment, run = round.fragment, turn.state.run
    again = member.versions[fragment] == run.fragments[fragment].version and not overlaps(
        run.config.algorithm
    )
    return member.fresh or (again and (bool(member.training) or fragment in member.pushed))


def _overhead(turn: Turn, member: Member, whole: bool) -> float:
    """Seconds of a lease in which a worker does not train; with overlap it waits only where it fetches everything."""
    pace = turn.pace(member.worker_id)
    if not pace.work_seconds or (overlaps(turn.state.run.config.algorithm) and not whole):
        return 0.0
    return pace.seconds(0, whole, median)


def _step_seconds(turn: Turn, member: Member) -> float:
    return turn.pace(member.worker_id).step_seconds(turn.state.typical)
