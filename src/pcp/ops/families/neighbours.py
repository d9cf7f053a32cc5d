"""Sums and differences of neighbours, interpolation and convolution, under NumPy's names."""

from typing import Any

from pcp.ir import DType, DTypeLike
from pcp.ops.elementwise import (
    clip,
    conj,
    convert,
    equal,
    greater,
    imag,
    less,
    real,
    where,
)
from pcp.ops.elementwise import complex_ as joined
from pcp.ops.families.parts import floats
from pcp.ops.movement import (
    broadcast_to,
    concatenate,
    diff,
    flip,
    ravel,
    reshape,
)
from pcp.ops.movement.axes import checked_axes, checked_axis
from pcp.ops.movement.joining import narrow
from pcp.ops.promotion import promoted
from pcp.ops.reductions.cumulative import cumprod, cumsum
from pcp.ops.reductions.primitives import sum_
from pcp.ops.sorting.sorting import argsort, searchsorted
from pcp.ops.windows.convolution import conv_general
from pcp.tensor import (
    Axes,
    ShapeMismatch,
    Tensor,
    TensorLike,
    WrongArgument,
    as_tensor,
    export_operations,
    operation,
)

Bins = int | TensorLike
Bounds = tuple[TensorLike, TensorLike] | None


@operation
def interp(
    x: TensorLike,
    xp: TensorLike,
    fp: TensorLike,
    left: TensorLike | None = None,
    right: TensorLike | None = None,
    period: float | None = None,
) -> Tensor:
    """The function that is linear between the points (xp, fp), at x.

    Arguments:
        xp: a vector in ascending order.
        left, right: what it is before the first and behind the last point; None: as at that point.
        period: after which it repeats; then xp need not be in order.

    Raises:
        ShapeMismatch: xp and fp are no vectors of one size.
    """
    at, known, values = promoted(*(floats("interp", t)[0] for t in (x, xp, fp)))
    if known.ndim != 1 or known.shape != values.shape:
        raise ShapeMismatch(
            f"interp: points of shapes {known.shape} and {values.shape} were given; expected vectors of one size"
        )
    if period is not None:
        known, at = known % period, at % period
        order = argsort(known)
        known, values = known[order], values[order]
        known = concatenate([known[-1:] - period, known, known[:1] + period])
        values = concatenate([values[-1:], values, values[:1]])
    if known.size == 1:
        between = broadcast_to(values, at.shape) if at.ndim else reshape(values, ())
    else:
        place = clip(searchsorted(known, at, "right"), 1, known.size - 1)
        before, behind = known[place - 1], known[place]
        low, high = values[place - 1], values[place]
        width = behind - before
        step = (at - before) / where(equal(width, 0), 1, width)
        between = where(equal(width, 0), low, low + (high - low) * step)
    if period is not None:
        return between
    first, last = (values[0] if left is None else left), (values[-1] if right is None else right)
    return where(less(at, known[0]), first, where(greater(at, known[-1]), last, between))


@operation
def trapezoid(y: TensorLike, x: TensorLike | None = None, dx: TensorLike = 1.0, axis: int = -1) -> Tensor:
    """The integral along an axis by the trapezoidal rule.

    Arguments:
        x: where the elements lie; None: `dx` apart.
    """
    heights = floats("trapezoid", y)[0] if as_tensor(y).dtype.kind != "complex" else as_tensor(y)
    place = checked_axis("trapezoid", axis, heights.ndim)
    width: TensorLike = dx
    if x is not None:
        heights, places = promoted(heights, x)
        along = places.ndim == 1
        width = diff(places) if along else diff(places, 1, axis)
        if along:
            width = reshape(width, [-1 if a == place else 1 for a in range(heights.ndim)])
    size = heights.shape[place]
    middle = narrow(heights, place, 1, size) + narrow(heights, place, 0, size - 1)
    return 0.5 * sum_(width * middle, place)


@operation
def gradient(x: TensorLike, *spacing: TensorLike, axis: Axes = None, edge_order: int = 1) -> Any:
    """The slope by central differences along the given axes (all if None), one-sided at the ends; a list of several.

    Arguments:
        spacing: one distance, one for each axis, or the places along each axis.
        edge_order: 1; slopes of order 2 at the ends are refused.

    Raises:
        ShapeMismatch: an axis has less than two elements, or there are distances for other than all axes.
    """
    tensor = as_tensor(x)
    tensor = tensor if tensor.dtype.is_differentiable else convert(tensor, DType.f32)
    if edge_order != 1:
        raise WrongArgument(f"gradient: edge_order {edge_order} was given; expected 1")
    axes = checked_axes("gradient", axis, tensor.ndim)
    if isinstance(axis, tuple):
        axes = tuple(checked_axis("gradient", each, tensor.ndim) for each in axis)
    steps = list(spacing) if spacing else [1.0]
    steps = steps * len(axes) if len(steps) == 1 else steps
    if len(steps) != len(axes):
        raise ShapeMismatch(
            f"gradient: {len(spacing)} distances were given for {len(axes)} axes; expected one or as many"
        )
    slopes = [_slope(tensor, each, step) for each, step in zip(axes, steps, strict=True)]
    return slopes[0] if len(axes) == 1 else slopes


def _slope(x: Tensor, axis: int, step: TensorLike) -> Tensor:
    size = x.shape[axis]
    if size < 2:
        raise ShapeMismatch(
            f"gradient: axis {axis} of shape {x.shape} has {size} elements; expected at least 2"
        )
    apart = as_tensor(step, x.dtype if not isinstance(step, Tensor) else None)
    rises = narrow(x, axis, 1, size) - narrow(x, axis, 0, size - 1)
    if not apart.ndim:
        slopes = rises / apart
        before, behind = narrow(slopes, axis, 0, size - 2), narrow(slopes, axis, 1, size - 1)
        inner = (before + behind) / 2
    else:
        width = reshape(diff(apart), [-1 if a == axis else 1 for a in range(x.ndim)])
        slopes = rises / width
        before, behind = narrow(slopes, axis, 0, size - 2), narrow(slopes, axis, 1, size - 1)
        wide = size - 1
        left, right = narrow(width, axis, 0, wide - 1), narrow(width, axis, 1, wide)
        inner = (before * right + behind * left) / (left + right)
    return concatenate([narrow(slopes, axis, 0, 1), inner, narrow(slopes, axis, size - 2, size - 1)], axis)


@operation
def ediff1d(x: TensorLike, to_end: TensorLike | None = None, to_begin: TensorLike | None = None) -> Tensor:
    """The differences of neighbours in the flattened x, with others before and behind them."""
    parts = [part for part in (to_begin, diff(ravel(x)), to_end) if part is not None]
    return concatenate([ravel(part) for part in parts])


def _accumulated(function: Any, x: TensorLike, axis: int | None, dtype: Any, first: int | None) -> Tensor:
    tensor = as_tensor(x)
    if axis is None and tensor.ndim != 1:
        raise ShapeMismatch(f"an axis is needed to accumulate along, of shape {tensor.shape}; give axis=")
    place = checked_axis("accumulate", 0 if axis is None else axis, tensor.ndim)
    sums: Tensor = function(tensor, place, dtype=dtype)
    if first is None:
        return sums
    shape = [1 if a == place else n for a, n in enumerate(sums.shape)]
    return concatenate([broadcast_to(as_tensor(first, sums.dtype), shape), sums], place)


@operation
def cumulative_sum(
    x: TensorLike, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Tensor:
    """The sum of every beginning of an axis, that of none too if `include_initial`; of a vector no axis need be given."""
    return _accumulated(cumsum, x, axis, dtype, 0 if include_initial else None)


@operation
def cumulative_prod(
    x: TensorLike, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Tensor:
    """The product of every beginning of an axis, that of none included if `include_initial`; as `cumulative_sum`."""
    return _accumulated(cumprod, x, axis, dtype, 1 if include_initial else None)


@operation
def convolve(x: TensorLike, y: TensorLike, mode: str = "full") -> Tensor:
    """The convolution of two vectors.

    Arguments:
        mode: `"full"`: wherever they overlap; `"same"`: of the length of the longer one; `"valid"`: where they overlap wholly.
    """
    left, right = _two_rows("convolve", x, y)
    if left.size < right.size:
        left, right = right, left
    return _slid(left, flip(right), mode, "convolve", right.size // 2)


@operation
def correlate(x: TensorLike, y: TensorLike, mode: str = "valid") -> Tensor:
    """The correlation of two vectors: sums of x with the conjugate of y, moved along; modes as of `convolve`."""
    left, right = _two_rows("correlate", x, y)
    right = conj(right)
    if left.size >= right.size:
        return _slid(left, right, mode, "correlate", right.size // 2)
    return flip(_slid(right, left, mode, "correlate", left.size // 2))


def _two_rows(name: str, x: TensorLike, y: TensorLike) -> tuple[Tensor, ...]:
    rows = promoted(x, y)
    if any(row.ndim != 1 or not row.size for row in rows):
        raise ShapeMismatch(
            f"{name}: shapes {rows[0].shape} and {rows[1].shape} were given; expected vectors, none empty"
        )
    return tuple(convert(row, DType.i32) if row.dtype is DType.bool else row for row in rows)


def _slid(x: Tensor, kernel: Tensor, mode: str, name: str, before: int) -> Tensor:
    """Sums of products of the kernel with what lies below it, as it moves along x."""
    room = {"full": (kernel.size - 1,) * 2, "same": (before, kernel.size - 1 - before), "valid": (0, 0)}
    if mode not in room:
        raise WrongArgument(f"{name}: mode {mode!r} was given; expected one of {', '.join(room)}")
    if x.dtype.kind == "complex":
        (a, b), (c, d) = ((real(t), imag(t)) for t in (x, kernel))
        across = [_slid(t, k, mode, name, before) for t, k in ((a, c), (b, d), (a, d), (b, c))]
        return joined(across[0] - across[1], across[2] + across[3])
    widths = (room[mode],)
    return reshape(conv_general(reshape(x, (1, -1, 1)), reshape(kernel, (-1, 1, 1)), padding=widths), (-1,))


export_operations(__name__)
