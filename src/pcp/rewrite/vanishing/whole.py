"""Zeros for gradients that are zero in exact arithmetic, in a program that was differentiated elsewhere, as by `jax.grad`."""

import functools

from pcp.ir import Program
from pcp.ir.custom_derivatives import without_custom_derivatives
from pcp.rewrite.canonical import canonical
from pcp.rewrite.simplify import simplify
from pcp.rewrite.softmax_shifts import with_constant_shifts
from pcp.rewrite.vanishing import without_vanishing_sums


@functools.lru_cache(maxsize=4)
def with_zeros(program: Program) -> Program | None:
    """The program with zeros for all sums that are zero in exact arithmetic; None where none is found.

    Where gradients stand in it, nobody says, and what an optimizer makes of them is in it, too; so all sums are looked at.

    Arguments:
        program: any Program; it stays as it is.

    Returns:
        A Program with the same arguments and results, in the form that sums are found in.
    """
    ready = simplify(canonical(with_constant_shifts(without_custom_derivatives(program))))
    zeroed = without_vanishing_sums(ready, everywhere=True)
    return None if zeroed is ready else zeroed
