"""The logic of a worker: one event in, a list of effects out; no I/O, no clock, no randomness, no threads."""

from pcp.distributed.messages import (
    Assign,
    Failure,
    Goodbye,
    HeartbeatReply,
    Lease,
    Message,
    Ready,
    Revoke,
    Update,
    UpdateReply,
    Welcome,
)
from pcp.distributed.worker import connection
from pcp.distributed.worker.connection import Turn
from pcp.distributed.worker.effects import (
    Connect,
    Disconnect,
    Effect,
    FetchBlob,
    Notice,
    StartLease,
    Stop,
    UploadUpdate,
)
from pcp.distributed.worker.events import (
    BlobFetched,
    BlobUnavailable,
    Connected,
    Disconnected,
    Event,
    LeaseFailed,
    LeaseProgress,
    LeaseTrained,
    MessageReceived,
    PreparationFailed,
    Prepared,
    Started,
    Stopping,
    Tick,
    UpdateUploaded,
    UploadFailed,
)
from pcp.distributed.worker.state import Stage, Task, WorkerConfig, WorkerState


class WorkerLogic:
    """The state machine that decides everything in a worker.

    The host feeds events, the first of them `Started`, and performs the effects in their order.

    Arguments:
        config: who the worker is.
    """

    def __init__(self, config: WorkerConfig) -> None:
        self.config = config
        self.state = WorkerState()

    def handle(self, event: Event) -> list[Effect]:
        """Return what an event leads to.

        Arguments:
            event: what happened; `event.now` never goes back.
        """
        turn = Turn(self.config, self.state, event.now)
        if self.state.stopped:
            return turn.effects
        match event:
            case Started():
                turn.effects.append(Connect(0.0))
            case Connected(_, number):
                connection.connected(turn, number)
            case Disconnected(_, number, reason) if number == self.state.connection:
                connection.lost(turn, reason)
            case MessageReceived(_, number, message) if number == self.state.connection:
                self._receive(turn, message)
            case Prepared() | PreparationFailed():
                self._prepared(turn, event)
            case BlobFetched() | BlobUnavailable():
                self._fetched(turn, event)
            case LeaseProgress() | LeaseTrained() | LeaseFailed() | UpdateUploaded() | UploadFailed():
                self._work(turn, event)
            case Tick():
                connection.tick(turn)
                self._upload_again(turn)
            case Stopping(_, reason):
                self._stop(turn, reason)
        return turn.effects

    def _receive(self, turn: Turn, message: Message) -> None:
        state, task = self.state, self.state.task
        state.last_heard = turn.now
        match message:
            case Welcome():
                connection.welcome(turn, message)
            case HeartbeatReply():
                connection.heard(turn)
            case Assign(lease):
                self._assign(turn, lease)
            case Revoke(lease_id, reason):
                if task is not None and task.lease.lease_id == lease_id:
                    turn.drop_task(reason)
            case UpdateReply(lease_id, accepted, reason):
                if not accepted:
                    turn.effects.append(Notice(f"the update of lease {lease_id} was refused: {reason}"))
                if task is not None and task.lease.lease_id == lease_id:
                    state.task = None
            case Goodbye():
                connection.goodbye(turn, message)
            case _:
                connection.leave(turn, f"a Shepherd does not send {type(message).__name__}")

    def _assign(self, turn: Turn, lease: Lease) -> None:
        state = self.state
        if state.task is not None and state.task.lease.lease_id == lease.lease_id:
            return
        turn.drop_task("another lease was assigned")
        if state.prepared is None or lease.generation != state.generation:
            turn.send(Failure(state.generation, lease.lease_id, "not prepared for it"))
            return
        state.task = Task(lease)
        turn.effects.append(FetchBlob(lease.parameters))

    def _prepared(self, turn: Turn, event: Prepared | PreparationFailed) -> None:
        state = self.state
        if event.run != state.preparing:
            return
        state.preparing = None
        if isinstance(event, Prepared):
            state.prepared = event.run
            if state.welcomed:
                turn.send(Ready(state.generation))
        elif state.welcomed:
            turn.send(Failure(state.generation, 0, event.reason))
            connection.leave(turn, event.reason)

    def _fetched(self, turn: Turn, event: BlobFetched | BlobUnavailable) -> None:
        task = self.state.task
        if task is None or task.stage is not Stage.FETCHING or task.lease.parameters != event.blob:
            return
        if isinstance(event, BlobFetched):
            task.stage = Stage.TRAINING
            turn.effects.append(StartLease(task.lease))
        else:
            self._fail(turn, task, f"the parameters cannot be fetched: {event.reason}")

    def _work(
        self,
        turn: Turn,
        event: LeaseProgress | LeaseTrained | LeaseFailed | UpdateUploaded | UploadFailed,
    ) -> None:
        task = self.state.task
        if task is None or task.lease.lease_id != event.lease_id:
            return
        match event:
            case LeaseProgress():
                task.steps_done, task.seconds_per_step = event.steps_done, event.seconds_per_step
            case LeaseTrained() if task.stage is Stage.TRAINING:
                task.stage = Stage.UPLOADING
                task.update = _update(task.lease, event)
                turn.effects.append(UploadUpdate(event.lease_id, event.pseudo_gradient))
            case LeaseFailed():
                self._fail(turn, task, event.reason)
            case UpdateUploaded() if task.stage is Stage.UPLOADING and task.update is not None:
                task.stage = Stage.REPORTED
                if self.state.welcomed:
                    turn.send(task.update)
            case UploadFailed() if task.stage is Stage.UPLOADING:
                pause = self.config.retry_seconds(task.upload_attempts)
                task.upload_retry = turn.now + pause
                task.upload_attempts += 1
                turn.effects.append(Notice(f"the upload failed ({event.reason}); again in {pause:.1f} s"))

    def _upload_again(self, turn: Turn) -> None:
        task = self.state.task
        if task is None or task.update is None or task.upload_retry is None or turn.now < task.upload_retry:
            return
        task.upload_retry = None
        turn.effects.append(UploadUpdate(task.lease.lease_id, task.update.pseudo_gradient))

    def _fail(self, turn: Turn, task: Task, reason: str) -> None:
        # Without a connection nobody is told; the Shepherd assigns the lease again when the worker is back.
        self.state.task = None
        turn.effects.append(Notice(f"lease {task.lease.lease_id} failed: {reason}"))
        if self.state.welcomed:
            turn.send(Failure(self.state.generation, task.lease.lease_id, reason))

    def _stop(self, turn: Turn, reason: str) -> None:
        turn.drop_task(reason)
        if self.state.connection:
            turn.send(Goodbye(False, reason))
            turn.effects.append(Disconnect(self.state.connection, reason))
        turn.effects.append(Stop(False, reason))
        self.state.connection, self.state.stopped = 0, True


def _update(lease: Lease, event: LeaseTrained) -> Update:
    return Update(
        lease_id=lease.lease_id,
        generation=lease.generation,
        round=lease.round,
        base_version=lease.base_version,
        pseudo_gradient=event.pseudo_gradient,
        steps=lease.data.count,
        tokens=event.tokens,
        losses=event.losses,
        seconds=event.seconds,
    )
