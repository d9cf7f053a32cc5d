"""The state of a run and its workers as it is shown: built from records, read by tables, `pcp status` and the web page.

Each record costs the same for any number of workers, and what is kept of each worker and of the run is bounded.
"""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from pcp.training.display.metrics import Record
from pcp.training.display.pace import Pace
from pcp.training.display.progress import RunProgress, advance, format_duration, remaining_seconds

SPANS_KEPT = 40
"""Leases of a worker that the timeline shows."""
TROUBLES_KEPT = 20
REASON_LETTERS = 300
POINTS = 400
"""Of a curve, at least, once there are so many; at most twice as many."""
AWAY, DONE = "lost", "done"
"""Not there any more; there until the run was complete."""
SILENT_SECONDS = 30.0
"""After so long without a record the run counts as dead; a Shepherd writes one every few seconds."""

Row = dict[str, Any]


class Curve:
    """Pairs of a place and a value; when there are too many, every other one is dropped, of those to come, too."""

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []
        self._every, self._skipped = 1, 0

    def add(self, place: float, value: float) -> None:
        """Add a pair. One that is not behind the last one means that the run went back: what is ahead goes."""
        if self.points and place <= self.points[-1][0]:
            self.points = [point for point in self.points if point[0] < place]
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        self.points.append((place, value))
        if len(self.points) >= 2 * POINTS:
            del self.points[::2]
            self._every *= 2


@dataclass(slots=True)
class Span:
    """A lease on the timeline: since when, until when (None while it is out), and its batches."""

    start: float
    end: float | None
    lease: str


@dataclass(slots=True)
class WorkerView:
    """What is known of one worker; times are those of the clock that records come with.

    Arguments:
        name: the name in its certificate.
        state: one word: joining, waiting, training, lost, done.
        lease: the batches it works on, for example "240-259"; empty where it has none.
        steps_per_second: its speed; None where it is not known.
        heard_at: when it was last heard.
        since: when it joined; None while it is away.
        up_seconds: that it was there, before it joined last.
        trained_seconds, tokens, updates: behind its updates that were accepted.
        refused: updates of it that were refused.
        loss: the mean of its last update.
        reason: why its state changed last.
        planned: what its planner chose.
        updated_at: when its last update was accepted.
        spans: its last leases.
    """

    name: str
    state: str = "joining"
    lease: str = ""
    steps_per_second: float | None = None
    heard_at: float | None = None
    since: float | None = None
    up_seconds: float = 0.0
    trained_seconds: float = 0.0
    tokens: int = 0
    updates: int = 0
    refused: int = 0
    loss: float | None = None
    reason: str = ""
    planned: str = ""
    updated_at: float | None = None
    spans: deque[Span] = field(default_factory=lambda: deque(maxlen=SPANS_KEPT))

    def row(self, now: float, until: float) -> Row:
        """What tables and pages show of it now; it was there until `until`."""
        up = self.up_seconds + (until - self.since if self.since is not None else 0.0)
        return {
            "worker": self.name,
            "state": self.state,
            "lease": self.lease,
            "steps_per_second": self.steps_per_second,
            "heard_seconds": None if self.heard_at is None else max(0.0, now - self.heard_at),
            "utilisation": _share(self.trained_seconds, up),
            "tokens": self.tokens,
            "updates": self.updates,
            "refused": self.refused,
            "loss": self.loss,
            "reason": self.reason,
            "planned": self.planned,
            "spans": [[span.start, span.end, span.lease] for span in self.spans],
        }


class Fleet:
    """A run as its records tell it.

    Arguments:
        name: of the run.
        total_steps: that it is to do.
        in_pairs: whether its workers exchange in pairs, each at its own time, and the Shepherd merges only at the end.
    """

    def __init__(self, name: str, total_steps: int, in_pairs: bool = False) -> None:
        self.progress = RunProgress(name, total_steps)
        self.workers: dict[str, WorkerView] = {}
        self.ended: str | None = None
        """Why its last process ended; None while nothing was said of an end."""
        self.complete = False
        self.alive: bool | None = None
        """Whether its process is there, where that can be known otherwise than by what it writes."""
        self.no_room = False
        """Whether the disk of its folder is full, so that it cannot write what it does."""
        self.address = ""
        self.round = self.tokens = 0
        self.totals: Row = {}
        self.losses, self.validation, self.traffic = Curve(), Curve(), Curve()
        self.latest_refusals: dict[str, str] = {}
        self.troubles: deque[tuple[float, str]] = deque(maxlen=TROUBLES_KEPT)
        self.last_at: float | None = None
        self._pace = Pace("exchange" if in_pairs else "round merged")
        self._in_pairs = in_pairs
        self._states: Counter[str] = Counter()
        self._planned: Counter[str] = Counter()
        self._trained = self._up = 0.0  # seconds of all workers, `_up` until they joined last
        self._since, self._there = 0.0, 0  # the sum of `since`, and of how many

    def take(self, record: Record, now: float) -> None:
        """Take one record in.

        Arguments:
            record: as the Shepherd writes it; one that is not understood changes nothing but the progress.
            now: the time, in seconds, on one clock for all records.
        """
        self.last_at = now
        self.progress = advance(self.progress, record, now)
        match record.get("event"):
            case "worker":
                self._take_worker(record, now)
            case "totals":
                if self.totals.get("paused") and not record.get("paused"):
                    self._pace.begin(now)
                self.totals = {key: value for key, value in record.items() if key not in ("event", "time")}
                self.traffic.add(now, float(record["sent"] + record["received"]))
            case "refused":
                self.latest_refusals[str(record["kind"])] = str(record["latest"])
            case "trouble":
                self.troubles.append((now, str(record["message"])))
            case "restart":
                self.troubles.append((now, f"{record['process']} was started again"))
            case "listening":
                self._pace.begin(now)
                self._begin_again(str(record["address"]), now)
            case "ended":
                self.ended, self.complete = str(record["reason"]), bool(record["complete"])
                for worker in self.workers.values():
                    self._leave(worker, now, DONE if self.complete and worker.state != AWAY else AWAY)
            case None:
                self._take_step(record, now)

    def _take_step(self, record: Record, now: float) -> None:
        if "step" not in record:
            return
        for key, curve in (("loss", self.losses), ("validation_loss", self.validation)):
            if key in record:
                curve.add(record["step"], record[key])
        if record.get("round", self.round) > self.round and not self._in_pairs:
            self._pace.mark(now)
        self.round = record.get("round", self.round)
        self.tokens = record.get("tokens", self.tokens)

    def _begin_again(self, address: str, now: float) -> None:
        """A Shepherd has begun; those that one before it knew come to it anew."""
        self.address, self.ended, self.complete, self.totals = address, None, False, {}
        for worker in self.workers.values():
            self._leave(worker, now if worker.heard_at is None else worker.heard_at)

    def _take_worker(self, record: Record, now: float) -> None:
        name = str(record["worker"])
        worker = self.workers.get(name)
        if worker is None:
            worker = self.workers[name] = WorkerView(name)
            self._states[worker.state] += 1
        state, lease = record.get("state", worker.state), record.get("lease", worker.lease)
        if state == AWAY:
            self._leave(worker, now)
        elif (
            worker.state not in (AWAY, DONE) or state == "joining" or record.get("joins", False)
        ):  # what ends with a worker does not bring it back
            worker.heard_at = now
            if worker.since is None:
                worker.since = now
                self._since, self._there = self._since + now, self._there + 1
            self._set_state(worker, state)
            if lease != worker.lease:
                _end_span(worker, now)
                if lease:
                    worker.spans.append(Span(now, None, lease))
            worker.lease = lease
        worker.reason = str(record.get("reason", worker.reason))[:REASON_LETTERS]
        for key in ("steps_per_second", "loss"):
            if key in record:
                setattr(worker, key, record[key])
        for key in ("tokens", "updates", "refused"):
            setattr(worker, key, getattr(worker, key) + record.get(key, 0))
        self._take_update(worker, record, now)
        worker.trained_seconds += record.get("trained_seconds", 0.0)
        self._trained += record.get("trained_seconds", 0.0)
        if "planned" in record:
            self._planned[worker.planned] -= 1
            self._planned += Counter([str(record["planned"])])  # which drops what nobody has any more
            worker.planned = str(record["planned"])

    def _take_update(self, worker: WorkerView, record: Record, now: float) -> None:
        if record.get("updates"):
            if self._in_pairs:
                self._pace.mark(now, worker.updated_at)
            worker.updated_at = now

    def _leave(self, worker: WorkerView, now: float, state: str = AWAY) -> None:
        if worker.since is not None:
            worker.up_seconds += now - worker.since
            self._up += now - worker.since
            self._since, self._there = self._since - worker.since, self._there - 1
        worker.since, worker.lease, worker.steps_per_second = None, "", None
        _end_span(worker, now)
        self._set_state(worker, state)

    def _set_state(self, worker: WorkerView, state: str) -> None:
        if state != worker.state:
            self._states[worker.state] -= 1
            self._states[state] += 1
            worker.state = state

    def summary(self, now: float) -> Row:
        """The run in one object of JSON, of bounded size."""
        progress, totals = self.progress, self.totals
        up = self._up + self._there * self._until(now) - self._since
        return {
            "run": progress.name,
            "address": self.address,
            "complete": self.complete,
            "ended": self.ended,
            "alive": self.alive,
            "no_room": self.no_room,
            "paused": bool(totals.get("paused", False)),
            "stalled": self._stalled(now),
            "unmerged_seconds": None if self.ended is not None else self._pace.since(now),
            "silent_seconds": None if self.last_at is None else max(0.0, now - self.last_at),
            "step": progress.step,
            "total_steps": progress.total_steps,
            "round": self.round,
            "tokens": self.tokens,
            "loss": progress.loss,
            "validation_loss": progress.validation_loss,
            "tokens_per_second": progress.tokens_per_second,
            "samples_per_second": progress.samples_per_second,
            "mfu": progress.mfu,
            "remaining_seconds": remaining_seconds(progress, now),
            "preparing": progress.preparing,
            "utilisation": _share(self._trained, up),
            "workers": {state: count for state, count in sorted(self._states.items()) if count},
            "sent": totals.get("sent"),
            "received": totals.get("received"),
            "refused_updates": totals.get("refused_updates", {}),
            "refused_connections": totals.get("refused_connections", {}),
            "latest_refusals": self.latest_refusals,
            "planned": dict(self._planned.most_common(10)),
            "troubles": [[at, message] for at, message in self.troubles],
        }

    def curves(self) -> Row:
        """The curves of the run: pairs of a step and a loss, and of a time and bytes."""
        return {
            "loss": self.losses.points,
            "validation_loss": self.validation.points,
            "traffic": self.traffic.points,
        }

    def rows(self, now: float, start: int = 0, count: int | None = None, state: str = "") -> Iterator[Row]:
        """What is known of some workers, in the order in which they joined.

        Arguments:
            start, count: how many to leave out, and how many to give at most.
            state: of those in this state only; empty for all.
        """
        chosen = (worker for worker in self.workers.values() if not state or worker.state == state)
        stop = None if count is None else start + count
        return (worker.row(now, self._until(now)) for worker in islice(chosen, start, stop))

    def _stalled(self, now: float) -> str:
        """Words for a run that goes on and merges nothing; empty where it merges, or where its end or silence says enough."""
        is_silent = self.last_at is None or now - self.last_at >= SILENT_SECONDS
        goes_on = self.ended is None and not is_silent and not self.totals.get("paused")
        return self._pace.overdue(now) if goes_on else ""

    def _until(self, now: float) -> float:
        """Until when workers count as there, unless they were said to be gone."""
        return now if self.last_at is None or now - self.last_at < SILENT_SECONDS else self.last_at


def state_of(summary: Row) -> str:
    """Whether a run goes on, in words."""
    if summary["complete"]:
        return "complete"
    if summary["ended"] is not None:
        return f"stopped: {summary['ended']}"
    if summary["silent_seconds"] is None:
        return "not begun"
    silent = summary["silent_seconds"] >= SILENT_SECONDS
    age = format_duration(summary["silent_seconds"])
    if summary["alive"] is not None:
        if not summary["alive"]:
            return "killed: its process is gone, and said nothing of an end"
        return f"running; nothing new for {age}" if silent else "running"
    if silent and not summary["address"] and summary["step"] >= summary["total_steps"] > 0:
        return "complete"  # a run of one process, which says no more than its last step
    if silent:
        reason = "its disk has no room" if summary["no_room"] else "killed, or it hangs"
        return f"silent for {age}: {reason}; what is shown is as old as that"
    if summary["paused"]:
        return "paused"
    return f"running, but {summary['stalled']}" if summary["stalled"] else "running"


def _end_span(worker: WorkerView, now: float) -> None:
    if worker.spans and worker.spans[-1].end is None:
        worker.spans[-1].end = now


def _share(part: float, whole: float) -> float | None:
    """A share from 0 to 1; None where there is nothing to have a share of."""
    return min(1.0, part / whole) if whole > 0 else None
