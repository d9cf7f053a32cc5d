"""Transformations of Programs, of symbolic ones as well: what they make at every size is one symbolic program again."""

import functools
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from pcp.ir import Program
from pcp.ir.expecting import program_of
from pcp.symbolic.checking import Source
from pcp.symbolic.constraints import Constraint, Space
from pcp.symbolic.expressions import Expression
from pcp.symbolic.program import COST, SymbolicProgram

_F = TypeVar("_F", bound=Callable[..., Any])


def lifted(function: _F) -> _F:
    """The function, a transformation of its first argument, which may be a symbolic program as well, or what holds one."""

    @functools.wraps(function)
    def lifting(*arguments: Any, **named: Any) -> Any:
        arguments = (*map(program_of, arguments[:1]), *arguments[1:])
        if arguments and isinstance(arguments[0], SymbolicProgram):
            program, *others = arguments
            return program.mapped(lambda at: function(at, *others, **named))
        return function(*arguments, **named)

    return typing.cast(_F, lifting)


def with_symbol(
    program: Program | SymbolicProgram, symbol: str, make: Callable[[Program, int], Program]
) -> Program:
    """The symbolic program of what `make` makes of a program, symbolic or not, and a number, which is one more symbol.

    Raises:
        InvalidSize, InvalidConstraint, BuiltDifferently: as `pcp.trace`.
    """
    Expression.of(symbol)
    symbols: tuple[str, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    if isinstance(program, SymbolicProgram):
        symbols, constraints = program.space.symbols, program.space.constraints
        taken = program.numbers
    else:
        taken = frozenset(size for entry in program.arguments for size in entry.spec.shape)
    space = Space.of((symbol, *symbols), constraints)

    def at(sizes: dict[str, int]) -> Program:
        return make(program.at(**{name: sizes[name] for name in symbols}), sizes[symbol])

    source = program.derived(at) if isinstance(program, SymbolicProgram) else Source(at, cost=COST)
    return typing.cast(Program, SymbolicProgram.build(space, at, taken, source=lambda: source))
