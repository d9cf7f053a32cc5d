"""What the coordinator reports, as records of metrics: what displays, files and `--json` show."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from pcp.distributed.coordinator import RunConfig, State
from pcp.distributed.coordinator.effects import (
    AuditEnded,
    LeaseChanged,
    LeaseProgressed,
    Metrics,
    RoundMerged,
    Trouble,
    UpdateAccepted,
    UpdateRefused,
    WorkerChanged,
)
from pcp.distributed.coordinator.rounds.admission import Refusal
from pcp.distributed.losses import mean
from pcp.distributed.wire import Refused, Statistics

Record = dict[str, Any]

PROGRESS_SECONDS = 3.0
"""The least time between two records of one worker's progress; a display counts it as silent after thrice that."""


class Reporter:
    """Hands on records, less those that say again what was said already, or only a moment ago.

    Arguments:
        sink: receives the records.
    """

    def __init__(self, sink: Callable[[Record], None]) -> None:
        self._sink = sink
        self._said: dict[str, tuple[Record, float]] = {}
        self._names: dict[int, str] = {}

    def report(self, metrics: Metrics, state: State, now: float) -> None:
        """Hand on the records that a report leads to.

        Arguments:
            metrics: the report.
            state: the coordinator's state after it.
            now: the time, in seconds.
        """
        self._learn_name(metrics, state)
        is_progress = isinstance(metrics, LeaseProgressed)
        for record in records_of(metrics, state, self._names):
            name = record.get("worker")
            if name is not None:
                last, at = self._said.get(name, (None, 0.0))
                repeats = now - at < PROGRESS_SECONDS if is_progress else record == last
                if last is not None and repeats:
                    continue
                self._said[name] = (record, now)
            self._sink(record)

    def _learn_name(self, metrics: Metrics, state: State) -> None:
        # Reports come with every heartbeat: only a number that nobody joined with is looked for among all names.
        if isinstance(metrics, WorkerChanged):
            self._names[metrics.worker_id] = metrics.worker
        elif not isinstance(metrics, RoundMerged | Trouble) and metrics.worker_id not in self._names:
            self._names |= {number: name for name, number in state.run.worker_ids.items()}


def records_of(metrics: Metrics, state: State, names: Mapping[int, str]) -> list[Record]:
    """The records that a report leads to.

    Arguments:
        metrics: the report.
        state: the coordinator's state after it.
        names: of the workers, by their numbers.
    """
    match metrics:
        case RoundMerged():
            return [_round(metrics, state)]
        case WorkerChanged():
            status = {"joined": "joining", "reconnected": "joining"}.get(metrics.change, metrics.change)
            return [_worker(metrics.worker, state=status, reason=metrics.reason, live=metrics.live)]
        case LeaseChanged():
            held = state.leases.get(metrics.lease_id)
            name = names.get(metrics.worker_id, str(metrics.worker_id))
            if held is None or metrics.change != "granted":
                return [_worker(name, state="waiting", lease="", reason=metrics.reason)]
            return [_worker(name, state="training", lease=held.lease.named)]
        case LeaseProgressed(worker_id, lease_id, _, seconds_per_step):
            if not lease_id or not seconds_per_step:
                return []
            return [
                _worker(names[worker_id], state="training", steps_per_second=round(1 / seconds_per_step, 3))
            ]
        case UpdateAccepted():
            return [_worker(names[metrics.worker_id], state="waiting", lease="", **_accepted(metrics))]
        case UpdateRefused():
            name, reason = names[metrics.worker_id], f"refused: {metrics.reason}"
            return [_worker(name, state="waiting", lease="", refused=1, reason=reason)]
        case AuditEnded():
            return [{"event": "audit", **asdict(metrics)}]
        case Trouble():
            return [{"event": "trouble", "message": metrics.message}]


def _accepted(metrics: UpdateAccepted) -> Record:
    facts = {"updates": 1, "tokens": metrics.tokens, "trained_seconds": round(metrics.seconds, 3)}
    steps = metrics.steps or len(metrics.losses)
    return facts | ({"loss": mean(metrics.losses, steps)} if metrics.losses else {})


def _round(metrics: RoundMerged, state: State) -> Record:
    return {
        "step": steps_behind(state.run.config, metrics.tokens),
        "loss": metrics.loss,
        "tokens_per_second": metrics.merged_tokens / max(metrics.seconds, 1e-9),
        "round": metrics.round + 1,
        "contributions": metrics.contributions,
        "live_workers": metrics.live,
        "tokens": metrics.tokens,
        "refused": sum(count for _, count in metrics.refused),
        **({"failures": dict(metrics.failures)} if metrics.failures else {}),
    }


def counted_in(unit: str, report: Callable[[Record], None]) -> Callable[[Record], None]:
    """A sink whose speeds are those of samples where a run counts these; elsewhere the sink itself."""
    if unit == "tokens":
        return report

    def renamed(record: Record) -> None:
        report(
            {
                f"{unit}_per_second" if name == "tokens_per_second" else name: fact
                for name, fact in record.items()
            }
        )

    return renamed


def refusal_record(refused: Refused) -> Record:
    """The record of connections and transfers that were refused since the last one of their kind."""
    return {"event": "refused", "kind": refused.kind, "count": refused.count, "latest": refused.latest}


def totals_record(statistics: Statistics, state: State) -> Record:
    """What moved and what was refused since this Shepherd began, by reason."""
    traffic = statistics.traffic
    return {
        "event": "totals",
        "sent": sum(traffic.sent.values()),
        "received": sum(traffic.received.values()),
        "refused_updates": {Refusal[name].value: count for name, count in state.refused.items()},
        "refused_connections": statistics.refused,
        "paused": state.paused,
    }


def steps_behind(config: RunConfig, tokens: int) -> int:
    """Steps of the run's schedules behind parameters, from the tokens behind them."""
    return tokens // (config.workers * config.tokens_per_batch)


def _worker(name: str, **facts: Any) -> Record:
    return {"event": "worker", "worker": name, **facts}
