"""What a kernel writes around or into its operands is noticed."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pcp.backends.jax_guard import GUARD_BYTES, Guarded


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float64, np.int32])
def test_the_copy_is_the_array_and_poison_is_around_it(dtype: Any) -> None:
    array: Any = np.random.default_rng(0).standard_normal((7, 5)).astype(dtype)
    guarded = Guarded(array)
    assert np.asarray(guarded.buffer).tobytes() == array.tobytes()
    assert guarded.buffer.dtype == array.dtype
    after: Any = guarded._memory[guarded._inside.stop :][: 4 * array.itemsize].view(dtype)
    assert np.isnan(after.astype(np.float64)).all() or (after == -1).all()
    assert guarded.intact


@pytest.mark.parametrize("offset", [-1, 0, 139, 140, GUARD_BYTES])
def test_a_byte_that_was_written_is_noticed(offset: int) -> None:
    guarded = Guarded(np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32))
    guarded._memory[guarded._inside.start + offset] ^= 0x11
    assert not guarded.intact
