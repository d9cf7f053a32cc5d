"""Movement operations that arrange elements anew: reshape, transpose, broadcast, reverse.

Each is linear, and its transpose moves the cotangent back.
"""

from collections.abc import Sequence

import numpy as np

from pcp.ir import TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import integers_of
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ir.types import checked_shape
from pcp.ops.batched_axes import along_axes, behind_the_first, shifted
from pcp.ops.derivative import Cotangent, Primal
from pcp.ops.movement.axes import checked_axes, checked_axis
from pcp.ops.record import Cost, Kind, Linear, declare
from pcp.tensor import ShapeMismatch, Tensor, TensorLike, as_tensor, emit, export_operations, operation

STOP_GRADIENT = "pcp.stop_gradient"
"""The attribute of an operation whose results differentiation treats as constants."""

declare(
    "reshape",
    Kind.movement,
    cost=Cost.free,
    linear=Linear(),
    functions=("reshape",),
    derivative=(lambda g, y, x: reshape(g, x.shape),),
    batching=along_axes(),
    fold=lambda op, x: x.reshape(spec_of(op.results[0].type).shape),
)


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


def _transposed(primal: Primal, g: Tensor) -> list[Cotangent]:
    return [transpose(g, inverse(primal.integers("permutation")))]


def inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes another."""
    return tuple(sorted(range(len(permutation)), key=permutation.__getitem__))


declare(
    "transpose",
    Kind.movement,
    cost=Cost.move,
    linear=Linear(),
    fuses=True,
    functions=("transpose",),
    derivative=_transposed,
    batching=along_axes(permutation=behind_the_first),
    fold=lambda op, x: x.transpose(integers_of(op.attributes["permutation"])),
)


@operation
def transpose(x: TensorLike, axes: int | Sequence[int] | None = None, *more: int) -> Tensor:
    """The axes of x in the given order, as a sequence or one by one, or reversed if none is given.

    Raises:
        ShapeMismatch: `axes` is no permutation of the axes of x.
    """
    tensor = as_tensor(x)
    flat = [*(() if axes is None else (axes,) if isinstance(axes, int | np.integer) else axes), *more]
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
def swapaxes(x: TensorLike, axis1: int, axis2: int) -> Tensor:
    """x with two axes exchanged."""
    tensor = as_tensor(x)
    order = list(range(tensor.ndim))
    i, j = checked_axis("swapaxes", axis1, tensor.ndim), checked_axis("swapaxes", axis2, tensor.ndim)
    order[i], order[j] = j, i
    return transpose(tensor, order)


def _sum_of_repeated(primal: Primal, g: Tensor) -> list[Cotangent]:
    """The sum over every axis along which elements were repeated."""
    axes, shape = primal.integers("broadcast_dimensions"), primal.input(0).shape
    kept = [axis for axis, size in zip(axes, shape, strict=True) if size == g.shape[axis]]
    total = g.sum(tuple(axis for axis, size in enumerate(g.shape) if axis not in kept and size != 1))
    in_order = sorted(kept)
    if in_order != kept:
        total = transpose(
            reshape(total, [g.shape[axis] for axis in in_order]), [in_order.index(a) for a in kept]
        )
    return [reshape(total, shape)]


declare(
    "broadcast_in_dim",
    Kind.movement,
    cost=Cost.free,
    linear=Linear(),
    functions=("broadcast_to",),
    derivative=_sum_of_repeated,
    batching=along_axes(broadcast_dimensions=behind_the_first),
    fold=lambda *_: None,  # of one repeated number only
)


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
def expand_dims(x: TensorLike, axis: int | Sequence[int]) -> Tensor:
    """x with a new axis of size 1 at place `axis` of the result, or with several."""
    tensor = as_tensor(x)
    count = 1 if isinstance(axis, int | np.integer) else len(axis)
    places = checked_axes("expand_dims", axis, tensor.ndim + count)
    sizes = iter(tensor.shape)
    return reshape(tensor, [1 if place in places else next(sizes) for place in range(tensor.ndim + count)])


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


def _reversed(primal: Primal, g: Tensor) -> list[Cotangent]:
    return [reverse(g, primal.integers("dimensions"))]


declare(
    "reverse",
    Kind.movement,
    cost=Cost.move,
    linear=Linear(),
    fuses=True,
    functions=("reverse",),
    derivative=_reversed,
    batching=along_axes(dimensions=shifted),
    fold=lambda op, x: np.flip(x, integers_of(op.attributes["dimensions"])),
)


@operation
def reverse(x: TensorLike, axis: int | Sequence[int] | None = None) -> Tensor:
    """x with the order of elements reversed along the given axes, or all."""
    tensor = as_tensor(x)
    return emit(
        "reverse", (tensor,), (tensor.spec,), {"dimensions": checked_axes("reverse", axis, tensor.ndim)}
    )


@operation
def stop_gradient(x: TensorLike) -> Tensor:
    """x, treated as a constant by differentiation.

    The mark is an attribute on a reshape to the same shape, so it costs nothing and travels with the program.
    """
    tensor = as_tensor(x)
    return emit("reshape", (tensor,), (tensor.spec,), {STOP_GRADIENT: ir.UnitAttr.get()})


export_operations(__name__)
