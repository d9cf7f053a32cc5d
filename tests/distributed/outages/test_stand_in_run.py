"""What is made of the lines of a Worker whose steps sleep, and the table of the ways."""

import pytest
from benchmarks.distributed.machines.stand_in_run import Steps

from benchmarks.distributed import utilisation

PROGRAMS, WORKER = "12:00:00 pcp.distributed.worker.programs", "12:00:00 pcp.distributed.worker"
SAID = [
    f"{PROGRAMS}: step 10.5000 1.000",
    f"{PROGRAMS}: step 11.0000 1.001",
    f"{WORKER}: lease 7: 2 steps in 1.2 s (200.0 ms of it outside of the steps; waited 0.500 s for fragments), loss 1.0",
    f"{WORKER}: pushed 520 bytes in 5.1 ms",
    f"{PROGRAMS}: step 13.0000 1.400",
    f"{PROGRAMS}: step 13.5000 1.500",
    f"{WORKER}: lease 8: 2 steps in 2.5 s (700.0 ms of it outside of the steps; waited 0.250 s for fragments), loss 1.0",
]


def test_shares_and_what_the_rest_is_spent_on() -> None:
    steps = Steps()
    for line in SAID:
        steps.read(line)
    assert steps.ends == [10.5, 11.0, 13.0, 13.5]
    assert steps.share(1, 4, 0.5) == pytest.approx(1.5 / 3.0)
    assert steps.share(3, 4, 0.5) == 1.0
    assert steps.blocked(1, 4, 0.5) == pytest.approx((1.5, 0.5))
    assert steps.spent(0, 4) == pytest.approx((0.9, 0.75))
    assert steps.spent(2, 4) == pytest.approx((0.7, 0.25))


def row(way: str, lines: bool, share: float, up: float, wanted: float | None = None) -> dict[str, object]:
    moved = {"bytes_up_a_step": up, "bytes_down_a_step": 2 * up} if lines else {}
    blocked = {"blocked_seconds_a_round": 1.0, "waited_seconds_a_round": 0.25}
    return {"way": way, "lines": lines, "utilisation": share, "wanted": wanted, **blocked, **moved}


def test_the_table_compares_bytes_with_data_parallel_training() -> None:
    rows = [
        row("streaming-int4", True, 0.98, 1e5, 0.97),
        row("streaming-int4", False, 0.99, 0),
        row("data-parallel-f32", True, 0.05, 3e7),
    ]
    assert utilisation.table(rows).splitlines()[3:] == [
        "| streaming-int4 | 98.0% | 97% | 1.00 s (0.25 s) | 99.0%, 1.00 s (0.25 s) | 100.0 | 200.0 | 300 times | 300 times |",
        "| data-parallel-f32 | 5.0% |  | 1.00 s (0.25 s) |  | 30,000.0 | 60,000.0 |  |  |",
    ]
