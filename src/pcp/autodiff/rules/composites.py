"""Composites stay whole: the gradient of `pcp.NAME` is a composite `pcp.NAME.vjp`.

It takes the operands, the cotangent of the result, and what other uses of the operands in its attribute `added` gave so far;
it returns the cotangents of the operands in its attribute `wrt`, added to these. Its function is the gradient of that of
`pcp.NAME`, with the forward pass computed again; once both are inlined, what they share is computed once.
"""

from collections.abc import Sequence

from pcp.autodiff.engine import Reverse
from pcp.ir import Builder
from pcp.ir.bindings import Value, ir
from pcp.ir.composites import (
    GRADIENT,
    composite_attributes,
    composite_name,
    decomposition_of,
    emit_composite,
    private_function,
)
from pcp.ir.toolkit.attributes import symbol_name
from pcp.ops.derivative import Cotangent, Primal, register_rule
from pcp.tensor import Tensor, building

KEPT = ("softmax", "log_softmax", "layer_norm", "rms_norm", "attention", "cross_entropy")


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
    attributes = composite_attributes(op) | {"wrt": wrt, "added": tuple(claimed)}
    operands = [*op.operands, cotangent.value, *(earlier.value for earlier in claimed.values())]
    types = [op.operands[i].type for i in wrt]
    made = emit_composite(builder, composite_name(op) + GRADIENT, operands, types, symbol, attributes)
    found: list[Cotangent] = [None] * len(op.operands)
    for index, value in zip(wrt, made, strict=True):
        found[index] = Tensor(value, builder)
    return found


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
            found = engine.gradients(operations, ends, seeds, [operands[i] for i in active])
        wrt.extend(i for i, each in zip(active, found, strict=True) if each is not None)
        return [each.value for each in found if each is not None]

    types = [value.type for value in primal.op.operands]
    types += [cotangent.value.type, *(types[i] for i in claimed)]
    symbol = private_function(module.operation, composite_name(primal.op) + GRADIENT, types, fill)
    return symbol, tuple(wrt)


for _name in KEPT:
    register_rule(f"composite.pcp.{_name}", composite_vjp)
