"""Composites with their own derivative: the rule is the user's, not that of what they compute.

A `jvp` is applied to the operands themselves, which stand for their tangents, while the primals are copies that count as
constant: so each mode takes from it the linear map, or its transpose. With `fwd` and `bwd`, the results become those of `fwd`,
whose residuals `bwd` takes; forward mode transposes `bwd`, which must be linear in the cotangents then.
"""

from collections.abc import Sequence

from pcp.ir.bindings import ir
from pcp.ir.custom_derivatives import ORDERS, derivative_functions, derivative_name
from pcp.ir.toolkit.inlining import CUSTOM_DERIVATIVE
from pcp.ops.derivative import Captured, Cotangent, Expanded, Primal, register_rule
from pcp.ops.movement import zeros
from pcp.tensor import Tensor


def custom_derivative(primal: Primal, *cotangents: Cotangent) -> Sequence[Cotangent] | Expanded | Captured:
    """The derivative that a composite names."""
    functions = derivative_functions(primal.op)
    if "jvp" in functions:
        return _pushed(primal, functions["jvp"])
    if "bwd" in functions:
        return _pulled(primal, functions["fwd"], functions["bwd"], cotangents)
    return primal.refuse(
        f"the derivative that {derivative_name(primal.op)} itself defines is carried along up to order {ORDERS}; "
        "write its derivative without the function itself, or take the inner derivatives in JAX, before the import"
    )


def _pushed(primal: Primal, function: ir.Operation) -> Expanded:
    builder = primal.engine.builder
    copies = [_copy(primal, x) for x in primal.inputs]
    moving = [x.value for x in primal.inputs if x.dtype.is_differentiable]
    made = iter(builder.inline(function, [*(x.value for x in copies), *moving]))
    results = [Tensor(next(made), builder) if y.dtype.is_differentiable else y for y in primal.outputs]
    return Expanded(results, copies)


def _copy(primal: Primal, x: Tensor) -> Tensor:
    builder = primal.engine.builder
    return Tensor(builder.emit("stablehlo.reshape", [x.value], [x.spec]).results[0], builder)


def _pulled(
    primal: Primal, forward: ir.Operation, backward: ir.Operation, cotangents: Sequence[Cotangent]
) -> Sequence[Cotangent]:
    op, builder = primal.op, primal.engine.builder
    inputs, outputs = primal.inputs, primal.outputs
    with builder.before(op):
        made = builder.inline(forward, list(op.operands))
    residuals = made[len(outputs) :]
    for old, new in zip(list(op.results), made, strict=False):
        primal.engine.replace(old, new)
    given = [
        (zeros(y.shape, y.dtype) if g is None else g).value
        for y, g in zip(outputs, cotangents, strict=True)
        if y.dtype.is_differentiable
    ]
    found = iter(builder.inline(backward, [*residuals, *given]))
    return [Tensor(next(found), builder) if x.dtype.is_differentiable else None for x in inputs]


register_rule(f"composite.{CUSTOM_DERIVATIVE}", custom_derivative)
