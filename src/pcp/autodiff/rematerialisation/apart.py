"""Gradients of composites that compute again what is inside of the composite, instead of sharing it.

Attention makes the scores of every query with every key, and cross entropy the exponentials of all logits: far more than they
take and return. Their gradients make the same once more; a compiler that sees this computes it once, and keeps it from the
forward pass to the backward pass. Behind a condition that reads the cotangent it cannot.
"""

from pcp.autodiff.rematerialisation.emission import tied
from pcp.ir import Builder, Program
from pcp.ir.bindings import context, ir
from pcp.ir.composites import composite_name, primal_count
from pcp.ir.composites.records import COMPOSITES, GRADIENT
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.walking import walk_block
from pcp.tensor import Tensor, building


def with_gradients_apart(program: Program) -> Program:
    """The program, in which gradients of what is large inside share nothing with what they are gradients of."""
    if GRADIENT.encode() not in program.bytecode:
        return program
    module = program.module()
    inline_calls(module)
    block = entry_block(module)
    large = {record.gradient_name for record in COMPOSITES.values() if record.is_large_inside}
    gradients = [op for op in walk_block(block) if composite_name(op) in large]
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
