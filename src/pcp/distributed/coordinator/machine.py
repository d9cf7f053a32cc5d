"""The coordinator: one event in, a list of effects out; no I/O, no clock, no randomness, no threads."""

from collections.abc import Iterable

from pcp.distributed.coordinator import ending, membership
from pcp.distributed.coordinator.audit import audits
from pcp.distributed.coordinator.config import RunConfig
from pcp.distributed.coordinator.effects import Append, Close, Effect, Finish, LeaseProgressed, Send, Trouble
from pcp.distributed.coordinator.events import (
    BlobRefused,
    BlobStored,
    CheckpointDone,
    CheckpointFailed,
    ConnectionLost,
    Event,
    MemberJoined,
    MessageReceived,
    OuterStepDone,
    OuterStepFailed,
    Started,
    StatesCompared,
    Tick,
)
from pcp.distributed.coordinator.log import checkpoints
from pcp.distributed.coordinator.log.records import EpochStarted, RunStarted
from pcp.distributed.coordinator.rounds import admission, ahead, closing, leases, resumption, sharing
from pcp.distributed.coordinator.rounds import lifecycle as rounds
from pcp.distributed.coordinator.run import Run, replay, start_run
from pcp.distributed.coordinator.state import Member, Turn, state_of
from pcp.distributed.messages import (
    Blob,
    Failure,
    FailureKind,
    Goodbye,
    Heartbeat,
    Message,
    Ready,
    Repeated,
    Resume,
    Revoke,
    States,
    Update,
)
from pcp.errors import PCPError


class EmptyEventLog(PCPError):
    """A run was to be restored from an event log that holds nothing."""


class Coordinator:
    """The state machine that decides everything in a distributed run. Make one with `create` or `restore`.

    The host feeds events, the first of them `Started`, and performs the effects in their order. The
    durable part of the state, `state.run`, changes only by records that are also effects, so the event log
    always leads to the same state.
    """

    def __init__(self, run: Run, opening: tuple[Append, ...]) -> None:
        self.state = state_of(run)
        self._opening = opening

    @classmethod
    def create(
        cls, config: RunConfig, parameters: tuple[Blob, ...], outer: tuple[Blob | None, ...]
    ) -> "Coordinator":
        """Return the coordinator of a new run.

        Arguments:
            config: its plan.
            parameters: the initial parameters of each fragment, flat, already stored.
            outer: what the first outer step of each fragment needs, already stored; None where it needs
                nothing.
        """
        record = RunStarted(config, parameters, outer)
        return cls(start_run(record), (Append(record, sync=False),))

    @classmethod
    def restore(cls, records: Iterable[bytes]) -> "Coordinator":
        """Return the coordinator of a run that was interrupted.

        Arguments:
            records: the payloads of its event log, oldest first.

        Raises:
            EmptyEventLog: there are none.
        """
        run = replay(records)
        if run is None:
            raise EmptyEventLog("the event log is empty, so there is no run to restore; create one")
        return cls(run, ())

    def handle(self, event: Event) -> list[Effect]:
        """Return what an event leads to.

        Arguments:
            event: what happened; `event.now` never goes back.
        """
        turn = Turn(self.state, event.now)
        if self._dispatch(turn, event):
            rounds.advance(turn)
        return turn.effects

    def _dispatch(self, turn: Turn, event: Event) -> bool:
        """Handle one event; return whether it may have made something new possible."""
        match event:
            case Started(_, mark):
                self._start(turn, mark)
            case _ if self.state.finished and not isinstance(event, MemberJoined):
                return False
            case MemberJoined():
                membership.join(turn, event)
            case MessageReceived(_, connection, message):
                return self._receive(turn, connection, message)
            case ConnectionLost(_, connection):
                if member := turn.member_of(connection):
                    membership.lose_connection(turn, member)
            case Tick(_, paused):
                self._tick(turn, paused)
            case BlobStored():
                admission.blob_stored(turn, event)
            case BlobRefused():
                admission.blob_refused(turn, event)
            case StatesCompared():
                audits.compared(turn, event)
            case OuterStepDone() | OuterStepFailed() | CheckpointDone() | CheckpointFailed():
                self._work_ended(turn, event)
        return True

    def _work_ended(
        self, turn: Turn, event: OuterStepDone | OuterStepFailed | CheckpointDone | CheckpointFailed
    ) -> None:
        match event:
            case OuterStepDone():
                rounds.outer_step_done(turn, event)
            case OuterStepFailed():
                rounds.outer_step_failed(turn, event)
            case CheckpointDone():
                checkpoints.done(turn, event)
            case CheckpointFailed():
                checkpoints.failed(turn, event)

    def _tick(self, turn: Turn, paused: bool) -> None:
        self.state.paused = paused
        membership.forgive_own_sleep(turn)
        membership.give_up_silent(turn)  # before leases are held beside those of who is left
        leases.expire(turn)
        leases.give_up_slow(turn)
        audits.expire(turn)
        membership.wake_rested(turn)
        if not paused:
            leases.unblock(turn)
            sharing.ask(turn)
        closing.set_time(turn)

    def _start(self, turn: Turn, mark: bytes) -> None:
        turn.effects += self._opening
        if self.state.run.finished:
            self.state.finished = True
            turn.effects.append(Finish(""))
            return
        # Until this record is safe no number of the new epoch may be seen by anybody: another epoch would
        # reuse it.
        turn.append(EpochStarted(self.state.run.epoch + 1, mark), sync=True)
        for round in self.state.run.in_flight:
            rounds.start_clock(turn, round)
        resumption.wait_for_workers(turn)

    def _receive(self, turn: Turn, connection: int, message: Message) -> bool:
        member = turn.member_of(connection)
        if member is None:
            turn.effects.append(Send(connection, Goodbye(False, "say hello first")))
            turn.effects.append(Close(connection, "not a member"))
            return False
        member.last_heard = turn.now
        match message:
            case Heartbeat():
                if not membership.current(turn, member, message.generation):
                    return True
                shortened = sharing.heard(turn, member, message)
                turn.send(member, sharing.reply(turn, member, message))
                if message.lease_id and message.lease_id not in self.state.leases:
                    # Its connection may have broken before it could hear so; it would be busy for ever.
                    turn.send(member, Revoke(message.lease_id, "it was taken back"))
                turn.state.is_measured = True
                turn.pace(member.worker_id).told(message.seconds_per_step)
                turn.report(
                    LeaseProgressed(
                        member.worker_id, message.lease_id, message.steps_done, message.seconds_per_step
                    )
                )
                return ahead.heard(turn, member, message) or shortened
            case Ready():
                membership.ready(turn, member, message)
                audits.reconnected(turn, member)
            case Resume(lease):
                resumption.resume(turn, member, lease)
            case Update():
                admission.receive(turn, member, message)
            case States():
                audits.states(turn, member, message)
            case Repeated():
                audits.repeated(turn, member, message)
            case Failure():
                self._failure(turn, member, message)
            case Goodbye():
                membership.dismiss(turn, member, f"it left: {message.reason}")
            case _:
                membership.dismiss(turn, member, f"a worker does not send {type(message).__name__}")
        return True

    def _failure(self, turn: Turn, member: Member, message: Failure) -> None:
        if not membership.current(turn, member, message.generation):
            return
        waited = leases.waited_for(turn, member)
        turn.pace(member.worker_id).rest(turn.now, self.state.run.config.heartbeat_seconds, waited)
        if message.kind:
            self.state.failures[message.kind.name] += 1
            turn.report(Trouble(f"{member.worker} cannot go on ({message.kind}): {message.reason}"))
        if message.lease_id == 0:
            membership.dismiss(turn, member, f"it failed: {message.reason}")
        elif message.lease_id == member.auditing:
            audits.failed(turn, member, message.lease_id)
        elif message.lease_id in member.leases:
            reason = f"the worker failed: {message.reason}"
            leases.withdraw(turn, member, reason, told=frozenset({message.lease_id}))
            if message.kind is FailureKind.DIVERGED:
                turn.pace(member.worker_id).unusable += 1
                ending.fail_if_diverged(turn)
