"""Changes of arrays that few numbers describe, so that one compiled program makes every change of an array of some shape."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.ir import DType
from pcp.ops.elementwise import (
    bitwise_and,
    bitwise_xor,
    convert,
    is_finite,
    minimum,
    shift_right,
    where,
)
from pcp.ops.movement import iota, reshape
from pcp.ops.reductions.primitives import sum_
from pcp.tensor import Tensor

Array = np.ndarray[Any, Any]

MOST_PLACES = 8
"""Places of an array at which a change puts other numbers."""
_MULTIPLIERS = (0x7FEB352D, 0x846CA68B)
"""Of a hash of 32 bits that changes half of the bits of a result with any of its argument.

Source: Wellons, "Prospecting for Hash Functions", 2018.
"""
_WIDE = 1 << 31


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """What becomes of an array, whose rows lie along its last axis: x times a factor, plus an addend, in float32 between.

    Arguments:
        factor: of every element.
        rows, columns: instead, of every row and of every place in one; where both are given the smaller counts. float32.
        addend: of every place in a row, float32; or one for all.
        chosen: in each row, the place of an element that has a factor and an addend of its own, int32.
        own: those.
        places, values: of single elements in order, and what stands there instead; `MOST_PLACES` at most.
        step: by which part every element moves up or down, by chance.
        seed: of that.
    """

    factor: float = 1.0
    rows: Array | None = None
    columns: Array | None = None
    addend: Array | float = 0.0
    chosen: Array | None = None
    own: tuple[float, float] = (1.0, 0.0)
    places: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    step: float = 0.0
    seed: int = 0

    @property
    def is_none(self) -> bool:
        """Whether everything stays."""
        has_arrays = any(each is not None for each in (self.rows, self.columns, self.chosen))
        is_added = isinstance(self.addend, np.ndarray) or self.addend != 0.0
        return not (has_arrays or is_added or self.places or self.step) and self.factor == 1.0

    def of(self, x: Array) -> Array:
        """The changed array, as float32 of its shape."""
        wide = x.astype(np.float32).reshape(-1, x.shape[-1] if x.ndim else 1)
        factor, addend = self._factor(), self.addend
        if self.chosen is not None:
            here = np.arange(wide.shape[1]) == self.chosen[:, None]
            factor = np.where(here, np.float32(self.own[0]), factor)
            addend = np.where(here, np.float32(self.own[1]), addend)
        if self.step:
            up = _odd(np.arange(wide.size, dtype=np.uint32), self.seed).reshape(wide.shape)
            step = np.float32(self.step)
            factor = factor * np.where(up, 1 + step, 1 - step)
        with np.errstate(over="ignore", invalid="ignore"):
            wide = np.asarray(wide * np.asarray(factor, np.float32) + np.asarray(addend, np.float32))
        wide.reshape(-1)[list(self.places)] = self.values
        return wide.reshape(x.shape)

    def _factor(self) -> Any:
        rows, columns = (None if each is None else each for each in (self.rows, self.columns))
        if rows is None:
            return np.float32(self.factor) if columns is None else columns
        return rows[:, None] if columns is None else np.minimum(rows[:, None], columns)

    def numbers(self, shape: tuple[int, ...]) -> list[Array]:
        """What `changed` takes, for an array of some shape."""
        count, width = rows_of(shape)
        alone = self.rows is None and self.columns is None
        rows = (
            np.full(count, self.factor if alone else np.inf, np.float32) if self.rows is None else self.rows
        )
        columns = np.full(width, np.inf, np.float32) if self.columns is None else self.columns
        unused = MOST_PLACES - len(self.places)
        return [
            rows.astype(np.float32),
            columns.astype(np.float32),
            np.broadcast_to(np.asarray(self.addend, np.float32), (width,)),
            np.full(count, -1, np.int32) if self.chosen is None else self.chosen.astype(np.int32),
            np.asarray(self.own, np.float32),
            np.asarray((*self.places, *[-1] * unused), np.int64),
            np.asarray((*self.values, *[0.0] * unused), np.float32),
            np.asarray(self.step, np.float32),
            np.asarray(self.seed, np.uint32),
        ]


def rows_of(shape: tuple[int, ...]) -> tuple[int, int]:
    """How many rows an array has, and how long they are."""
    return math.prod(shape[:-1]), shape[-1] if shape else 1


def changed(
    x: Tensor,
    rows: Tensor,
    columns: Tensor,
    addend: Tensor,
    chosen: Tensor,
    own: Tensor,
    places: Tensor,
    values: Tensor,
    step: Tensor,
    seed: Tensor,
) -> tuple[Tensor, Tensor]:
    """What `Change.of` makes of an array, with its element type, and the sum of the squares of what is finite in it."""
    shape = rows_of(x.shape)
    wide = reshape(convert(x, DType.f32), shape)
    here = iota(shape, 1) == reshape(chosen, (shape[0], 1))
    factor = where(here, own[0], minimum(reshape(rows, (shape[0], 1)), columns))
    count = DType.i64 if x.size > _WIDE else DType.i32
    place = iota(shape, 0, count) * shape[1] + iota(shape, 1, count)
    up = _odd_of(convert(place, DType.u32), seed)
    factor = factor * (1 + where(up, step, -step))
    moved = wide * factor + where(here, own[1], addend)
    for index in range(MOST_PLACES):
        moved = where(place == convert(places[index], count), values[index], moved)
    narrow = reshape(convert(moved, x.dtype), x.shape)
    exact = convert(narrow, DType.f64)
    kept = where(is_finite(exact), exact, 0.0)
    return narrow, sum_(kept * kept)


def _odd(numbers: Array, seed: int) -> Array:
    """Whether a hash of each number is odd."""
    mixed = numbers + np.uint32(seed)
    for distance, multiplier in zip((16, 15), _MULTIPLIERS, strict=True):
        mixed = (mixed ^ (mixed >> np.uint32(distance))) * np.uint32(multiplier)
    is_odd: Array = (mixed ^ (mixed >> np.uint32(16))) & np.uint32(1) == 1
    return is_odd


def _odd_of(numbers: Tensor, seed: Tensor) -> Tensor:
    mixed = numbers + seed
    for distance, multiplier in zip((16, 15), _MULTIPLIERS, strict=True):
        mixed = bitwise_xor(mixed, shift_right(mixed, distance)) * multiplier
    return bitwise_and(bitwise_xor(mixed, shift_right(mixed, 16)), 1) == 1
