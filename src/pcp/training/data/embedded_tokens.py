"""How many tokens a program knows, read off its operations: the rows of the table in which it looks tokens up."""

from pcp.ir import Program
from pcp.ir.bindings import Value
from pcp.ir.toolkit.functions import main_of
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.indexing.gathering import WindowAxes

_CARRIES_INDICES = frozenset(
    f"stablehlo.{name}"
    for name in ("add", "broadcast_in_dim", "clamp", "concatenate", "convert", "reshape", "select")
)
"""Operations that hand token numbers on, as they stand between tokens and the lookup in what front ends emit."""


def embedded_rows(program: Program, weights: int) -> int | None:
    """The rows of the smallest table in which a loss looks up its tokens.

    Arguments:
        program: a loss of weights, tokens and targets.
        weights: how many of its arguments are weights; the next is the tokens.

    Returns:
        Their number, or None where the program shows no lookup.
    """
    module = program.module()
    inline_calls(module)
    main = main_of(module)
    block = main.regions[0].blocks[0]
    tokens: list[Value] = [block.arguments[weights]]
    tables: list[Value] = [block.arguments[index] for index in range(weights)]
    rows: list[int] = []
    for op in block.operations:
        operation = op.operation
        operands = list(operation.operands)
        if operation.name == "stablehlo.gather" and operands[1] in tokens and operands[0] in tables:
            axes = WindowAxes.of(operation).index_map
            if len(axes) == 1:
                rows.append(spec_of(operands[0].type).shape[axes[0]])
        if operation.name in _CARRIES_INDICES and any(operand in tokens for operand in operands):
            tokens.extend(operation.results)
        elif operation.name == "stablehlo.convert" and operands[0] in tables:
            tables.extend(operation.results)
    return min(rows, default=None)
