"""Programs that are called with arrays: planned at the first call."""

import functools
from collections.abc import Sequence
from typing import Any

from pcp.ir import Program
from pcp.ir.expecting import HoldsProgram
from pcp.ir.program import Runs
from pcp.planning import plan
from pcp.tensor import is_tracing
from pcp.tracing import call

_PLANNED = "_planned"
"""Where a program keeps how it is called."""


class Planned:
    """A program that is called with arrays; `pcp.jit` makes one.

    Arguments:
        program: a Program, a symbolic one, or what holds one.
        settings: arguments of `pcp.plan`.
    """

    def __init__(self, program: Runs, settings: dict[str, Any]) -> None:
        self._program = program
        self._settings = settings

    @functools.cached_property
    def plan(self) -> Any:
        """The plan, whose weights are bound if it holds some."""
        return plan(self._program, **self._settings)

    def __call__(self, *arguments: Any) -> Any:
        """The results; inside a trace the program is composed in.

        Raises:
            PCPError: what `pcp.plan`, `Plan.run` and `pcp.call` raise.
        """
        if not is_tracing():
            return self.plan.run(*arguments)
        if isinstance(self._program, HoldsProgram):
            return call(self._program.program, *self._program.held().values(), *arguments)
        return call(self._program, *arguments)  # type: ignore[arg-type]  # a symbolic one is one by its methods

    def explain(self) -> str:
        """Why it was planned."""
        return "a program is planned once, when it is called first"

    def __repr__(self) -> str:
        return f"pcp.jit({self._program!r})"


def called(program: Runs, arguments: tuple[Any, ...]) -> Any:
    """What a program returns when it is called; how it is planned is kept with it."""
    held = vars(program)
    if _PLANNED not in held:
        held[_PLANNED] = Planned(program, {})
    return held[_PLANNED](*arguments)


def donating(program: Program, places: Sequence[int]) -> Program:
    """The program given the memory of arguments, by place at the top level."""
    counts = [child.leaf_count for child in program.argument_tree.children]
    chosen = set(places)
    flags = [place in chosen for place, count in enumerate(counts) for _ in range(count)]
    return program.donating([leaf for leaf, flag in enumerate(flags) if flag]) if places else program
