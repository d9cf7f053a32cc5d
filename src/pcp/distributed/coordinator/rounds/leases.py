"""Who works on which cells: granting, ending and expiring leases."""

import math

from pcp.distributed.algorithms import Topology, segment_steps
from pcp.distributed.coordinator.effects import LeaseChanged
from pcp.distributed.coordinator.peers import PeersPace
from pcp.distributed.coordinator.rounds import adoptions, budgets, data_ranges
from pcp.distributed.coordinator.rounds.cells import Cells
from pcp.distributed.coordinator.rounds.fragments import Round
from pcp.distributed.coordinator.state import EPOCH_STRIDE, OUTCOMES_KEPT, HeldLease, Member, State, Turn
from pcp.distributed.coordinator.timing import SHORT_REST, lease_seconds
from pcp.distributed.messages import Assign, Blob, DataRange, Lease, Outcome, Revoke

TOLD_HEARTBEATS = 2
"""How long a worker has told of steps before its pace counts: its first step may take longer than others."""
TIMES_USUAL = 2.0
"""How often what others take a lease may take that is delivered; who comes back fetches everything first."""
NOTHING = Cells(DataRange(0, 0), frozenset())


def grant_all(turn: Turn) -> None:
    """Give work to idle workers, the oldest round's first, both in ascending order, until either runs out.

    A round that has its quorum gets no more leases: it is about to close. What another lacks is for nobody else, since
    the workers of later rounds may have to wait for it.
    """
    state = turn.state
    roster, pending = state.roster, state.pending
    reserved: list[tuple[int, int]] = []
    for round in state.run.in_flight:
        if round.closed or state.clocks[round.number].quorum is not None:
            continue
        for worker_id in budgets.candidates(turn, round) if pending.counts[round.fragment] else ():
            cells = pending.first(round.fragment, round.limit, reserved)
            if cells is None:
                break
            member = state.members[worker_id]
            count = budgets.share(turn, member, round, cells.data)
            if count:
                cells = Cells(DataRange(cells.data.start, count), cells.fragments)
                pending.take(cells)
                grant(turn, member, round, cells)
        if not budgets.can_spare(turn, round):
            reserved.append((round.fragment, round.limit))
        # What these trained in earlier rounds is theirs to push; there is no data left to push it with.
        while (carrier := roster.carrier(round.fragment, round.limit)) is not None:
            grant(turn, state.members[carrier], round, NOTHING)


def grant(
    turn: Turn,
    member: Member,
    round: Round,
    cells: Cells,
    further: tuple[DataRange, ...] = (),
    steps_between: tuple[int, int] | None = None,
    after: int = 0,
) -> None:
    """Grant a lease.

    Arguments:
        turn: the turn.
        member: who gets it.
        round: what its push is for.
        cells: what it trains.
        further: batches of the same fragments that it trains then.
        steps_between: the lease's `first_step` and `last_step`, where they are not the round's.
        after: the lease that it trains still, where this one is for afterwards.
    """
    state, run, data = turn.state, turn.state.run, cells.data
    state.lease_numbers += 1
    batches = data.count + data_ranges.total(further)
    steps = batches or segment_steps(run.config.algorithm)  # a push alone may take as long
    first_step, last_step = steps_between or (round.first_step, 0)
    adopt = adoptions.adoptions(turn, member, round, data.count)
    pace, whole = turn.pace(member.worker_id), adoptions.fetches_whole(adopt)
    peers = turn.peers().limit(_comparable_steps(turn, steps), run.config.lease)
    seconds = min(peers, lease_seconds(pace, steps, whole, state.typical, run.config.lease))
    everything = len(cells.fragments) in (0, len(run.fragments))
    lease = Lease(
        lease_id=run.epoch * EPOCH_STRIDE + state.lease_numbers,
        generation=member.generation,
        round=round.number,
        data=data,
        first_step=first_step,
        fragment=round.fragment,
        fragments=() if everything else tuple(sorted(cells.fragments)),
        fresh=member.fresh,
        adopt=adopt,
        deadline_seconds=seconds,
        further=further,
        last_step=last_step,
        after=after,
    )
    held = HeldLease(lease, member.worker_id, cells.fragments, turn.now, turn.now + seconds)
    state.leases[lease.lease_id] = held
    if run.config.algorithm.topology is Topology.PAIRS:
        state.granted[lease.lease_id] = member.worker_id
    state.references.update(adoptions.blobs(lease))
    if adoptions.awaits_merge(lease):
        state.adopting.add(lease.lease_id)
    if run.config.audits.rate:
        state.audits.granted(member.worker_id, member.incarnation, lease.lease_id, run.epoch)
    member.leases.add(lease.lease_id)
    if after:
        member.following = lease.lease_id
    else:
        member.training = lease.lease_id
    member.fresh = False
    turn.reconsider(member)
    turn.send(member, Assign(lease))
    turn.report(LeaseChanged(lease.lease_id, member.worker_id, "granted", data_ranges.words(lease.ranges)))


def _comparable_steps(turn: Turn, steps: int) -> int:
    """What peers do in the time of a lease: who is slow is given less to do, not less time."""
    return max(steps, segment_steps(turn.state.run.config.algorithm))


def forget(turn: Turn, held: HeldLease, outcome: Outcome, reason: str) -> None:
    """Take a lease off the books; the caller says what becomes of its cells, and reconsiders the member."""
    state, lease_id = turn.state, held.lease.lease_id
    del state.leases[lease_id]
    state.adopting.discard(lease_id)
    if held.update:
        others = state.waiting.get(held.update.payload, [])
        if lease_id in others:
            others.remove(lease_id)
        if not others:
            state.waiting.pop(held.update.payload, None)
    release_blobs(turn, adoptions.blobs(held.lease))
    member = state.members[held.worker_id]
    member.leases.discard(lease_id)
    if member.training == lease_id:
        member.training = 0
    if member.following == lease_id:
        member.following = 0
    member.outcomes[lease_id] = outcome, reason
    if len(member.outcomes) > OUTCOMES_KEPT:
        del member.outcomes[min(member.outcomes)]


def release_blobs(turn: Turn, named: list[Blob]) -> None:
    """Let go of blobs that a lease or an audit named; what nothing else needs is deleted."""
    references = turn.state.references
    references.subtract(named)
    dropped = frozenset(blob for blob in named if not references[blob])
    for blob in dropped:
        del references[blob]
    # What is not named by the run yet is named by an update that is still to be admitted.
    awaited = turn.state.stored.keys() | turn.state.waiting.keys()
    if superseded := dropped - turn.state.run.state_blobs() - awaited:
        turn.delete(superseded, turn.state.run.blobs())


def withdraw(turn: Turn, member: Member, reason: str, told: frozenset[int] = frozenset()) -> None:
    """Take everything off a member that the run does not have yet; others train it, and its next lease is fresh.

    What a worker has trained is all in one set of parameters, so nothing of it can be kept without the rest.

    Arguments:
        turn: the turn.
        member: who loses its leases.
        reason: told to the worker.
        told: leases of which the worker is told otherwise that they have ended.
    """
    state = turn.state
    for lease_id in sorted(member.leases):
        held = state.leases[lease_id]
        forget(turn, held, Outcome.REFUSED, reason)
        if not held.update:
            state.audits.ended(member.worker_id, lease_id)
        for data in held.lease.ranges if not held.update and held.lease.batches else ():
            state.pending.put(Cells(data, held.fragments))
        if lease_id not in told:
            turn.send(member, Revoke(lease_id, reason))
        turn.report(LeaseChanged(lease_id, member.worker_id, "ended", reason))
    for each in member.carried:
        if each.fragments:
            state.pending.put(Cells(each.data, frozenset(each.fragments)))
    member.carried.clear()
    member.pushed.clear()
    member.fresh = True
    turn.reconsider(member)


def waited_for(turn: Turn, member: Member) -> float:
    """Return how many seconds others waited for a lease that its worker holds and gives up: those by which it lasts longer than
    they take. Who failed or left before and has pushed nothing since is waited for in vain from the beginning.
    """
    in_vain = turn.pace(member.worker_id).failed > 0
    held = (turn.state.leases[each] for each in member.leases)
    return max((_late(turn, each, 0.0 if in_vain else 1.0) for each in held), default=0.0)


def _late(turn: Turn, held: HeldLease, times: float = 1.0) -> float:
    """By how many seconds a lease lasts longer than so many times what others take; 0 where it does not age."""
    state, number = turn.state, held.lease.lease_id
    if number in state.adopting or number == state.members[held.worker_id].following:
        return 0.0
    peers = turn.peers(without=held.worker_id)
    return max(0.0, _lasted(turn, held) - times * peers.usual(_comparable_steps(turn, held.lease.batches)))


def _lasted(turn: Turn, held: HeldLease) -> float:
    """How long a lease is out, less the time in which this process itself did not run."""
    return turn.now - held.expires + held.lease.deadline_seconds


def weigh(turn: Turn, held: HeldLease) -> None:
    """Weigh the time that a lease, which is trained, saves the others against that for which they waited for it: what it took
    beyond twice what others take.

    Where shares are equal a slow worker is always late; where a round closes without it, or in pairs, nobody waits.
    """
    state, config = turn.state, turn.state.run.config
    others = len(state.roster.ready) - (held.worker_id in state.roster.ready)
    if (
        not others
        or not config.step_budgets
        or config.quorum < 1
        or config.algorithm.topology is Topology.PAIRS
    ):
        return
    saved = held.lease.batches * state.typical / others
    turn.pace(held.worker_id).delivered(turn.now, saved, _late(turn, held, TIMES_USUAL))


def expire(turn: Turn) -> None:
    """End the leases whose time is up, less those that wait for a merge, or for the one before them.

    A lease is also up when its worker has taken many times as long as those that deliver, whatever its limit was when
    it was granted: in the first round nobody knows yet what a lease takes.
    """
    state, policy, heartbeat = (
        turn.state,
        turn.state.run.config.lease,
        turn.state.run.config.heartbeat_seconds,
    )
    peers: PeersPace | None = None
    left = _ageing(state)
    while left:
        held = state.leases.get(left.pop(0))
        if held is None:  # it ended with another of its worker
            continue
        allowed = held.lease.deadline_seconds
        lasted = _lasted(turn, held)
        if lasted < min(allowed, policy.floor_seconds):
            continue
        peers = peers or turn.peers()
        limit = peers.limit(_comparable_steps(turn, held.lease.batches), policy)
        if lasted >= min(allowed, limit):
            turn.pace(held.worker_id).let_expire(turn.now, heartbeat, lasted if limit < math.inf else 0.0)
            turn.remember_paces([held.worker_id])
            reason = f"expired: nothing came of it in {lasted:.1f} s"
            if limit < allowed:
                reason += f"; {policy.peers:g} times what the others take is {limit:.1f} s"
            withdraw(turn, state.members[held.worker_id], reason)
            # Its worker delivers no more, so the others may take another time now.
            peers, left = None, _ageing(state)


def give_up_slow(turn: Turn) -> None:
    """Take first leases back that idle workers would wait for much longer than they need to train them.

    A worker that nobody measured gets as much as the others. When one of them is done, what the worker tells of its steps
    shows whether it is so slow; it then rests, and gets less.
    """
    state, config = turn.state, turn.state.run.config
    if not (config.step_budgets and state.roster.idle) or config.algorithm.topology is Topology.PAIRS:
        return
    told_by, peers = turn.now - TOLD_HEARTBEATS * config.heartbeat_seconds, turn.peers()
    for lease_id in _ageing(state):
        held = state.leases.get(lease_id)
        if held is None or held.update or held.begun is None or held.begun > told_by:
            continue
        pace, lasted = turn.pace(held.worker_id), _lasted(turn, held)
        left, usual = held.left * pace.told_seconds, peers.usual(_comparable_steps(turn, held.lease.batches))
        if pace.work_seconds or lasted < usual or left <= config.lease.slack * usual:
            continue
        pace.rest(turn.now, config.heartbeat_seconds, lasted - usual)
        reason = f"it would take {left:.1f} s more; others take {usual:.1f} s for all of it"
        withdraw(turn, state.members[held.worker_id], reason)


def _ageing(state: State) -> list[int]:
    following = {member.following for member in state.members.values()}
    return sorted(state.leases.keys() - state.adopting - following)


def unblock(turn: Turn) -> None:
    """Call a worker back to the oldest round, where everybody waits for its merge and nobody is left to train for it."""
    state = turn.state
    head = state.run.in_flight[0] if state.run.in_flight else None
    if head is None or head.closed or state.roster.idle or _rests_shortly(turn):
        return
    if not state.adopting or not state.pending.first(head.fragment, head.limit):
        return
    if all(held.lease.round != head.number for held in state.leases.values()):
        held = state.leases[min(state.adopting)]
        withdraw(turn, state.members[held.worker_id], "an older round needs a worker")


def _rests_shortly(turn: Turn) -> bool:
    """Whether the rest of somebody ends soon who failed once; who fails again and again would be waited for without end."""
    soon = turn.now + SHORT_REST * turn.state.run.config.heartbeat_seconds
    resting = turn.state.roster.resting.items()
    return any(until <= soon and turn.pace(worker_id).failed <= 1 for worker_id, until in resting)
