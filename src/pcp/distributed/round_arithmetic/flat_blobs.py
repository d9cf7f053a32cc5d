"""Fragments as blobs: the parameters of a fragment are one array in a file."""

from typing import Any

import numpy as np
import numpy.typing as npt

from pcp.distributed.messages import Blob
from pcp.distributed.round_arithmetic.array_blobs import load_arrays, store_arrays
from pcp.distributed.wire.blobs import BlobStore
from pcp.ir import DType, TensorSpec
from pcp.ir.tree import flatten

VECTOR = "values"


def store_vector(store: BlobStore, vector: Any) -> Blob:
    """Store a flat fragment.

    Raises:
        BlobTooLarge, StoreFull: there is no room for it.
    """
    return store_arrays(store, {VECTOR: np.asarray(vector, np.float32)})


def load_vector(store: BlobStore, blob: Blob, size: int, finite: bool = False) -> npt.NDArray[np.float32]:
    """A flat fragment of a number of elements.

    Raises:
        ArraysRefused: the blob holds something else, or with `finite` infinities or NaN.
        BlobMissing: it is not in the store.
    """
    tree = flatten({VECTOR: 0})[1]
    vector: npt.NDArray[np.float32] = load_arrays(
        store, blob, tree, [TensorSpec((size,), DType.f32)], finite
    )[VECTOR]
    return vector
