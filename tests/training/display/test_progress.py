"""The display of a run, rendered to text."""

import io

import pytest
from rich.console import Console

from pcp.training.display.fleet import Fleet
from pcp.training.display.live_display import LiveDisplay
from pcp.training.display.progress import (
    RunProgress,
    advance,
    format_duration,
    printable,
    remaining_seconds,
)
from pcp.training.display.table import ROWS_SHOWN, plain_line, render


def screen(fleet: Fleet, now: float, hint: str = "") -> list[str]:
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True)
    console.print(render(fleet.summary(now), fleet.rows(now, 0, ROWS_SHOWN), hint))
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_a_run_in_one_process() -> None:
    fleet = Fleet("gpt2-nano", 2000)
    for step, now in ((0, 0.0), (500, 10.0)):
        fleet.take({"step": step, "loss": 2.34567, "tokens_per_second": 38400.4}, now)
    fleet.take({"step": 500, "validation_loss": 2.4}, 10.0)
    bar, numbers = screen(fleet, 10.0)
    assert bar.startswith("gpt2-nano ")
    assert bar.endswith(" 500/2,000")
    assert len(bar) == 100
    assert numbers == "loss 2.3457  validation loss 2.4000  tokens/s 38,400  ETA 0:30"


def test_a_run_with_workers() -> None:
    fleet = Fleet("demo", 1000)
    for at, name, facts in (
        (1.5, "alpha", {}),
        (3.0, "beta", {"state": "training", "lease": "20-39"}),
        (4.0, "beta", {"steps_per_second": 12.34}),
        (2.0, "gone", {"state": "training", "lease": "40-59"}),
        (
            5.0,
            "gone",
            {"state": "waiting", "lease": "", "updates": 1, "tokens": 5120, "trained_seconds": 1.5},
        ),
        (6.0, "gone", {"state": "waiting", "refused": 1, "reason": "refused: unknown lease"}),
        (8.0, "gone", {"state": "lost"}),
        (8.0, "gone", {"state": "waiting", "lease": "", "reason": "its lease ended"}),
    ):
        fleet.take({"event": "worker", "worker": name, **facts}, at)
    lines = screen(fleet, 14.25, "join with: pcp worker")
    assert [line.split() for line in lines[2:6]] == [
        ["worker", "state", "lease", "steps/s", "busy", "tokens", "refused", "heard"],
        ["alpha", "joining", "-", "-", "0%", "-", "0", "12.8", "s", "ago"],
        ["beta", "training", "20-39", "12.3", "0%", "-", "0", "10.2", "s", "ago"],
        ["gone", "lost", "-", "-", "25%", "5,120", "1", "8.2", "s", "ago"],
    ]
    assert lines[6:] == ["join with: pcp worker"]


def test_more_workers_than_a_table_has_room_for() -> None:
    fleet = Fleet("demo", 10)
    for number in range(ROWS_SHOWN + 3):
        fleet.take({"event": "worker", "worker": f"w{number}", "state": "training"}, 1.0)
    lines = screen(fleet, 1.0)
    assert lines[-1] == "and 3 more workers"
    assert "workers 23 training" in lines[1]


def test_bytes_and_refusals_by_reason() -> None:
    fleet = Fleet("demo", 10)
    totals = {
        "event": "totals",
        "sent": 1_234_000,
        "received": 999,
        "refused_updates": {"the lease had ended": 2},
        "refused_connections": {"capacity": 1200},
    }
    fleet.take(totals, 1.0)
    fleet.take({"event": "refused", "kind": "capacity", "count": 1, "latest": "10.0.0.9: \x1b[2Jfull"}, 1.0)
    lines = screen(fleet, 1.0)
    assert lines[1] == "sent 1.2 MB  received 999 B  refused 1,202"
    assert lines[2:] == [
        "2 updates refused: the lease had ended",
        "1,200 connections refused: capacity; the latest: 10.0.0.9: \ufffd[2Jfull",
    ]


def test_nothing_is_known_at_the_start() -> None:
    bar, numbers = screen(Fleet("demo", 0), 0.0)
    assert bar.endswith(" 0")
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
    fleet = Fleet("demo", 10)
    fleet.take({"event": "worker", "worker": name, "state": "\x1b[1m"}, 0.0)
    shown = "\n".join(screen(fleet, 0.0))
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
    display = LiveDisplay(Fleet("demo", 40), Console(file=output, width=40), clock)
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
    display = LiveDisplay(Fleet("demo", 40), console, Clock())
    with display:
        display.write({"step": 40, "loss": 1.25})
    display.close()
    assert "40/40" in output.getvalue()
    assert "1.2500" in output.getvalue()
    assert plain_line(display.fleet.summary(0.0)) == "step 40/40  loss 1.2500"
