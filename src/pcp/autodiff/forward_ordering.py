"""Tangents through sorting: they go along to where the elements go."""

from pcp.autodiff.engine import Reverse
from pcp.autodiff.forward import OWN, Forward
from pcp.autodiff.rules.ordering import sorted_places
from pcp.ir.bindings import ir
from pcp.ops.derivative import Primal
from pcp.ops.indexing.along_axis import take_along_axis


def _sort(forward: Forward, op: ir.Operation) -> None:
    active = [value in forward.tangents for value in op.operands]
    if not any(active):
        return
    primal = Primal(op, Reverse(forward.builder), active)
    places, axis = sorted_places(primal), primal.integer("dimension")
    for value, result, is_active in zip(op.operands, op.results, active, strict=True):
        if is_active:
            forward.tangents[result] = take_along_axis(forward.tangents[value], places, axis)


OWN["stablehlo.sort"] = _sort
