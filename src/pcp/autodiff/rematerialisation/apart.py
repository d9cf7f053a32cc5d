"""Gradients of composites that compute again what is inside of the composite, instead of sharing it.

Attention makes the scores of every query with every key, and cross entropy the exponentials of all logits: far more than they
take and return. Exact GELU makes its error function, and a norm the distances from means: as much as they take. Their gradients
make the same once more; a compiler that sees this computes it once, and keeps it from the forward pass to the backward pass.
Behind a condition that reads the cotangent it cannot.
"""

from collections.abc import Collection

from pcp.autodiff.rematerialisation.emission import tied
from pcp.ir import Builder, Program
from pcp.ir.bindings import context, ir
from pcp.ir.composites import composite_name, primal_count
from pcp.ir.composites.records import ACTIVATION, COMPOSITES, GRADIENT, LAYER_NORM
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ir.toolkit.walking import walk_block
from pcp.tensor import Tensor, building

LARGE_INSIDE = frozenset(name for name, record in COMPOSITES.items() if record.is_large_inside)
CHEAP_INSIDE = frozenset((ACTIVATION.name, LAYER_NORM.name))
"""What they make is as large as what they take, and made again in little time."""


def with_gradients_apart(program: Program, names: Collection[str] = LARGE_INSIDE, least: int = 0) -> Program:
    """The program, in which gradients of composites share nothing with what they are gradients of.

    Arguments:
        names: of the composites.
        least: bytes of what a composite takes first, of which less is shared.
    """
    if GRADIENT.encode() not in program.bytecode:
        return program
    module = program.module()
    inline_calls(module)
    block = entry_block(module)
    of = {f"{name}{GRADIENT}" for name in names}
    gradients = [
        op
        for op in walk_block(block)
        if composite_name(op) in of and spec_of(op.operands[0].type).bytes >= least
    ]
    if not gradients:
        return program
    builder = Builder(module, block)
    with context(), ir.Location.unknown(), building(builder):
        for op in gradients:
            with builder.before(op):
                builder.pinned = op.location
                first, cotangent = (Tensor(op.operands[place], builder) for place in (0, primal_count(op)))
                op.operands[0] = tied(first, cotangent).value
    return Program.from_module(module)
