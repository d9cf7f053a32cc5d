"""Sets, as vectors whose size must be known: elements each once, in order.

As in JAX: what is missing up to `size` is filled with `fill_value`, and what goes beyond is dropped.
"""

from typing import Any

from pcp.ir import DType
from pcp.ops.elementwise import (
    bitwise_and,
    bitwise_not,
    convert,
    equal,
    is_nan,
    less,
    not_equal,
    where,
)
from pcp.ops.families.choosing import first_places, lexsort, sized
from pcp.ops.indexing.reading import take
from pcp.ops.indexing.updating import scatter_set
from pcp.ops.movement import (
    broadcast_to,
    concatenate,
    expand_dims,
    full,
    iota,
    moveaxis,
    ravel,
    reshape,
)
from pcp.ops.movement.joining import narrow
from pcp.ops.promotion import promoted
from pcp.ops.reductions.cumulative import cumsum
from pcp.ops.reductions.primitives import any_
from pcp.tensor import (
    Tensor,
    TensorLike,
    WrongArgument,
    as_tensor,
    export_operations,
    operation,
)

Fill = TensorLike | None


def _unique_rows(rows: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows, each once, in order: the place of each one's first, the number of every row's own, counts, and which there are."""
    order = lexsort([rows[:, column] for column in reversed(range(rows.shape[1]))])
    ordered = take(rows, order, 0)
    count = rows.shape[0]
    nan = is_nan(ordered) if rows.dtype.is_differentiable else full(ordered.shape, False, DType.bool)
    before, behind = narrow(ordered, 0, 0, count - 1), narrow(ordered, 0, 1, count)
    both_nan = bitwise_and(narrow(nan, 0, 0, count - 1), narrow(nan, 0, 1, count))
    new = any_(bitwise_and(not_equal(before, behind), bitwise_not(both_nan)), 1)
    is_first = concatenate([full((1,), True, DType.bool), new])
    group = cumsum(convert(is_first, DType.i32)) - 1
    slots = where(less(group, size), group, size)
    first = scatter_set(full((size,), 0, DType.i32), where(is_first, slots, size), order)
    belongs = scatter_set(full((count,), 0, DType.i32), order, group)
    counts = full((size,), 0, DType.i32).at[slots].add(full((count,), 1, DType.i32))
    return first, belongs, counts, less(iota((size,), 0), group[-1] + 1)


@operation
def unique(
    x: TensorLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: Fill = None,
) -> Any:
    """The elements of x, each once, in order; of an axis, its slices.

    Arguments:
        return_index: whether the place of the first of each is returned, as i32.
        return_inverse: whether for every element the place of its like in the result is returned, as i32.
        return_counts: whether it is returned how often each occurs, as i32; 0 for what fills.
        axis: along which slices are compared; None: the elements.
        equal_nan: True: NaNs count as one.
        size: how many there are: others are dropped, missing ones are `fill_value`, by default the least.

    Raises:
        WrongArgument: no size is given, or `equal_nan` is False.
    """
    count = sized("unique", size)
    if not equal_nan:
        raise WrongArgument("unique: equal_nan = False was given; expected True: NaNs count as one")
    tensor = as_tensor(x)
    slices = reshape(tensor, (tensor.size,)) if axis is None else moveaxis(tensor, axis, 0)
    rows = reshape(slices, (slices.shape[0], -1)) if slices.size else reshape(slices, (slices.shape[0], 1))
    first, belongs, counts, there = _unique_rows(rows, count)
    chosen = take(slices, first, 0)
    fill = chosen[0] if fill_value is None else convert(fill_value, tensor.dtype)
    values = where(reshape(there, (-1, *[1] * (chosen.ndim - 1))), chosen, broadcast_to(fill, chosen.shape))
    values = values if axis is None else moveaxis(values, 0, axis)
    inverse = reshape(belongs, tensor.shape) if axis is None else belongs
    extras = [
        (return_index, where(there, first, first[0])),
        (return_inverse, inverse),
        (return_counts, counts),
    ]
    asked = [each for wanted, each in extras if wanted]
    return (values, *asked) if asked else values


@operation
def unique_values(x: TensorLike, *, size: int | None = None, fill_value: Fill = None) -> Tensor:
    """The elements of x, each once; arguments as of `unique`."""
    found: Tensor = unique(x, size=sized("unique_values", size), fill_value=fill_value)
    return found


@operation
def unique_counts(x: TensorLike, *, size: int | None = None, fill_value: Fill = None) -> Any:
    """The elements of x, each once, and how often each occurs; arguments as of `unique`."""
    return unique(x, return_counts=True, size=sized("unique_counts", size), fill_value=fill_value)


@operation
def unique_inverse(x: TensorLike, *, size: int | None = None, fill_value: Fill = None) -> Any:
    """The elements of x, each once, and where each element of x stands among them; arguments as of `unique`."""
    return unique(x, return_inverse=True, size=sized("unique_inverse", size), fill_value=fill_value)


@operation
def unique_all(x: TensorLike, *, size: int | None = None, fill_value: Fill = None) -> Any:
    """The elements of x, each once, their first places, the place of each element of x among them, and counts."""
    return unique(x, True, True, True, size=sized("unique_all", size), fill_value=fill_value)


@operation
def isin(x: TensorLike, y: TensorLike, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Whether each element of x is among those of y, as booleans; the contrary if `invert`."""
    left, right = promoted(x, y)
    row = ravel(right)
    if not row.size:
        return full(left.shape, invert, DType.bool)
    is_member = any_(equal(expand_dims(left, left.ndim), row), -1)
    return bitwise_not(is_member) if invert else is_member


def _kept(x: Tensor, mask: Tensor, size: int, fill: Fill) -> Tensor:
    """The elements of a vector for which a mask holds, in order and each once; the least of them fills."""
    count = x.size
    first, _, _, is_one = _unique_rows(expand_dims(x, 1), count)
    values = take(x, first, 0)
    chosen = bitwise_and(take(mask, first, 0), is_one)
    at, there = first_places(chosen, size)
    taken = take(values, at, 0)
    return where(there, taken, (taken[0] if fill is None else convert(fill, x.dtype)))


@operation
def union1d(x: TensorLike, y: TensorLike, *, size: int | None = None, fill_value: Fill = None) -> Tensor:
    """The elements of x and of y, each once, in order; arguments as of `unique`."""
    found: Tensor = unique(concatenate([x, y], None), size=sized("union1d", size), fill_value=fill_value)
    return found


@operation
def intersect1d(
    x: TensorLike,
    y: TensorLike,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: Fill = None,
) -> Tensor:
    """The elements of x that are among those of y, each once, in order; arguments as of `unique`."""
    left, right = (ravel(t) for t in promoted(x, y))
    return _kept(left, isin(left, right), sized("intersect1d", size), fill_value)


@operation
def setdiff1d(
    x: TensorLike,
    y: TensorLike,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: Fill = None,
) -> Tensor:
    """The elements of x that are not among those of y, each once, in order; arguments as of `unique`."""
    left, right = (ravel(t) for t in promoted(x, y))
    return _kept(
        left,
        isin(left, right, invert=True),
        sized("setdiff1d", size),
        0 if fill_value is None else fill_value,
    )


@operation
def setxor1d(
    x: TensorLike,
    y: TensorLike,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: Fill = None,
) -> Tensor:
    """The elements of exactly one of x and y, each once, in order; arguments as of `unique`."""
    left, right = (ravel(t) for t in promoted(x, y))
    mask = concatenate([isin(left, right, invert=True), isin(right, left, invert=True)])
    return _kept(concatenate([left, right]), mask, sized("setxor1d", size), fill_value)


export_operations(__name__)
