"""What arrays that a program takes are known to begin with, told in little: whoever measures the program draws such ones."""

import hashlib
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pcp.ir.types import TensorSpec

MOST_BYTES = 1 << 20
"""Compressed, of an array that is kept as it is."""
_MOST_TRIED = 1 << 26
_SAMPLE = 1 << 16
_LITTLE = 1e-3
"""A deviation that is less than this part of the mean is none."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Beginning:
    """What one argument begins with.

    Arguments:
        mean, deviation: of normal numbers in the place of an array that is not kept; rounded, so that weights that are drawn
            anew begin with the same.
        held: the bytes of the array, compressed; empty where it is not kept.
        digest: says which array is kept.
    """

    mean: float = 0.0
    deviation: float = 0.0
    held: bytes = field(default=b"", repr=False)
    digest: str = ""

    @staticmethod
    def like(array: Any) -> "Beginning":
        """Numbers of the mean and the deviation of an array of real numbers."""
        flat = np.asarray(array).reshape(-1)
        sample = flat[:: max(1, flat.size // _SAMPLE) | 1].astype(np.float64)
        sample = sample[np.isfinite(sample)]
        if not sample.size:
            return Beginning()
        mean, deviation = float(np.mean(sample)), float(np.std(sample))
        if deviation <= _LITTLE * abs(mean):
            return Beginning(mean)
        size = 2.0 ** (round(2 * math.log2(deviation)) / 2) if deviation else 0.0
        return Beginning(0.0 if abs(mean) < deviation / 4 else float(f"{mean:.2g}"), size)

    @staticmethod
    def of(array: Any) -> "Beginning | None":
        """An array itself, or such numbers if it is large; None of large integers."""
        here = np.ascontiguousarray(array)
        held = zlib.compress(here.tobytes()) if here.nbytes <= _MOST_TRIED else b""
        if held and len(held) <= MOST_BYTES:
            return Beginning(held=held, digest=hashlib.sha256(held).hexdigest()[:16])
        return None if here.dtype.kind in "biuc" else Beginning.like(here)

    def array(self, spec: TensorSpec, drawn: Callable[[], Array]) -> Array:
        """An array to begin with.

        Arguments:
            spec: of it.
            drawn: makes normal numbers of its shape.
        """
        if self.held:
            return np.frombuffer(zlib.decompress(self.held), spec.dtype.numpy).reshape(spec.shape)
        if not self.deviation:
            return np.full(spec.shape, self.mean)
        return drawn() * np.float32(self.deviation) + np.float32(self.mean)
