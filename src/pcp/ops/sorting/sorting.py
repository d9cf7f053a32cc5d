"""Sorting along an axis, and what is found by it.

XLA on a CPU sorts integers 4 to 6 times as fast as floats or pairs, so the key of every element is made an unsigned integer of
the same order; where 32 bits hold it, the element's place goes into the lower half of a 64-bit key, and one sort of integers
gives the permutation. Values follow by a gather, so a gradient passes through that.

The order is total: -0 equals 0, NaN comes after everything else, and equal elements keep their order.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.editing import copy_region
from pcp.ops.batched_axes import along_axes, following
from pcp.ops.control.loops import end_block
from pcp.ops.derivative import Cotangent, Expansion, Primal
from pcp.ops.elementwise import (
    bitcast,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    convert,
    equal,
    less,
    less_equal,
    not_equal,
    shift_left,
    where,
)
from pcp.ops.indexing.along_axis import take_along_axis
from pcp.ops.movement import along_or_flat, full, iota, swapaxes
from pcp.ops.movement.axes import checked_axis
from pcp.ops.movement.joining import narrow
from pcp.ops.promotion import promoted
from pcp.ops.record import Cost, Kind, declare, supply_derivatives
from pcp.symbolic.watching import compared
from pcp.tensor import (
    DTypeMismatch,
    ShapeMismatch,
    Tensor,
    TensorLike,
    as_tensor,
    current_builder,
    export_operations,
    operation,
)

INDEX = DType.i32
"""The element type of places."""


@operation
def sort(x: TensorLike, axis: int | None = -1, descending: bool = False, *, stable: bool = True) -> Tensor:
    """x with its elements in order along an axis (flattened if it is None); NaN comes last, or first if `descending`.

    Equal elements keep their order, whether `stable` is asked for or not.

    Raises:
        DTypeMismatch: the elements are complex.
    """
    tensor, place = _sortable("sort", *along_or_flat(x, axis))
    if not tensor.dtype.is_float and not descending:
        return _sorted([tensor], place)[0]
    return take_along_axis(tensor, _permutation(tensor, place, descending), place)


@operation
def argsort(x: TensorLike, axis: int | None = -1, descending: bool = False, *, stable: bool = True) -> Tensor:
    """The places, as i32, that the elements in order come from; equal elements keep their order.

    Arguments: as of `sort`.

    Raises:
        DTypeMismatch: the elements are complex.
    """
    return _permutation(*_sortable("argsort", *along_or_flat(x, axis)), descending)


@operation
def top_k(x: TensorLike, k: int, axis: int = -1) -> tuple[Tensor, Tensor]:
    """The k largest elements along an axis, the largest first, and their places as i32; NaN counts as largest.

    Raises:
        ShapeMismatch: the axis has fewer than k elements.
        DTypeMismatch: the elements are complex.
    """
    tensor, place = _sortable("top_k", x, axis)
    if k < 0 or not compared(k, "<=", tensor.shape[place]):
        raise ShapeMismatch(
            f"top_k: k = {k} was given for axis {place} of shape {tensor.shape}; expected 0 <= k <= {tensor.shape[place]}"
        )
    if _fits_f32(tensor.dtype) and k > 0:
        places = _top_places(tensor, k, place)
    else:
        places = narrow(_permutation(tensor, place, True), place, 0, k)
    return take_along_axis(tensor, places, place), places


@operation
def searchsorted(
    ordered: TensorLike, values: TensorLike, side: str = "left", sorter: TensorLike | None = None
) -> Tensor:
    """Where each value would have to be put into an ordered vector to keep its order, as i32.

    Arguments:
        ordered: shape (n,), in ascending order.
        values: any shape.
        side: `"left"`: before equal elements; `"right"`: behind them.
        sorter: places that bring `ordered` into order, as `argsort` gives them, where it is not.

    Raises:
        ShapeMismatch: `ordered` is no vector, or `side` is something else.

    By bisection: as many gathers as n has binary digits.
    """
    if side not in ("left", "right"):
        raise ShapeMismatch(f"searchsorted: side {side!r} was given; expected 'left' or 'right'")
    row, wanted = promoted(ordered, values)
    if row.ndim != 1:
        raise ShapeMismatch(f"searchsorted: the ordered tensor has shape {row.shape}; expected a vector")
    _sortable("searchsorted", row, 0)
    row = row if sorter is None else take_along_axis(row, sorter, 0)
    row, wanted = _key(row), _key(wanted)
    before = less if side == "left" else less_equal
    low, high = full(wanted.shape, 0, INDEX), full(wanted.shape, row.size, INDEX)
    for _ in range(row.size.bit_length()):
        middle = (low + high) // 2
        goes_on = before(row[middle], wanted)
        open_ = less(low, high)
        low = where(open_ & goes_on, middle + 1, low)
        high = where(open_ & bitwise_not(goes_on), middle, high)
    return low


def _sortable(name: str, x: TensorLike, axis: int) -> tuple[Tensor, int]:
    tensor = as_tensor(x)
    if tensor.dtype.kind == "complex":
        raise DTypeMismatch(
            f"{name}: element type {tensor.dtype} was given; complex numbers have no order; sort by real or abs"
        )
    if tensor.dtype.kind == "storage":
        raise DTypeMismatch(f"{name}: element type {tensor.dtype} was given; expected numbers; use .astype")
    return tensor, checked_axis(name, axis, tensor.ndim)


def _fits_f32(dtype: DType) -> bool:
    """Whether f32 holds every value of a type, so that XLA's own search for the largest can be used."""
    return dtype.itemsize <= 2 or dtype is DType.f32


def _key(x: Tensor) -> Tensor:
    """Unsigned integers of 32 or 64 bits in the order of x.

    The bits of positive floats are in order; those of negative ones are in reverse order, before them.
    """
    if x.dtype.kind in ("unsigned", "bool"):
        return x if x.dtype in (DType.u32, DType.u64) else convert(x, DType.u32)
    if x.dtype.kind == "signed":
        wide = DType.i64 if x.dtype.itemsize == 8 else DType.i32
        word = DType.u64 if x.dtype.itemsize == 8 else DType.u32
        return bitwise_xor(bitcast(convert(x, wide), word), _number(1 << (8 * word.itemsize - 1), word))
    return _key_of_floats(x)


def _key_of_floats(x: Tensor) -> Tensor:
    """By the bits alone: comparing floats would take those below the normal range for 0 where a device does."""
    word = DType(f"u{8 * x.dtype.itemsize}")
    sign = _number(1 << (8 * word.itemsize - 1), word)
    infinity, nan = (np.asarray(number, x.dtype.numpy).view(word.numpy) for number in (math.inf, math.nan))
    bits = bitcast(x, word)
    size = bitwise_and(bits, ~sign)
    bits = where(less(infinity, size), nan & ~sign, where(equal(size, 0), size, bits))
    key = where(less(bits, sign), bitwise_xor(bits, sign), bitwise_not(bits))
    return key if word.itemsize >= 4 else convert(key, DType.u32)


def _number(value: int, dtype: DType) -> np.ndarray[Any, Any]:
    return np.asarray(value, dtype.numpy)


def _permutation(x: Tensor, axis: int, descending: bool) -> Tensor:
    key = _key(x)
    if descending:
        key = bitwise_not(key)
    if key.dtype is DType.u64:
        return _sorted([key, iota(x.shape, axis, INDEX)], axis)[1]
    packed = bitwise_or(shift_left(convert(key, DType.u64), 32), iota(x.shape, axis, DType.u64))
    (ordered,) = _sorted([packed], axis)
    return convert(convert(ordered, DType.u32), INDEX)  # the lower half


Comparator = Callable[[list[Value]], Sequence[Value]]
"""From pairs of scalars, one for each tensor, to whether the first of each pair comes first; it returns a list of one value."""


def _by_the_first(pairs: list[Value]) -> Sequence[Value]:
    builder = current_builder()
    return [less(Tensor(pairs[0], builder), Tensor(pairs[1], builder)).value]


def _sorted(
    tensors: Sequence[Tensor], axis: int, compared: Comparator = _by_the_first, is_stable: bool = True
) -> list[Tensor]:
    """StableHLO's sort; by default by the first of the tensors, which holds integers or booleans."""
    if not tensors[0].size:
        return list(tensors)
    builder, specs = current_builder(), [t.spec for t in tensors]
    attributes = {"dimension": axis, "is_stable": is_stable}
    op = builder.emit("stablehlo.sort", [t.value for t in tensors], specs, attributes, regions=1)
    scalars = [TensorSpec((), spec.dtype) for spec in specs for _ in range(2)]
    with builder.region(op, 0, scalars) as pairs:
        end_block(compared(pairs))
    return [Tensor(value, builder, spec) for value, spec in zip(op.results, specs, strict=True)]


def _sorted_places(primal: Primal) -> tuple[Tensor, int]:
    """Where each sorted element came from, by the same sort once more, in which the places take part; and the axis."""
    axis, builder = primal.integer("dimension"), current_builder()

    def compared(pairs: list[Value]) -> Sequence[Value]:
        return copy_region(builder, primal.op, 0, pairs[:-2])[1]

    places = iota(primal.input(0).shape, axis, INDEX)
    return _sorted([*primal.inputs, places], axis, compared, primal.flag("is_stable"))[-1], axis


def _sort_back(primal: Primal, *cotangents: Cotangent) -> Sequence[Cotangent]:
    """The cotangents go back to the places that the elements came from, by the inverse permutation."""
    places, axis = _sorted_places(primal)
    back = argsort(places, axis)
    return [None if g is None else take_along_axis(g, back, axis) for g in cotangents]


def _sort_along(primal: Primal, *tangents: Cotangent) -> Sequence[Cotangent]:
    """Tangents go along to where the elements go."""
    places, axis = _sorted_places(primal)
    return [None if t is None else take_along_axis(t, places, axis) for t in tangents]


declare(
    "sort",
    Kind.reduction,
    cost=Cost.heavy_move,
    derivative=_sort_back,
    tangents=_sort_along,
    batching=along_axes(dimension=following),
)


def _top_places(x: Tensor, k: int, axis: int) -> Tensor:
    """By CHLO's top_k, for which XLA has a search of its own where the elements are f32."""
    builder = current_builder()
    wide = convert(x, DType.f32)
    one_nan_one_zero = where(not_equal(wide, wide), math.nan, where(equal(wide, 0), 0.0, wide))
    keys = swapaxes(one_nan_one_zero, axis, -1)
    spec = TensorSpec((*keys.shape[:-1], k), DType.f32)
    results = (spec, TensorSpec(spec.shape, INDEX))
    op = builder.emit("chlo.top_k", [keys.value], results, {"k": k})
    return swapaxes(Tensor(op.results[1], builder, results[1]), axis, -1)


def _read_anew(primal: Primal) -> Sequence[Tensor]:
    places = primal.output(1)
    return [take_along_axis(primal.input(0), places, places.ndim - 1), places]


def _read_anew_approximately(primal: Primal) -> Sequence[Tensor]:
    """The operands are values, their places and what both begin with."""
    places = primal.output(1)
    owner = primal.op.operands[1].owner
    if isinstance(owner, ir.Block) or owner.operation.name != "stablehlo.iota":
        primal.refuse("only a selection that also returns the positions of its elements has a rule")
    match = re.search(r"reduction_dim = (\d+)", str(primal.op.attributes["mhlo.backend_config"]))
    axis = int(match[1]) if match else places.ndim - 1
    return [take_along_axis(primal.input(0), places, axis), places]


declare(
    "chlo.top_k",
    Kind.reduction,
    derivative=Expansion(_read_anew),
    batching=along_axes(),
)
supply_derivatives(
    {
        "custom_call.TopK": Expansion(_read_anew),
        "custom_call.ApproxTopK": Expansion(_read_anew_approximately),
    }
)

export_operations(__name__)
