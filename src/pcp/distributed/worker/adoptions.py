"""From a lease to its first step: merged fragments are fetched, before the start or while the lease is trained."""

from pcp.distributed.messages import Adoption, Blob, Failure, FailureKind, Lease, Merged
from pcp.distributed.worker.connection import Turn
from pcp.distributed.worker.effects import Adopt, FetchBlob, Follow, Notice, StartLease
from pcp.distributed.worker.events import BlobFetched, BlobUnavailable
from pcp.distributed.worker.state import Incoming, Stage, Task

LOST = "training that this lease goes on from is lost here; a fresh lease is needed"


def assign(turn: Turn, lease: Lease) -> None:
    """Take a lease; the current one told again may know more of what to adopt."""
    state = turn.state
    if lease.lease_id in state.pushes or lease.lease_id in state.encoding:
        return
    for task in (state.task, state.following):
        if task is not None and task.lease.lease_id == lease.lease_id:
            _resolve_all(turn, task, lease)
            return
    if lease.after and lease.after not in state.pushes and lease.after not in state.encoding:
        _follow(turn, lease)
        return
    if state.task is not None:
        turn.drop(state.task.lease.lease_id, "another lease was assigned")
    if state.prepared is None or lease.generation != state.generation:
        turn.send(Failure(state.generation, lease.lease_id, "not prepared for it"))
    elif state.fresh_needed and not lease.fresh:
        turn.send(Failure(state.generation, lease.lease_id, LOST))
    else:
        _begin(turn, lease)


def _follow(turn: Turn, lease: Lease) -> None:
    """Take a lease ahead. Where the one before it was given up here, the Shepherd hears so, and takes back both."""
    state = turn.state
    if state.task is not None and state.task.lease.lease_id == lease.after:
        state.following = Task(lease, tuple(Incoming(each) for each in lease.adopt))
        _resolve_all(turn, state.following, lease)
        _tell_what_follows(turn, state.task)


def _tell_what_follows(turn: Turn, task: Task) -> None:
    """Let the trainer know that it need not hold up the next lease; one of the same fragment waits for the answer anyway."""
    following = turn.state.following
    if following is None or task.stage is not Stage.TRAINING:
        return
    if following.lease.fragment != task.lease.fragment:
        turn.effects.append(Follow(task.lease.lease_id))


def begin_following(turn: Turn) -> None:
    """Go on with the lease that was granted ahead, if one was."""
    state = turn.state
    state.task, state.following = state.following, None
    start_if_ready(turn)


def _begin(turn: Turn, lease: Lease) -> None:
    state = turn.state
    if lease.fresh:
        state.fresh_needed = False
        state.versions.clear()
        for push in state.pushes.values():
            push.settles = False
    state.task = Task(lease, tuple(Incoming(each) for each in lease.adopt))
    _resolve_all(turn, state.task, lease)
    start_if_ready(turn)


def merged(turn: Turn, message: Merged) -> None:
    """Fetch a fragment that was merged after the lease was granted."""
    for task in (turn.state.task, turn.state.following):
        if task is not None:
            _resolve(turn, task, message)


def _resolve_all(turn: Turn, task: Task, lease: Lease) -> None:
    for adoption in lease.adopt:
        _resolve(turn, task, adoption)


def _resolve(turn: Turn, task: Task, content: Adoption | Merged) -> None:
    """Begin to fetch a fragment that the lease adopts, now that its content has a name."""
    fragment, version = content.fragment, content.version
    own = {each.adoption.version: each for each in task.incoming if each.adoption.fragment == fragment}
    incoming = own.get(version)
    if incoming is None or incoming.blob is not None:
        return
    held = max((each for each in own if each < version), default=_held_before(turn, task, fragment))
    blob: Blob | None
    if content.change is not None and held == version - 1:
        blob, incoming.is_change = content.change, True
    else:
        blob = content.parameters
    if blob is not None:
        incoming.blob = blob
        turn.effects.append(FetchBlob(blob))
    elif content.change is not None:
        fail(turn, task, f"only a change to version {version} of fragment {fragment} is offered")


def _held_before(turn: Turn, task: Task, fragment: int) -> int | None:
    """The version of a fragment that the trainer has adopted when a lease begins."""
    state = turn.state
    before = state.task.incoming if state.task is not None and task is state.following else ()
    own = [each.adoption.version for each in before if each.adoption.fragment == fragment]
    return max(own, default=state.versions.get(fragment))


def fetched(turn: Turn, event: BlobFetched | BlobUnavailable) -> None:
    """Hand on a blob that is here; without one that is not, the lease cannot be fulfilled."""
    for task in (turn.state.task, turn.state.following):
        if task is not None and not _fetched(turn, task, event):
            return
    start_if_ready(turn)


def _fetched(turn: Turn, task: Task, event: BlobFetched | BlobUnavailable) -> bool:
    """Whether a lease can still be fulfilled."""
    for incoming in task.incoming:
        if incoming.blob != event.blob or incoming.here:
            continue
        if isinstance(event, BlobUnavailable):
            fail(turn, task, f"fragment {incoming.adoption.fragment} cannot be fetched: {event.reason}")
            return False
        incoming.here = True
        if task.stage is Stage.TRAINING:
            turn.effects.append(_adopt(task.lease.lease_id, incoming))
    return True


def start_if_ready(turn: Turn) -> None:
    """Begin to train, once everything before the first step is here and the fragment's last push is answered."""
    task = turn.state.task
    if task is None or task.stage is not Stage.FETCHING:
        return
    if any(each.adoption.step == 0 and not each.here for each in task.incoming):
        return
    unanswered = [push.lease for push in turn.state.pushes.values() if push.settles]
    unanswered += [each.lease for each in turn.state.encoding.values()]
    if any(lease.fragment == task.lease.fragment for lease in unanswered):
        return
    if turn.state.fresh_needed and not task.lease.fresh:
        fail(turn, task, LOST)
        return
    task.stage = Stage.TRAINING
    lease_id = task.lease.lease_id
    turn.effects += [_adopt(lease_id, each) for each in task.incoming if each.here]
    turn.effects.append(StartLease(task.lease))
    _tell_what_follows(turn, task)


def _adopt(lease_id: int, incoming: Incoming) -> Adopt:
    adoption = incoming.adoption
    assert incoming.blob is not None, "what is here was fetched"
    return Adopt(
        lease_id, adoption.fragment, adoption.version, adoption.step, incoming.blob, incoming.is_change
    )


def fail(turn: Turn, task: Task, reason: str, kind: FailureKind = FailureKind.OTHER) -> None:
    """Give the current lease up and say so.

    Without a connection nobody is told; the Shepherd assigns the lease again when the worker is back.
    """
    lease_id = task.lease.lease_id
    turn.effects.append(Notice(f"lease {lease_id} failed: {reason}"))
    turn.drop(lease_id, reason)
    turn.tell(Failure(turn.state.generation, lease_id, reason, kind))
