"""What is true of a coordinator's state between any two events."""

from pcp.distributed.coordinator import data_ranges
from pcp.distributed.coordinator.data_ranges import RangeNotHeld
from pcp.distributed.coordinator.run import Phase
from pcp.distributed.coordinator.state import State
from pcp.distributed.messages import DataRange
from pcp.errors import PCPError


class BooksDoNotBalance(PCPError):
    """A batch is counted twice or lost, or two parts of the state contradict each other: a defect of the coordinator."""


def check_books(state: State) -> None:
    """Check that every batch ever issued is exactly one of merged, admitted, leased, pending.

    Raises:
        BooksDoNotBalance: naming what contradicts what.
    """
    run = state.run
    admitted = tuple(each.data for each in run.admitted)
    leased = tuple(held.lease.data for held in state.leases.values())
    try:
        everything = data_ranges.coalesce((*run.merged, *admitted, *run.outstanding))
        open_batches = data_ranges.coalesce((*leased, *state.pending))
    except RangeNotHeld as error:
        raise BooksDoNotBalance(f"a batch is on the books twice: {error}") from None
    if everything != ((DataRange(0, run.issued),) if run.issued else ()):
        raise BooksDoNotBalance(
            f"batches 0 to {run.issued - 1} were issued, but merged, admitted and outstanding are {everything}"
        )
    if run.issued > run.config.total_batches:
        raise BooksDoNotBalance(f"{run.issued} batches were issued of a plan of {run.config.total_batches}")
    if open_batches != (data_ranges.coalesce(run.outstanding) if run.phase == Phase.OPEN else ()):
        raise BooksDoNotBalance(
            f"leased and pending are {open_batches}, but outstanding are {run.outstanding} ({run.phase})"
        )
    check_members(state)


def check_members(state: State) -> None:
    """Check that members, connections and leases agree.

    Raises:
        BooksDoNotBalance: naming what contradicts what.
    """
    holders = {member.lease_id: worker_id for worker_id, member in state.members.items() if member.lease_id}
    if holders != {lease_id: held.worker_id for lease_id, held in state.leases.items()}:
        raise BooksDoNotBalance(f"members hold leases {holders}, but the books say {sorted(state.leases)}")
    for lease_id, held in state.leases.items():
        if held.lease.generation != state.members[held.worker_id].generation:
            raise BooksDoNotBalance(
                f"lease {lease_id} is held by a fenced generation of worker {held.worker_id}"
            )
    connected = {
        member.connection: worker_id for worker_id, member in state.members.items() if member.connection
    }
    if connected != state.connections:
        raise BooksDoNotBalance(
            f"members use connections {connected}, but the table says {state.connections}"
        )
