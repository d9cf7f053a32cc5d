"""Operations that arrange elements: shapes, orders of axes, joining, cutting, padding. Copies and views are one here."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp import ops
from pcp.errors import PCPError
from pcp.importers.torch.table import row, rows
from pcp.ir import TensorSpec
from pcp.tensor import Tensor, as_tensor


def _same(x: Tensor, *_: object, **__: object) -> Tensor:
    return x


def _indices(places: Sequence[np.ndarray[Any, Any]]) -> Tensor:
    return as_tensor(np.stack(places))


rows(
    {
        # The conversion to PyTorch's element type happens to every result.
        "_to_copy.default alias.default clone.default prims.copy_strided.default": _same,
        "detach.default": ops.stop_gradient,
        "diagonal.default": lambda x, offset=0, first=0, second=1: ops.diagonal(x, offset, first, second),
        "flip.default": ops.flip,
        "permute.default": ops.transpose,
        "repeat.default": ops.tile,
        "roll.default": lambda x, shifts, dims=(): ops.roll(x, shifts, list(dims) or None),
        "squeeze.default": ops.squeeze,
        "stack.default": lambda tensors, axis=0: ops.stack(tensors, axis % (tensors[0].ndim + 1)),
        "transpose.int": ops.swapaxes,
        "tril.default": ops.tril,
        "triu.default": ops.triu,
        "tril_indices.default": lambda rows, columns, offset=0, **_: _indices(
            np.tril_indices(rows, offset, columns)
        ),
        "triu_indices.default": lambda rows, columns, offset=0, **_: _indices(
            np.triu_indices(rows, offset, columns)
        ),
        "unbind.int": lambda x, dim=0: ops.unstack(x, dim),
        "unsqueeze.default": lambda x, dim: ops.expand_dims(x, dim % (x.ndim + 1)),
    }
)


@row("view.default", "_unsafe_view.default", "expand.default", knows_result=True)
def reshape(x: Tensor, _: Sequence[int], *, result: TensorSpec, **__: object) -> Tensor:
    """The elements in another shape, or repeated to fill it."""
    return ops.reshape(x, result.shape) if x.size == result.size else ops.broadcast_to(x, result.shape)


@row("squeeze.dim", "squeeze.dims")
def squeeze(x: Tensor, axes: int | Sequence[int]) -> Tensor:
    """x without those of the axes that have size 1."""
    named = [axes] if isinstance(axes, int) else axes
    gone = {axis % x.ndim for axis in named if x.ndim and x.shape[axis] == 1}
    return ops.reshape(x, [size for axis, size in enumerate(x.shape) if axis not in gone])


@row("cat.default")
def concatenate(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """The tensors one after another; empty vectors are left out whatever the rank of the others."""
    parts = [t for t in tensors if t.shape != (0,)]
    return ops.concatenate(parts, axis) if parts else tensors[0]


@row("slice.Tensor")
def narrow(
    x: Tensor, axis: int = 0, start: int | None = None, stop: int | None = None, step: int = 1
) -> Tensor:
    """Part of an axis."""
    return x[(*[slice(None)] * (axis % x.ndim), slice(start, stop, step))]


@row("select.int")
def select(x: Tensor, axis: int, place: int) -> Tensor:
    """One slice of an axis, without the axis."""
    return x[(*[slice(None)] * (axis % x.ndim), place)]


@row("slice_scatter.default")
def slice_update(
    x: Tensor,
    source: Tensor,
    axis: int = 0,
    start: int | None = None,
    stop: int | None = None,
    step: int = 1,
) -> Tensor:
    """x with part of an axis replaced."""
    key = (*[slice(None)] * (axis % x.ndim), slice(start, stop, step))
    return ops.index_update(x, key, ops.convert(source, x.dtype))


@row("select_scatter.default")
def select_update(x: Tensor, source: Tensor, axis: int, place: int) -> Tensor:
    """x with one slice of an axis replaced."""
    return ops.index_update(x, (*[slice(None)] * (axis % x.ndim), place), ops.convert(source, x.dtype))


@row("split_with_sizes.default")
def split_with_sizes(x: Tensor, sizes: Sequence[int], axis: int = 0) -> list[Tensor]:
    """x cut along an axis into parts of given sizes."""
    parts, start = [], 0
    for size in sizes:
        parts.append(narrow(x, axis, start, start + size))
        start += size
    return parts


@row("unfold.default")
def unfold(x: Tensor, axis: int, size: int, step: int) -> Tensor:
    """Windows of an axis, each along a new last axis."""
    place = axis % x.ndim
    starts = np.arange(0, x.shape[place] - size + 1, step)
    windows = ops.take(x, starts[:, None] + np.arange(size), place)
    return ops.moveaxis(windows, place + 1, -1)


@row("constant_pad_nd.default")
def pad(x: Tensor, widths: Sequence[int], value: float = 0) -> Tensor:
    """A constant around x; the widths begin with those of the last axis, and negative ones cut off."""
    pairs = [(low, high) for low, high in zip(widths[::2], widths[1::2], strict=True)][::-1]
    filler = ops.convert(value, x.dtype)
    return ops.pad(x, [*[(0, 0)] * (x.ndim - len(pairs)), *pairs], constant_values=filler)


@row("copy.default", knows_result=True)
def copy(_: Tensor, source: Tensor, non_blocking: bool = False, *, result: TensorSpec) -> Tensor:  # noqa: ARG001
    """What stands in a tensor after another was copied into it."""
    return ops.broadcast_to(source, result.shape)


@row("diagonal_scatter.default")
def diagonal_update(x: Tensor, source: Tensor, offset: int = 0, first: int = 0, second: int = 1) -> Tensor:
    """x with a diagonal replaced."""
    numbers = np.arange(x.size).reshape(x.shape)
    return _written_at(x, np.diagonal(numbers, offset, first, second), source)


@row("as_strided.default", is_contiguous=True)
def as_strided(x: Tensor, shape: Sequence[int], strides: Sequence[int], start: int | None = None) -> Tensor:
    """The elements at places that strides give."""
    return ops.take(ops.reshape(x, (-1,)), _strided(shape, strides, start), 0)


@row("as_strided_scatter.default", is_contiguous=True)
def strided_update(
    x: Tensor, source: Tensor, shape: Sequence[int], strides: Sequence[int], start: int | None = None
) -> Tensor:
    """x with the elements at places that strides give replaced."""
    return _written_at(x, _strided(shape, strides, start), source)


def _strided(shape: Sequence[int], strides: Sequence[int], start: int | None) -> np.ndarray[Any, Any]:
    places = np.full(tuple(shape), start or 0, np.int32)
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        places += (np.arange(size) * stride).reshape(-1, *[1] * (len(shape) - axis - 1)).astype(np.int32)
    return places


def _written_at(x: Tensor, places: np.ndarray[Any, Any], source: Tensor) -> Tensor:
    """x with the elements at places of its flattened form replaced."""
    if len(np.unique(places)) < places.size:
        raise WrittenTwice(
            f"elements of shape {x.shape} are written through a view that holds some of them twice; expected a view that holds "
            "each once: work on a clone"
        )
    flat, values = ops.reshape(x, (-1,)), ops.reshape(ops.convert(source, x.dtype), (-1,))
    return ops.reshape(ops.index_update(flat, (places.reshape(-1),), values), x.shape)


class WrittenTwice(PCPError):
    """A write through a view in which some elements stand several times."""


@row("unfold_backward.default")
def written_through_unfold(*_: object) -> Tensor:
    """What PyTorch makes of a write through `unfold`: elements that no window holds would become 0."""
    raise WrittenTwice(
        "a tensor is written through a view made by unfold, which torch.export does not keep; write into the tensor itself, "
        "by slices"
    )
