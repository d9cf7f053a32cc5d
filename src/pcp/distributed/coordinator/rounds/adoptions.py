"""What a worker adopts with a lease: which version of which fragment, before which step."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pcp.distributed.algorithms import Topology, overlaps
from pcp.distributed.coordinator.rounds.fragments import Round
from pcp.distributed.coordinator.state import Member, Turn
from pcp.distributed.messages import Adoption, Blob, Lease, Merged


def adoptions(turn: Turn, member: Member, round: Round, steps: int) -> tuple[Adoption, ...]:
    """Return what a member adopts in a lease, in the order of the steps, and note that it will hold it.

    What the round just before has made, or makes, is adopted `delay` steps late, so that nobody has to wait
    for it; everything else at once. A fragment whose step lies beyond the lease is left to a later one.

    Arguments:
        turn: the turn in which the lease is granted.
        member: who gets it.
        round: the lease's.
        steps: the inner steps of its data.
    """
    due = [
        each
        for fragment in range(len(member.versions))
        for each in (*_merged(turn, member, round, fragment), *_in_flight(turn, member, round, fragment))
        if each.step == 0 or each.step < steps
    ]
    for each in due:
        member.versions[each.fragment] = each.version
        member.pushed.discard(each.fragment)
    return tuple(sorted(due, key=lambda each: (each.step, each.fragment, each.version)))


def _merged(turn: Turn, member: Member, round: Round, number: int) -> Iterator[Adoption]:
    """What is merged already."""
    fragment, algorithm = turn.state.run.fragments[number], turn.state.run.config.algorithm
    held = member.versions[number]
    # Workers that wait for each merge begin a round where all begin it, whatever they trained in it before; those that
    # exchange in pairs go on from their own weights.
    pushed_again = number == round.fragment and number in member.pushed
    again = pushed_again and not overlaps(algorithm) and algorithm.topology is Topology.STAR
    if member.fresh or again or held < fragment.version:
        late = not member.fresh and fragment.round == round.number - 1
        yield Adoption(
            fragment=number,
            version=fragment.version,
            step=algorithm.delay if late else 0,
            parameters=fragment.parameters,
            change=fragment.change if held == fragment.version - 1 and not member.fresh else None,
        )


def _in_flight(turn: Turn, member: Member, round: Round, number: int) -> Iterator[Adoption]:
    """What the round before is still to merge."""
    run = turn.state.run
    head, version = run.in_flight[0], run.fragments[number].version + 1
    promised = not member.fresh and member.versions[number] == version
    if head.number < round.number and head.fragment == number and not promised:
        yield Adoption(number, version, run.config.algorithm.delay, None, None)


def merged(turn: Turn, number: int) -> None:
    """Tell the workers that wait for a fragment that it is merged."""
    state, fragment = turn.state, turn.state.run.fragments[number]
    message = Merged(number, fragment.version, fragment.parameters, fragment.change)
    for lease_id in sorted(state.adopting):
        held = state.leases[lease_id]
        # The lease is told again to a worker that lost its connection, so it has to say this too.
        state.references.subtract(blobs(held.lease))
        held.lease = _completed(held.lease, message)
        held.expires = turn.now + held.lease.deadline_seconds  # the worker had to wait
        state.references.update(blobs(held.lease))
        turn.send(state.members[held.worker_id], message)
    state.adopting.clear()


def _completed(lease: Lease, message: Merged) -> Lease:
    adopt = tuple(
        replace(each, parameters=message.parameters, change=message.change)
        if (each.fragment, each.version) == (message.fragment, message.version)
        else each
        for each in lease.adopt
    )
    return replace(lease, adopt=adopt)


def awaits_merge(lease: Lease) -> bool:
    """Return whether a lease adopts something that is not merged yet."""
    return any(each.parameters is None for each in lease.adopt)


def fetches_whole(adopt: Iterable[Adoption]) -> bool:
    """Return whether a worker has to fetch a whole fragment, which may take much longer than a change of it."""
    return any(each.parameters is not None and each.change is None for each in adopt)


def blobs(lease: Lease) -> list[Blob]:
    """Return the blobs that a lease names."""
    return [blob for each in lease.adopt for blob in (each.parameters, each.change) if blob]
