"""What stands before every choice: a program is brought into the form in which its sites are looked for.

Plain forms get the names of what they compute, which changes no bit. Simplification comes with it, but where the bits of the
plain path are asked for: its rows are exact by IEEE 754, yet a compiler adds up some sums in another order in a simpler one.
"""

import functools

from pcp.errors import PCPError
from pcp.ir import Program
from pcp.ir.composites import open_composites
from pcp.ir.custom_derivatives import without_custom_derivatives
from pcp.ir.toolkit.inlining import has_custom_derivative, inline_calls
from pcp.kernels.registry import family_of
from pcp.rewrite.equality import Form, equal_program
from pcp.rewrite.memory.parts import in_parts
from pcp.rewrite.raising import raised
from pcp.rewrite.simplify import simplify


class NotInParts(PCPError):
    """A number of parts in which a program does not compute its batch."""


def prepared(
    program: Program, tolerance: float | None = None, equal: Form | None = None, parts: int = 1
) -> Program:
    """The program in the form that paths within a tolerance are made of.

    Arguments:
        program: as the user wrote it.
        tolerance: 0 leaves it as it is written.
        equal: the equal program that is computed instead.
        parts: in how many parts, one after another, its batch is computed.

    Raises:
        FormMismatch: the program has no such equal program.
        NotInParts: nothing in it can be computed in so many parts.
    """
    found = _prepared(program, tolerance == 0.0, equal)
    return found if parts == 1 else _divided(found, parts)


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


@functools.lru_cache(maxsize=8)
def _divided(program: Program, parts: int) -> Program:
    found = in_parts(program, parts, named=True)
    if found is None:
        raise NotInParts(f"the batch of program {program.digest[:12]} cannot be computed in {parts} parts")
    return found
