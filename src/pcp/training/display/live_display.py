"""The display of a run, a sink of metrics: live on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable

from rich.console import Console, RenderableType
from rich.live import Live

from pcp.training.display.fleet import Fleet
from pcp.training.display.metrics import MetricSink, Record
from pcp.training.display.progress import printable
from pcp.training.display.table import ROWS_SHOWN, plain_line, render


class LiveDisplay(MetricSink):
    """Shows a run on a console.

    On a terminal the display is redrawn in place, four times a second. Elsewhere, as in a log file, a line is
    printed every few seconds, and at once for a validation loss, the last step, and a worker's change of
    state.

    Arguments:
        fleet: the run as it is known before it starts.
        console: where to draw; standard error when None, so that standard output stays free for results.
        clock: gives the time in seconds; only differences count.
        line_seconds: time between two plain lines.
        hint: gives a line that stands below the table.
    """

    def __init__(
        self,
        fleet: Fleet,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
        line_seconds: float = 5.0,
        hint: Callable[[], str] = lambda: "",
    ) -> None:
        self.fleet = fleet
        self._console = Console(stderr=True) if console is None else console
        self._clock = clock
        self._line_seconds = line_seconds
        self._last_line: float | None = None
        self._live: Live | None = None
        if self._console.is_terminal:
            self._live = Live(
                get_renderable=lambda: self._rendered(hint()),
                console=self._console,
                refresh_per_second=4,
            )
            self._live.start()

    def write(self, record: Record) -> None:
        """Take one record into the display."""
        now = self._clock()
        worker = self.fleet.workers.get(str(record.get("worker")))
        before = worker.state if worker is not None else ""
        self.fleet.take(record, now)
        event = record.get("event")
        if event == "planned":
            self._print(printable(self.fleet.progress.preparing, 200))
        elif event in ("trouble", "peak"):
            self._print(printable(str(record["message"]), 500))
        if self._live is not None:
            return
        if event == "worker":
            self._print_worker(before, str(record["worker"]))
        elif event == "refused":
            self._print(
                f"refused {record['count']} times ({record['kind']}): {printable(str(record['latest']), 200)}"
            )
        elif "step" in record and self._is_due(record, now):
            self._last_line = now
            self._print(plain_line(self.fleet.summary(now)))

    def close(self) -> None:
        """Draw the last state and leave it on the screen."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _is_due(self, record: Record, now: float) -> bool:
        progress = self.fleet.progress
        if "validation_loss" in record or progress.step >= progress.total_steps:
            return True
        return self._last_line is None or now - self._last_line >= self._line_seconds

    def _rendered(self, hint: str) -> RenderableType:
        now = self._clock()
        return render(self.fleet.summary(now), self.fleet.rows(now, 0, ROWS_SHOWN), hint)

    def _print_worker(self, before: str, name: str) -> None:
        worker = self.fleet.workers[name]
        # Workers wait and train in turn all the time; what a log should hold is who comes and goes.
        if worker.state != before and {worker.state, before} & {"joining", "lost", ""}:
            lease = f" {printable(worker.lease)}" if worker.lease else ""
            self._print(f"worker {printable(name)}: {printable(worker.state)}{lease}")

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
