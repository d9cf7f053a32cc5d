"""The largest element that a softmax takes off becomes a constant of its derivative.

softmax(x - m) is softmax(x) for every m, so the derivative through m = max x is zero. Front ends that write softmax out do not
say so, except by a mark that a file in StableHLO does not carry. Without it a gradient finds the largest elements again, and
keeps x and integers of its shape for that, which are as large as the logits of a language model.
"""

from collections.abc import Iterator

from pcp.ir import Program
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import integers_of
from pcp.ir.toolkit.dataflow import users_of
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.regions import combiner
from pcp.ir.toolkit.walking import walk_block
from pcp.ops.movement.shape import STOP_GRADIENT
from pcp.rewrite.outline import SHAPES
from pcp.rewrite.raising.softmax import SHIFTED, log_softmax_of, softmax_of
from pcp.rewrite.terms import match
from pcp.rewrite.view import View

_GUARDS = (*SHAPES, "stablehlo.maximum", "stablehlo.select", "stablehlo.is_finite")
"""What may stand between the largest element and the subtraction: it is bounded by -inf, or 0 in the place of infinities."""
_INSIDE = (*SHAPES, "stablehlo.exponential", "stablehlo.reduce", "stablehlo.log", "stablehlo.abs")
"""What stands between the subtraction and the last operation of a softmax or of its logarithm."""


def with_constant_shifts(program: Program) -> Program:
    """The program, in which derivatives end at the largest elements that softmax and log-softmax take off.

    Arguments:
        program: any Program; it stays as it is.

    Returns:
        A Program with the same results. Its derivatives are the same in exact arithmetic.
    """
    module = program.module()
    inline_calls(module)
    block = entry_block(module)
    # All are found before one is marked: a softmax may hold one computation twice, and a mark would make these differ.
    shifts = [op for op in walk_block(block) if op.name == "stablehlo.reduce" and _is_shift(op)]
    with module.context:
        for op in shifts:
            op.attributes[STOP_GRADIENT] = ir.UnitAttr.get()
    return Program.from_module(module) if shifts else program


def _is_shift(op: ir.Operation) -> bool:
    """Whether nothing but the differences x - max x use an operation's result, and nothing but softmaxes these."""
    gone = integers_of(op.attributes["dimensions"])
    if len(op.results) != 1 or combiner(op.regions[0]) != "maximum" or len(gone) != 1:
        return False
    differences = list(_beyond(op, _GUARDS))
    return (
        bool(differences)
        and not _is_constant(op)
        and all(
            difference.name == "stablehlo.subtract"
            and match(SHIFTED, View.of(difference.results[0]), axis=gone[0]) is not None
            and all(map(_is_softmax, _beyond(difference, _INSIDE)))
            for difference in differences
        )
    )


def _is_constant(op: ir.Operation) -> bool:
    """Whether the derivative ends at everything that an operation's result is used for, as where PCP wrote the softmax."""
    waiting = [op]
    while waiting:
        for user in users_of(waiting.pop()):
            if STOP_GRADIENT in user.attributes:
                continue
            if user.name not in SHAPES:
                return False
            waiting.append(user)
    return True


def _beyond(op: ir.Operation, passed: tuple[str, ...]) -> Iterator[ir.Operation]:
    """The first operations that use a result otherwise than `passed` ones do, which hand it on."""
    waiting = [op]
    while waiting:
        for user in users_of(waiting.pop()):
            if user.name in passed:
                waiting.append(user)
            else:
                yield user


def _is_softmax(op: ir.Operation) -> bool:
    if op.name not in ("stablehlo.divide", "stablehlo.subtract"):
        return False
    value = View.of(op.results[0])
    return (softmax_of(value) or log_softmax_of(value)) is not None
