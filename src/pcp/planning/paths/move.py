"""Move: one choice of a path. A path is a program and the moves that make of it what is run."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Move:
    """One choice.

    Arguments:
        kind: what is chosen, by its name in `pcp.planning.paths.kinds.KINDS`.
        at: where: the key of a site or an operation, the name of an option; empty where it holds for the whole program.
        value: what is taken; hashable, and equal where the choice is.
    """

    kind: str
    at: str
    value: Any
