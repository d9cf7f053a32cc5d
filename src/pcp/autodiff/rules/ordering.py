"""Derivatives of sorting: the cotangents go back to the places that the elements came from."""

import re
from collections.abc import Sequence

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.editing import copy_region
from pcp.ops.derivative import Cotangent, Expansion, Primal
from pcp.ops.indexing.along_axis import take_along_axis
from pcp.ops.movement import iota
from pcp.ops.record import supply_derivatives
from pcp.ops.reductions.sorting import argsort
from pcp.tensor import Tensor, current_builder


def _sort(primal: Primal, *cotangents: Cotangent) -> Sequence[Cotangent]:
    """Back by the inverse permutation."""
    axis = primal.integer("dimension")
    back = argsort(sorted_places(primal), axis)
    return [None if g is None else take_along_axis(g, back, axis) for g in cotangents]


def sorted_places(primal: Primal) -> Tensor:
    """Where each sorted element came from: the same sort once more, in which the places of the elements take part."""
    builder, inputs = current_builder(), primal.inputs
    axis = primal.integer("dimension")
    specs = [t.spec for t in inputs] + [TensorSpec(inputs[0].shape, DType.i32)]
    operands = [*(t.value for t in inputs), iota(inputs[0].shape, axis).value]
    attributes = {"dimension": axis, "is_stable": primal.flag("is_stable")}
    op = builder.emit("stablehlo.sort", operands, specs, attributes, regions=1)
    scalars = [TensorSpec((), spec.dtype) for spec in specs for _ in range(2)]
    with builder.region(op, 0, scalars) as arguments:
        _, returned = copy_region(builder, primal.op, 0, arguments[:-2])
        builder.emit("stablehlo.return", returned, ())
    return Tensor(op.results[len(inputs)], builder, specs[-1])


def _top_k(primal: Primal) -> Sequence[Tensor]:
    places = primal.output(1)
    return [take_along_axis(primal.input(0), places, places.ndim - 1), places]


def _approximate_top_k(primal: Primal) -> Sequence[Tensor]:
    """The operands are values, their places and what both begin with."""
    places = primal.output(1)
    owner = primal.op.operands[1].owner
    if isinstance(owner, ir.Block) or owner.operation.name != "stablehlo.iota":
        primal.refuse("only a selection that also returns the positions of its elements has a rule")
    found = re.search(r"reduction_dim = (\d+)", str(primal.op.attributes["mhlo.backend_config"]))
    axis = int(found[1]) if found else places.ndim - 1
    return [take_along_axis(primal.input(0), places, axis), places]


supply_derivatives(
    {
        "sort": _sort,
        "chlo.top_k": Expansion(_top_k),
        "custom_call.TopK": Expansion(_top_k),
        "custom_call.ApproxTopK": Expansion(_approximate_top_k),
    }
)
