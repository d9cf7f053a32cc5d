"""Shares of the workers that exchange in pairs: all that is left is leased, and the leases end together.

A lease is a worker's share of the whole run, for training goes on while there is no Shepherd. Where a worker has nothing to do,
the others are asked to stop sooner, by the answers to their heartbeats. A worker alone decides where it stops, at an exchange,
and its heartbeats and its update say so until they are heard; only then do others get what it leaves. So it does not matter
which of these messages are lost, and no batch is trained for two leases.
"""

import math

from pcp.distributed.algorithms import Contribution, Topology
from pcp.distributed.bounds import RANGES
from pcp.distributed.coordinator.effects import LeaseChanged
from pcp.distributed.coordinator.log.records import RoundShared
from pcp.distributed.coordinator.rounds import data_ranges, leases
from pcp.distributed.coordinator.rounds.budgets import EVEN
from pcp.distributed.coordinator.rounds.cells import Cells
from pcp.distributed.coordinator.rounds.data_ranges import Ranges
from pcp.distributed.coordinator.rounds.fragments import Round
from pcp.distributed.coordinator.state import HeldLease, Member, State, Turn
from pcp.distributed.coordinator.timing import typical_step_seconds
from pcp.distributed.data_range import split
from pcp.distributed.messages import DataRange, Heartbeat, HeartbeatReply, Lease

ANSWER_HEARTBEATS = 10
"""How long what workers leave is waited for before it is shared, in heartbeats."""

LEAST_EXCHANGES = 2
"""What is taken from others is more exchanges than one, or it is not worth the push of all parameters at its end."""

_ROUNDING = 1e-6  # exchanges
_EVERYTHING = frozenset({0})


def in_pairs(state: State) -> bool:
    """Return whether the workers of a run exchange in pairs."""
    return state.run.config.algorithm.topology is Topology.PAIRS


def grant_all(turn: Turn) -> None:
    """Share what nobody holds among idle workers, so that they end with the others; more than that waits for the next one."""
    state, round = turn.state, _open_round(turn)
    pending, every = state.pending, state.run.config.algorithm.inner_steps
    if round is None or not pending.counts[0] or not state.roster.idle or _awaits_answers(turn):
        return
    fair = _fair_exchanges(turn)
    if not _asked_lately(turn) and _lacking(state, fair) >= LEAST_EXCHANGES and any(_donors(state)):
        return  # with the next tick others are asked for more
    idle, first_step = list(state.roster.idle), _steps_done(turn)
    exchanges = -(-pending.counts[0] // every)  # the last of them may be short
    counts = _rounded({each: fair[each] for each in idle}, exchanges)
    shares = [(each, _take(state, round, counts[each] * every)) for each in idle if counts[each]]
    workers = len({held.worker_id for held in state.leases.values()} | {each for each, _ in shares})
    if workers > state.run.workers:
        turn.append(RoundShared(round.number, workers))
    last_step = max(_last_step(turn), first_step + 1)
    for worker_id, (data, *further) in shares:
        cells = Cells(data, _EVERYTHING)
        leases.grant(turn, state.members[worker_id], round, cells, tuple(further), (first_step, last_step))


def ask(turn: Turn) -> None:
    """Ask workers to stop sooner, where others have nothing to do."""
    state = turn.state
    if not in_pairs(state) or not state.roster.idle or _open_round(turn) is None or _awaits_answers(turn):
        return
    every, fair, donors = state.run.config.algorithm.inner_steps, _fair_exchanges(turn), _donors(state)
    unanswered = any(held.wanted for held in donors)
    for held in donors:
        held.wanted = 0
    state.asked, lacking = turn.now, _lacking(state, fair)
    if lacking < LEAST_EXCHANGES or (unanswered and state.pending.counts[0]):
        return  # what is here is shared
    exchanges = _rounded(
        {held.worker_id: max(0.0, held.left / every - fair[held.worker_id]) for held in donors}, lacking
    )
    for held in donors:
        stop = max(_first_stop(held, every), held.lease.batches - exchanges[held.worker_id] * every)
        if stop < held.lease.batches:
            held.wanted = stop


def heard(turn: Turn, member: Member, heartbeat: Heartbeat) -> bool:
    """Take note of how far a lease is, and of where its worker stops; return whether batches became free."""
    held = turn.state.leases.get(heartbeat.lease_id)
    if held is None or held.worker_id != member.worker_id or held.update:
        return False
    held.steps_done = min(max(held.steps_done, heartbeat.steps_done), held.lease.batches)
    if held.steps_done and held.begun is None:
        held.begun = turn.now
    return may_end(turn.state, held.lease, heartbeat.batches) and shorten(turn, held, heartbeat.batches)


def reply(turn: Turn, member: Member, heartbeat: Heartbeat) -> HeartbeatReply:
    """Return the answer to a heartbeat, with what is wanted of the lease that it names."""
    state = turn.state
    held = state.leases.get(heartbeat.lease_id)
    if held is None or held.worker_id != member.worker_id or not in_pairs(state):
        return HeartbeatReply(heartbeat.sequence, version=state.run.version)
    lease = held.lease
    return HeartbeatReply(
        heartbeat.sequence,
        lease.lease_id,
        held.wanted or lease.batches,
        max(_last_step(turn), lease.first_step + 1),
        state.run.version,
    )


def may_end(state: State, lease: Lease, batches: int) -> bool:
    """Return whether a lease may end sooner, after so many batches."""
    return (
        in_pairs(state)
        and 0 < batches < lease.batches
        and batches % state.run.config.algorithm.inner_steps == 0
    )


def shorten(turn: Turn, held: HeldLease, batches: int) -> bool:
    """Let a lease end after so many batches, as its worker says; return whether it held more."""
    if batches >= held.lease.batches:
        return False
    _, rest = split(held.lease.ranges, batches)
    held.lease, held.wanted = held.lease.cut(batches), 0
    held.steps_done = min(held.steps_done, batches)
    for each in rest:
        turn.state.pending.put(Cells(each, held.fragments))
    what = data_ranges.words(held.lease.ranges)
    turn.report(LeaseChanged(held.lease.lease_id, held.worker_id, "granted", f"{what}, no more"))
    return True


def earlier(turn: Turn, held: HeldLease) -> list[Contribution]:
    """Return the contribution that a worker's update replaces, as it went on from the weights that it holds.

    The weights of the middle of a run would spoil the mean at its end. A lease says whether it began afresh, also where an
    earlier Shepherd granted it.
    """
    round = turn.state.run.round(held.lease.round)
    assert round is not None, "an update is admitted to a round in flight"
    if not in_pairs(turn.state) or held.lease.fresh:
        return []
    own = [each for each in round.admitted if each.worker_id == held.worker_id]
    return [max(own, key=lambda each: each.lease_id)] if own else []


def held_back(turn: Turn) -> bool:
    """Return whether workers of an earlier Shepherd may still come back for what nobody holds."""
    state = turn.state
    return turn.now < state.held_back_until and len(state.roster.ready) < state.run.workers


def _open_round(turn: Turn) -> Round | None:
    """The round of the run, where its data may be given to anybody."""
    in_flight = turn.state.run.in_flight
    return in_flight[0] if in_flight and not in_flight[0].closed and not held_back(turn) else None


def _awaits_answers(turn: Turn) -> bool:
    """Whether workers that were asked a moment ago have not said yet where they stop."""
    state = turn.state
    if turn.now >= state.asked + ANSWER_HEARTBEATS * state.run.config.heartbeat_seconds:
        return False
    return any(held.wanted and not held.update for held in state.leases.values())


def _donors(state: State) -> list[HeldLease]:
    """The leases that can still end sooner."""
    every = state.run.config.algorithm.inner_steps
    return [
        held
        for held in state.leases.values()
        if not held.update and _first_stop(held, every) < held.lease.batches
    ]


def _first_stop(held: HeldLease, every: int) -> int:
    """After how many batches a lease may end, as far as is known."""
    return (held.steps_done // every + 1) * every


def _lacking(state: State, fair: dict[int, float]) -> int:
    """How many exchanges the idle would have to get from others."""
    wanted = math.floor(sum(fair[each] for each in state.roster.idle) + _ROUNDING)
    return wanted - state.pending.counts[0] // state.run.config.algorithm.inner_steps


def _fair_exchanges(turn: Turn) -> dict[int, float]:
    """How many exchanges the idle and those that train would have before them if all were to end together."""
    state, config = turn.state, turn.state.run.config
    training = [held.worker_id for held in state.leases.values() if not held.update]
    workers = [*state.roster.idle, *training]
    paces = {each: turn.pace(each) for each in workers}
    typical = typical_step_seconds(paces.values())
    seconds = {each: pace.step_seconds(typical) or 1.0 for each, pace in paces.items()}
    if not config.step_budgets or max(seconds.values()) <= (1 + EVEN) * min(seconds.values()):
        seconds = dict.fromkeys(seconds, 1.0)
    left = state.pending.counts[0] + sum(held.left for held in state.leases.values())
    together = sum(1 / each for each in seconds.values())
    return {each: left / config.algorithm.inner_steps / (own * together) for each, own in seconds.items()}


def _rounded(shares: dict[int, float], total: int) -> dict[int, int]:
    """Whole numbers near the shares: together as many as these, rounded up, and no more than a total."""
    whole = {each: math.floor(share + _ROUNDING) for each, share in shares.items()}
    fractions = sorted(shares, key=lambda each: (whole[each] - shares[each], each))
    for each in fractions[: max(0, total - sum(whole.values()))]:
        whole[each] += shares[each] > whole[each] + _ROUNDING
    for each in reversed(fractions):
        whole[each] -= min(whole[each], max(0, sum(whole.values()) - total))
    return whole


def _take(state: State, round: Round, batches: int) -> Ranges:
    """Take the first batches that nobody holds, as many as one lease can name."""
    taken: list[DataRange] = []
    while batches and len(taken) < RANGES and (cells := state.pending.first(0, round.limit)) is not None:
        data = DataRange(cells.data.start, min(batches, cells.data.count))
        state.pending.take(Cells(data, cells.fragments))
        taken.append(data)
        batches -= data.count
    return tuple(taken)


def _steps_done(turn: Turn) -> int:
    """Inner step number of the whole run, for schedules: they count a step for every `workers` batches that were trained."""
    state = turn.state
    left = state.pending.counts[0] + sum(held.left for held in state.leases.values())
    return (state.run.issued - left) // state.run.config.workers


def _last_step(turn: Turn) -> int:
    """Likewise when all leases are fulfilled. What somebody idle is about to get counts as leased."""
    state = turn.state
    about_to = state.roster.idle or held_back(turn) or _asked_lately(turn)
    unleased = 0 if about_to else state.pending.counts[0]
    return (state.run.issued - unleased) // state.run.config.workers


def _asked_lately(turn: Turn) -> bool:
    return turn.now < turn.state.asked + ANSWER_HEARTBEATS * turn.state.run.config.heartbeat_seconds
