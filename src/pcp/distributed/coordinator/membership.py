"""Who belongs to the run: joining, coming back, fencing, and being given up."""

from pcp.distributed.coordinator.effects import Close, Send, Trouble, WorkerChanged
from pcp.distributed.coordinator.events import MemberJoined
from pcp.distributed.coordinator.log.records import WorkerNamed
from pcp.distributed.coordinator.rounds import leases
from pcp.distributed.coordinator.state import EPOCH_STRIDE, Member, Turn
from pcp.distributed.coordinator.timing import SHORT_REST
from pcp.distributed.messages import (
    PROTOCOL_VERSION,
    Assign,
    Goodbye,
    Hello,
    Ready,
    Welcome,
)

# Two machines that use one name would fence each other for ever; after so many times the newcomer has to
# wait.
FENCES_IN_A_ROW = 3


def join(turn: Turn, event: MemberJoined) -> None:
    """Make a worker a member, or recognise a member whose connection was lost."""
    state, hello = turn.state, event.hello
    problem = _unacceptable(turn, event)
    if problem or state.finished:
        complete = state.run.finished
        reason = problem or ("the run is complete" if complete else "the run has failed")
        turn.effects.append(Send(event.connection, Goodbye(complete and not problem, reason)))
        turn.effects.append(Close(event.connection, reason))
        return
    worker_id = _worker_id(turn, hello.worker)
    old = state.members.get(worker_id)
    if old is not None and old.incarnation == hello.incarnation:
        if old.connection:
            turn.close(old.connection, "superseded by a newer connection of the same process")
        member, change = old, "reconnected"
        member.connection, member.last_heard, member.ready = event.connection, turn.now, False
        turn.reconsider(member)
    else:
        if old is not None:
            turn.pace(worker_id).fenced += bool(old.connection)
            dismiss(turn, old, "fenced: a new process of the same worker joined")
        member, change = _new_member(turn, worker_id, event), "joined"
        state.members[worker_id] = member
    state.connections[event.connection] = worker_id
    config = state.run.config
    turn.send(
        member,
        Welcome(
            worker_id=worker_id,
            generation=member.generation,
            run_id=config.run_id,
            heartbeat_seconds=config.heartbeat_seconds,
            run=config.description,
            blobs=config.blobs,
            epoch=state.run.epoch,
            takeovers=state.run.takeovers,
        ),
    )
    turn.report(
        WorkerChanged(worker_id, hello.worker, change, ", ".join(hello.devices)[:400], len(state.members))
    )


def _unacceptable(turn: Turn, event: MemberJoined) -> str:
    if event.connection in turn.state.connections:
        return "this connection already said hello"
    if (theirs := event.hello.protocol_version) != PROTOCOL_VERSION:
        return f"protocol version {theirs}; this run speaks {PROTOCOL_VERSION}: install the same PCP"
    if not event.hello.worker:
        return "a worker needs a name"
    if reason := turn.state.run.barred.get(event.hello.worker):
        return f"{event.hello.worker} is kept out of this run: {reason}"
    return _contested(turn, event.hello)


def _contested(turn: Turn, hello: Hello) -> str:
    old = turn.state.members.get(turn.state.run.worker_ids.get(hello.worker, 0))
    if old is None or not old.connection or old.incarnation == hello.incarnation:
        return ""
    if turn.pace(old.worker_id).fenced < FENCES_IN_A_ROW:
        return ""
    turn.report(Trouble(f"two live processes call themselves {hello.worker}; the later one has to wait"))
    return f"another live process is {hello.worker}; give every worker its own name and key"


def _worker_id(turn: Turn, worker: str) -> int:
    known = turn.state.run.worker_ids
    if worker not in known:
        turn.append(WorkerNamed(worker, len(known) + 1))
    return known[worker]


def _new_member(turn: Turn, worker_id: int, event: MemberJoined) -> Member:
    hello: Hello = event.hello
    return Member(
        worker_id=worker_id,
        worker=hello.worker,
        incarnation=hello.incarnation,
        generation=_next_generation(turn),
        connection=event.connection,
        last_heard=turn.now,
        versions=[each.version for each in turn.state.run.fragments],
    )


def _next_generation(turn: Turn) -> int:
    turn.state.generations += 1
    return turn.state.run.epoch * EPOCH_STRIDE + turn.state.generations


def ready(turn: Turn, member: Member, message: Ready) -> None:
    """Let a worker take leases; one that came back with a lease is told of it again."""
    if not current(turn, member, message.generation):
        return
    member.ready = True
    if turn.state.first_ready is None:
        turn.state.first_ready = turn.now
    for lease_id in (member.training, member.following):
        if lease_id:
            turn.send(member, Assign(turn.state.leases[lease_id].lease))
    turn.reconsider(member)


def current(turn: Turn, member: Member, generation: int) -> bool:
    """Return whether a message is of the member's generation; if not, its connection is closed so that it joins anew."""
    if generation == member.generation:
        return True
    turn.report(Trouble(f"{member.worker} spoke with generation {generation}, but holds {member.generation}"))
    dismiss(turn, member, "it spoke with another generation than its own")
    return False


def lose_connection(turn: Turn, member: Member) -> None:
    """Note that a connection is lost; the leases stay for as long as it takes to reconnect."""
    turn.state.connections.pop(member.connection, None)
    member.connection, member.last_heard, member.ready = 0, turn.now, False
    turn.reconsider(member)
    turn.report(
        WorkerChanged(
            member.worker_id, member.worker, "disconnected", "connection lost", len(turn.state.members)
        )
    )


def dismiss(turn: Turn, member: Member, reason: str) -> None:
    """End a membership: its generation is fenced, and what it holds and carries goes to others."""
    state = turn.state
    member.ready = False
    if member.leases:
        pace, waited = turn.pace(member.worker_id), leases.waited_for(turn, member)
        if waited:  # whoever comes back under its name rests
            pace.rest(turn.now, state.run.config.heartbeat_seconds, waited)
        else:
            pace.failed += 1
    leases.withdraw(turn, member, reason, told=frozenset(member.leases))
    if member.connection:
        turn.send(member, Goodbye(False, reason))
        turn.close(member.connection, reason)
    del state.members[member.worker_id]
    state.audits.left(member.worker_id, turn.now)
    turn.report(WorkerChanged(member.worker_id, member.worker, "lost", reason, len(state.members)))


def forgive_own_sleep(turn: Turn) -> None:
    """Blame nobody for the time in which this process itself did not run: what was said meanwhile is still unread."""
    state = turn.state
    if state.last_tick is not None:
        overslept = turn.now - state.last_tick - state.run.config.heartbeat_seconds
        if overslept > 0:
            for member in state.members.values():
                member.last_heard = min(turn.now, member.last_heard + overslept)
            for held in state.leases.values():
                held.expires += overslept
            for audit in state.audits.audits.values():
                audit.since, audit.expires = audit.since + overslept, audit.expires + overslept
    state.last_tick = turn.now


def give_up_silent(turn: Turn) -> None:
    """End the memberships of workers that were not heard of for too long."""
    config = turn.state.run.config
    silent = [
        member
        for member in turn.state.members.values()
        if turn.now - member.last_heard
        > (config.silence_seconds if member.connection else config.reconnect_seconds)
    ]
    for member in sorted(silent, key=lambda each: each.worker_id):
        dismiss(turn, member, f"silent for {turn.now - member.last_heard:.1f} s")


def wake_rested(turn: Turn) -> None:
    """Let the workers whose rest is over take leases again; a long rest is over when nobody is left to work."""
    roster = turn.state.roster
    if roster.resting.keys() == roster.ready:
        soon = turn.now + SHORT_REST * turn.state.run.config.heartbeat_seconds
        for worker_id, until in list(roster.resting.items()):
            if until > soon:
                turn.pace(worker_id).rest_until = turn.now
                turn.reconsider(turn.state.members[worker_id])
    for worker_id in roster.rested(turn.now):
        turn.reconsider(turn.state.members[worker_id])
