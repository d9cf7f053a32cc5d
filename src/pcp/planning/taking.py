"""What `pcp.plan` takes beside programs: functions with an example of their arguments, and what holds a program."""

import functools
import typing
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from pcp.ir import Program
from pcp.ir.expecting import HoldsProgram, ProgramExpected, expect_function
from pcp.ir.program import Runs
from pcp.ir.tree import flatten
from pcp.tracing import ArgumentSpec, OpenArgument, trace

_P = ParamSpec("_P")
_T = TypeVar("_T")


def of_whatever_has_a_program(
    function: Callable[Concatenate[Program, _P], _T],
) -> Callable[Concatenate[Runs | Callable[..., Any], _P], _T]:
    """`pcp.plan` that takes functions, too, and what `pcp.from_torch` makes, whose weights it binds."""

    @functools.wraps(function)
    def planning(program: Any, *others: Any, **named: Any) -> Any:
        if isinstance(program, HoldsProgram):
            held = program.held()
            whole: Any = function(program.program, *others, **{"binds": tuple(held)} | named)
            return whole.bind(**held)
        if not isinstance(program, Runs) and callable(program):
            expect_function(
                program, "pcp.plan", "a Program, or a function of Tensors and an example of its arguments"
            )
            return function(_traced(program, named), *others, **named)
        return function(program, *others, **named)

    return typing.cast("Callable[Concatenate[Runs | Callable[..., Any], _P], _T]", planning)


def _traced(function: Callable[..., Any], named: dict[str, Any]) -> Any:
    """The program of a function; an example that has specs is taken out: nothing can be measured on it."""
    example = named.get("example")
    if example is None:
        name = getattr(function, "__name__", "f")
        raise ProgramExpected(
            f"pcp.plan was given the function {name} without its arguments; give arrays or specs, as pcp.plan({name}, "
            f"example=(x, y)), or call pcp.jit({name}) with arrays"
        )
    if any(isinstance(leaf, ArgumentSpec | OpenArgument) for leaf in flatten(example)[0]):
        del named["example"]
    return trace(function, *example)
