"""Reading and writing at places along one axis, of which every row has its own."""

from pcp.ir import DType
from pcp.ops.elementwise import convert, less, where
from pcp.ops.indexing.gathering import WindowAxes, gather, scatter
from pcp.ops.movement import broadcast_to, expand_dims, zeros
from pcp.ops.movement.axes import checked_axis
from pcp.ops.promotion import broadcast_shape, promoted
from pcp.tensor import (
    DTypeMismatch,
    ShapeMismatch,
    Tensor,
    TensorLike,
    as_tensor,
    export_operations,
    operation,
)

COMBINATIONS = {"set": None, "add": "add", "multiply": "multiply", "min": "minimum", "max": "maximum"}
"""How a new element is joined to the old one, and the elementwise operation that does so."""


def combination(name: str, mode: str) -> str | None:
    """The elementwise operation of a mode; None replaces.

    Raises:
        DTypeMismatch: there is no such mode.
    """
    if mode not in COMBINATIONS:
        raise DTypeMismatch(f"{name}: mode {mode!r} was given; expected one of {', '.join(COMBINATIONS)}")
    return COMBINATIONS[mode]


def value_for(name: str, x: Tensor, value: TensorLike) -> Tensor:
    """A value to be written into x, in its element type.

    Raises:
        DTypeMismatch: the type of x does not hold the values.
    """
    kept, converted = promoted(x, value)
    if kept.dtype is not x.dtype:
        raise DTypeMismatch(
            f"{name}: values that meet {x.dtype} in {converted.dtype} were given; expected {x.dtype}; use .astype"
        )
    return converted


@operation
def take_along_axis(x: TensorLike, indices: TensorLike, axis: int = -1) -> Tensor:
    """The elements of x at `indices` along an axis; the result has the shape of `indices`.

    Arguments:
        x: any shape; other axes broadcast against those of `indices`.
        indices: integers, as many axes as x; negative ones count from the end, others are clamped.

    Raises:
        ShapeMismatch: the ranks differ, or the other axes do not broadcast.
        DTypeMismatch: the indices are no integers.
    """
    tensor, places, axes = _batched("take_along_axis", x, indices, axis)
    if not places.size:
        return zeros(places.shape[:-1], tensor.dtype)
    return gather(tensor, places, axes, (1,) * tensor.ndim)


@operation
def put_along_axis(
    x: TensorLike, indices: TensorLike, values: TensorLike, axis: int, mode: str = "set"
) -> Tensor:
    """x with the elements at `indices` along an axis replaced by `values`, or joined with them.

    Arguments:
        x: any shape.
        indices: integers, as many axes as x; negative ones count from the end, others beyond the end are dropped.
        values: shape that broadcasts to that of `indices`.
        mode: `"set"`, `"add"`, `"multiply"`, `"min"` or `"max"`; of several values "set" at one place, any may win.

    Raises:
        ShapeMismatch: the ranks differ, or another axis of the indices is neither 1 nor that of x.
        DTypeMismatch: the indices are no integers, the type of x does not hold the values, or there is no such mode.
    """
    tensor = as_tensor(x)
    wide, places, axes = _batched("put_along_axis", tensor, indices, axis)
    if wide.shape != tensor.shape:
        raise ShapeMismatch(
            f"put_along_axis: indices of shape {as_tensor(indices).shape} do not broadcast to shape {tensor.shape} "
            f"beside axis {axis}"
        )
    updates = broadcast_to(value_for("put_along_axis", tensor, values), places.shape[:-1])
    return scatter(tensor, places, updates, axes, combination("put_along_axis", mode))


def _batched(name: str, x: TensorLike, indices: TensorLike, axis: int) -> tuple[Tensor, Tensor, WindowAxes]:
    """x and the indices as a vector of one component each, with all axes but one run together."""
    tensor, places = as_tensor(x), as_tensor(indices)
    if places.ndim != tensor.ndim or not tensor.ndim:
        raise ShapeMismatch(
            f"{name}: indices of shape {places.shape} were given for shape {tensor.shape}; expected as many axes, at least one"
        )
    if not places.dtype.is_integer:
        raise DTypeMismatch(f"{name}: indices of {places.dtype} were given; expected integers")
    along = checked_axis(name, axis, tensor.ndim)
    others = [(*t.shape[:along], 1, *t.shape[along + 1 :]) for t in (tensor, places)]
    shape = broadcast_shape(name, *others)
    tensor, places = (
        broadcast_to(t, (*shape[:along], t.shape[along], *shape[along + 1 :])) for t in (tensor, places)
    )
    if places.dtype.itemsize < 4:
        places = convert(places, DType.i32)
    if places.dtype.kind == "signed":
        places = where(less(places, 0), places + tensor.shape[along], places)
    batch = tuple(a for a in range(tensor.ndim) if a != along)
    axes = WindowAxes((), (along,), (along,), tensor.ndim, batch, batch)
    return tensor, expand_dims(places, tensor.ndim), axes


export_operations(__name__)
