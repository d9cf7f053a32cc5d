"""What a backward pass computes again instead of sharing it with the forward pass: what is inside of composites, and weights in
fewer bits.

Attention makes the scores of every query with every key, and cross entropy the exponentials of all logits: far more than they
take and return. Exact GELU makes its error function, and a norm the distances from means: as much as they take. Their gradients
make the same once more; a compiler that sees this computes it once, and keeps it from the forward pass to the backward pass.
So it does with a weight that a product of the forward pass and one of the backward pass read in fewer bits. Behind a condition
that reads the cotangent it cannot.
"""

from collections.abc import Collection

from pcp.autodiff.rematerialisation.emission import tied
from pcp.ir import Builder, Program
from pcp.ir.bindings import Value, context, ir
from pcp.ir.composites import composite_name, primal_count
from pcp.ir.composites.records import ACTIVATION, COMPOSITES, GRADIENT, LAYER_NORM
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.editing import erase_dead
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.regions import block_operations
from pcp.ir.toolkit.tensor_types import spec_if_tensor, spec_of
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


_MOVES = ("stablehlo.reshape", "stablehlo.transpose", "stablehlo.convert")


def with_casts_apart(program: Program, least: int) -> Program:
    """The program, in which of two products that read an argument in fewer bits the second converts it for itself.

    What a product converts is there while it runs; what both share is kept from one to the other, in a training step from the
    forward pass of a layer to its backward pass.

    Arguments:
        least: bytes of an argument, of which less is shared.
    """
    module = program.module()
    inline_calls(module)
    block = entry_block(module)
    reads: dict[Value, list[tuple[ir.Operation, int, list[ir.Operation]]]] = {}
    for product in block_operations(block):
        for place, value in enumerate(product.operands if product.name == "stablehlo.dot_general" else ()):
            source, moves = _moved(value)
            if _is_narrowed(source, value) and spec_of(source.type).bytes >= least:
                reads.setdefault(source, []).append((product, place, moves))
    shared = [each[1] for each in reads.values() if len(each) == 2]
    if not shared:
        return program
    builder = Builder(module, block)
    with context(), ir.Location.unknown(), building(builder):
        for product, place, moves in shared:
            with builder.before(product):
                builder.pinned = product.location
                argument, other = (
                    Tensor(each, builder) for each in (moves[0].operands[0], product.operands[1 - place])
                )
                value = tied(argument, other).value
                for move in moves:
                    copy = move.clone(ip=builder.insertion)
                    copy.operands[0] = value
                    value = copy.results[0]
                product.operands[place] = value
    erase_dead(block)
    return Program.from_module(module)


def _moved(value: Value) -> tuple[Value, list[ir.Operation]]:
    """What a value is made of by moves and conversions, and these, in order."""
    moves: list[ir.Operation] = []
    while (op := defining_op(value)) is not None and op.name in _MOVES:
        moves.insert(0, op)
        value = op.operands[0]
    return value, moves


def _is_narrowed(argument: Value, value: Value) -> bool:
    """Whether a value is an argument of floats in fewer bits."""
    wide, narrow = (spec_if_tensor(each.type) for each in (argument, value))
    return (
        defining_op(argument) is None
        and wide is not None
        and narrow is not None
        and wide.dtype.is_float
        and narrow.dtype.itemsize < wide.dtype.itemsize
    )
