"""The display of a run, rendered to text."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from pcp.training.display.live_display import LiveDisplay
from pcp.training.display.progress import (
    RunProgress,
    WorkerProgress,
    advance,
    format_duration,
    plain_line,
    printable,
    remaining_seconds,
    render,
)


def screen(progress: RunProgress, now: float) -> list[str]:
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True)
    console.print(render(progress, now))
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_a_run_in_one_process() -> None:
    progress = RunProgress("gpt2-nano", 2000)
    for step, now in ((0, 0.0), (500, 10.0)):
        progress = advance(progress, {"step": step, "loss": 2.34567, "tokens_per_second": 38400.4}, now)
    progress = advance(progress, {"step": 500, "validation_loss": 2.4}, 10.0)
    bar, numbers = screen(progress, 10.0)
    assert bar.startswith("gpt2-nano ")
    assert bar.endswith(" 500/2,000")
    assert len(bar) == 100
    assert numbers == "loss 2.3457  validation loss 2.4000  tokens/s 38,400  ETA 0:30"


def test_a_run_with_workers() -> None:
    progress = RunProgress("demo", 1000)
    progress = advance(
        progress, {"event": "worker", "worker": "beta", "state": "training", "lease": "20-39"}, 3.0
    )
    progress = advance(progress, {"event": "worker", "worker": "alpha"}, 1.5)
    progress = advance(progress, {"event": "worker", "worker": "beta", "steps_per_second": 12.34}, 4.0)
    progress = advance(
        progress, {"event": "worker", "worker": "gone", "state": "training", "lease": "40-59"}, 2.0
    )
    progress = advance(progress, {"event": "worker", "worker": "gone", "state": "lost"}, 8.0)
    lines = screen(progress, 14.25)
    assert [line.split() for line in lines[2:]] == [
        ["worker", "state", "lease", "steps/s", "heard"],
        ["alpha", "joining", "-", "-", "12.8", "s", "ago"],
        ["beta", "training", "20-39", "12.3", "10.2", "s", "ago"],
        ["gone", "lost", "-", "-", "12.2", "s", "ago"],
    ]


def test_a_worker_that_was_never_heard() -> None:
    progress = replace(RunProgress("demo", 10), workers={"a": WorkerProgress("a")})
    assert screen(progress, 1.0)[-1].split() == ["a", "joining", "-", "-", "never"]


def test_nothing_is_known_at_the_start() -> None:
    bar, numbers = screen(RunProgress("demo", 0), 0.0)
    assert bar.endswith(" 0/0")
    assert numbers == "preparing the first steps"


def test_other_records_change_nothing() -> None:
    progress = RunProgress("demo", 10)
    assert advance(progress, {"event": "checkpoint", "path": "x"}, 1.0) == progress


def test_remaining_time_counts_from_where_this_process_began() -> None:
    progress = RunProgress("demo", 1000)
    assert remaining_seconds(progress, 5.0) is None
    progress = advance(progress, {"step": 600}, 100.0)
    assert remaining_seconds(progress, 105.0) is None
    progress = advance(progress, {"step": 700}, 110.0)
    assert remaining_seconds(progress, 110.0) == pytest.approx(30.0)
    progress = advance(progress, {"step": 500}, 120.0)
    assert remaining_seconds(progress, 121.0) is None
    progress = advance(progress, {"step": 550}, 125.0)
    assert remaining_seconds(progress, 125.0) == pytest.approx(45.0)
    progress = advance(progress, {"step": 1200}, 121.0)
    assert remaining_seconds(progress, 121.0) is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.2, "1:00"), (75, "1:15"), (3600, "1:00:00"), (93784, "26:03:04")]
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_names_from_the_network_cannot_reach_the_terminal() -> None:
    assert printable("a\x1b[2Jb\n") == "a\ufffd[2Jb\ufffd"
    assert printable("x" * 50) == "x" * 39 + "…"
    name = "\x1b]0;owned\x07[bold]w[/bold]"
    progress = advance(RunProgress("demo", 10), {"event": "worker", "worker": name, "state": "\x1b[1m"}, 0.0)
    shown = "\n".join(screen(progress, 0.0))
    assert "\x1b]0" not in shown
    assert "[bold]w[/bold]" in shown


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_plain_lines_where_there_is_no_terminal() -> None:
    output, clock = io.StringIO(), Clock()
    display = LiveDisplay(RunProgress("demo", 40), Console(file=output, width=40), clock)
    with display:
        for step in range(1, 41):
            clock.now = step * 0.5
            display.write({"step": step, "loss": 4.0 - step / 40})
            if step == 15:
                display.write({"step": step, "validation_loss": 3.75})
        display.write({"step": 40, "validation_loss": 3.5})
        display.write({"event": "worker", "worker": "a\x1b", "state": "training", "lease": "0-19"})
        display.write({"event": "worker", "worker": "a\x1b", "steps_per_second": 3.0})
        display.write({"event": "worker", "worker": "a\x1b", "state": "lost"})
        display.write({"event": "checkpoint", "step_saved": 40})
    assert output.getvalue().splitlines() == [
        "step 1/40  loss 3.9750",
        "step 11/40  loss 3.7250  ETA 0:15",
        "step 15/40  loss 3.6250  validation loss 3.7500  ETA 0:13",
        "step 25/40  loss 3.3750  validation loss 3.7500  ETA 0:08",
        "step 35/40  loss 3.1250  validation loss 3.7500  ETA 0:03",
        "step 40/40  loss 3.0000  validation loss 3.7500",
        "step 40/40  loss 3.0000  validation loss 3.5000",
        "worker a\ufffd: training 0-19",
        "worker a\ufffd: lost",
    ]


def test_live_on_a_terminal() -> None:
    output = io.StringIO()
    console = Console(file=output, width=100, force_terminal=True)
    display = LiveDisplay(RunProgress("demo", 40), console, Clock())
    with display:
        display.write({"step": 40, "loss": 1.25})
    display.close()
    assert "40/40" in output.getvalue()
    assert "1.2500" in output.getvalue()
    assert plain_line(display.progress, 0.0) == "step 40/40  loss 1.2500"
