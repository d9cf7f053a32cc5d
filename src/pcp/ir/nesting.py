"""How deep containers and the regions of operations may be nested: walks over both recurse, and so do compilers."""

import re

from pcp.errors import PCPError

DEEPEST = 100
"""XLA takes seconds to compile a hundred branches inside of one another, and its stack ends before three hundred."""
REGIONS = "the regions of operations (loops, branches)"
FLATTER = "compute in fewer of them, or in functions that are called"

_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|->|[][{}()<>]')
_STEPS = {"{": ("{", 1), "}": ("{", -1), "[": ("[", 1), "]": ("[", -1)} | {
    "(": ("(", 1), ")": ("(", -1), "<": ("<", 1), ">": ("<", -1)
}  # fmt: skip


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


def check_brackets(source: str) -> None:
    """Refuse a text at which the parser's stack would end: a region takes up to two braces, and attributes have some."""
    depth = dict.fromkeys("{[(<", 0)
    for match in _BRACKETS.finditer(source):
        if match[0] in _STEPS:
            kind, step = _STEPS[match[0]]
            depth[kind] += step
            what = REGIONS if kind == "{" else f"brackets {kind} of the text"
            check_depth(
                depth[kind] // 4, what, FLATTER if kind == "{" else "write fewer inside of one another"
            )
