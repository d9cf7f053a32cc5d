"""Training as sums of whole numbers on bytes alone, which ten thousand workers can do: a push is one number.

What a batch adds depends on the parameters that were adopted last, and sums have no order, so however the data was
cut, the parameters of a run that waits for every merge tell whether each batch was merged once.
"""

import hashlib
from collections.abc import Iterable

from pcp.distributed.messages import DataRange

BYTES = 8
MODULUS = 1 << 8 * BYTES
_INITIAL = 20231108


def initial(fragment: int = 0) -> bytes:
    """Return what a fragment starts from."""
    return (_INITIAL + fragment).to_bytes(BYTES, "little")


def movement(parameters: bytes, data: DataRange) -> int:
    """Return what some batches add to a push, from these parameters."""
    return sum(
        int.from_bytes(
            hashlib.blake2b(parameters + batch.to_bytes(8, "little"), digest_size=BYTES).digest(), "little"
        )
        for batch in range(data.start, data.start + data.count)
    )


def push(moved: int) -> bytes:
    """Return the content of a push."""
    return (moved % MODULUS).to_bytes(BYTES, "little")


def value(content: bytes) -> int:
    """Return the number of a content."""
    return int.from_bytes(content, "little")


def outer_step(parameters: bytes, pushes: Iterable[bytes]) -> bytes:
    """Return the next parameters."""
    return push(31 * value(parameters) + sum(value(each) for each in pushes))


def reference(rounds: Iterable[DataRange]) -> bytes:
    """Return the parameters of a run that merges these batches, each once, round by round."""
    parameters = initial()
    for data in rounds:
        parameters = outer_step(parameters, [push(movement(parameters, data))])
    return parameters
