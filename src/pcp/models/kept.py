"""Matrices from files that are kept in fewer bits, until they are parameters."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
HALF_BLOCK = 8
"""What integers of four bits are kept too large by."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A matrix of float32 as `nn.quantised_product` reads it.

    Arguments:
        parts: `values` with a row for each output, `scales` and perhaps `offsets`.
        is_turned: whether its shape is (inputs, outputs), and not (outputs, inputs).
    """

    parts: Mapping[str, Array]
    is_turned: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """That of what it means."""
        outputs, inputs = self.parts["values"].shape
        inputs *= 2 if self.parts["values"].dtype == np.uint8 else 1
        return (inputs, outputs) if self.is_turned else (outputs, inputs)

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of what it means."""
        return np.dtype(np.float32)

    @property
    def nbytes(self) -> int:
        """What it takes."""
        return sum(part.nbytes for part in self.parts.values())

    @property
    def T(self) -> "Kept":
        """Its transpose, which is kept alike."""
        return Kept(self.parts, not self.is_turned)

    def __getitem__(self, outputs: slice | Array) -> "Kept":
        """Some of its outputs."""
        return Kept({name: part[outputs] for name, part in self.parts.items()}, self.is_turned)

    def wide(self) -> Array:
        """What it means, in float64."""
        values = self.parts["values"]
        outputs, inputs = self.parts["values"].shape[0], math.prod(self.shape) // len(values)
        if values.dtype == np.uint8:
            packed = values.reshape(outputs, -1, 1, 16).astype(np.int8)
            values = np.concatenate([packed & 15, packed >> 4 & 15], 2) - np.int8(HALF_BLOCK)
        scales = self.parts["scales"].astype(np.float64).reshape(outputs, -1, 1)
        found = (values.reshape(outputs, scales.shape[1], -1) * scales).reshape(outputs, inputs)
        if "offsets" in self.parts:
            found += np.repeat(self.parts["offsets"], inputs // self.parts["offsets"].shape[1], 1)
        turned: Array = found.T if self.is_turned else found
        return turned


def halves(integers: Array) -> Array:
    """Integers from 0 to 15, (..., 32), two in a byte: the first half in the lower bits."""
    integers = integers.astype(np.uint8, copy=False)
    found: Array = integers[..., :16] | integers[..., 16:] << 4
    return found
