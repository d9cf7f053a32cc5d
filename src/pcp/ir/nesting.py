"""How deep containers and the regions of operations may be nested: walks over both recurse, and so do compilers."""

from pcp.errors import PCPError

DEEPEST = 100
"""XLA takes seconds to compile a hundred branches inside of one another, and its stack ends before three hundred."""


class NestedTooDeeply(PCPError):
    """Containers, or regions of operations, that are nested deeper than any walk over them goes."""


def check_depth(depth: int, what: str, remedy: str) -> None:
    """Refuse what is nested too deeply.

    Raises:
        NestedTooDeeply: the depth is more than `DEEPEST`.
    """
    if depth > DEEPEST:
        raise NestedTooDeeply(
            f"{what} are nested more than {DEEPEST} deep, which is as deep as PCP goes; {remedy}"
        )
