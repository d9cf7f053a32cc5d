"""The logic of a worker: one event in, a list of effects out; no I/O, no clock, no randomness, no threads."""

from pcp.distributed.messages import (
    AskStates,
    Assign,
    Failure,
    Goodbye,
    HeartbeatReply,
    Merged,
    Message,
    Ready,
    Repeat,
    Revoke,
    UpdateReply,
    Welcome,
)
from pcp.distributed.worker import adoptions, audits, connection, pushes
from pcp.distributed.worker.connection import Turn
from pcp.distributed.worker.effects import Connect, Disconnect, Effect, Stop
from pcp.distributed.worker.events import (
    BlobFetched,
    BlobUnavailable,
    Connected,
    Disconnected,
    Event,
    LeaseFailed,
    LeaseProgress,
    LeaseStepped,
    LeaseTrained,
    MessageReceived,
    NotSaid,
    PieceFailed,
    PieceRepeated,
    PreparationFailed,
    Prepared,
    Started,
    StateUploadFailed,
    Stopping,
    Tick,
    UpdateUploaded,
    UploadFailed,
)
from pcp.distributed.worker.state import Stage, WorkerConfig, WorkerState


class WorkerLogic:
    """The state machine that decides everything in a worker.

    The host feeds events, the first of them `Started`, and performs the effects in their order. One lease at most is
    trained at a time, and one at most waits for its end; any number were trained before and wait for their upload or
    their answer.

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
            case Started() | Connected() | Disconnected():
                self._connection(turn, event)
            case MessageReceived(_, number, message) if number == self.state.connection:
                self._receive(turn, message)
            case Prepared() | PreparationFailed():
                self._prepared(turn, event)
            case BlobFetched() | BlobUnavailable():
                adoptions.fetched(turn, event)
                audits.fetched(turn, event)
            case LeaseProgress() | LeaseStepped() | LeaseTrained() | LeaseFailed():
                self._work(turn, event)
            case UpdateUploaded() | UploadFailed():
                pushes.upload_ended(turn, event)
            case PieceRepeated() | PieceFailed() | StateUploadFailed():
                audits.worked(turn, event)
            case NotSaid():
                pushes.not_said(turn, event)
            case Tick():
                connection.tick(turn)
                pushes.upload_again(turn)
                audits.upload_again(turn)
            case Stopping(_, reason):
                self._stop(turn, reason)
        return turn.effects

    def _connection(self, turn: Turn, event: Started | Connected | Disconnected) -> None:
        match event:
            case Started():
                turn.effects.append(Connect(0.0))
            case Connected(_, number):
                connection.connected(turn, number)
            case Disconnected(_, number, reason) if number == self.state.connection:
                connection.lost(turn, reason)

    def _receive(self, turn: Turn, message: Message) -> None:
        self.state.last_heard = turn.now
        match message:
            case Welcome():
                connection.welcome(turn, message)
            case HeartbeatReply():
                connection.heard(turn, message)
            case Assign(lease):
                audits.stop(turn)
                adoptions.assign(turn, lease)
            case AskStates():
                audits.asked(turn, message)
            case Repeat():
                audits.repeat(turn, message)
            case Merged():
                adoptions.merged(turn, message)
            case Revoke(lease_id, reason):
                turn.drop(lease_id, reason)
                adoptions.start_if_ready(turn)
            case UpdateReply():
                pushes.answered(turn, message)
            case Goodbye():
                connection.goodbye(turn, message)
            case _:
                connection.leave(turn, f"a Shepherd does not send {type(message).__name__}")

    def _prepared(self, turn: Turn, event: Prepared | PreparationFailed) -> None:
        state = self.state
        if event.run != state.preparing:
            return
        state.preparing = None
        if isinstance(event, Prepared):
            state.prepared, state.overlap, state.resumes = event.run, event.overlap, event.resumes
            if state.welcomed:
                turn.send(Ready(state.generation))
        elif state.welcomed:
            turn.send(Failure(state.generation, 0, event.reason, event.kind))
            connection.leave(turn, event.reason, "the run cannot be prepared here")

    def _work(self, turn: Turn, event: LeaseProgress | LeaseStepped | LeaseTrained | LeaseFailed) -> None:
        task = self.state.encoding.get(event.lease_id)
        if task is not None and isinstance(event, LeaseTrained):
            pushes.encoded(turn, event)
            return
        task = task or self.state.task
        if task is None or task.lease.lease_id != event.lease_id or task.stage is not Stage.TRAINING:
            if isinstance(event, LeaseFailed) and event.kind:  # a program that had to be ended for it
                turn.tell(Failure(self.state.generation, event.lease_id, event.reason, event.kind))
            return
        match event:
            case LeaseProgress():
                task.steps_done, task.seconds_per_step = event.steps_done, event.seconds_per_step
                if event.batches:
                    task.lease = task.lease.cut(event.batches)
                connection.progressed(turn, task)
            case LeaseStepped():
                pushes.stepped(turn, task)
            case LeaseTrained():
                pushes.trained(turn, task, event)
            case LeaseFailed():
                adoptions.fail(turn, task, event.reason, event.kind)

    def _stop(self, turn: Turn, reason: str) -> None:
        turn.drop_all(reason)
        if self.state.connection:
            turn.send(Goodbye(False, reason))
            turn.effects.append(Disconnect(self.state.connection, reason))
        turn.effects.append(Stop(False, reason))
        self.state.connection, self.state.stopped = 0, True
