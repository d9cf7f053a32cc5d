"""What is true of a coordinator's state between any two events."""

from pcp.distributed.coordinator.rounds import adoptions, data_ranges
from pcp.distributed.coordinator.rounds.data_ranges import Ranges
from pcp.distributed.coordinator.state import State
from pcp.distributed.messages import Blob
from pcp.errors import PCPError


class BooksDoNotBalance(PCPError):
    """A cell is counted twice or lost, or two parts of the state contradict each other: a defect of the coordinator."""


def check_books(state: State) -> None:
    """Check that every cell ever issued is exactly one of merged, admitted, pending, leased, carried.

    Raises:
        BooksDoNotBalance: naming what contradicts what.
    """
    run = state.run
    if run.issued > run.config.batches:
        raise BooksDoNotBalance(f"{run.issued} batches were issued of a plan of {run.config.batches}")
    if state.finished:
        return  # the members are gone, and what they held with them
    for fragment in range(len(run.fragments)):
        _check_cells(state, fragment)
    _check_order(state)
    _check_members(state)
    _check_roster(state)


def _check_cells(state: State, fragment: int) -> None:
    """Check one fragment's cells and the counts of them, with a bit for every batch: this is asked after every event."""
    run = state.run
    leased = [held for held in state.leases.values() if not held.update and held.lease.batches]
    trained = [each for member in state.members.values() for each in member.carried]
    places: dict[str, Ranges] = {
        "merged": run.fragments[fragment].merged,
        "admitted": tuple(
            piece for round in run.in_flight if round.fragment == fragment for piece in round.ranges
        ),
        "pending": tuple(each.data for each in state.pending.blocks if fragment in each.fragments),
        "leased": tuple(each for held in leased if fragment in held.fragments for each in held.lease.ranges),
        "carried": tuple(each.data for each in trained if fragment in each.fragments),
    }
    everything = settled = 0
    for name, ranges in places.items():
        for each in ranges:
            bits = ((1 << each.count) - 1) << each.start
            if everything & bits:
                raise BooksDoNotBalance(
                    f"a cell of fragment {fragment} is on the books twice: {each} is {name}; they say {places}"
                )
            everything |= bits
        if name == "admitted":
            settled = everything
    if everything != (1 << run.issued) - 1:
        raise BooksDoNotBalance(
            f"batches 0 to {run.issued - 1} were issued, but those of fragment {fragment} are {places}"
        )
    if data_ranges.total(places["pending"]) != state.pending.counts[fragment]:
        raise BooksDoNotBalance(
            f"{places['pending']} are pending for fragment {fragment}, but counted as {state.pending.counts}"
        )
    if data_ranges.total((*places["merged"], *places["admitted"])) + run.lacks(fragment) != run.issued:
        raise BooksDoNotBalance(
            f"fragment {fragment} lacks {run.lacks(fragment)} batches by count, but {places}"
        )
    for round in run.in_flight:
        missing = (~settled & ((1 << round.limit) - 1)).bit_count()
        if round.fragment == fragment and round.missing != missing:
            raise BooksDoNotBalance(
                f"round {round.number} lacks {missing} batches of fragment {fragment}, but counts {round.missing}"
            )


def _check_order(state: State) -> None:
    run = state.run
    if any(round.closed for round in run.in_flight[1:]) or len(run.in_flight) > 2:
        raise BooksDoNotBalance(f"rounds close in order, and two are in flight at most: {run.in_flight}")
    if set(state.clocks) != {round.number for round in run.in_flight} and run.epoch:
        raise BooksDoNotBalance(f"clocks run for {sorted(state.clocks)}, but in flight are {run.in_flight}")


def _check_members(state: State) -> None:
    holders = {lease_id: member.worker_id for member in state.members.values() for lease_id in member.leases}
    if holders != {lease_id: held.worker_id for lease_id, held in state.leases.items()}:
        raise BooksDoNotBalance(f"members hold leases {holders}, but the books say {sorted(state.leases)}")
    for lease_id, held in state.leases.items():
        member = state.members[held.worker_id]
        if held.lease.generation != member.generation:
            raise BooksDoNotBalance(
                f"lease {lease_id} is held by a fenced generation of worker {held.worker_id}"
            )
        if (lease_id in (member.training, member.following)) != (held.update is None):
            raise BooksDoNotBalance(
                f"worker {held.worker_id} trains lease {member.training}, then {member.following}, but {lease_id} is "
                f"{'reported' if held.update else 'not reported'}"
            )
        if held.lease.after != (member.training if lease_id == member.following else 0):
            raise BooksDoNotBalance(
                f"lease {lease_id} follows {held.lease.after}, but worker {held.worker_id} trains {member.training}"
            )
    connected = {
        member.connection: worker_id for worker_id, member in state.members.items() if member.connection
    }
    if connected != state.connections:
        raise BooksDoNotBalance(
            f"members use connections {connected}, but the table says {state.connections}"
        )


def _check_roster(state: State) -> None:
    """Check what is kept only so that it need not be searched for."""
    roster, leases, members = state.roster, state.leases, state.members
    ready = {number for number, member in members.items() if member.ready}
    busy = {number for number in ready if members[number].training or members[number].auditing}
    _compare("ready", roster.ready, ready)
    _compare("idle or resting", sorted([*roster.idle, *roster.resting]), sorted(ready - busy))
    _compare(
        "carried", roster.carried, {each: members[each].to_push() for each in [*roster.idle, *roster.resting]}
    )
    for fragment, carriers in enumerate(roster.carriers):
        carrying = ((first[fragment], each) for each, first in roster.carried.items() if fragment in first)
        _compare(f"carrying fragment {fragment}", carriers, sorted(carrying))
    delivering = {
        number: usual for number in ready if number in state.paces and (usual := state.paces[number].usual)
    }
    kept = {each: usual for each, usual in state.peers.usual.items() if each not in state.peers.changed}
    _compare(
        "peers", kept, {each: usual for each, usual in delivering.items() if each not in state.peers.changed}
    )
    ending = {
        number
        for number in ready
        if (held := leases.get(members[number].training)) is not None
        and held.ending
        and not members[number].following
        and not members[number].auditing
    }
    if not roster.ending <= ending:  # less those that were told to rest
        _compare("ending", roster.ending, ending)
    waiting = [lease_id for lease_ids in state.waiting.values() for lease_id in lease_ids]
    _compare("waiting", sorted(waiting), sorted(each for each, held in leases.items() if held.update))
    named: dict[Blob, int] = {}
    adopting = set()
    for lease_id, held in leases.items():
        if adoptions.awaits_merge(held.lease):
            adopting.add(lease_id)
        for blob in adoptions.blobs(held.lease):
            named[blob] = named.get(blob, 0) + 1
    for audit in state.audits.audits.values():
        for blob in audit.held:
            named[blob] = named.get(blob, 0) + 1
    _compare("adopting", state.adopting, adopting)
    _compare("named by leases and audits", {**state.references}, named)


def _compare(name: str, kept: object, true: object) -> None:
    if kept != true:
        raise BooksDoNotBalance(f"{name}: {kept} is kept, but {true} is true")
