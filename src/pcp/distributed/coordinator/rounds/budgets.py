"""How many steps a lease holds, so that slow and fast workers end a round together.

Source: after Liu et al., "Asynchronous Local-SGD Training for Language Modeling" (2401.09135), dynamic local updates.
"""

import math
from collections.abc import Iterable
from statistics import median, median_low

from pcp.distributed.algorithms import overlaps, segment_steps
from pcp.distributed.coordinator.rounds.adoptions import fetches_whole
from pcp.distributed.coordinator.rounds.fragments import Round
from pcp.distributed.coordinator.state import Member, State, Turn
from pcp.distributed.coordinator.timing import Pace
from pcp.distributed.messages import DataRange

EVEN = 0.1  # workers whose times for a segment differ by less than this part get equal shares
NEWCOMER = 2  # halvings of a segment for who was never measured
SHORT = 0.25  # of a segment; a shorter lease is not worth its push where its round can do without
_ROUNDING = 1e-6  # steps; what is a whole number may have become slightly less


def round_batches(turn: Turn, fragment: int) -> int:
    """Return how many batches the workers that live can do while a typical one does a segment of its own.

    Who is faster than that does no more, so that no push is of many more than H / P steps.
    """
    state, config = turn.state, turn.state.run.config
    if config.round_batches:
        return config.round_batches
    segment, ready = segment_steps(config.algorithm), state.roster.ready - state.roster.resting.keys()
    if not config.step_budgets or not ready:
        return max(1, len(ready)) * segment
    typical = turn.typical(ready)
    times: dict[int, tuple[float, float]] = {}
    for worker_id in ready:
        member, pace = state.members[worker_id], turn.pace(worker_id)
        if pace.known:
            overhead = _overhead(turn, member, _will_fetch(turn, member, fragment))
            times[worker_id] = overhead, pace.step_seconds(typical)
    if not times:
        return len(ready) * segment
    usual = median_low(overhead + segment * step for overhead, step in times.values())
    steps = 0.0
    for worker_id in ready:
        if worker_id in times:
            overhead, step = times[worker_id]
            own = overhead + segment * step
            steps += segment if own * (1 - EVEN) <= usual else max(0.0, usual - overhead) / step
        else:
            steps += segment * _newcomer_part(typical, turn.pace(worker_id))
    return max(1, round(steps))


def _newcomer_part(typical: float, pace: Pace) -> float:
    """Which part of a segment a worker gets that delivered nothing yet: all where nobody did."""
    return float(2.0 ** -max(pace.expired, NEWCOMER if typical else 0))


def share(turn: Turn, member: Member, round: Round, data: DataRange) -> int:
    """Return how many of a round's pending batches a worker gets: 0 where others are done with them sooner.

    With step budgets, who delivered nothing yet, beside others that did, gets a quarter of a segment: so a slow one is found
    out soon. After each lease that it let expire, from the third on, it gets half as much.

    Arguments:
        turn: the turn in which the lease is granted.
        member: who gets it.
        round: the lease's.
        data: the batches at hand.
    """
    state = turn.state
    length, pace = segment_steps(state.run.config.algorithm), turn.pace(member.worker_id)
    if not state.typical and state.is_measured:  # in the first round somebody may have been since it opened
        state.typical = turn.typical(state.roster.ready)
    clock = state.clocks[round.number]
    is_equal = member.worker_id in clock.equal and clock.planned_for == state.pending.returned
    if not state.run.config.step_budgets or is_equal:
        clock.equal.discard(member.worker_id)
        return min(data.count, length)
    if not (pace.known and state.typical):
        pace.sat_out = 0
        return min(data.count, max(1, math.floor(length * _newcomer_part(state.typical, pace))))
    if turn.now >= clock.end or clock.planned_for < state.pending.returned:
        plan_end(turn, round)
    step_seconds = _step_seconds(turn, member)
    if clock.end == math.inf:  # when that was worked out, nobody could train
        plan_end(turn, round)
    seconds = clock.end - _free(turn, member, round)
    own = min(max(0.0, seconds / step_seconds), float(data.count))
    steps = own + clock.owed
    # What is left over costs somebody a lease of its own, so rather a fast worker does one step more.
    latest = math.floor(own + state.typical / step_seconds + _ROUNDING)
    count = min(math.ceil(steps - _ROUNDING), latest)
    if _nobody_trains(state, round) and steps >= 1 - _ROUNDING:
        count = max(1, count)  # and nobody is so fast that it were better to wait
    if can_spare(turn, round):
        least = math.ceil(SHORT * segment_steps(state.run.config.algorithm))
        count = count if count >= least else 0
    elif (1 - own) * step_seconds <= state.run.config.algorithm.delay * state.typical:
        count = max(1, count)  # who leaves a round for the next may soon have to wait for it
    if count > 0:
        pace.sat_out = 0
    elif _shows_again(pace):
        # What is known of it may be long out of date, so it may show again what it can, ever more seldom.
        return min(data.count, max(1, length >> NEWCOMER))
    count = min(data.count, max(0, count))
    clock.owed = max(-1.0, min(1.0, steps - count))
    if not count:
        clock.passed_over.add(member.worker_id)
    return count


def candidates(turn: Turn, round: Round) -> list[int]:
    """Return the workers that may get work of a round, in order: first those that are to show again what they can.

    Who got nothing is not asked again at each event, of which a fleet makes many, but when the plan or everybody is done.
    """
    state, clock = turn.state, turn.state.clocks[round.number]
    if turn.now >= clock.end or clock.planned_for < state.pending.returned or _nobody_trains(state, round):
        clock.passed_over.clear()
    idle = (worker_id for worker_id in state.roster.idle if worker_id not in clock.passed_over)
    return sorted(idle, key=lambda worker_id: not _shows_again(turn.pace(worker_id)))


def _nobody_trains(state: State, round: Round) -> bool:
    """Whether all that is leased waits for a round, or will."""
    return all(_waits(state, number, round) for number in state.leases)


def _waits(state: State, lease_id: int, round: Round) -> bool:
    """Whether a lease waits for a round, or will."""
    return lease_id in state.adopting and state.leases[lease_id].lease.round > round.number


def _shows_again(pace: Pace) -> bool:
    return pace.sat_out > 1 and pace.sat_out.bit_count() == 1


def can_spare(turn: Turn, round: Round) -> bool:
    """Return whether a round has its quorum without what is pending, and workers may go on to the next."""
    state = turn.state
    config = state.run.config
    if config.quorum == 1 or not overlaps(config.algorithm):
        return False
    return round.wanted - state.pending.total(round.fragment, round.limit) >= config.quorum * round.wanted


def plan_round(turn: Turn, round: Round) -> None:
    """Work out when a round that opens will be done, and whether everybody gets as much.

    Workers that differ little get equal shares, one each: what a run of like machines computes then does not depend on
    their clocks. They are cut from where the round's data begins, as a second lease costs another fetch of everything.
    """
    plan_end(turn, round)
    for worker_id in turn.state.roster.idle:
        turn.pace(worker_id).sat_out += 1
    segment = segment_steps(turn.state.run.config.algorithm)
    members = [turn.state.members[worker_id] for worker_id in turn.state.roster.ready]
    if turn.state.typical and not all(turn.pace(each.worker_id).known for each in members):
        return
    seconds = [
        _overhead(turn, each, _will_fetch(turn, each, round.fragment)) + segment * _step_seconds(turn, each)
        for each in members
    ]
    if seconds and max(seconds) <= (1 + EVEN) * min(seconds):
        turn.state.clocks[round.number].equal = {each.worker_id for each in members}


def plan_end(turn: Turn, round: Round) -> None:
    """Work out when everything that is pending for a round will be trained, if nobody idles meanwhile."""
    state = turn.state
    clock = state.clocks[round.number]
    work = state.pending.total(round.fragment, round.limit)
    clock.end, clock.owed, clock.planned_for = turn.now, 0.0, state.pending.returned
    clock.equal.clear()
    clock.passed_over.clear()
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
    """When a worker can begin to train its next lease of a round."""
    state = turn.state
    overhead = _overhead(turn, member, _will_fetch(turn, member, round.fragment))
    if member.auditing:
        return _audited(turn, member) + overhead
    if not member.training:
        return max(turn.now, turn.pace(member.worker_id).rest_until) + overhead
    last = member.following or member.training
    if _waits(state, last, round):
        return math.inf
    held = state.leases[member.training]
    begun = held.granted + _overhead(turn, member, fetches_whole(held.lease.adopt))
    free = max(turn.now, begun + held.lease.data.count * _step_seconds(turn, member))
    if member.following:
        free += state.leases[last].lease.data.count * _step_seconds(turn, member)
    return free + overhead


def _audited(turn: Turn, member: Member) -> float:
    """When a worker will have repeated what an audit asks of it; never, once that has lasted much longer than it should."""
    audit, config = turn.state.audits.audits[member.auditing], turn.state.run.config
    seconds = _overhead(turn, member, True) + audit.piece.steps * _step_seconds(turn, member)
    patience = config.heartbeat_seconds + config.lease.slack * seconds
    return max(turn.now, audit.since + seconds) if turn.now < audit.since + patience else math.inf


def _will_fetch(turn: Turn, member: Member, fragment: int) -> bool:
    """Whether a worker will fetch the whole fragment: to begin anew, or a second time in a round from the same place."""
    run = turn.state.run
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
