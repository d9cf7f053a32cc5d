"""Movement operations: the elements stay as they are and go to other places."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp.ir import DType, DTypeLike, TensorSpec
from pcp.ir.bindings import integer_of, integers_of, ir
from pcp.ir.program import spec_of
from pcp.ir.types import checked_shape, dtype_of
from pcp.ops.promotion import promoted
from pcp.ops.record import Cost, Kind, Linear, Supplied, declare
from pcp.tensor import DTypeMismatch, ShapeMismatch, Tensor, TensorLike, as_tensor, emit, operation

STOP_GRADIENT = "pcp.stop_gradient"
"""The attribute of an operation whose results differentiation treats as constants."""


def checked_axis(name: str, axis: int, rank: int) -> int:
    """A non-negative axis of a tensor of `rank` axes.

    Raises:
        ShapeMismatch: there is no such axis.
    """
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer) or not -rank <= axis < rank:
        raise ShapeMismatch(
            f"{name}: axis {axis!r} was given for a tensor of rank {rank}; expected {-rank} <= axis < {rank}"
        )
    return int(axis) % rank


def checked_axes(name: str, axes: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Distinct non-negative axes in ascending order; None means all.

    Raises:
        ShapeMismatch: an axis does not exist or is named twice.
    """
    if axes is None:
        return tuple(range(rank))
    given = (axes,) if isinstance(axes, int | np.integer) else tuple(axes)
    found = sorted(checked_axis(name, axis, rank) for axis in given)
    if len(set(found)) != len(found):
        raise ShapeMismatch(f"{name}: axes {given} name one axis twice")
    return tuple(found)


@operation
def reshape(x: TensorLike, shape: Sequence[int] | int) -> Tensor:
    """The elements of x in row-major order with another shape; one size may be -1 and follows from the others.

    Raises:
        ShapeMismatch: the numbers of elements differ.
    """
    tensor = as_tensor(x)
    sizes = [shape] if isinstance(shape, int | np.integer) else list(shape)
    if sizes.count(-1) == 1:
        known = int(np.prod([size for size in sizes if size != -1], dtype=np.int64))
        sizes[sizes.index(-1)] = tensor.size // known if known else 0
    if any(size < 0 for size in sizes) or int(np.prod(sizes, dtype=np.int64)) != tensor.size:
        raise ShapeMismatch(
            f"reshape: shape {tensor.shape} has {tensor.size} elements and cannot become {shape}"
        )
    wanted = checked_shape(sizes)
    if wanted == tensor.shape:
        return tensor
    return emit("reshape", (tensor,), (TensorSpec(wanted, tensor.dtype),))


@operation
def transpose(x: TensorLike, *axes: int | Sequence[int]) -> Tensor:
    """The axes of x in the given order, or reversed if none is given.

    Raises:
        ShapeMismatch: `axes` is no permutation of the axes of x.
    """
    tensor = as_tensor(x)
    flat: list[Any] = [
        a for entry in axes for a in ([entry] if isinstance(entry, int | np.integer) else entry)
    ]
    order = tuple(checked_axis("transpose", a, tensor.ndim) for a in flat or reversed(range(tensor.ndim)))
    if sorted(order) != list(range(tensor.ndim)):
        raise ShapeMismatch(
            f"transpose: axes {tuple(flat)} are not a permutation of the {tensor.ndim} axes of shape {tensor.shape}"
        )
    if order == tuple(range(tensor.ndim)):
        return tensor
    shape = tuple(tensor.shape[a] for a in order)
    return emit("transpose", (tensor,), (TensorSpec(shape, tensor.dtype),), {"permutation": order})


@operation
def swapaxes(x: TensorLike, first: int, second: int) -> Tensor:
    """x with two axes exchanged."""
    tensor = as_tensor(x)
    order = list(range(tensor.ndim))
    i, j = checked_axis("swapaxes", first, tensor.ndim), checked_axis("swapaxes", second, tensor.ndim)
    order[i], order[j] = j, i
    return transpose(tensor, order)


@operation
def broadcast_to(x: TensorLike, shape: Sequence[int] | int) -> Tensor:
    """x repeated along axes of size 1 and new leading axes until it has `shape`.

    Raises:
        ShapeMismatch: a size of x is neither 1 nor the wanted one.
    """
    tensor, wanted = as_tensor(x), checked_shape(shape)
    if tensor.shape == wanted:
        return tensor
    offset = len(wanted) - tensor.ndim
    if offset < 0 or any(
        have not in (1, want) for have, want in zip(tensor.shape, wanted[offset:], strict=True)
    ):
        raise ShapeMismatch(
            f"broadcast_to: shape {tensor.shape} does not broadcast to {wanted}; sizes must be equal or 1"
        )
    return broadcast_in_dim(tensor, wanted, tuple(range(offset, len(wanted))))


def broadcast_in_dim(tensor: Tensor, shape: tuple[int, ...], axes: tuple[int, ...]) -> Tensor:
    """The tensor with its axis i at axis `axes[i]` of `shape`, repeated along all others (StableHLO's broadcast)."""
    spec = TensorSpec(shape, tensor.dtype)
    return emit("broadcast_in_dim", (tensor,), (spec,), {"broadcast_dimensions": axes})


@operation
def expand_dims(x: TensorLike, axis: int) -> Tensor:
    """x with a new axis of size 1 at place `axis` of the result."""
    tensor = as_tensor(x)
    place = checked_axis("expand_dims", axis, tensor.ndim + 1)
    return reshape(tensor, (*tensor.shape[:place], 1, *tensor.shape[place:]))


@operation
def squeeze(x: TensorLike, axis: int | Sequence[int] | None = None) -> Tensor:
    """x without the given axes of size 1, or without all of them.

    Raises:
        ShapeMismatch: a given axis has another size.
    """
    tensor = as_tensor(x)
    axes = checked_axes("squeeze", axis, tensor.ndim)
    gone = [a for a in axes if tensor.shape[a] == 1]
    if axis is not None and len(gone) != len(axes):
        raise ShapeMismatch(f"squeeze: axes {axes} of shape {tensor.shape} are not all of size 1")
    return reshape(tensor, [size for a, size in enumerate(tensor.shape) if a not in gone])


@operation
def slice_(
    x: TensorLike, start: Sequence[int], stop: Sequence[int], step: Sequence[int] | None = None
) -> Tensor:
    """The block `start[i] <= place < stop[i]` of every axis i, each `step[i]`-th element.

    Raises:
        ShapeMismatch: the bounds do not fit the shape.
    """
    tensor = as_tensor(x)
    steps = tuple(step) if step is not None else (1,) * tensor.ndim
    bounds = list(zip(start, stop, steps, tensor.shape, strict=False))
    if not len(start) == len(stop) == len(steps) == tensor.ndim or any(
        not 0 <= a <= b <= n or s < 1 for a, b, s, n in bounds
    ):
        raise ShapeMismatch(
            f"slice: start {tuple(start)}, stop {tuple(stop)}, step {steps} do not fit shape {tensor.shape}"
        )
    shape = tuple(-(-(b - a) // s) for a, b, s, _ in bounds)
    if shape == tensor.shape:
        return tensor
    attributes = {"start_indices": tuple(start), "limit_indices": tuple(stop), "strides": steps}
    return emit("slice", (tensor,), (TensorSpec(shape, tensor.dtype),), attributes)


@operation
def reverse(x: TensorLike, axis: int | Sequence[int] | None = None) -> Tensor:
    """x with the order of elements reversed along the given axes, or all."""
    tensor = as_tensor(x)
    return emit(
        "reverse", (tensor,), (tensor.spec,), {"dimensions": checked_axes("reverse", axis, tensor.ndim)}
    )


@operation
def pad(
    x: TensorLike, widths: Sequence[tuple[int, int] | tuple[int, int, int]], value: TensorLike = 0
) -> Tensor:
    """x with `value` added around it.

    Arguments:
        widths: for each axis, how many before and after (negative: cut off) and, if a third, how many between elements.
        value: a scalar.

    Raises:
        ShapeMismatch: there is not one entry for each axis.
        DTypeMismatch: the value is no scalar of the element type of x.
    """
    tensor = as_tensor(x)
    is_flag = tensor.dtype is DType.bool and isinstance(value, int) and value in (0, 1)
    filler = as_tensor(bool(value)) if is_flag else promoted(tensor, value)[1]
    if filler.spec != TensorSpec((), tensor.dtype):
        raise DTypeMismatch(f"pad: the value is {filler.spec}; expected a scalar of {tensor.dtype}")
    if len(widths) != tensor.ndim:
        raise ShapeMismatch(
            f"pad: {len(widths)} widths were given for shape {tensor.shape}; expected one for each axis"
        )
    low, high, inner = zip(*((*w, 0)[:3] for w in widths), strict=True) if widths else ((), (), ())
    shape = tuple(
        a + n + max(n - 1, 0) * i + b for a, b, i, n in zip(low, high, inner, tensor.shape, strict=True)
    )
    if any(size < 0 for size in shape):
        raise ShapeMismatch(f"pad: widths {tuple(widths)} cut more than shape {tensor.shape} has")
    attributes = {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": inner}
    return emit("pad", (tensor, filler), (TensorSpec(shape, tensor.dtype),), attributes)


@operation
def concatenate(tensors: Sequence[TensorLike], axis: int = 0) -> Tensor:
    """The tensors one after another along an axis.

    Raises:
        ShapeMismatch: there is none, or they differ in another axis.
    """
    if not tensors:
        raise ShapeMismatch("concatenate: no tensors were given; expected at least one")
    parts = promoted(*tensors)
    place = checked_axis("concatenate", axis, parts[0].ndim)
    rests = {(*t.shape[:place], *t.shape[place + 1 :]) for t in parts if t.ndim == parts[0].ndim}
    if len(rests) != 1 or any(t.ndim != parts[0].ndim for t in parts):
        shown = ", ".join(str(t.shape) for t in parts)
        raise ShapeMismatch(f"concatenate: shapes {shown} differ in more than axis {place}")
    total = sum(t.shape[place] for t in parts)
    shape = (*parts[0].shape[:place], total, *parts[0].shape[place + 1 :])
    return emit("concatenate", parts, (TensorSpec(shape, parts[0].dtype),), {"dimension": place})


@operation
def stack(tensors: Sequence[TensorLike], axis: int = 0) -> Tensor:
    """The tensors, all of one shape, along a new axis."""
    return concatenate([expand_dims(t, axis) for t in tensors], axis)


@operation
def split(x: TensorLike, parts: int, axis: int = 0) -> tuple[Tensor, ...]:
    """x cut into equal parts along an axis.

    Raises:
        ShapeMismatch: the size of the axis is no multiple of `parts`.
    """
    tensor = as_tensor(x)
    place = checked_axis("split", axis, tensor.ndim)
    size = tensor.shape[place]
    if parts < 1 or size % parts:
        raise ShapeMismatch(
            f"split: axis {place} of shape {tensor.shape} cannot be cut into {parts} equal parts"
        )
    width = size // parts
    return tuple(_narrow(tensor, place, i * width, (i + 1) * width) for i in range(parts))


def _narrow(tensor: Tensor, axis: int, start: int, stop: int) -> Tensor:
    low, high = [0] * tensor.ndim, list(tensor.shape)
    low[axis], high[axis] = start, stop
    return slice_(tensor, low, high)


@operation
def stop_gradient(x: TensorLike) -> Tensor:
    """x, treated as a constant by differentiation.

    The mark is an attribute on a reshape to the same shape, so it costs nothing and travels with the program.
    """
    tensor = as_tensor(x)
    return emit("reshape", (tensor,), (tensor.spec,), {STOP_GRADIENT: ir.UnitAttr.get()})


@operation
def iota(shape: Sequence[int] | int, axis: int = 0, dtype: DTypeLike = DType.i32) -> Tensor:
    """A tensor whose elements count 0, 1, 2, ... along an axis."""
    sizes = checked_shape(shape)
    place = checked_axis("iota", axis, len(sizes))
    return emit("iota", (), (TensorSpec(sizes, dtype_of(dtype)),), {"iota_dimension": place})


@operation
def full(shape: Sequence[int] | int, value: Any, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor of one repeated scalar.

    Raises:
        DTypeMismatch: the value is no scalar.
    """
    scalar = as_tensor(value, dtype)
    if scalar.shape != ():
        raise DTypeMismatch(f"full: a value of shape {scalar.shape} was given; expected a scalar")
    return broadcast_to(scalar, shape)


@operation
def zeros(shape: Sequence[int] | int, dtype: DTypeLike = DType.f32) -> Tensor:
    """A tensor of zeros."""
    return full(shape, 0, dtype)


@operation
def ones(shape: Sequence[int] | int, dtype: DTypeLike = DType.f32) -> Tensor:
    """A tensor of ones."""
    return full(shape, 1, dtype)


def _sliced(op: ir.Operation, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    bounds = (integers_of(op.attributes[name]) for name in ("start_indices", "limit_indices", "strides"))
    return x[tuple(slice(*each) for each in zip(*bounds, strict=True))]


declare(
    "transpose",
    Kind.movement,
    cost=Cost.move,
    rounds=False,
    linear=Linear(),
    fuses=True,
    functions=("transpose",),
    derivative=Supplied("pcp.autodiff.rules.movement"),
    batching=Supplied("pcp.batching.rules.axes"),
    fold=lambda op, x: x.transpose(integers_of(op.attributes["permutation"])),
)
declare(
    "reshape",
    Kind.movement,
    cost=Cost.free,
    rounds=False,
    linear=Linear(),
    functions=("reshape",),
    derivative=Supplied("pcp.autodiff.rules.movement"),
    batching=Supplied("pcp.batching.rules.axes"),
    fold=lambda op, x: x.reshape(spec_of(op.results[0].type).shape),
)
declare(
    "broadcast_in_dim",
    Kind.movement,
    cost=Cost.free,
    rounds=False,
    linear=Linear(),
    functions=("broadcast_to",),
    derivative=Supplied("pcp.autodiff.rules.movement"),
    batching=Supplied("pcp.batching.rules.axes"),
    fold=lambda *_: None,  # of one repeated number only
)
declare(
    "concatenate",
    Kind.movement,
    cost=Cost.move,
    rounds=False,
    linear=Linear(),
    functions=("concatenate",),
    derivative=Supplied("pcp.autodiff.rules.movement"),
    batching=Supplied("pcp.batching.rules.axes"),
    fold=lambda op, *parts: np.concatenate(parts, integer_of(op.attributes["dimension"])),
)
declare(
    "slice",
    Kind.movement,
    cost=Cost.move,
    rounds=False,
    linear=Linear(),
    fuses=True,
    functions=("slice",),
    derivative=Supplied("pcp.autodiff.rules.movement"),
    batching=Supplied("pcp.batching.rules.axes"),
    fold=_sliced,
)
declare(
    "pad",
    Kind.movement,
    cost=Cost.move,
    rounds=False,
    linear=Linear(),
    fuses=True,
    functions=("pad",),
    derivative=Supplied("pcp.autodiff.rules.movement"),
    batching=Supplied("pcp.batching.rules.axes"),
)
declare(
    "reverse",
    Kind.movement,
    cost=Cost.move,
    rounds=False,
    linear=Linear(),
    fuses=True,
    functions=("reverse",),
    derivative=Supplied("pcp.autodiff.rules.movement"),
    batching=Supplied("pcp.batching.rules.axes"),
    fold=lambda op, x: np.flip(x, integers_of(op.attributes["dimensions"])),
)
declare(
    "iota",
    Kind.creation,
    cost=Cost.free,
    rounds=False,
    functions=("iota",),
    derivative=None,
    batching=None,
)
declare(
    "constant",
    Kind.creation,
    cost=Cost.free,
    rounds=False,
    derivative=None,
    batching=None,
)
declare(
    "chlo.constant",
    Kind.creation,
    cost=Cost.free,
    rounds=False,
    derivative=None,
    batching=None,
)
declare(
    "get_dimension_size",
    Kind.creation,
    cost=Cost.free,
    rounds=False,
    derivative=None,
    batching=None,
)
