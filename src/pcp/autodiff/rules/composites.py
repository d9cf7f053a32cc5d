"""Derivatives of composites: those that they bring along, and gradients that are composites.

Where a composite brings its derivative, that is the rule, not what it computes. A `jvp` is applied to the operands themselves,
which stand for their tangents, while the primals are copies that count as constant: so each mode takes from it the linear map,
or its transpose. With `fwd` and `bwd`, the results become those of `fwd`, whose residuals `bwd` takes; forward mode transposes
`bwd`, which must be linear in the cotangents then.

Of PCP's own composites the gradient stays whole: that of `pcp.NAME` is a composite `pcp.NAME.vjp`. It takes the operands, the
cotangent of the result, and what other uses of the operands in its attribute `added` gave so far; it returns the cotangents of
the operands in its attribute `wrt`, added to these. Its function is the gradient of that of `pcp.NAME`, with the forward pass
computed again; once both are inlined, what they share is computed once.

Dropout is linear in its operand: its derivative is dropout of the cotangent by the same key, so that nothing is kept for it.
"""

from collections.abc import Sequence

from pcp.autodiff.engine import Reverse
from pcp.ir import Builder
from pcp.ir.bindings import Value, ir
from pcp.ir.composites import (
    composite_name,
    decomposition_of,
    emit_composite,
    known_attributes,
    private_function,
)
from pcp.ir.composites.records import COMPOSITES, DROPOUT, GRADIENT, Gradient
from pcp.ir.custom_derivatives import ORDERS, derivative_functions
from pcp.ir.digest import block_digest
from pcp.ir.toolkit.attributes import symbol_name
from pcp.ir.toolkit.dataflow import result_owner
from pcp.ops.derivative import Cotangent, Expanded, Primal, register_rule
from pcp.ops.dropping import dropped
from pcp.ops.movement import zeros
from pcp.ops.record import supply_derivatives
from pcp.tensor import Tensor, building


def own_derivative(primal: Primal, *cotangents: Cotangent) -> Sequence[Cotangent] | Expanded:
    """The derivative that a composite brings."""
    functions = derivative_functions(primal.op)
    if "jvp" in functions:
        return _pushed(primal, functions["jvp"])
    if "bwd" in functions:
        return _pulled(primal, functions["fwd"], functions["bwd"], cotangents)
    return primal.refuse(
        f"the derivative that {composite_name(primal.op)} itself defines is carried along up to order {ORDERS}; "
        "write its derivative without the function itself, or take the inner derivatives in JAX, before the import"
    )


def _pushed(primal: Primal, function: ir.Operation) -> Expanded:
    builder = primal.engine.builder
    copies = [_copy(primal, x) for x in primal.inputs]
    moving = [x.value for x in primal.inputs if x.dtype.is_differentiable]
    pushed = iter(builder.inline(function, [*(x.value for x in copies), *moving]))
    results = [Tensor(next(pushed), builder) if y.dtype.is_differentiable else y for y in primal.outputs]
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
        computed = builder.inline(forward, list(op.operands))
    residuals = computed[len(outputs) :]
    for old, new in zip(list(op.results), computed, strict=False):
        primal.engine.replace(old, new)
    incoming = [
        (zeros(y.shape, y.dtype) if g is None else g).value
        for y, g in zip(outputs, cotangents, strict=True)
        if y.dtype.is_differentiable
    ]
    pulled = iter(builder.inline(backward, [*residuals, *incoming]))
    return [Tensor(next(pulled), builder) if x.dtype.is_differentiable else None for x in inputs]


def composite_vjp(primal: Primal, cotangent: Cotangent) -> Sequence[Cotangent]:
    """The composite of the gradient."""
    assert cotangent is not None
    op, builder = primal.op, primal.engine.builder
    active = tuple(i for i, wanted in enumerate(primal.active) if wanted)
    # What other uses of an operand gave so far comes first in its sum, as it would without the composite.
    claimed = {i: earlier for i in active if (earlier := primal.take_accumulated(i)) is not None}
    function = decomposition_of(op)
    key = (symbol_name(function), active, tuple(claimed))
    known = primal.engine.composites.get(key)
    if known is None:
        known = primal.engine.composites[key] = _gradient(primal, function, cotangent, active, tuple(claimed))
    symbol, wrt = known
    attributes = known_attributes(op) | {"wrt": wrt, "added": tuple(claimed)}
    operands = [*op.operands, cotangent.value, *(earlier.value for earlier in claimed.values())]
    types = [op.operands[i].type for i in wrt]
    gradients = emit_composite(builder, composite_name(op) + GRADIENT, operands, types, symbol, attributes)
    outgoing: list[Cotangent] = [None] * len(op.operands)
    for index, value in zip(wrt, gradients, strict=True):
        outgoing[index] = Tensor(value, builder)
    return outgoing


def _gradient(
    primal: Primal,
    function: ir.Operation,
    cotangent: Tensor,
    active: tuple[int, ...],
    claimed: tuple[int, ...],
) -> tuple[str, tuple[int, ...]]:
    """A function of operands, cotangent and earlier cotangents of `claimed` operands to the cotangents of active operands.

    Returns:
        Its symbol, and which operands have a cotangent.
    """
    module, loops = primal.engine.builder.module, primal.engine.loops
    count = len(primal.op.operands)
    wrt: list[int] = []

    def fill(block: ir.Block) -> list[Value]:
        builder = Builder(module, block)
        builder.pinned = builder.location
        arguments = list(block.arguments)
        operands = arguments[:count]
        with building(builder):
            outputs = builder.inline(function, operands)
            operations = [view.operation for view in block.operations]
            seeds = [Tensor(value, builder) for value in arguments[count:]]
            ends = [*outputs, *(operands[i] for i in claimed)]
            engine = Reverse(builder, loops)
            outgoing = engine.gradients(operations, ends, seeds, [operands[i] for i in active])
        wrt.extend(i for i, each in zip(active, outgoing, strict=True) if each is not None)
        return [each.value for each in outgoing if each is not None]

    types = [value.type for value in primal.op.operands]
    types += [cotangent.value.type, *(types[i] for i in claimed)]
    symbol = private_function(module.operation, composite_name(primal.op) + GRADIENT, types, fill)
    return symbol, tuple(wrt)


def _of_dropout(primal: Primal, cotangent: Cotangent) -> Sequence[Cotangent] | Expanded:
    """The same dropout of the cotangent; none for the key. A composite that only has the name is written out."""
    assert cotangent is not None
    op, attributes = primal.op, known_attributes(primal.op)
    if [x.spec for x in primal.inputs[1:]] == [y.spec for y in primal.outputs] == [cotangent.spec]:
        pulled = dropped(cotangent, primal.inputs[0], attributes["rate"], attributes["divides"])
        function, own = decomposition_of(op), decomposition_of(result_owner(pulled.value))
        same = symbol_name(function) == symbol_name(own)
        if same or block_digest(function.regions[0].blocks[0]) == block_digest(own.regions[0].blocks[0]):
            return [None, pulled]
    builder = primal.engine.builder
    return Expanded(
        [Tensor(value, builder) for value in builder.inline(decomposition_of(op), list(op.operands))]
    )


supply_derivatives({"composite": own_derivative})
register_rule(f"composite.{DROPOUT.name}", _of_dropout)
for _record in COMPOSITES.values():
    if _record.gradient is Gradient.whole:
        register_rule(f"composite.{_record.name}", composite_vjp)
