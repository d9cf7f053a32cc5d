"""Programs that are called with arrays: planned at the first call."""

from collections.abc import Sequence
from typing import Any

from pcp.backends import default_device
from pcp.calling.kept import STORE
from pcp.ir import Program
from pcp.ir.expecting import HoldsProgram
from pcp.ir.program import Runs
from pcp.planning import plan
from pcp.tensor import is_tracing
from pcp.tracing import call

_PLANNED = "_planned"
"""Where a symbolic program, and what holds a program, keep how they are called."""


class Planned:
    """A program that is called with arrays; `pcp.jit` makes one.

    Arguments:
        program: a Program, a symbolic one, or what holds one.
        settings: arguments of `pcp.plan`.
    """

    def __init__(self, program: Runs, settings: dict[str, Any]) -> None:
        self._program = program
        self._settings = settings
        self._own: Any = None

    @property
    def plan(self) -> Any:
        """The plan, whose weights are bound if it holds some."""
        if isinstance(self._program, Program):
            return plan_of(self._program, self._settings)
        if self._own is None:
            self._own = plan(self._program, **self._settings)
        return self._own

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The results; inside a trace the program is composed in.

        Raises:
            PCPError: what `pcp.plan`, `Plan.run` and `pcp.call` raise.
        """
        if not is_tracing():
            return self.plan.run(*arguments, **named)
        if isinstance(self._program, HoldsProgram):
            return call(self._program.program, *self._program.held().values(), *arguments, **named)
        return call(self._program, *arguments, **named)  # type: ignore[arg-type]  # a symbolic one is one by its methods

    def explain(self) -> str:
        """Why it was planned."""
        return "a program is planned once, when it is called first"

    def __repr__(self) -> str:
        return f"pcp.jit({self._program!r})"


def plan_of(program: Program, settings: dict[str, Any], **more: Any) -> Any:
    """The plan of a program, from the store if there is one that was made so.

    Arguments:
        settings: arguments of `pcp.plan` that decide which plan it is.
        more: others, as an example.
    """
    how = default_device(), *((name, _fixed(settings[name])) for name in sorted(settings))
    return STORE.made(program, how, lambda program: plan(program, **{**more, **settings}))


def _fixed(value: Any) -> Any:
    """A value that can be a key; its text, if it cannot, as options that are a dictionary."""
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def called(program: Runs, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """What a program returns when it is called."""
    if isinstance(program, Program) and not is_tracing():
        return plan_of(program, {}).run(*arguments, **named)
    held = vars(program)
    if _PLANNED not in held:
        held[_PLANNED] = Planned(program, {})
    return held[_PLANNED](*arguments, **named)


def donating(program: Program, places: Sequence[int]) -> Program:
    """The program given the memory of arguments, by place at the top level."""
    counts = [child.leaf_count for child in program.argument_tree.children]
    chosen = set(places)
    flags = [place in chosen for place, count in enumerate(counts) for _ in range(count)]
    return program.donating([leaf for leaf, flag in enumerate(flags) if flag]) if places else program
