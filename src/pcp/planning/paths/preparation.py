"""What stands before every choice: a program is brought into the form in which its sites are looked for.

Plain forms get the names of what they compute, which changes no bit. Simplification comes with it, but where the bits of the
plain path are asked for: its rows are exact by IEEE 754, yet a compiler adds up some sums in another order in a simpler one.
"""

import functools

from pcp.ir import Program
from pcp.ir.composites import open_composites
from pcp.ir.custom_derivatives import without_custom_derivatives
from pcp.ir.toolkit.inlining import has_custom_derivative, inline_calls
from pcp.kernels.registry import family_of
from pcp.rewrite.equality import Form, equal_program
from pcp.rewrite.raising import raised
from pcp.rewrite.simplify import simplify


def prepared(program: Program, tolerance: float | None = None, equal: Form | None = None) -> Program:
    """The program in the form that paths within a tolerance are made of.

    Arguments:
        program: as the user wrote it.
        tolerance: 0 leaves it as it is written.
        equal: the equal program that is computed instead.

    Raises:
        FormMismatch: the program has no such equal program.
    """
    return _prepared(program, tolerance == 0.0, equal)


@functools.lru_cache(maxsize=8)
def _prepared(program: Program, as_written: bool, equal: Form | None) -> Program:
    if equal is not None:
        program = equal_program(program, equal)
    found = raised(without_unknown_composites(without_custom_derivatives(program)))
    return found if as_written else simplify(found)


def without_unknown_composites(program: Program) -> Program:
    """The program without composites that kernels do not know by name: what such a one computes may hold sites.

    One that brings its own derivative stays.
    """
    if b"composite" not in program.bytecode:
        return program
    module = program.module()
    inline_calls(module)
    open_composites(module, lambda op: has_custom_derivative(op) or family_of(op) is not None)
    return Program.from_module(module)
