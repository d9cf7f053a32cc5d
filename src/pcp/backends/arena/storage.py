"""What a planned program speaks of: storages, which will be bytes of a workspace, and views of them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Any

import numpy as np

ALIGNMENT = 64
"""Bytes at whose multiples storages begin: a cache line, and the widest vector register."""


class Kind(Enum):
    """Where the bytes of a storage come from."""

    transient = "the workspace"
    staged = "the workspace: a small argument or result that is copied in or out"
    argument = "the array that the caller gives"
    result = "an array that is made for the caller"
    constant = "an array that was made with the plan"


@dataclass(slots=True, eq=False)
class Loop:
    """A loop that is being recorded: what was made before it and is used within lives until its end."""

    start: int
    outer: "Loop | None"
    used: "set[Storage]" = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Storage:
    """Bytes that hold one value, and after it others that take its place.

    Arguments:
        size: in bytes.
        kind: where they come from.
        number: of the argument or result.
        array: of a constant.
        loop: the innermost loop that it was made in.
        uses: how often the program still reads it; what reads a view of it counts.
        start, end: the first and the last instruction that touches it.
        offset: where it begins in the workspace.
    """

    size: int
    kind: Kind = Kind.transient
    number: int = -1
    array: "np.ndarray[Any, Any] | None" = None
    loop: Loop | None = None
    uses: int = 0
    start: int = -1
    end: int = -1
    offset: int = -1

    @property
    def in_workspace(self) -> bool:
        """Whether the planner places it."""
        return self.kind in (Kind.transient, Kind.staged)


@dataclass(slots=True, frozen=True)
class View:
    """An array in a storage: what an instruction takes.

    Arguments:
        storage: whose bytes.
        offset: of its first element, in bytes.
        shape: its sizes.
        strides: in bytes; 0 repeats, negative ones go backwards.
        dtype: of its elements.
    """

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def is_whole(self) -> bool:
        """Whether it is all elements of its storage in row-major order."""
        return (
            self.offset == 0
            and self.strides == row_major(self.shape, self.dtype.itemsize)
            and self.size * self.dtype.itemsize == self.storage.size
        )

    @property
    def is_contiguous(self) -> bool:
        """Whether its elements lie one behind the other in row-major order."""
        whole = row_major(self.shape, self.dtype.itemsize)
        return all(n == 1 or a == b for n, a, b in zip(self.shape, self.strides, whole, strict=True))

    def over(self, memory: "np.ndarray[Any, Any]", start: int = 0) -> "np.ndarray[Any, Any]":
        """The array in an array of bytes in which the storage begins at `start`."""
        if not self.size:
            return np.empty(self.shape, self.dtype)
        return np.ndarray(self.shape, self.dtype, memory, start + self.offset, self.strides)

    def transposed(self, axes: Sequence[int]) -> "View":
        """With its axes in another order."""
        return View(
            self.storage,
            self.offset,
            tuple(self.shape[a] for a in axes),
            tuple(self.strides[a] for a in axes),
            self.dtype,
        )

    def broadcast(self, shape: Sequence[int], axes: Sequence[int] | None = None) -> "View":
        """Repeated to a shape; its axes become `axes` of that, by default the last ones."""
        if axes is None:
            axes = range(len(shape) - len(self.shape), len(shape))
        strides = [0] * len(shape)
        for n, stride, axis in zip(self.shape, self.strides, axes, strict=True):
            strides[axis] = stride if n == shape[axis] and n != 1 else 0
        return View(self.storage, self.offset, tuple(shape), tuple(strides), self.dtype)

    def sliced(self, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]) -> "View":
        """Every `step`th element from `start` to before `stop`, along each axis."""
        shape = tuple(max(0, -(-(b - a) // s)) for a, b, s in zip(starts, stops, steps, strict=True))
        offset = self.offset + (
            sum(a * s for a, s in zip(starts, self.strides, strict=True)) if all(shape) else 0
        )
        strides = tuple(a * b for a, b in zip(self.strides, steps, strict=True))
        return View(self.storage, offset, shape, strides, self.dtype)

    def at(self, index: int, axis: int = 0) -> "View":
        """One place of an axis, which is gone then."""
        shape, strides = list(self.shape), list(self.strides)
        del shape[axis]
        step = strides.pop(axis)
        return View(self.storage, self.offset + index * step, tuple(shape), tuple(strides), self.dtype)

    def reversed(self, axes: Sequence[int]) -> "View":
        """With the elements along some axes in the other order."""
        strides = tuple(-s if a in axes else s for a, s in enumerate(self.strides))
        first = sum((self.shape[a] - 1) * self.strides[a] for a in axes) if self.size else 0
        return View(self.storage, self.offset + first, self.shape, strides, self.dtype)

    def typed(self, dtype: "np.dtype[Any]") -> "View":
        """Its bits as another type of the same width."""
        return View(self.storage, self.offset, self.shape, self.strides, dtype)

    def part(self, dtype: "np.dtype[Any]", skipped: int) -> "View":
        """A part of each element, as the real one of complex numbers, `skipped` bytes behind its beginning."""
        return View(self.storage, self.offset + skipped, self.shape, self.strides, dtype)

    def reshaped(self, shape: Sequence[int]) -> "View | None":
        """The same elements in the same order in another shape; None where no strides say that."""
        shape = tuple(shape)
        if self.is_contiguous or not self.size:
            return View(self.storage, self.offset, shape, row_major(shape, self.dtype.itemsize), self.dtype)
        strides = _regrouped(self.shape, self.strides, shape)
        return None if strides is None else View(self.storage, self.offset, shape, strides, self.dtype)


@dataclass(slots=True)
class Instruction:
    """One step of a run.

    Arguments:
        function: what is called.
        arguments: with what; each `View` becomes an array.
        writes: the places of the arguments that it writes to.
        bodies: the instructions that it runs itself, which stand before it in time; their lists are among `arguments`.
        time: its place in the order in which storages live.
        over: what makes of an array of NumPy what the function takes, over the same memory; None for the array itself.
    """

    function: Callable[..., object]
    arguments: tuple[Any, ...]
    writes: tuple[int, ...]
    time: int
    over: "Callable[[np.ndarray[Any, Any]], Any] | None" = None


def row_major(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """The strides of an array whose elements lie one behind the other."""
    strides = [itemsize] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(1, shape[axis + 1])
    return tuple(strides)


def _regrouped(
    shape: Sequence[int], strides: Sequence[int], wanted: tuple[int, ...]
) -> tuple[int, ...] | None:
    """The strides of a view in another shape, where neighbouring axes are joined only if one steps over the other."""
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    regrouped: list[int] = []
    place = 0
    left = list(wanted)
    i = 0
    while i < len(left):
        if left[i] == 1:
            regrouped.append(0)
            i += 1
            continue
        # Take as many old and new axes as have the same number of elements together.
        olds, news = [old[place]], [left[i]]
        place, i = place + 1, i + 1
        while math.prod(n for n, _ in olds) != math.prod(news):
            if math.prod(n for n, _ in olds) < math.prod(news):
                olds.append(old[place])
                place += 1
            else:
                news.append(left[i])
                i += 1
        for (_, outer), (n, inner) in pairwise(olds):
            if outer != n * inner:
                return None
        step, split = olds[-1][1], []
        for n in reversed(news):
            split.append(step)
            step *= n
        regrouped += reversed(split)
    return tuple(regrouped)
