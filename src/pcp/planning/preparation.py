"""What stands before every choice: a program is brought into the form in which its sites are looked for."""

import functools

from pcp.ir import Program


@functools.lru_cache(maxsize=4)
def prepared(program: Program) -> Program:
    """The program in the form that paths are made of; what it computes stays the same, bit for bit."""
    return program
