"""A small linear picture of each leaf of a contribution, from which angles between contributions can be read."""

from collections.abc import Sequence

import numpy as np

from pcp import ops
from pcp.distributed.merging.accumulation import borders
from pcp.distributed.merging.base import Segment
from pcp.tensor import Tensor

BUCKETS = 512  # the error of a cosine is about 1 / sqrt(buckets of all leaves)
SIGNATURE = 64
# Multipliers of a multiplicative hash: odd, with bits all over.
_FIRST, _SECOND = 0x9E3779B1, 0x85EBCA6B


def sketch(vector: Tensor, segments: Sequence[Segment]) -> Tensor:
    """The sums of each leaf's values by place modulo `BUCKETS`, each value with a sign that looks random.

    Angles and lengths survive, on average; a leaf of up to `BUCKETS` values is kept as it is.

    Arguments:
        vector: of shape (n,).
        segments: its leaves.

    Returns:
        Of shape (leaves, BUCKETS).

    Source: Charikar, Chen, Farach-Colton, "Finding frequent items in data streams", 2002 (the count sketch).
    """
    return ops.stack([_folded(vector[start:end]) for start, end in borders(segments)])


def _folded(leaf: Tensor) -> Tensor:
    size = leaf.shape[0]
    rows = -(-size // BUCKETS)
    signed = leaf * _signs(size) if rows > 1 else leaf
    return ops.sum(ops.reshape(ops.pad(signed, [(0, rows * BUCKETS - size)]), (rows, BUCKETS)), 0)


def _signs(size: int) -> Tensor:
    places = ops.convert(ops.iota((size,), 0), "u32")
    mixed = places * np.uint32(_FIRST)
    mixed = ops.bitwise_xor(mixed, ops.shift_right(mixed, np.uint32(15))) * np.uint32(_SECOND)
    return ops.where(ops.shift_right(mixed, np.uint32(31)) == 0, 1.0, -1.0)


def signatures(sketches: np.ndarray) -> np.ndarray:
    """Sketches folded further, in float64, to know a vector again that was seen before.

    Arguments:
        sketches: of shape (contributions, leaves, BUCKETS).

    Returns:
        Of shape (contributions, SIGNATURE).
    """
    count, leaves, buckets = sketches.shape
    signs = np.random.default_rng(leaves).choice((-1.0, 1.0), leaves * buckets)
    folded: np.ndarray = (sketches.reshape(count, -1) * signs).reshape(count, -1, SIGNATURE).sum(1)
    return folded
