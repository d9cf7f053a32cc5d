"""Batching of gathers, scatters and dynamic slices: samples become a batching axis or run along the windows."""

from collections.abc import Sequence

import numpy as np

from pcp.ir.toolkit.attributes import dimension_numbers
from pcp.ops.batching import Batched
from pcp.ops.elementwise import clip
from pcp.ops.indexing.reading import WindowAxes, gather, scatter
from pcp.ops.movement import concatenate, reshape, zeros
from pcp.ops.record import supply_batching
from pcp.tensor import Tensor

Numbers = dict[str, tuple[int, ...]]


def _shifted(axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(axis + 1 for axis in axes)


def _gather(batched: Batched) -> list[Tensor]:
    numbers = dimension_numbers(str(batched.op.attributes["dimension_numbers"]))
    sizes = batched.integers("slice_sizes")
    offset, collapsed = numbers.get("offset_dims", ()), numbers.get("collapsed_slice_dims", ())
    index_map, vector = numbers.get("start_index_map", ()), numbers.get("index_vector_dim", (0,))[0]
    own, theirs = (
        numbers.get("operand_batching_dims", ()),
        numbers.get("start_indices_batching_dims", ()),
    )
    offset = _shifted(offset)
    if batched.flags[0]:
        collapsed, index_map, own = _shifted(collapsed), _shifted(index_map), _shifted(own)
    if batched.flags[1]:
        vector, theirs = vector + 1, _shifted(theirs)
    if all(batched.flags):
        own, theirs, sizes = (0, *own), (0, *theirs), (1, *sizes)
    elif batched.flags[0]:
        offset, sizes = (0, *offset), (batched.size, *sizes)
    axes = WindowAxes(offset, collapsed, index_map, vector, own, theirs)
    return [gather(batched.operand(0), batched.operand(1), axes, sizes)]


def _scatter(batched: Batched) -> list[Tensor] | None:
    if batched.captured:
        return None
    numbers = dimension_numbers(str(batched.op.attributes["scatter_dimension_numbers"]))
    count = len(batched.specs)
    window = _shifted(numbers.get("update_window_dims", ()))
    inserted, index_map, own = (
        _shifted(numbers.get(name, ()))
        for name in ("inserted_window_dims", "scatter_dims_to_operand_dims", "input_batching_dims")
    )
    theirs = numbers.get("scatter_indices_batching_dims", ())
    vector = numbers.get("index_vector_dim", (0,))[0]
    if batched.flags[count]:
        own, theirs, vector = (0, *own), (0, *_shifted(theirs)), vector + 1
    else:
        window = (0, *window)
    text = (
        f"#stablehlo.scatter<update_window_dims = {list(window)}, inserted_window_dims = {list(inserted)}, "
        f"input_batching_dims = {list(own)}, scatter_indices_batching_dims = {list(theirs)}, "
        f"scatter_dims_to_operand_dims = {list(index_map)}, index_vector_dim = {vector}>"
    )
    operands = [
        batched.operand(i) if i == count else batched.operand_with_samples(i)
        for i in range(len(batched.flags))
    ]
    return batched.clone_with(operands, {"scatter_dimension_numbers": text})


def _starts(batched: Batched, first: int) -> Tensor:
    """The start indices of all samples, as vectors."""
    columns = [batched.operand_with_samples(index) for index in range(first, len(batched.flags))]
    return concatenate([reshape(column, (batched.size, 1)) for column in columns], 1)


def _dynamic_slice(batched: Batched) -> list[Tensor]:
    sizes = batched.integers("slice_sizes")
    rank = len(sizes)
    if any(batched.flags[1:]):
        axes, offset = tuple(range(rank)), tuple(range(1, rank + 1))
        if not batched.flags[0]:
            found = WindowAxes(offset, (), axes, 1)
            return [gather(batched.operand(0), _starts(batched, 1), found, sizes)]
        found = WindowAxes(offset, (), _shifted(axes), 1, (0,), (0,))
        return [gather(batched.operand(0), _starts(batched, 1), found, (1, *sizes))]
    start = [batched.operand(index) for index in range(1, rank + 1)]
    operands = [batched.operand(0), *_led_by_zero(start)]
    return batched.clone_with(operands, {"slice_sizes": (batched.size, *sizes)})


def _led_by_zero(start: list[Tensor]) -> list[Tensor]:
    return [zeros((), start[0].dtype if start else "i32"), *start]


def _dynamic_update_slice(batched: Batched) -> list[Tensor]:
    x, update = batched.operand_with_samples(0), batched.operand_with_samples(1)
    if not any(batched.flags[2:]):
        start = [batched.operand(index) for index in range(2, len(batched.flags))]
        return batched.clone_with([x, update, *_led_by_zero(start)])
    starts = _starts(batched, 2)
    limits = [n - k for n, k in zip(x.shape[1:], update.shape[1:], strict=True)]
    top = int(np.iinfo(starts.dtype.numpy).max)
    bound = np.asarray([min(limit, top) for limit in limits], starts.dtype.numpy)[None]
    axes = tuple(range(1, x.ndim))
    return [scatter(x, clip(starts, 0, bound), update, WindowAxes(axes, (), axes, 1, (0,), (0,)), None, True)]


supply_batching(
    {
        "gather": _gather,
        "scatter": _scatter,
        "dynamic_slice": _dynamic_slice,
        "dynamic_update_slice": _dynamic_update_slice,
    }
)
