"""What an event costs does not grow with the number of members, nor does the log for each of them."""

from benchmarks.distributed.scale import star


def test_events_of_workers_cost_the_same_among_many() -> None:
    few, many = star(40, rounds=1, quorum=1.0), star(400, rounds=1, quorum=1.0)
    for kind in ("MemberJoined", "Heartbeat", "BlobStored", "Update"):
        # Ten times the members; something that looks at all of them would show.
        assert many["microseconds"][kind]["p50"] < 3 * few["microseconds"][kind]["p50"], kind
    assert many["log_bytes_per_worker_and_round"] < 1.2 * few["log_bytes_per_worker_and_round"]
    assert many["state_bytes_per_worker"] < 1.2 * few["state_bytes_per_worker"]
