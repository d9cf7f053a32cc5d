"""The pieces of a lease: what a worker commits to one by one, and what another may have to repeat."""


def borders(steps: int, pieces: int) -> tuple[int, ...]:
    """Return the steps of a lease before which a worker commits to its state; the last is the end, after the push.

    Arguments:
        steps: of the lease.
        pieces: to cut it into; fewer if there are fewer steps, but one at least.
    """
    count = max(1, min(pieces, steps))
    return tuple(steps * each // count for each in range(count + 1))
