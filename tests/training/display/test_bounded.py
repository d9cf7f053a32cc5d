"""What a member says of itself takes only so much of the disk, whatever it says and however often."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from pcp.training.display.bounded import RECORD_LETTERS, ROWS_A_SECOND, ROWS_AT_ONCE, Bounded, cut
from pcp.training.display.fleet import Fleet
from pcp.training.display.metrics import JSONLinesFile, MetricSink, Record, read_metrics


class Kept(MetricSink):
    def __init__(self) -> None:
        self.records: list[Record] = []
        self.closed = False

    def write(self, record: Record) -> None:
        self.records.append(record)

    def close(self) -> None:
        self.closed = True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


LONG = "x" * (1 << 20)
HOSTILE: list[dict[str, Any]] = [
    {"event": "worker", "worker": "eve", "state": "lost", "reason": LONG},
    {"event": "worker", "worker": "eve", "state": "joining", "reason": "joined", "planned": LONG},
    {"event": "worker", "worker": LONG, "state": "joining"},
    {"event": "trouble", "message": LONG},
    {"event": "audit", "worker": "eve", "reason": LONG},
    {"event": "refused", "kind": LONG, "count": 1, "latest": LONG},
    {"event": "profile", "worker": "eve", "refused": 3},
]


@pytest.mark.parametrize(
    "record",
    [*HOSTILE, {"event": "totals", "refused_connections": {f"{n}{LONG[:500]}": n for n in range(5000)}}],
)
def test_a_record_is_cut(record: dict[str, Any]) -> None:
    short = cut(record)
    assert short.keys() == record.keys()
    assert len(json.dumps(short)) < 6 * RECORD_LETTERS
    assert short["event"] == record["event"]


def test_a_record_of_usual_length_stays_as_it_is() -> None:
    record = {
        "event": "worker",
        "worker": "ada",
        "loss": 1.5,
        "nothing": None,
        "pairs": [[1, 2.5, "a"]],
        "is": True,
    }
    assert cut(record) == record
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    assert len(json.dumps(cut({"deep": deep}))) < 50


def test_a_member_that_joins_and_leaves_all_the_time_takes_some_kilobytes_a_second(tmp_path: Path) -> None:
    """At 11 MB/s as was seen, a disk of a terabyte is full after a day."""
    clock, seconds = Clock(), 60
    with Bounded(JSONLinesFile(tmp_path / "metrics.jsonl"), clock) as sink:
        for _ in range(seconds):
            for each in HOSTILE * 10:
                sink.write(each)
            clock.now += 1.0
            sink.write({"event": "totals", "sent": 1})
    size = (tmp_path / "metrics.jsonl").stat().st_size
    sources = 5
    rows = (ROWS_AT_ONCE + ROWS_A_SECOND * seconds) * sources + seconds
    assert size < 1000 * rows
    records = read_metrics(tmp_path / "metrics.jsonl")
    assert len(records) <= rows + sources
    written = [record for record in records if record["event"] != "totals"]
    assert sum(1 + record.get("skipped", 0) for record in written) == seconds * 10 * len(HOSTILE)


@pytest.mark.parametrize("seed", range(5))
def test_sums_and_the_last_state_are_those_of_all_records(seed: int) -> None:
    draw, clock, kept = random.Random(seed), Clock(), Kept()
    plain, bounded = Fleet("run", 100), Fleet("run", 100)
    with Bounded(kept, clock) as sink:
        for _ in range(3000):
            clock.now += draw.choice((0.0, 0.001, 0.1))
            record: dict[str, Any] = {
                "event": "worker",
                "worker": draw.choice("ab"),
                "state": draw.choice(("waiting", "training", "lost", "joining")),
            }
            if draw.random() < 0.5:
                record |= {
                    "updates": 1,
                    "tokens": draw.randint(1, 9),
                    "trained_seconds": 0.5,
                    "loss": draw.random(),
                }
            plain.take(record, clock.now)
            sink.write(record)
    assert kept.closed
    assert len(kept.records) < 3000
    for each in kept.records:
        bounded.take(each, clock.now)
    for name in "ab":
        one, other = plain.workers[name], bounded.workers[name]
        assert (one.state, one.updates, one.tokens, one.loss) == (
            other.state,
            other.updates,
            other.tokens,
            other.loss,
        )


def test_what_the_shepherd_says_of_itself_is_never_held_back() -> None:
    clock, kept = Clock(), Kept()
    sink = Bounded(kept, clock)
    for step in range(2000):
        sink.write({"step": step, "loss": 1.0})
    assert [record["step"] for record in kept.records] == list(range(2000))
