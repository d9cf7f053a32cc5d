"""What an event costs does not grow with the number of members, nor does the log for each of them."""

import pytest
from benchmarks.distributed.scale import star


@pytest.mark.parametrize("budgets", [False, True], ids=["equal shares", "budgets"])
def test_events_of_workers_cost_the_same_among_many(budgets: bool) -> None:
    few, many = star(40, 1, 1.0, budgets), star(1200, 1, 1.0, budgets)
    for kind in ("MemberJoined", "Heartbeat", "BlobStored", "Update"):
        # Thirty times the members; something that looks at all of them would show.
        assert many["microseconds"][kind]["p50"] < 2 * few["microseconds"][kind]["p50"], kind
    assert many["log_bytes_per_worker_and_round"] < 1.2 * few["log_bytes_per_worker_and_round"]
    assert many["state_bytes_per_worker"] < 1.2 * few["state_bytes_per_worker"]
