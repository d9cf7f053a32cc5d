"""From the last step of a lease to the Shepherd's answer: its update is told, its payload uploaded."""

from pcp.distributed.bounds import SECONDS
from pcp.distributed.losses import told, usable
from pcp.distributed.messages import Failure, FailureKind, Lease, Outcome, Update, UpdateReply
from pcp.distributed.worker import adoptions, audits
from pcp.distributed.worker.connection import Turn
from pcp.distributed.worker.effects import CancelUpload, Notice, SettlePush, UploadUpdate
from pcp.distributed.worker.events import LeaseTrained, NotSaid, UpdateUploaded, UploadFailed
from pcp.distributed.worker.state import Push, Task

PUSH_UPLOADS = 14
"""How often the upload of a push is tried, with pauses that double: minutes, after which its lease may as well be given up."""


def stepped(turn: Turn, task: Task) -> None:
    """Go on with the next lease, while the push of this one is made."""
    _end(turn, task)
    turn.state.encoding[task.lease.lease_id] = task
    adoptions.begin_following(turn)


def encoded(turn: Turn, event: LeaseTrained) -> None:
    """Upload a push that was made while the next lease was trained."""
    task = turn.state.encoding[event.lease_id]
    if _is_usable(turn, task, event):
        del turn.state.encoding[event.lease_id]
        _push(turn, task, event)


def trained(turn: Turn, task: Task, event: LeaseTrained) -> None:
    """Upload what was trained, and go on with the next lease, if there is one."""
    if _is_usable(turn, task, event):
        _end(turn, task)
        _push(turn, task, event)
        adoptions.begin_following(turn)


def _is_usable(turn: Turn, task: Task, event: LeaseTrained) -> bool:
    """Whether a lease came to numbers; else it is given up."""
    is_usable = usable(event.losses)
    if not is_usable:
        adoptions.fail(turn, task, "a loss is not finite", FailureKind.DIVERGED)
    return is_usable


def _end(turn: Turn, task: Task) -> None:
    turn.end_task()
    for incoming in task.incoming:
        turn.state.versions[incoming.adoption.fragment] = incoming.adoption.version


def _push(turn: Turn, task: Task, event: LeaseTrained) -> None:
    """Upload a push. With overlap the update is told first, so that the next lease need not wait for it."""
    state = turn.state
    if event.batches:
        task.lease = task.lease.cut(event.batches)
    audits.remember(turn, event.states)
    push = Push(task.lease, _update(task.lease, event))
    state.pushes[event.lease_id] = push
    if state.overlap:
        _tell(turn, push)
    turn.effects.append(UploadUpdate(event.lease_id, event.payload))


def _tell(turn: Turn, push: Push) -> None:
    push.told = True
    turn.tell(push.update)


def not_said(turn: Turn, event: NotSaid) -> None:
    """Give a lease back whose update cannot be told."""
    if isinstance(event.message, Update) and event.message.lease_id in turn.state.pushes:
        reason = f"its update cannot be told: {event.reason}"
        turn.drop(event.message.lease_id, reason)
        turn.tell(Failure(turn.state.generation, event.message.lease_id, reason))


def upload_ended(turn: Turn, event: UpdateUploaded | UploadFailed) -> None:
    """Tell the update if it was not told before, or upload again a little later."""
    push = turn.state.pushes.get(event.lease_id)
    if push is None or push.uploaded:
        return
    if isinstance(event, UpdateUploaded):
        push.uploaded, push.upload_retry = True, None
        if not push.told:
            _tell(turn, push)
        return
    push.upload_attempts += 1
    if push.upload_attempts >= PUSH_UPLOADS:
        reason = f"the upload failed {push.upload_attempts} times: {event.reason}"
        turn.effects.append(Notice(f"lease {event.lease_id} is given up: {reason}"))
        turn.drop(event.lease_id, reason)
        turn.tell(Failure(turn.state.generation, event.lease_id, reason))
        return
    pause = turn.config.retry_seconds(push.upload_attempts - 1)
    push.upload_retry = turn.now + pause
    turn.effects.append(Notice(f"the upload failed ({event.reason}); again in {pause:.1f} s"))


def upload_again(turn: Turn) -> None:
    """Repeat the failed uploads whose pause is over."""
    for lease_id, push in turn.state.pushes.items():
        if push.upload_retry is not None and turn.now >= push.upload_retry:
            push.upload_retry = None
            turn.effects.append(UploadUpdate(lease_id, push.update.payload))


def answered(turn: Turn, reply: UpdateReply) -> None:
    """Settle a push: what it carried is merged, or goes into the next one, or is lost."""
    state = turn.state
    push = state.pushes.pop(reply.lease_id, None)
    if reply.outcome is Outcome.REFUSED:
        turn.effects.append(Notice(f"the update of lease {reply.lease_id} was refused: {reply.reason}"))
    if push is None:
        return
    if not push.uploaded or state.resumes:  # then it was kept, for another Shepherd
        turn.effects.append(CancelUpload(reply.lease_id))
    if push.settles:
        state.fresh_needed |= reply.outcome is Outcome.REFUSED
        turn.effects.append(SettlePush(reply.lease_id, reply.outcome))
        adoptions.start_if_ready(turn)


def _update(lease: Lease, event: LeaseTrained) -> Update:
    return Update(
        lease_id=lease.lease_id,
        generation=lease.generation,
        round=lease.round,
        payload=event.payload,
        steps=lease.batches,
        tokens=event.tokens,
        losses=told(event.losses),
        seconds=SECONDS.clamped(event.seconds),
        commitments=tuple(blob.digest for blob in event.states),
        settled=event.settled,
    )
