"""When a lease is near its end, so that its worker says so, and may be given the next one."""

HEARTBEATS = 2
STEPS = 2
"""A step is heard of when the next one is under way or done, and an answer takes a round trip."""


def is_near_end(left: int, seconds_per_step: float, heartbeat_seconds: float) -> bool:
    """Return whether a lease is over within two heartbeats, or two steps.

    Arguments:
        left: batches that are not trained.
        seconds_per_step: 0 while that is unknown.
        heartbeat_seconds: interval of heartbeats.
    """
    return left <= STEPS or 0 < left * seconds_per_step <= HEARTBEATS * heartbeat_seconds
