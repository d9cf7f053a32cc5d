"""That a run merges nothing is said: for rounds and for exchanges, with a clock of the test's own."""

import pytest

from pcp.training.display.fleet import Fleet, state_of
from pcp.training.display.pace import FIRST_SECONDS, Pace
from pcp.training.display.table import render


def shown(fleet: Fleet, now: float) -> str:
    """The state, and the words in the table, which must agree."""
    from rich.console import Console

    summary = fleet.summary(now)
    console = Console(width=200)
    with console.capture() as capture:
        console.print(render(summary, []))
    assert summary["stalled"] in capture.get()
    assert ("no round" in capture.get()) == ("no round" in summary["stalled"])
    return state_of(summary)


def alive(fleet: Fleet, now: float, **facts: object) -> None:
    """A Shepherd tells of its traffic every five seconds, whatever it merges."""
    fleet.take({"event": "totals", "sent": 1, "received": 1, **facts}, now)


def running_fleet(in_pairs: bool = False) -> Fleet:
    fleet = Fleet("run", 1000, in_pairs)
    fleet.take({"event": "listening", "address": "here:1"}, 0.0)
    return fleet


def merge(fleet: Fleet, now: float, number: int) -> None:
    fleet.take({"step": 10 * number, "loss": 2.0, "tokens_per_second": 1.0, "round": number}, now)


def test_rounds_that_do_not_come() -> None:
    fleet = running_fleet()
    for number in range(1, 6):
        merge(fleet, 20.0 * number, number)
    alive(fleet, 190.0)
    assert shown(fleet, 190.0) == "running"
    alive(fleet, 300.0)
    assert shown(fleet, 300.0) == "running, but no round merged for 3:20, 10 times the usual 0:20"
    merge(fleet, 301.0, 6)
    assert shown(fleet, 302.0) == "running"


def test_short_rounds_are_given_half_a_minute() -> None:
    fleet = running_fleet()
    for number in range(1, 30):
        merge(fleet, 0.1 * number, number)
    alive(fleet, 25.0)
    assert shown(fleet, 25.0) == "running"
    alive(fleet, 40.0)
    assert shown(fleet, 40.0).startswith("running, but no round merged for 0:38, 37 times the usual 0:01")


def test_the_first_round_that_does_not_come() -> None:
    fleet = running_fleet()
    alive(fleet, FIRST_SECONDS - 1)
    assert shown(fleet, FIRST_SECONDS - 1) == "running"
    alive(fleet, FIRST_SECONDS)
    assert shown(fleet, FIRST_SECONDS) == "running, but no round merged for 10:00"


def test_a_pause_a_new_shepherd_silence_and_an_end_are_no_delays() -> None:
    fleet = running_fleet()
    for number in range(1, 6):
        merge(fleet, 10.0 * number, number)
    alive(fleet, 1000.0, paused=True)
    assert shown(fleet, 1000.0) == "paused"
    alive(fleet, 2000.0, paused=False)
    assert shown(fleet, 2010.0) == "running"
    alive(fleet, 2060.0)
    assert shown(fleet, 2060.0) == "running, but no round merged for 1:00, 6 times the usual 0:10"
    fleet.take({"event": "listening", "address": "here:2"}, 3000.0)
    assert shown(fleet, 3010.0) == "running"
    assert shown(fleet, 3100.0).startswith("silent for 1:40: killed, or it hangs; what is shown is as old")
    merge(fleet, 3101.0, 6)
    assert fleet.summary(3101.0)["unmerged_seconds"] == 0.0
    fleet.take({"event": "ended", "complete": True, "reason": "done"}, 3102.0)
    assert shown(fleet, 9000.0) == "complete"
    assert fleet.summary(9000.0)["unmerged_seconds"] is None


def test_a_round_is_not_usual_because_a_shepherd_was_away() -> None:
    fleet = running_fleet()
    merge(fleet, 10.0, 1)
    merge(fleet, 20.0, 2)
    fleet.take({"event": "listening", "address": "here:2"}, 5000.0)
    merge(fleet, 5010.0, 3)
    assert fleet._pace.usual == 10.0


def test_exchanges_count_where_workers_go_in_pairs() -> None:
    fleet = running_fleet(in_pairs=True)
    for turn in range(1, 8):  # a hundred workers, one soon after the other, each every twenty seconds
        for worker in range(100):
            now = 20.0 * turn + worker / 100
            fleet.take({"event": "worker", "worker": f"w{worker}", "state": "training", "updates": 1}, now)
    alive(fleet, 235.0)
    assert shown(fleet, 235.0) == "running", (
        "a turn is what is usual, not the time from one worker to the next"
    )
    fleet.take({"event": "worker", "worker": "w1", "state": "training", "lease": "0-9"}, 350.0)
    assert shown(fleet, 350.0) == "running, but no exchange for 3:30, 10 times the usual 0:20"


@pytest.mark.parametrize("in_pairs", [False, True])
def test_a_run_of_one_process_merges_nothing_and_is_not_blamed(in_pairs: bool) -> None:
    fleet = Fleet("run", 1000, in_pairs)
    for step in range(5):
        fleet.take({"step": step, "loss": 1.0}, float(step))
    fleet.take({"step": 6, "loss": 1.0}, 4000.0)
    assert shown(fleet, 4000.0) == "running"


def test_a_clock_that_goes_back_is_no_delay() -> None:
    pace = Pace("round merged")
    pace.begin(100.0)
    for at in (110.0, 90.0, 80.0):
        pace.mark(at)
    assert pace.since(70.0) == 0.0
    assert pace.overdue(70.0) == ""
