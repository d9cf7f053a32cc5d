"""What is true of a coordinator's state between any two events."""

from collections import Counter
from collections.abc import Collection, Iterable

from pcp.distributed.coordinator import adoptions, data_ranges
from pcp.distributed.coordinator.data_ranges import Ranges, RangesOverlap
from pcp.distributed.coordinator.state import State
from pcp.distributed.messages import DataRange
from pcp.errors import PCPError


class BooksDoNotBalance(PCPError):
    """A cell is counted twice or lost, or two parts of the state contradict each other: a defect of the coordinator."""


def check_books(state: State) -> None:
    """Check that every cell ever issued is exactly one of merged, admitted, pending, leased, carried.

    Raises:
        BooksDoNotBalance: naming what contradicts what.
    """
    run = state.run
    if run.issued > run.config.total_batches:
        raise BooksDoNotBalance(f"{run.issued} batches were issued of a plan of {run.config.total_batches}")
    if state.finished:
        return  # the members are gone, and what they held with them
    for fragment in range(len(run.fragments)):
        _check_cells(state, fragment)
    _check_rounds(state)
    _check_members(state)
    _check_roster(state)


def _check_cells(state: State, fragment: int) -> None:
    run = state.run
    places = {
        "merged": run.fragments[fragment].merged,
        "admitted": tuple(
            piece for round in run.in_flight if round.fragment == fragment for piece in round.ranges
        ),
        "pending": _those(fragment, ((each.data, each.fragments) for each in state.pending.blocks)),
        "leased": _those(
            fragment,
            (
                (held.lease.data, held.fragments)
                for held in state.leases.values()
                if not held.update and held.lease.data.count
            ),
        ),
        "carried": _those(
            fragment,
            ((each.data, each.fragments) for member in state.members.values() for each in member.carried),
        ),
    }
    try:
        everything = data_ranges.coalesce(piece for ranges in places.values() for piece in ranges)
    except RangesOverlap as error:
        raise BooksDoNotBalance(
            f"a cell of fragment {fragment} is on the books twice: {error}; they say {places}"
        ) from None
    if everything != ((DataRange(0, run.issued),) if run.issued else ()):
        raise BooksDoNotBalance(
            f"batches 0 to {run.issued - 1} were issued, but those of fragment {fragment} are {places}"
        )
    if data_ranges.total(places["pending"]) != state.pending.counts[fragment]:
        raise BooksDoNotBalance(
            f"{places['pending']} are pending for fragment {fragment}, but counted as {state.pending.counts}"
        )


def _those(fragment: int, cells: Iterable[tuple[DataRange, Collection[int]]]) -> Ranges:
    return tuple(data for data, fragments in cells if fragment in fragments)


def _check_rounds(state: State) -> None:
    run = state.run
    for round in run.in_flight:
        missing = data_ranges.total_below(run.outstanding(round.fragment), round.limit)
        if round.missing != missing:
            raise BooksDoNotBalance(
                f"round {round.number} lacks {missing} batches of fragment {round.fragment}, but counts {round.missing}"
            )
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
        if (member.training == lease_id) != (held.update is None):
            raise BooksDoNotBalance(
                f"worker {held.worker_id} trains lease {member.training}, but {lease_id} is "
                f"{'reported' if held.update else 'not reported'}"
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
    roster, leases = state.roster, state.leases
    free = {member.worker_id for member in state.members.values() if member.ready and not member.training}
    found = {
        "ready": (roster.ready, {number for number, member in state.members.items() if member.ready}),
        "idle or resting": (
            [*roster.idle, *sorted(roster.resting)],
            [*roster.idle, *sorted(free - {*roster.idle})],
        ),
        "carrying": (
            roster.carriers,
            [
                {number for number in roster.idle if fragment in state.members[number].to_push()}
                for fragment in range(len(roster.carriers))
            ],
        ),
        "adopting": (
            state.adopting,
            {number for number, held in leases.items() if adoptions.awaits_merge(held.lease)},
        ),
        "waiting": (
            Counter(number for numbers in state.waiting.values() for number in numbers),
            Counter(number for number, held in leases.items() if held.update),
        ),
        "named by leases": (
            state.references,
            Counter(blob for held in leases.values() for blob in adoptions.blobs(held.lease)),
        ),
    }
    for name, (kept, true) in found.items():
        if kept != true:
            raise BooksDoNotBalance(f"{name}: {kept} is kept, but {true} is true")
