"""Simplification: the rows of `pcp.rewrite.simplification`, common subexpressions and dead code, until nothing changes."""

from pcp.ir import Program
from pcp.ir.bindings import ir, run_passes
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.walking import walk_block
from pcp.rewrite.driver import apply_rows
from pcp.rewrite.row import Effect
from pcp.rewrite.simplification import SIMPLIFICATIONS
from pcp.symbolic.lifting import lifted

_LARGEST_LAST = tuple(Effect)


@lifted
def simplify(program: Program, effect: Effect = Effect.exact) -> Program:
    """The program with fewer and cheaper operations.

    With `Effect.exact`, every value that is left is bit for bit what IEEE 754 says the given program computes, except that
    the bits of a NaN are not kept. Common subexpressions are computed once, and dead code is dropped. Operations that bear a
    mark stay: taps, cut gradients, shardings.

    Arguments:
        program: any Program; it stays as it is.
        effect: what the rows may do to numbers: this, or less.

    Returns:
        A Program with the same arguments and results.

    Raises:
        RewriteDiverges: rows rewrite each other's results without end.
    """
    allowed = _LARGEST_LAST[: _LARGEST_LAST.index(Effect(effect)) + 1]
    rows = [row for row in SIMPLIFICATIONS if row.effect in allowed]
    module = program.module()
    inline_calls(module)
    size = -1
    while _common_subexpressions(module) != size and apply_rows(module, rows):
        size = _size(module)
    return Program.from_module(module)


def _common_subexpressions(module: ir.Module) -> int:
    """Compute what is equal once, and drop what is dead; returns how many operations are left."""
    run_passes(module, "builtin.module(cse)")
    return _size(module)


def _size(module: ir.Module) -> int:
    return sum(1 for _ in walk_block(entry_block(module)))
