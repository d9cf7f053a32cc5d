"""Tangents through control flow: branches return, and loops carry, the tangents of their values beside these.

So the number of trips of a loop may depend on data.
"""

from collections.abc import Sequence

from pcp.autodiff.engine import active_carries, propagate_activity
from pcp.autodiff.forward import OWN, Forward
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.editing import copy_region
from pcp.ir.toolkit.regions import reached_results, values_from_outside
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.tensor import Tensor


def _branches(forward: Forward, op: ir.Operation) -> None:
    outside = _outside(forward, op)
    if not outside:
        return
    active = reached_results(op, outside, propagate_activity)
    builder, results = forward.builder, list(op.results)
    specs = [spec_of(value.type) for value in results]
    tangent_specs = [spec for spec, is_active in zip(specs, active, strict=True) if is_active]
    count = len(op.regions)
    chosen = builder.emit(op.name, list(op.operands), [*specs, *tangent_specs], regions=count)
    for index in range(count):
        with builder.region(chosen, index, ()):
            operations, returned = copy_region(builder, op, index, ())
            forward.push(operations, returned)
            _return(forward, returned, active)
    _take_over(forward, op, list(chosen.results), active)


def _outside(forward: Forward, op: ir.Operation) -> set[Value]:
    """The values from outside of the regions of an operation that have tangents."""
    return {value for value in values_from_outside(op) if value in forward.tangents}


def _while(forward: Forward, op: ir.Operation) -> None:
    active = active_carries(op, [value in forward.tangents for value in op.operands], _outside(forward, op))
    if not any(active):
        return
    builder, initial = forward.builder, list(op.operands)
    chosen = [value for value, is_active in zip(initial, active, strict=True) if is_active]
    first = [*initial, *(forward.tangent_or_zeros(value).value for value in chosen)]
    specs = [spec_of(value.type) for value in first]
    loop = builder.emit("stablehlo.while", first, specs, regions=2)
    with builder.region(loop, 0, specs) as arguments:
        _, returned = copy_region(builder, op, 0, arguments[: len(initial)])
        builder.emit("stablehlo.return", returned, ())
    with builder.region(loop, 1, specs) as arguments:
        carries = arguments[: len(initial)]
        moving = [value for value, is_active in zip(carries, active, strict=True) if is_active]
        for value, tangent in zip(moving, arguments[len(initial) :], strict=True):
            forward.tangents[value] = Tensor(tangent, builder)
        operations, returned = copy_region(builder, op, 1, carries)
        forward.push(operations, returned)
        _return(forward, returned, active)
    _take_over(forward, op, list(loop.results), active)


def _return(forward: Forward, returned: Sequence[Value], active: Sequence[bool]) -> None:
    tangents = [
        forward.tangent_or_zeros(v).value for v, is_active in zip(returned, active, strict=True) if is_active
    ]
    forward.builder.emit("stablehlo.return", [*map(forward.current, returned), *tangents], ())


def _take_over(forward: Forward, op: ir.Operation, results: list[Value], active: Sequence[bool]) -> None:
    """Put the results of an operation that also makes tangents in the place of those of the one that does not."""
    count = len(active)
    tangents = iter(results[count:])
    for old, new, is_active in zip(op.results, results[:count], active, strict=True):
        forward.replace(old, new)
        if is_active:
            forward.tangents[old] = forward.tangents[new] = Tensor(next(tangents), forward.builder)


OWN.update({"stablehlo.case": _branches, "stablehlo.if": _branches, "stablehlo.while": _while})
