"""Masks that are known before anything runs, as patterns read them: nothing, comparisons of places, or a choice.

A mask that is true everywhere is a constant, whatever computed it. One that is true along a band of two axes, as a causal one
or a window, is comparisons of places; so is one that is true up to a place, or from one on. Scores to add that are 0 where a
query sees a key, and lowest elsewhere, are a choice by such a mask. No other values change.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np

from pcp.ir import DType, Program, TensorSpec
from pcp.ir.bindings import Value, context, ir
from pcp.ir.builder import Builder
from pcp.ir.toolkit.constants import splat_number
from pcp.ir.toolkit.dataflow import result_owner
from pcp.ir.toolkit.editing import erase_dead
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.tensor_types import spec_if_tensor
from pcp.ir.toolkit.walking import walk_block
from pcp.ops.elementwise import greater_equal, less_equal, where
from pcp.ops.movement import iota
from pcp.ops.movement.shape import broadcast_in_dim
from pcp.rewrite.canonical.known import Array, Known, narrow
from pcp.rewrite.counts import Band
from pcp.rewrite.pattern import LARGEST_CONSTANT, filled
from pcp.rewrite.view import View, conjuncts
from pcp.tensor import Tensor, as_tensor, building

LOWEST = -1e4
"""A score below this is one of a key that is not seen."""

Written = Callable[[], Tensor]
"""Writes a value where the builder stands."""


def with_known_masks(program: Program) -> Program:
    """The program, in which masks that depend on no argument are written as patterns read them.

    Arguments:
        program: any Program; it stays as it is.

    Returns:
        A Program whose results are the same bit for bit; the given one if there are no such masks.
    """
    module = program.module()
    inline_calls(module)
    block, known = entry_block(module), Known()
    # All are found before one is written: what is known counts as long as nothing changes.
    masks = [(value, written) for value in _frontier(block, known) if (written := form_of(value, known))]
    del known
    if not masks:
        return program
    with context(), building(Builder(module, block)) as builder:
        for value, written in masks:
            with builder.before(result_owner(value)):
                value.replace_all_uses_with(written().value)
    erase_dead(block)
    return Program.from_module(module)


def _frontier(block: ir.Block, known: Known) -> list[Value]:
    """Values that depend on no argument, and that an operation takes which depends on one."""
    frontier: dict[Value, None] = {}
    for op in walk_block(block):
        if not len(op.operands) or op.name.endswith(".return"):
            continue
        if len(op.results) == 1 and known.is_free(op.results[0]):
            continue
        frontier.update(dict.fromkeys(value for value in op.operands if known.is_free(value)))
    return list(frontier)


def form_of(value: Value, known: Known) -> Written | None:
    """How a mask, or what is added to scores, is written plainly; None for any other value, or where it is already."""
    spec = _spec(value)
    if spec is None or splat_number(value) is not None or (spec.dtype is DType.bool and _is_read(value)):
        return None
    array = known.of(value)
    if array is None:
        return None
    if spec.dtype is DType.bool:
        return _mask(array, spec, is_constant=View.of(value).made_by("constant") is not None)
    lowest, zeros = narrow(array).min(), narrow(array) == 0
    if zeros.all() and not np.signbit(narrow(array)).any():
        return lambda: filled(spec, 0)
    hidden, signs = narrow(array) == lowest, np.signbit(narrow(array)[zeros])
    if not lowest <= LOWEST or not (zeros | hidden).all() or signs.any() != signs.all():
        return None
    zero = -0.0 if signs.any() else 0.0
    if hidden.all():
        return lambda: filled(spec, lowest)
    mask = _mask(np.broadcast_to(zeros, spec.shape), TensorSpec(spec.shape, DType.bool))
    return None if mask is None else lambda: where(mask(), filled(spec, zero), filled(spec, lowest))


def _spec(value: Value) -> TensorSpec | None:
    """Of a value that may be a mask, or be added to scores."""
    spec = spec_if_tensor(value.type)
    is_one = spec is not None and spec.size > 0 and (spec.dtype is DType.bool or spec.dtype.is_float)
    return spec if is_one else None


def _is_read(value: Value) -> bool:
    """Whether a mask is comparisons of places already."""
    parts = list(conjuncts(View.of(value)))
    ranks = range(len(View.of(value).shape))
    return bool(parts) and any(not Band.of(parts, axis).others for axis in ranks)


def _mask(array: Array, spec: TensorSpec, is_constant: bool = False) -> Written | None:
    """A mask by comparisons of places along its axes; a small one may be a constant, unless it is one already."""
    small = narrow(array)
    axes = tuple(axis for axis, size in enumerate(small.shape) if size > 1)
    axes = tuple(axis for axis in axes if not (small == small.take([0], axis)).all())
    if not axes:
        return lambda: filled(spec, small.flat[0])
    small = small[tuple(slice(None) if axis in axes else 0 for axis in range(small.ndim))]
    band = Diagonals.of(small if small.ndim == 2 else small[None]) if small.ndim <= 2 else None
    if band is None and (is_constant or small.size > LARGEST_CONSTANT):
        return None

    def written() -> Tensor:
        form = as_tensor(np.ascontiguousarray(small)) if band is None else band.written(small.shape)
        return form if form.shape == spec.shape else broadcast_in_dim(form, spec.shape, axes)

    return written


@dataclass(frozen=True, slots=True)
class Diagonals:
    """Where j - i is `least` or more, and `most` or less; None is no bound."""

    least: int | None
    most: int | None

    @classmethod
    def of(cls, mask: Array) -> "Diagonals | None":
        """Those of a mask (i, j) that is true there and nowhere else; as few bounds as say it."""
        rows, columns = mask.shape
        some, i = mask.any(1), np.arange(rows)
        if not some.any():
            return None
        first, last = mask.argmax(1), columns - 1 - mask[:, ::-1].argmax(1)
        least, most = int((first - i)[some].min()), int((last - i)[some].max())
        count = mask.sum(1)
        for low, high in product((None, least), (None, most)):
            starts = np.maximum(0 if low is None else i + low, 0)
            stops = np.minimum(columns if high is None else i + high + 1, columns)
            ends = (first == starts) & (last == stops - 1)
            if ((count == np.maximum(stops - starts, 0)) & (~some | ends)).all():
                return cls(low, high)
        return None

    def written(self, shape: tuple[int, ...]) -> Tensor:
        """The mask of a shape (i, j), or (j,) where i is 0."""
        own = iota(shape, 0) if len(shape) == 2 else as_tensor(np.int32(0))
        other, parts = iota(shape, len(shape) - 1), []
        if self.most is not None:
            parts.append(less_equal(other, own + self.most))
        if self.least is not None:
            parts.append(greater_equal(other, own + self.least))
        return parts[0] if len(parts) == 1 else parts[0] & parts[1]
