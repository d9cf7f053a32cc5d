"""A run followed by its files: live, finished, dead, begun again, and with ten thousand workers."""

import json
import math
import time
from pathlib import Path

import pytest

from pcp.dashboard.follower import Follower
from pcp.training.display.fleet import POINTS, SPANS_KEPT, Curve, Fleet, state_of
from pcp.training.display.metrics import MetricsCorrupt
from tests.dashboard.written import add, written_run


def test_a_live_run(tmp_path: Path) -> None:
    now = time.time()
    folder = written_run(tmp_path / "run")
    follower = Follower(folder)
    summary = follower.update().summary(now)
    assert state_of(summary) == "running"
    assert summary["workers"] == {"lost": 1, "training": 1, "waiting": 1}
    assert (summary["step"], summary["round"], summary["loss"]) == (50, 1, 2.5)
    assert summary["planned"] == {"path 0123: 0.45 of the plain time": 3}
    # Two were there for 19 s, one for 11 s; each trained 7.6 s.
    assert summary["utilisation"] == pytest.approx(3 * 7.6 / (19 + 19 + 11), rel=0.01)
    first, _, last = follower.fleet.rows(now)
    assert first["utilisation"] == pytest.approx(7.6 / 19, rel=0.01)
    assert [each[1:] for each in first["spans"]] == [
        [pytest.approx(now - 10, abs=0.5), "0-49"],
        [None, "150-199"],
    ]
    assert (last["state"], last["lease"], last["spans"][-1][1]) == (
        "lost",
        "",
        pytest.approx(now - 10, abs=0.5),
    )
    add(folder, now, step=100, loss=2.0, round=2)
    with folder.metrics_file.open("a") as file:
        file.write('{"step": 150, "lo')  # torn: its Shepherd writes just now, or was killed
    assert follower.update().summary(now)["step"] == 100
    with folder.metrics_file.open("a") as file:
        file.write('ss": 1.5}\n')
    assert follower.update().summary(now)["loss"] == 1.5


def test_how_a_run_ended_or_that_it_is_dead(tmp_path: Path) -> None:
    folder = written_run(tmp_path / "run")
    follower, now = Follower(folder), time.time()
    later = follower.update().summary(now + 3600)
    assert state_of(later).startswith("silent for 1:00:0")
    assert later["utilisation"] == pytest.approx(3 * 7.6 / (18 + 18 + 11), rel=0.02), (
        "no worker idles in a dead run"
    )
    add(folder, now, event="ended", complete=False, reason="interrupted")
    assert state_of(follower.update().summary(now)) == "stopped: interrupted"
    add(folder, now + 60, event="listening", address="127.0.0.1:7434", run="")
    summary = follower.update().summary(now + 60)
    assert (state_of(summary), summary["address"]) == ("running", "127.0.0.1:7434")
    assert summary["workers"] == {"lost": 3}, "those of the Shepherd before come anew"
    add(folder, now + 61, event="worker", worker="w0", state="joining")
    assert follower.update().summary(now + 61)["workers"] == {"joining": 1, "lost": 2}
    add(
        folder,
        now + 62,
        event="totals",
        sent=1,
        received=1,
        refused_updates={},
        refused_connections={},
        paused=True,
    )
    assert state_of(follower.update().summary(now + 62)) == "paused"
    add(folder, now + 63, event="ended", complete=True, reason="the run is complete")
    summary = follower.update().summary(now + 9999)
    assert state_of(summary) == "complete"
    assert summary["workers"] == {"done": 1, "lost": 2}, "who was there at the end is not lost"


def test_a_run_that_writes_no_times_and_one_that_wrote_nothing(tmp_path: Path) -> None:
    folder = written_run(tmp_path / "run")
    folder.metrics_file.unlink()
    assert state_of(Follower(folder).update().summary(time.time())) == "not begun"
    folder.metrics_file.write_text('{"step": 3, "loss": "NaN"}\n')
    summary = Follower(folder).update().summary(time.time())
    assert (state_of(summary), summary["step"]) == ("running", 3)
    assert math.isnan(summary["loss"])


def test_a_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    folder = written_run(tmp_path / "run", workers=1)
    count = len(folder.metrics_file.read_text().splitlines())
    with folder.metrics_file.open("a") as file:
        file.write("[1]\n")
    with pytest.raises(MetricsCorrupt, match=f"line {count + 1}, is not a JSON object"):
        Follower(folder).update()


def test_a_curve_is_thinned_and_goes_back_with_its_run() -> None:
    curve = Curve()
    for step in range(100 * POINTS):
        curve.add(step, 2.0 * step)
    assert POINTS <= len(curve.points) < 2 * POINTS
    assert all(value == 2.0 * step for step, value in curve.points)
    assert curve.points[-1][0] > 99 * POINTS
    curve.add(50 * POINTS, 7.0)
    assert curve.points[-1][0] <= 50 * POINTS
    assert len(curve.points) > POINTS / 3


def test_ten_thousand_workers_take_no_more_for_a_record_and_a_summary() -> None:
    def cost(workers: int) -> float:
        fleet = Fleet("run", 100)
        for number in range(workers):
            fleet.take({"event": "worker", "worker": f"w{number}", "state": "joining"}, 0.0)
        least = math.inf
        for _ in range(5):
            began = time.process_time()
            for at in range(300):
                fleet.take({"event": "worker", "worker": f"w{at % 100}", "steps_per_second": 3.0}, at)
                fleet.summary(at)
            least = min(least, time.process_time() - began)
        return least

    assert cost(10_000) < 4 * cost(100)


def test_what_is_kept_of_a_worker_is_bounded() -> None:
    fleet = Fleet("run", 100)
    for at in range(1000):
        fleet.take({"event": "worker", "worker": "w", "state": "training", "lease": f"{at}"}, at)
        fleet.take(
            {"event": "worker", "worker": "w", "state": "waiting", "lease": "", "reason": "x" * 5000}, at
        )
        fleet.take({"event": "worker", "worker": "w", "planned": f"path {at}"}, at)
        fleet.take({"event": "trouble", "message": "t"}, at)
    (row,) = fleet.rows(1000.0)
    assert len(row["spans"]) == SPANS_KEPT
    assert len(json.dumps(row) + json.dumps(fleet.summary(1000.0))) < 8000
    assert fleet.summary(1000.0)["planned"] == {"path 999": 1}
