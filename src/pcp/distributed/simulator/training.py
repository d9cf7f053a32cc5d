"""Training that a reference can check: each batch moves the parameters by a number that depends on where they stood."""

import hashlib
from collections.abc import Iterable

from pcp.distributed.messages import DataRange

BYTES = 8
_MODULUS = 1 << 8 * BYTES


def initial_parameters() -> bytes:
    """Return what every simulated run starts from."""
    return (20231108).to_bytes(BYTES, "little")


def pseudo_gradient(parameters: bytes, data: DataRange) -> bytes:
    """Return the sum, over the batches, of a number fixed by the batch and the parameters.

    Integers add up in any order and grouping, so however the data was cut, the merged sum is one.
    """
    total = 0
    for batch in range(data.start, data.start + data.count):
        digest = hashlib.blake2b(parameters + batch.to_bytes(8, "little"), digest_size=BYTES).digest()
        total += int.from_bytes(digest, "little")
    return (total % _MODULUS).to_bytes(BYTES, "little")


def outer_step(parameters: bytes, pseudo_gradients: Iterable[bytes]) -> bytes:
    """Return the next parameters."""
    total = 31 * int.from_bytes(parameters, "little")
    total += sum(int.from_bytes(each, "little") for each in pseudo_gradients)
    return (total % _MODULUS).to_bytes(BYTES, "little")


def momentum(parameters: bytes) -> bytes:
    """Return the optimizer state that belongs to parameters."""
    return hashlib.blake2b(parameters, digest_size=2 * BYTES).digest()


def reference(rounds: Iterable[Iterable[DataRange]]) -> bytes:
    """Return the final parameters of a run that merges these ranges, each once, round by round, and nothing goes wrong."""
    parameters = initial_parameters()
    for ranges in rounds:
        parameters = outer_step(parameters, [pseudo_gradient(parameters, data) for data in ranges])
    return parameters
