"""The worker's side of its connection: hello, heartbeats, noticing that the Shepherd is gone, coming back."""

from dataclasses import dataclass, field, replace

from pcp.distributed.bounds import SECONDS
from pcp.distributed.messages import (
    Failure,
    FailureKind,
    Goodbye,
    Heartbeat,
    HeartbeatReply,
    Message,
    Ready,
    Resume,
    Welcome,
)
from pcp.distributed.near_end import is_near_end
from pcp.distributed.takeovers import Seen, contradiction
from pcp.distributed.worker.effects import (
    AbortLease,
    Connect,
    Disconnect,
    Effect,
    ForgetBlob,
    Notice,
    Prepare,
    SendMessage,
    Shorten,
    Stop,
    UploadUpdate,
)
from pcp.distributed.worker.state import Stage, Task, WorkerConfig, WorkerState


@dataclass(slots=True)
class Turn:
    """One event being handled: who, the state, the time, and the effects so far."""

    config: WorkerConfig
    state: WorkerState
    now: float
    effects: list[Effect] = field(default_factory=list)

    def send(self, message: Message) -> None:
        """Send a message, if the Shepherd knows this connection."""
        if self.state.connection:
            self.effects.append(SendMessage(self.state.connection, message))

    def tell(self, message: Message) -> None:
        """Send a message, if the Shepherd has welcomed this connection."""
        if self.state.welcomed:
            self.send(message)

    def drop(self, lease_id: int, reason: str) -> None:
        """Give a lease up, trained or not. What was trained on it is lost, so only a fresh one can follow."""
        state = self.state
        if state.task is not None and state.task.lease.lease_id == lease_id:
            self.end_task()
            self.forget_following()
            state.fresh_needed = True
        elif state.following is not None and state.following.lease.lease_id == lease_id:
            self.forget_following()
            state.fresh_needed = True
            return  # it has not begun
        elif state.encoding.pop(lease_id, None) is not None:
            state.fresh_needed = True
        elif (push := state.pushes.pop(lease_id, None)) is not None:
            state.fresh_needed |= push.settles
        else:
            return
        self.effects.append(AbortLease(lease_id, reason))

    def end_task(self) -> None:
        """Let go of the current lease and of what was fetched for it."""
        task, self.state.task = self.state.task, None
        self._forget(task, self.state.following)

    def forget_following(self) -> None:
        """Let go of the lease that was granted ahead."""
        following, self.state.following = self.state.following, None
        self._forget(following, self.state.task)

    def _forget(self, task: Task | None, other: Task | None) -> None:
        """Let go of what was fetched for a lease, less what another needs."""
        needed = {incoming.blob for incoming in other.incoming} if other is not None else set()
        for incoming in task.incoming if task is not None else ():
            if incoming.blob is not None and incoming.blob not in needed:
                self.effects.append(ForgetBlob(incoming.blob))

    def drop_all(self, reason: str) -> None:
        """Give every lease up."""
        tasks = [task.lease.lease_id for task in (self.state.task, self.state.following) if task is not None]
        for lease_id in [*tasks, *self.state.encoding, *self.state.pushes]:
            self.drop(lease_id, reason)


def connected(turn: Turn, connection: int) -> None:
    """Say hello on a new connection; one too many is closed."""
    state = turn.state
    if state.connection:
        turn.effects.append(Disconnect(connection, "there is a connection already"))
        return
    state.connection, state.welcomed, state.since = connection, False, turn.now
    turn.send(turn.config.hello())


def lost(turn: Turn, reason: str, trouble: str = "no connection to the Shepherd") -> None:
    """Come back later; the lease goes on for now, since the Shepherd keeps it for a worker that soon reconnects.

    Arguments:
        reason: why.
        trouble: what is wrong, for the log.
    """
    state = turn.state
    state.connection, state.welcomed, state.since = 0, False, turn.now
    if not state.attempts:
        state.alone_since = turn.now
    elif turn.now - state.alone_since > turn.config.patience_seconds:
        turn.drop_all("no Shepherd")
        hours = turn.config.patience_seconds / 3600
        turn.effects.append(
            Stop(False, f"for {hours:.0f} hours no connection to the Shepherd was good: {reason}")
        )
        state.stopped = True
        return
    pause = turn.config.retry_seconds(state.attempts)
    state.attempts += 1
    turn.effects.append(Notice(f"{trouble} ({reason}); trying again in {pause:.1f} s"))
    turn.effects.append(Connect(pause))


def leave(turn: Turn, reason: str, trouble: str = "no connection to the Shepherd") -> None:
    """Close a connection that is of no use any more, and come back later."""
    turn.effects.append(Disconnect(turn.state.connection, reason))
    lost(turn, reason, trouble)


def welcome(turn: Turn, message: Welcome) -> None:
    """Become a member: leases of an earlier membership are void, those of the same go on."""
    state = turn.state
    if message.run_id == state.run_id and (
        reason := contradiction(state.seen, message.epoch, message.takeovers)
    ):
        turn.send(Failure(message.generation, 0, reason, FailureKind.HISTORY))
        leave(turn, reason, "this Shepherd cannot be followed")
        return
    if message.takeovers:
        version = state.seen.version if message.run_id == state.run_id else 0
        state.seen = Seen(message.epoch, message.takeovers[-1].mark, version)
    anew = (message.generation, message.run_id) != (state.generation, state.run_id)
    resumes = state.resumes and message.run_id == state.run_id and message.run == state.prepared
    if anew and not resumes:
        turn.drop_all("it belongs to an earlier membership")
        state.state_uploads.clear()
        state.fresh_needed = True
    state.generation, state.run_id = message.generation, message.run_id
    state.heartbeat_seconds = message.heartbeat_seconds
    state.welcomed, state.last_beat = True, turn.now
    if anew and resumes:
        _resume(turn)
    for push in state.pushes.values():
        if push.told:
            turn.send(push.update)
    if state.prepared == message.run:
        turn.send(Ready(state.generation))
    elif state.preparing != message.run:
        state.preparing, state.prepared = message.run, None
        turn.effects.append(Prepare(message.run, message.blobs))


def _resume(turn: Turn) -> None:
    """Go on with every lease in the new membership; what was uploaded to an earlier Shepherd is uploaded again."""
    state = turn.state
    for lease_id, push in state.pushes.items():
        push.lease = replace(push.lease, generation=state.generation)
        push.update = replace(push.update, generation=state.generation)
        push.told = push.uploaded = False
        push.upload_retry = None
        turn.send(Resume(push.lease))
        turn.effects.append(UploadUpdate(lease_id, push.update.payload))
    if state.task is not None:
        state.task.lease = replace(state.task.lease, generation=state.generation)
        turn.send(Resume(state.task.lease))


def goodbye(turn: Turn, message: Goodbye) -> None:
    """End with the run, or come back later."""
    if not message.finished:
        leave(turn, message.reason)
        return
    turn.drop_all("the run is complete")
    turn.effects.append(Disconnect(turn.state.connection, message.reason))
    turn.effects.append(Stop(True, message.reason))
    turn.state.connection, turn.state.stopped = 0, True


def tick(turn: Turn) -> None:
    """Send a heartbeat if one is due, and notice silence."""
    state, config = turn.state, turn.config
    # Nobody is to blame for the time in which this process itself did not run.
    state.last_heard += max(0.0, turn.now - state.last_tick - state.heartbeat_seconds)
    state.last_tick = turn.now
    if not state.connection:
        if turn.now - state.since > config.abandon_seconds and not state.resumes:
            turn.drop_all(f"no Shepherd for {config.abandon_seconds:.0f} s")
        return
    if not state.welcomed:
        if turn.now - state.since > config.greeting_seconds:
            leave(turn, "the Shepherd does not answer the hello")
        return
    if turn.now - state.last_heard > config.missed_heartbeats * state.heartbeat_seconds:
        leave(turn, f"the Shepherd is silent for {turn.now - state.last_heard:.1f} s")
    elif turn.now - state.last_beat >= state.heartbeat_seconds:
        _beat(turn)


def progressed(turn: Turn, task: Task) -> None:
    """Say at once, and once, that a lease is near its end: the next one may be granted before it is there."""
    state, left = turn.state, task.lease.batches - task.steps_done
    if not state.overlap or task.near_end or state.following is not None or not state.welcomed:
        return
    if is_near_end(left, task.seconds_per_step, state.heartbeat_seconds):
        task.near_end = True
        _beat(turn)


def _beat(turn: Turn) -> None:
    turn.state.last_beat = turn.now
    turn.state.beats += 1
    turn.send(_heartbeat(turn.state))


def _heartbeat(state: WorkerState) -> Heartbeat:
    """A heartbeat with the progress of the lease that is worked on, or else of the oldest that waits for its answer."""
    if (task := state.task or next(iter(state.encoding.values()), None)) is not None:
        seconds = SECONDS.clamped(task.seconds_per_step)
        progress = (task.lease.lease_id, task.steps_done, seconds, task.lease.batches)
    elif (push := next(iter(state.pushes.values()), None)) is not None:
        steps = push.update.steps
        seconds = SECONDS.clamped(push.update.seconds / max(1, steps))
        progress = (push.lease.lease_id, steps, seconds, push.lease.batches)
    else:
        progress = (0, 0, 0.0, 0)
    return Heartbeat(state.beats, state.generation, *progress)


def heard(turn: Turn, reply: HeartbeatReply) -> None:
    """Note that the Shepherd answered a heartbeat, and what it wants of the lease.

    If the worker is ready too, this connection is good.
    """
    if turn.state.prepared is not None:
        turn.state.attempts = 0
    turn.state.seen = replace(turn.state.seen, version=max(turn.state.seen.version, reply.version))
    task, wanted = turn.state.task, (reply.batches, reply.last_step)
    if task is None or task.lease.lease_id != reply.lease_id or task.stage is not Stage.TRAINING:
        return
    if wanted != (task.wanted if any(task.wanted) else (task.lease.batches, task.lease.last_step)):
        task.wanted = wanted
        turn.effects.append(Shorten(reply.lease_id, *wanted))
