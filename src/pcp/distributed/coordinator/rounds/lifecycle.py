"""The life of a round: opening, closing, and the outer step."""

import math

from pcp.distributed.algorithms import merge_order, overlaps
from pcp.distributed.coordinator import ending
from pcp.distributed.coordinator.audit import audits
from pcp.distributed.coordinator.effects import RoundMerged, RunOuterStep, Trouble
from pcp.distributed.coordinator.events import OuterStepDone, OuterStepFailed
from pcp.distributed.coordinator.log import checkpoints
from pcp.distributed.coordinator.log.records import OuterStepTaken, RoundClosed, RoundOpened
from pcp.distributed.coordinator.rounds import admission, adoptions, ahead, budgets, closing, leases, sharing
from pcp.distributed.coordinator.rounds.cells import Cells
from pcp.distributed.coordinator.rounds.fragments import Round
from pcp.distributed.coordinator.state import State, Turn
from pcp.distributed.coordinator.timing import RoundClock, smoothed
from pcp.distributed.messages import Blob, DataRange


def advance(turn: Turn) -> None:
    """Do everything that the state now allows. It looks at nothing but the state, so a restart needs no case of its own."""
    if turn.state.finished:
        return
    run = turn.state.run
    _work(turn)
    if run.in_flight and closing.may_close(turn, run.in_flight[0]):
        _close(turn, run.in_flight[0])
        _work(turn)
    _begin_outer_step(turn)
    checkpoints.begin_if_due(turn)
    if run.checkpoint_version == run.version and run.complete:
        ending.finish(turn)


def _work(turn: Turn) -> None:
    """Give everybody something to do, if need be by opening rounds; not while the run is paused."""
    if turn.state.paused:
        return
    audits.assign(turn)
    _grant_all(turn)
    while _wants_round(turn) and (fragment := _next_fragment(turn)) is not None:
        _open(turn, fragment)
        _grant_all(turn)


def _grant_all(turn: Turn) -> None:
    if sharing.in_pairs(turn.state):
        sharing.grant_all(turn)
    else:
        leases.grant_all(turn)
        ahead.grant_all(turn)


def _wants_round(turn: Turn) -> bool:
    state = turn.state
    if not state.run.in_flight:
        return _enough_workers(turn)
    if not overlaps(state.run.config.algorithm) or len(state.run.in_flight) > 1:
        return False
    return bool(state.roster.idle) or ahead.wants_round(state)


def _enough_workers(turn: Turn) -> bool:
    state, config = turn.state, turn.state.run.config
    count = len(state.roster.ready)
    if count >= (state.run.workers or config.workers) or (
        state.first_ready is not None and turn.now >= state.first_ready + config.patience_seconds
    ):
        state.gathered = True
    return state.gathered and count >= config.minimum_workers


def _next_fragment(turn: Turn) -> int | None:
    """Return what the next round merges: the fragments take turns; those of which nothing is left are passed over."""
    run = turn.state.run
    turns = [(run.opened + ahead) % len(run.fragments) for ahead in range(len(run.fragments))]
    if _fresh(turn, turns[0]):
        return turns[0]
    if not turn.state.roster.idle:
        return None  # nothing is granted ahead but fresh data
    # What an open round of the same fragment lacks it is going to have.
    taken = {round.fragment for round in run.in_flight if not round.closed}
    return next((each for each in turns if each not in taken and run.lacks(each)), None)


def _fresh(turn: Turn, fragment: int) -> int:
    """Return the batches that a round issues: what the workers that live can do, less what was left lying; or all."""
    unissued = turn.state.run.unissued
    if sharing.in_pairs(turn.state):
        return unissued
    return min(unissued, max(0, budgets.round_batches(turn, fragment) - turn.state.pending.counts[fragment]))


def _open(turn: Turn, fragment: int) -> None:
    state, run = turn.state, turn.state.run
    fresh, issued = _fresh(turn, fragment), run.issued
    # Schedules count what was trained: what is still to do has not moved anything.
    first_step = (issued - state.pending.counts[fragment]) // run.config.workers
    turn.append(RoundOpened(run.opened, fragment, fresh, first_step, len(state.roster.ready)))
    if fresh:
        state.pending.put(Cells(DataRange(issued, fresh), frozenset(range(len(run.fragments)))))
    start_clock(turn, run.in_flight[-1])


def start_clock(turn: Turn, round: Round) -> None:
    """Begin to measure a round, by the past of the workers that are ready."""
    state = turn.state
    state.typical = turn.typical(state.roster.ready)
    state.clocks[round.number] = RoundClock(turn.now)
    if state.run.config.step_budgets:
        budgets.plan_round(turn, round)


def _close(turn: Turn, round: Round) -> None:
    state, run = turn.state, turn.state.run
    contributions = merge_order(round.admitted)
    order = tuple(each.lease_id for each in contributions)
    turn.remember_paces(dict.fromkeys(each.worker_id for each in contributions))
    turn.append(RoundClosed(round.number, order, run.config.algorithm.weights(contributions)), sync=True)
    late = [held for _, held in sorted(state.leases.items()) if held.lease.round == round.number]
    for held in late:
        if run.config.algorithm.late == "again":
            leases.withdraw(turn, state.members[held.worker_id], "the round is closed")
        elif held.update:
            admission.carry(turn, held)


def _begin_outer_step(turn: Turn) -> None:
    state, run = turn.state, turn.state.run
    head = run.in_flight[0] if run.in_flight else None
    if head is None or not head.closed or state.outer_step_running or turn.now < state.outer_step_retry:
        return
    state.outer_step_running = True
    state.clocks[head.number].closed = turn.now
    fragment = run.fragments[head.fragment]
    turn.effects.append(
        RunOuterStep(
            head.number,
            head.fragment,
            tuple(head.admitted),
            head.weights,
            fragment.parameters,
            fragment.outer,
            head.first_step,
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
    state.merge_seconds = smoothed(state.merge_seconds, turn.now - clock.closed)
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
            merged_tokens=run.latest_tokens,
            left=head.missing,
            tokens=run.tokens,
            seconds=turn.now - clock.opened,
            live=len(state.members),
            refused=tuple(sorted(state.refused.items())),
            failures=tuple(sorted(state.failures.items())),
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
    """Try the step again if it lacked room, else end this process's part in the run; a restart tries it again, too."""
    state = turn.state
    if event.lacked_room:
        state.outer_step_running = False
        state.outer_step_retry = turn.now + state.run.config.heartbeat_seconds
        turn.report(
            Trouble(f"the outer step of round {event.round} waits for room on the disk: {event.reason}")
        )
        return
    ending.fail(turn, f"the outer step of round {event.round} failed: {event.reason}")
