"""The life of a round: opening, closing, and the outer step."""

import math

from pcp.distributed.algorithms import merge_order, overlaps, segment_steps
from pcp.distributed.coordinator import admission, adoptions, checkpoints, data_ranges, ending, leases
from pcp.distributed.coordinator.books import Cells
from pcp.distributed.coordinator.effects import RoundMerged, RunOuterStep, Trouble
from pcp.distributed.coordinator.events import OuterStepDone, OuterStepFailed
from pcp.distributed.coordinator.fragments import Round
from pcp.distributed.coordinator.records import OuterStepTaken, RoundClosed, RoundOpened
from pcp.distributed.coordinator.run import Run
from pcp.distributed.coordinator.state import State, Turn
from pcp.distributed.coordinator.timing import (
    RoundClock,
    bounded,
    expected_seconds,
    joint_speed,
    typical_step_seconds,
)
from pcp.distributed.messages import Blob


def advance(turn: Turn) -> None:
    """Do everything that the state now allows. It looks at nothing but the state, so a restart needs no case of its own."""
    if turn.state.finished:
        return
    run = turn.state.run
    _work(turn)
    if run.in_flight and _may_close(turn, run.in_flight[0]):
        _close(turn, run.in_flight[0])
        _work(turn)
    _begin_outer_step(turn)
    checkpoints.begin_if_due(turn)
    if run.checkpoint_version == run.version and run.complete:
        ending.finish(turn)


def _work(turn: Turn) -> None:
    """Give everybody something to do, if need be by opening rounds."""
    leases.grant_all(turn)
    while _wants_round(turn) and (fragment := _next_fragment(turn.state)) is not None:
        _open(turn, fragment)
        leases.grant_all(turn)


def _wants_round(turn: Turn) -> bool:
    state = turn.state
    if not state.run.in_flight:
        return _enough_workers(turn)
    return overlaps(state.run.config.algorithm) and len(state.run.in_flight) == 1 and bool(state.roster.idle)


def _enough_workers(turn: Turn) -> bool:
    state, config = turn.state, turn.state.run.config
    count = len(state.roster.ready)
    if count >= config.workers or (
        state.first_ready is not None and turn.now >= state.first_ready + config.patience_seconds
    ):
        state.gathered = True
    return state.gathered and count >= config.minimum_workers


def _next_fragment(state: State) -> int | None:
    """Return what the next round merges: the fragments take turns; those of which nothing is left are passed over."""
    run = state.run
    turns = [(run.opened + ahead) % len(run.fragments) for ahead in range(len(run.fragments))]
    if _fresh(state, turns[0]):
        return turns[0]
    # What an open round of the same fragment lacks it is going to have.
    taken = {round.fragment for round in run.in_flight if not round.closed}
    return next((each for each in turns if each not in taken and run.outstanding(each)), None)


def _fresh(state: State, fragment: int) -> int:
    """Return the batches that a round issues: those for every slot's segment, less what was left lying."""
    room = max(0, _batches(state.run) - state.pending.counts[fragment])
    return min(room, state.run.unissued)


def _batches(run: Run) -> int:
    return run.config.workers * segment_steps(run.config.algorithm)


def _open(turn: Turn, fragment: int) -> None:
    state, run = turn.state, turn.state.run
    fresh, issued = _fresh(state, fragment), run.issued
    # Schedules count what was trained: what is still to do has not moved anything.
    first_step = (issued - state.pending.counts[fragment]) // run.config.workers
    turn.append(RoundOpened(run.opened, fragment, fresh, first_step))
    for data in data_ranges.cut(issued, fresh, segment_steps(run.config.algorithm)):
        state.pending.put(Cells(data, frozenset(range(len(run.fragments)))))
    start_clock(turn, run.in_flight[-1])


def start_clock(turn: Turn, round: Round) -> None:
    """Begin to measure a round, by the past of the workers that are ready."""
    state = turn.state
    paces = [turn.pace(worker_id) for worker_id in sorted(state.roster.ready)]
    state.typical = typical_step_seconds(paces)
    speed = joint_speed(paces, state.typical)
    work = state.pending.counts[round.fragment]
    state.clocks[round.number] = RoundClock(turn.now, speed, turn.now + work / speed if speed else 0.0)


def _may_close(turn: Turn, round: Round) -> bool:
    state, quorum = turn.state, turn.state.run.config.quorum
    if round.closed or not round.admitted:
        return False
    if not round.missing:
        return True
    # The tolerance keeps a quorum such as 0.1 of 30 from becoming 4 by rounding.
    if quorum == 1 or round.wanted - round.missing < math.ceil(quorum * round.wanted - 1e-9):
        return False
    clock = state.clocks[round.number]
    if clock.quorum is None:
        clock.quorum = turn.now
        set_closing(turn)
    return turn.now >= clock.close


def set_closing(turn: Turn) -> None:
    """Say when a round that has its quorum closes: when the leases that are still out should have ended."""
    state, run = turn.state, turn.state.run
    head = run.in_flight[0] if run.in_flight else None
    if head is None or head.closed or (clock := state.clocks[head.number]).quorum is None:
        return
    policy, algorithm = run.config.grace, run.config.algorithm
    ends = [
        held.granted + expected_seconds(turn.pace(held.worker_id), held.lease.data.count, policy)
        for held in state.leases.values()
        if held.lease.round == head.number
    ]
    seconds = bounded(max(ends, default=clock.quorum) - clock.quorum, policy)
    if overlaps(algorithm) and state.typical:
        seconds = min(seconds, algorithm.delay * state.typical)  # later, the prompt would wait for the late
    clock.close = clock.quorum + seconds


def _close(turn: Turn, round: Round) -> None:
    state, run = turn.state, turn.state.run
    contributions = merge_order(round.admitted)
    order = tuple(each.lease_id for each in contributions)
    turn.append(RoundClosed(round.number, order, run.config.algorithm.weights(contributions)), sync=True)
    late = [held for _, held in sorted(state.leases.items()) if held.lease.round == round.number]
    for held in late:
        if held.lease.lease_id not in state.leases:
            continue  # it ended with another lease of its worker
        if run.config.algorithm.late == "again":
            leases.withdraw(turn, state.members[held.worker_id], "the round is closed")
        elif held.update:
            admission.carry(turn, held)


def _begin_outer_step(turn: Turn) -> None:
    state, run = turn.state, turn.state.run
    head = run.in_flight[0] if run.in_flight else None
    if head is None or not head.closed or state.outer_step_running:
        return
    state.outer_step_running = True
    fragment = run.fragments[head.fragment]
    turn.effects.append(
        RunOuterStep(
            head.number,
            head.fragment,
            tuple(head.admitted),
            head.weights,
            fragment.parameters,
            fragment.outer,
        )
    )


def outer_step_done(turn: Turn, event: OuterStepDone) -> None:
    """Take the new parameters, tell those who wait for them, and drop what only this round needed."""
    state, run = turn.state, turn.state.run
    head = run.in_flight[0] if run.in_flight else None
    if head is None or not head.closed or event.round != head.number:
        turn.report(Trouble(f"ignoring the outer step of round {event.round}: it is not the one that is due"))
        return
    needed_before = run.blobs()
    turn.append(OuterStepTaken(event.round, event.parameters, event.change, event.outer), sync=True)
    state.outer_step_running = False
    clock = state.clocks.pop(head.number)
    adoptions.merged(turn, head.fragment)
    turn.delete(needed_before | _forgotten_uploads(state), run.blobs())
    turn.report(
        RoundMerged(
            round=head.number,
            fragment=head.fragment,
            loss=math.fsum(
                weight * each.loss for weight, each in zip(head.weights, head.admitted, strict=True)
            ),
            contributions=len(head.admitted),
            left=head.missing,
            tokens=run.tokens,
            seconds=turn.now - clock.opened,
            live=len(state.members),
            refused=tuple(sorted(state.refused.items())),
        )
    )


def _forgotten_uploads(state: State) -> frozenset[Blob]:
    """Forget the uploads that nobody named in a whole round; an update follows its upload at once."""
    version = state.run.version - 1
    stored = [blob for blob, at in state.stored.items() if at < version]
    refused = [blob for blob, (at, _) in state.refused_blobs.items() if at < version]
    for blob in stored:
        del state.stored[blob]
    for blob in refused:
        del state.refused_blobs[blob]
    return frozenset((*stored, *refused))


def outer_step_failed(turn: Turn, event: OuterStepFailed) -> None:
    """End this process's part in the run; a restart tries the same step again."""
    ending.fail(turn, f"the outer step of round {event.round} failed: {event.reason}")
