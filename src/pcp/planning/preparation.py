"""What stands before every choice: a program is brought into the form in which its sites are looked for."""

import functools

from pcp.ir import Program
from pcp.rewrite.simplify import simplify


@functools.lru_cache(maxsize=4)
def prepared(program: Program) -> Program:
    """The program in the form that paths are made of; what it computes stays the same, bit for bit."""
    return simplify(program)
