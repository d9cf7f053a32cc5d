"""The whole inner state of a worker as a blob, whose digest the worker commits to."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp.distributed.messages import Blob
from pcp.distributed.round_arithmetic.array_blobs import NOT_ARRAYS, load_arrays, no_arrays, store_arrays
from pcp.distributed.round_arithmetic.program_fit import Arrays
from pcp.distributed.round_arithmetic.replica import Replica
from pcp.distributed.wire.blobs import BlobStore
from pcp.ir import TensorSpec
from pcp.ir.tree import flatten
from pcp.ir.types import dtype_of
from pcp.training.data.safetensors_file import view_arrays


def store_inner(store: BlobStore, replica: Replica) -> Blob:
    """Store the inner state of a replica; equal states give equal blobs.

    Raises:
        BlobTooLarge, StoreFull: there is no room for it.
    """
    return store_arrays(store, replica.inner())


def load_inner(store: BlobStore, blob: Blob, state: Arrays, vectors: Sequence[Arrays]) -> dict[str, Any]:
    """An inner state that another worker stored, for `Replica.restore`.

    Arguments:
        state: the state of the training step, as the run's programs take it.
        vectors: the fragments, likewise.

    Raises:
        ArraysRefused: the blob holds something else, or infinities or NaN.
        BlobMissing: it is not in the store.
    """
    content = store.get(blob)  # the digest is checked before anything in it is believed
    try:
        names = set(view_arrays(store.path(blob.digest), np.frombuffer(content, np.uint8)))
    except NOT_ARRAYS as error:
        raise no_arrays(blob, error) from None
    every = {str(number): vector.specs[0] for number, vector in enumerate(vectors)}
    expected = {
        "state": state.tree.unflatten(state.specs),
        "anchors": every,
        "references": every,
        "residuals": every,
        "unsettled": {
            number: {"error": spec, "left": spec}
            for number, spec in every.items()
            if f"unsettled.{number}.error" in names
        },
        "unpushed": {
            number: TensorSpec((), dtype_of("i32")) for number in every if f"unpushed.{number}" in names
        },
        "held": {number: spec for number, spec in every.items() if f"held.{number}" in names},
    }
    leaves, tree = flatten(expected)
    return dict(load_arrays(store, blob, tree, leaves, finite=True))


def relative_distance(one: Any, other: Any) -> float:
    """The largest distance between two arrays of the same place, relative to the longer; infinite where places differ.

    Arguments:
        one, other: nested arrays of finite numbers.
    """
    (first, tree), (second, other_tree) = flatten(one), flatten(other)
    if tree != other_tree:
        return math.inf
    largest = 0.0
    for left, right in zip(first, second, strict=True):
        a, b = np.asarray(left, np.float64), np.asarray(right, np.float64)
        if a.shape != b.shape:
            return math.inf
        length = max(np.linalg.norm(a), np.linalg.norm(b))
        if length:
            largest = max(largest, float(np.linalg.norm(a - b) / length))
    return largest
