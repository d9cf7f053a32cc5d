"""Along which axis the results of an operation are cut, if its operands are: one row for each operation.

A row says how all operands must be cut so that each part of a result comes from one part of them, or so that the parts of the
result, each as large as the whole, add up to it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import dimension_numbers, integer_of, integers_of
from pcp.ir.toolkit.constants import splat_number
from pcp.ir.toolkit.regions import combiner
from pcp.ir.toolkit.tensor_types import spec_if_tensor
from pcp.ops.linear.dot_axes import DotAxes
from pcp.ops.record import RECORDS

Axes = Sequence[int | None]


@dataclass(frozen=True, slots=True)
class Cut:
    """How an operation is computed in parts.

    Arguments:
        operands: along which axis each is cut; None where it is needed whole.
        results: along which axis each is cut; None where parts are added up.
        adds_to: the operand that the parts are added to, if there is one.
        function: of a composite, the symbol of what it decomposes into for one part.
    """

    operands: tuple[int | None, ...]
    results: tuple[int | None, ...]
    adds_to: int | None = None
    function: str = ""


def cut_of(op: ir.Operation, along: Axes, parts: int) -> Cut | None:
    """How an operation is computed from operands of which some are cut; None if it is not known how.

    Arguments:
        along: along which axis each operand is cut; None where it is whole, but may be cut.
        parts: how many; they divide the sizes of the axes.
    """
    record = RECORDS.get(op.name)
    rule = _elementwise if record is not None and record.is_elementwise else _RULES.get(op.name)
    cut = None if rule is None else rule(op, along, parts)
    if cut is None or any(
        axis not in (None, needed) for axis, needed in zip(along, cut.operands, strict=True)
    ):
        return None
    return cut


def _shape(value: Value) -> tuple[int, ...]:
    spec = spec_if_tensor(value.type)
    return () if spec is None else spec.shape


def _only(along: Axes) -> int | None:
    """The axis along which all operands that are cut are cut."""
    axes = {axis for axis in along if axis is not None}
    return axes.pop() if len(axes) == 1 else None


def _elementwise(op: ir.Operation, along: Axes, parts: int) -> Cut | None:  # noqa: ARG001
    axis = _only(along)
    shapes = [_shape(value) for value in (*op.operands, *op.results)]
    if axis is None or any(shape not in ((), shapes[-1]) for shape in shapes):
        return None
    return Cut(tuple(axis if _shape(value) else None for value in op.operands), (axis,) * len(op.results))


def _broadcast(op: ir.Operation, along: Axes, parts: int) -> Cut | None:  # noqa: ARG001
    axis = along[0]
    assert axis is not None
    target = integers_of(op.attributes["broadcast_dimensions"])[axis]
    return Cut((axis,), (target,)) if _shape(op.operands[0])[axis] == _shape(op.results[0])[target] else None


def _reshape(op: ir.Operation, along: Axes, parts: int) -> Cut | None:
    (axis,), shape, result = along, _shape(op.operands[0]), _shape(op.results[0])
    before = math.prod(shape[:axis])
    fits = (
        i
        for i, size in enumerate(result)
        if math.prod(result[:i]) == before and size > 1 and size % parts == 0
    )
    target = next(fits, None)
    return None if target is None else Cut((axis,), (target,))


def _transpose(op: ir.Operation, along: Axes, parts: int) -> Cut | None:  # noqa: ARG001
    assert along[0] is not None
    return Cut((along[0],), (integers_of(op.attributes["permutation"]).index(along[0]),))


def _product(op: ir.Operation, along: Axes, parts: int) -> Cut | None:  # noqa: ARG001
    axes = DotAxes.of(op)
    side = 0 if along[0] is not None else 1
    axis = along[side]
    assert axis is not None
    for pair, is_batch in ((axes.batch, True), (axes.contract, False)):
        if axis in pair[side]:
            place = pair[side].index(axis)
            return Cut((pair[0][place], pair[1][place]), (place if is_batch else None,))
    before = len(axes.batch[0]) + (len(axes.free(0, len(_shape(op.operands[0])))) if side else 0)
    target = before + axes.free(side, len(_shape(op.operands[side]))).index(axis)
    return Cut((None, axis) if side else (axis, None), (target,))


def _reduce(op: ir.Operation, along: Axes, parts: int) -> Cut | None:  # noqa: ARG001
    axis, count = _only(along), len(op.results)
    if axis is None:
        return None
    operands = (axis,) * count + (None,) * count
    reduced = integers_of(op.attributes["dimensions"])
    if axis not in reduced:
        return Cut(operands, (axis - sum(each < axis for each in reduced),) * count)
    is_sum = count == 1 and combiner(op.regions[0]) == "add" and splat_number(op.operands[1]) == 0
    return Cut(operands, (None,)) if is_sum else None


def _slice(op: ir.Operation, along: Axes, parts: int) -> Cut | None:  # noqa: ARG001
    (axis,) = along
    assert axis is not None
    bounds = (
        integers_of(op.attributes[f"{name}"])[axis] for name in ("start_indices", "limit_indices", "strides")
    )
    return Cut((axis,), (axis,)) if tuple(bounds) == (0, _shape(op.operands[0])[axis], 1) else None


def _pad(op: ir.Operation, along: Axes, parts: int) -> Cut | None:  # noqa: ARG001
    axis = along[0]
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    if axis is None or any(integers_of(op.attributes[name])[axis] for name in names):
        return None
    return Cut((axis, None), (axis,))


def _along_others(op: ir.Operation, along: Axes, parts: int) -> Cut | None:  # noqa: ARG001
    """Of what works along one axis: any other."""
    axis = _only(along)
    if axis is None or axis == integer_of(op.attributes["dimension"]):
        return None
    return Cut((axis,) * len(op.operands), (axis,) * len(op.results))


def _gather(op: ir.Operation, along: Axes, parts: int) -> Cut | None:  # noqa: ARG001
    numbers, axis = dimension_numbers(str(op.attributes["dimension_numbers"])), along[1]
    if (
        axis is None
    ):  # the operand is cut, which may be along an axis that runs together with one of the indices
        axis = _batched(numbers, "start_indices_batching_dims", "operand_batching_dims", along[0])
    if axis is None:
        return None
    (vector,) = numbers["index_vector_dim"]
    if axis == vector:
        return None
    result = [i for i in range(len(_shape(op.results[0]))) if i not in numbers.get("offset_dims", ())]
    target = result[axis - (axis > vector)]
    return Cut(
        (_batched(numbers, "operand_batching_dims", "start_indices_batching_dims", axis), axis), (target,)
    )


def _scatter(op: ir.Operation, along: Axes, parts: int) -> Cut | None:  # noqa: ARG001
    if len(op.operands) != 3 or combiner(op.regions[0]) != "add":
        return None
    numbers = dimension_numbers(str(op.attributes["scatter_dimension_numbers"]))
    (vector,) = numbers["index_vector_dim"]
    updates = [
        i for i in range(len(_shape(op.operands[2]))) if i not in numbers.get("update_window_dims", ())
    ]
    axis = along[1]
    if axis is None and along[2] in updates:
        axis = updates.index(along[2])
        axis += axis >= vector
    if axis is None:
        axis = _batched(numbers, "scatter_indices_batching_dims", "input_batching_dims", along[0])
    if axis is None or axis == vector:
        return None
    batched = _batched(numbers, "input_batching_dims", "scatter_indices_batching_dims", axis)
    operands = (batched, axis, updates[axis - (axis > vector)])
    return Cut(operands, (batched,), adds_to=0 if batched is None else None)


def _batched(numbers: dict[str, tuple[int, ...]], operand: str, indices: str, axis: int | None) -> int | None:
    """The axis of an operand that runs together with one of the indices, if one does."""
    together = dict(zip(numbers.get(indices, ()), numbers.get(operand, ()), strict=True))
    return None if axis is None else together.get(axis)


_RULES: dict[str, Callable[[ir.Operation, Axes, int], Cut | None]] = {
    f"stablehlo.{name}": rule
    for name, rule in {
        "bitcast_convert": _elementwise,
        "broadcast_in_dim": _broadcast,
        "reshape": _reshape,
        "transpose": _transpose,
        "dot_general": _product,
        "reduce": _reduce,
        "slice": _slice,
        "pad": _pad,
        "concatenate": _along_others,
        "sort": _along_others,
        "gather": _gather,
        "scatter": _scatter,
    }.items()
}
