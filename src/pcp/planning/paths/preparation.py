"""What stands before every choice: a program is brought into the form in which its sites are looked for.

Plain forms get the names of what they compute, which changes no bit. Simplification comes with it, but where the bits of the
plain path are asked for: its rows are exact by IEEE 754, yet a compiler adds up some sums in another order in a simpler one.
"""

import functools

from pcp.ir import Program
from pcp.ir.bindings import ir
from pcp.ir.composites import composite_name, open_composites
from pcp.ir.composites.records import ACTIVATION
from pcp.ir.custom_derivatives import without_custom_derivatives
from pcp.ir.toolkit.inlining import has_custom_derivative, inline_calls
from pcp.kernels.registry import FAMILIES, family_of
from pcp.planning.paths.kept import kept_form
from pcp.planning.paths.kinds import Stage, applied, at_stages
from pcp.planning.paths.move import Move
from pcp.rewrite.canonical import canonical
from pcp.rewrite.raising import raised
from pcp.rewrite.simplify import simplify


def prepared(program: Program, tolerance: float | None = None, forms: tuple[Move, ...] = ()) -> Program:
    """The program in the form that paths within a tolerance are made of.

    Arguments:
        program: as the user wrote it.
        tolerance: 0 leaves it as it is written.
        forms: moves that make another program of it before its sites are looked for.

    Raises:
        PCPError: a move is not for this program, as `FormMismatch` and `NotInParts` say.
    """
    ready = _prepared(program, tolerance == 0.0, at_stages(forms, Stage.written))
    return applied(ready, forms, Stage.prepared)


@functools.lru_cache(maxsize=8)
def _prepared(program: Program, as_written: bool, forms: tuple[Move, ...]) -> Program:
    def make() -> Program:
        ready = without_unknown_composites(without_custom_derivatives(applied(program, forms, Stage.written)))
        return raised(ready) if as_written else simplify(canonical(ready))

    named = [(family.name, family.gradient) for family in FAMILIES.values()]
    return kept_form(program, "prepared", (as_written, forms, named), make)


def without_unknown_composites(program: Program) -> Program:
    """The program without composites that kernels do not know by name: what these compute may hold sites.

    One that brings its own derivative stays.
    """
    if b"composite" not in program.bytecode:
        return program
    module = program.module()
    inline_calls(module)
    open_composites(
        module, lambda op: has_custom_derivative(op) or family_of(op) is not None or _is_part_of_groups(op)
    )
    return Program.from_module(module)


def _is_part_of_groups(op: ir.Operation) -> bool:
    """Whether patterns of kernels have a composite in them that is no site alone."""
    return composite_name(op) in (ACTIVATION.name, ACTIVATION.gradient_name)
