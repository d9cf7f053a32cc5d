"""The display of a run, a sink of metrics: live on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable

from rich.console import Console
from rich.live import Live

from pcp.training.display.metrics import MetricSink, Record
from pcp.training.display.progress import RunProgress, advance, plain_line, printable, render


class LiveDisplay(MetricSink):
    """Shows a run on a console.

    On a terminal the display is redrawn in place, four times a second. Elsewhere, as in a log file, a line is
    printed every few seconds, and at once for a validation loss, the last step, and a worker's change of
    state.

    Arguments:
        progress: the run as it is known before it starts.
        console: where to draw; standard error when None, so that standard output stays free for results.
        clock: gives the time in seconds; only differences count.
        line_seconds: time between two plain lines.
    """

    def __init__(
        self,
        progress: RunProgress,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
        line_seconds: float = 5.0,
    ) -> None:
        self.progress = progress
        self._console = Console(stderr=True) if console is None else console
        self._clock = clock
        self._line_seconds = line_seconds
        self._last_line: float | None = None
        self._live: Live | None = None
        if self._console.is_terminal:
            self._live = Live(
                get_renderable=lambda: render(self.progress, self._clock()),
                console=self._console,
                refresh_per_second=4,
            )
            self._live.start()

    def write(self, record: Record) -> None:
        """Take one record into the display."""
        before, now = self.progress, self._clock()
        self.progress = advance(before, record, now)
        if record.get("event") == "planned":
            self._print(printable(self.progress.preparing, 200))
        if self._live is not None:
            return
        if record.get("event") == "worker":
            self._print_worker(before, str(record["worker"]))
        elif "step" in record and self._is_due(record, now):
            self._last_line = now
            self._print(plain_line(self.progress, now))

    def close(self) -> None:
        """Draw the last state and leave it on the screen."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _is_due(self, record: Record, now: float) -> bool:
        if "validation_loss" in record or self.progress.step >= self.progress.total_steps:
            return True
        return self._last_line is None or now - self._last_line >= self._line_seconds

    def _print_worker(self, before: RunProgress, name: str) -> None:
        worker = self.progress.workers[name]
        known = before.workers.get(name)
        # Workers wait and train in turn all the time; what a log should hold is who comes and goes.
        came_or_went = {worker.state, known.state if known else ""} & {"joining", "lost", ""}
        if came_or_went and (known is None or known.state != worker.state):
            lease = f" {printable(worker.lease)}" if worker.lease else ""
            self._print(f"worker {printable(name)}: {printable(worker.state)}{lease}")

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
