"""What a worker does, as records: what its table and `--json` show. They have the form of those of the Shepherd."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from pcp.distributed.losses import mean, usable
from pcp.distributed.messages import Assign, Outcome, Profile, Revoke, UpdateReply
from pcp.distributed.wire import Traffic
from pcp.distributed.worker.events import (
    Connected,
    Disconnected,
    Event,
    LeaseFailed,
    LeaseProgress,
    LeaseTrained,
    MessageReceived,
    NotSaid,
    PreparationFailed,
    Prepared,
    Tick,
    WorkersMet,
)

Record = dict[str, Any]

PROGRESS_SECONDS, TOTALS_SECONDS = 3.0, 5.0
REASONS_KEPT, REASON_LETTERS = 32, 100
"""Of refused updates: they are words of the Shepherd."""


class Reporter:
    """Turns the events of one worker into records.

    Arguments:
        name: of the worker.
        sink: receives the records.
    """

    def __init__(self, name: str, sink: Callable[[Record], None]) -> None:
        self._name, self._sink = name, sink
        self._steps = self._tokens = 0
        self._refused: Counter[str] = Counter()
        self._said_at: dict[type, float] = {}

    def take(self, event: Event, traffic: Traffic, profile: Profile | None) -> None:
        """Hand on the records that an event leads to.

        Arguments:
            traffic: what all connections moved.
            profile: what was planned; None while nothing was.
        """
        match event:
            case Connected():
                self._say(state="joining", reason="connected")
            case Disconnected(_, _, reason):
                self._say(state="lost", reason=reason)
            case Prepared():
                planned = {"planned": profile.chosen} if profile is not None else {}
                self._say(state="waiting", reason="ready", **planned)
            case PreparationFailed(_, _, reason) | LeaseFailed(_, _, reason):
                self._say(state="waiting", lease="", reason=reason)
            case MessageReceived(_, _, message):
                self._take_message(message)
            case LeaseProgress(now, _, _, seconds) if seconds and self._is_due(event, now, PROGRESS_SECONDS):
                self._say(state="training", steps_per_second=round(1 / seconds, 3))
            case LeaseTrained():
                self._take_trained(event)
            case WorkersMet(_, number, partner, loss):
                self._say(exchange=number, partner=partner, loss=loss)
            case NotSaid(_, message, reason):
                self._say(unsaid=1, reason=f"{type(message).__name__} cannot be told: {reason}")
            case Tick(now) if self._is_due(event, now, TOTALS_SECONDS):
                self._sink(self._totals(traffic))

    def _take_message(self, message: object) -> None:
        match message:
            case Assign(lease):
                self._say(state="training", lease=lease.named)
            case Revoke(_, reason):
                self._say(state="waiting", lease="", reason=reason)
            case UpdateReply(_, Outcome.REFUSED, reason):
                told = reason[:REASON_LETTERS]
                if told in self._refused or len(self._refused) < REASONS_KEPT:
                    self._refused[told] += 1
                self._say(refused=1, reason=f"refused: {told}")
            case UpdateReply():
                self._say(updates=1)

    def _take_trained(self, event: LeaseTrained) -> None:
        self._say(state="waiting", lease="", tokens=event.tokens, trained_seconds=event.seconds)
        steps = event.batches
        self._steps, self._tokens = self._steps + steps, self._tokens + event.tokens
        if steps and event.losses and usable(event.losses):
            loss, speed = mean(event.losses, steps), event.tokens / max(event.seconds, 1e-9)
            self._sink(
                {"step": self._steps, "loss": loss, "tokens": self._tokens, "tokens_per_second": speed}
            )

    def _totals(self, traffic: Traffic) -> Record:
        sent, received = sum(traffic.sent.values()), sum(traffic.received.values())
        refused = {"refused_updates": dict(self._refused), "refused_connections": {}}
        return {"event": "totals", "sent": sent, "received": received, "paused": False} | refused

    def _say(self, **facts: Any) -> None:
        self._sink({"event": "worker", "worker": self._name, **facts})

    def _is_due(self, event: Event, now: float, seconds: float) -> bool:
        if now - self._said_at.get(type(event), -seconds) < seconds:
            return False
        self._said_at[type(event)] = now
        return True
