"""When a round closes: with everything, or with its quorum once nothing more is worth waiting for."""

import math
from statistics import median

from pcp.distributed.algorithms import overlaps
from pcp.distributed.coordinator.rounds.adoptions import fetches_whole
from pcp.distributed.coordinator.rounds.fragments import Round
from pcp.distributed.coordinator.state import HeldLease, State, Turn
from pcp.distributed.coordinator.timing import bounded, expected_seconds


def may_close(turn: Turn, round: Round) -> bool:
    """Return whether a round closes now; the first time that it has its quorum, say when it will."""
    quorum = turn.state.run.config.quorum
    if round.closed or not round.admitted:
        return False
    if not round.missing:
        return True
    # The tolerance keeps a quorum such as 0.1 of 30 from becoming 4 by rounding.
    if quorum == 1 or round.wanted - round.missing < math.ceil(quorum * round.wanted - 1e-9):
        return False
    clock = turn.state.clocks[round.number]
    if clock.quorum is None:
        clock.quorum = turn.now
        set_time(turn)
    return turn.now >= clock.close


def set_time(turn: Turn) -> None:
    """Work out when the oldest round closes, if it has its quorum."""
    state, run = turn.state, turn.state.run
    head = run.in_flight[0] if run.in_flight else None
    if head is None or head.closed or (clock := state.clocks[head.number]).quorum is None:
        return
    if overlaps(run.config.algorithm):
        clock.close = max(clock.quorum, min(_last_end(turn, head), _first_wait(turn)))
    else:
        clock.close = clock.quorum + bounded(_worthwhile_end(turn, head) - clock.quorum, run.config.grace)


def _out(state: State, round: Round) -> list[HeldLease]:
    return [held for held in state.leases.values() if held.lease.round == round.number]


def _end(turn: Turn, held: HeldLease) -> float:
    """When a lease will very likely be fulfilled."""
    pace, policy = turn.pace(held.worker_id), turn.state.run.config.grace
    seconds = expected_seconds(pace, held.lease.data.count, fetches_whole(held.lease.adopt), policy)
    return max(turn.now, held.granted + seconds)


def _last_end(turn: Turn, round: Round) -> float:
    ends = [_end(turn, held) for held in _out(turn.state, round)]
    return min(max(ends, default=turn.now), turn.now + turn.state.run.config.grace.cap_seconds)


def _first_wait(turn: Turn) -> float:
    """When the round must close at the latest, if nobody is to wait at the step at which it adopts the result."""
    state = turn.state
    steps = state.run.config.algorithm.delay
    begun = [state.leases[lease_id] for lease_id in state.adopting]
    waits = [
        held.granted + steps * turn.pace(held.worker_id).step_seconds(state.typical)
        for held in begun
        if not held.lease.fresh
    ]
    # What a merged fragment takes to reach a worker is not seen here; a push takes as long.
    return min(waits, default=math.inf) - state.merge_seconds - state.upload_seconds


def _worthwhile_end(turn: Turn, round: Round) -> float:
    """Until when waiting gains more steps than those who wait lose.

    Closing without a lease loses the steps done for it, unless its worker keeps them, and those that its worker could
    do while it fetches everything anew.
    """
    state = turn.state
    if not state.typical:
        return max((_end(turn, held) for held in _out(state, round)), default=turn.now)
    if state.run.config.algorithm.late == "carry":
        return turn.now
    waiting = len(state.roster.idle) + len(state.roster.resting)
    best, gain, cost, time = 0.0, 0.0, 0.0, turn.now
    until = turn.now
    for end, lost in sorted((_end(turn, held), _lost(turn, held)) for held in _out(state, round)):
        cost, time = cost + waiting * (end - time) / state.typical, end
        gain, waiting = gain + lost, waiting + 1
        if gain - cost > best:
            best, until = gain - cost, end
    return until


def _lost(turn: Turn, held: HeldLease) -> float:
    """Steps that are lost with a lease."""
    pace, steps = turn.pace(held.worker_id), held.lease.data.count
    if not pace.work_seconds:
        return steps
    work, overhead = median(pace.work_seconds), pace.seconds(0, fetches_whole(held.lease.adopt), median)
    done = steps if held.update else min(steps, max(0.0, turn.now - held.granted - overhead) / work)
    return done + max(0.0, pace.seconds(0, True, median) - pace.seconds(0, False, median)) / work
