"""Arrays with poison around them: what reads beyond an array gets NaN, and what writes there, or into it, is found out."""

from typing import Any

import jax
import numpy as np

GUARD_BYTES = 4096
_ALIGNMENT = 64
_POISON = 0xFF
"""Every element type of floating-point numbers reads NaN where all bits are set; signed integers read -1."""


class Guarded:
    """A copy of an array in the middle of poisoned memory, which the processor's buffer `buffer` shares.

    Other devices have memory of their own, where nothing is guarded.
    """

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._memory = np.full(array.nbytes + 2 * GUARD_BYTES + _ALIGNMENT, _POISON, np.uint8)
        start = GUARD_BYTES + -(self._memory.ctypes.data + GUARD_BYTES) % _ALIGNMENT
        self._inside = slice(start, start + array.nbytes)
        self._memory[self._inside] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        view = self._memory[self._inside].view(array.dtype).reshape(array.shape)
        self._before = self._memory[self._inside].copy()
        with jax.enable_x64(True):
            self.buffer = jax.device_put(view, may_alias=True)

    @property
    def intact(self) -> bool:
        """Whether the array and the poison around it are what they were."""
        outside = (self._memory[: self._inside.start], self._memory[self._inside.stop :])
        return np.array_equal(self._memory[self._inside], self._before) and all(
            bool((part == _POISON).all()) for part in outside
        )
