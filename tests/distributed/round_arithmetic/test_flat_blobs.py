"""Fragments on disk."""

import numpy as np
import pytest

from pcp.distributed.round_arithmetic.array_blobs import ArraysRefused, store_arrays
from pcp.distributed.round_arithmetic.flat_blobs import load_vector, store_vector
from pcp.distributed.wire.blobs import BlobStore

VECTOR = np.random.default_rng(4).normal(size=70).astype(np.float32)


def test_a_fragment_comes_back(store: BlobStore) -> None:
    blob = store_vector(store, VECTOR)
    found = load_vector(store, blob, 70, finite=True)
    assert found.dtype == np.float32
    assert np.array_equal(found, VECTOR)
    assert store_vector(store, found) == blob


def test_something_else_is_refused(store: BlobStore) -> None:
    with pytest.raises(ArraysRefused, match=r"is float32\[70\]; expected f32\[71\]"):
        load_vector(store, store_vector(store, VECTOR), 71)
    with pytest.raises(ArraysRefused, match="other arrays than expected"):
        load_vector(store, store_arrays(store, {"w": VECTOR}), 70)
    broken = store_vector(store, np.where(VECTOR > 2, np.nan, VECTOR * np.inf))
    load_vector(store, broken, 70)
    with pytest.raises(ArraysRefused, match=r"array 'values' .* holds infinities or NaN"):
        load_vector(store, broken, 70, finite=True)
