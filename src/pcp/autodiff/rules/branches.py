"""Derivatives of branches, which are run again in the backward pass and differentiated there."""

from pcp.ir.toolkit.editing import copy_region
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.derivative import Captured, Cotangent, Primal
from pcp.ops.movement import zeros
from pcp.ops.record import supply_derivatives
from pcp.tensor import Tensor, current_builder


def _branches(primal: Primal, *cotangents: Cotangent) -> Captured:
    """`case` and `if`: the same choice between the gradients of the branches."""
    builder, engine = current_builder(), primal.engine
    specs = [spec_of(value.type) for value in primal.captured]
    count = len(primal.op.regions)
    op = builder.emit(primal.op.name, list(primal.op.operands), specs, regions=count)
    for index in range(count):
        with builder.region(op, index, ()):
            operations, returned = copy_region(builder, primal.op, index, ())
            inside = engine.gradients(operations, returned, cotangents, primal.captured)
            _return([zeros(s.shape, s.dtype) if g is None else g for g, s in zip(inside, specs, strict=True)])
    results = (Tensor(value, builder) for value in op.results)
    return Captured([None], dict(zip(primal.captured, results, strict=True)))


def _return(values: list[Tensor]) -> None:
    current_builder().emit("stablehlo.return", [t.value for t in values], ())


supply_derivatives({"case": _branches, "if": _branches})
