"""When a lease is near its end, so that its worker says so, and may be given the next one."""


def is_near_end(left: int, seconds_per_step: float, heartbeat_seconds: float) -> bool:
    """Return whether a lease is over within a heartbeat, or with the step under way.

    Arguments:
        left: batches that are not trained.
        seconds_per_step: 0 while that is unknown.
        heartbeat_seconds: interval of heartbeats.
    """
    return left <= 1 or 0 < left * seconds_per_step <= heartbeat_seconds
