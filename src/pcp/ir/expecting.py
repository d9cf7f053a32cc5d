"""Programs where programs are expected: what else is given instead, and what makes a program of it."""

import inspect
import os
from collections.abc import Sequence
from typing import Any, TypeVar

from pcp.errors import PCPError
from pcp.ir.program import Program, Runs

T = TypeVar("T")


class ProgramExpected(PCPError):
    """Something that is no Program, or no function of Tensors, where one is needed."""


class HoldsProgram(Runs):
    """What has a Program, and the first of its arguments, as `pcp.from_torch` makes."""

    program: Program
    weights: Any
    buffers: Any  # empty if the program has none

    def held(self) -> dict[str, Any]:
        """The first arguments of the program that are the same in every call, by name."""
        raise NotImplementedError


def program_of(value: Any) -> Any:
    """The program of what has one; anything else as it is."""
    return value.program if isinstance(value, HoldsProgram) else value


def expect_program(value: T, taker: str) -> T:
    """The value, if it is a Program.

    Raises:
        ProgramExpected: it is anything else; the message says what makes a Program of it.
    """
    if isinstance(value, Program):
        return value
    raise ProgramExpected(f"{taker} takes a Program; {_described(value)} was given: {_remedy(value)}")


def expect_function(value: T, taker: str, takes: str = "a Program or a function of Tensors") -> T:
    """The value, if it is a function that can be traced: with Tensors, or, if it is one of JAX, by JAX.

    Raises:
        ProgramExpected: it is no function, or a module of PyTorch.
    """
    if callable(value) and not isinstance(value, Runs) and _library_of(value) != "torch":
        return value
    raise ProgramExpected(f"{taker} takes {takes}; {_described(value)} was given: {_remedy(value)}")


def expect_callable(value: T, taker: str, takes: str) -> T:
    """The value, if it can be called, whichever library it is of.

    Raises:
        ProgramExpected: it cannot, or is a Program.
    """
    if callable(value) and not isinstance(value, Program):
        return value
    remedy = (
        _remedy(value)
        if isinstance(value, Program)
        else "give the function itself, then one example for each argument"
    )
    raise ProgramExpected(f"{taker} takes {takes}; {_described(value)} was given: {remedy}")


class WrongArguments(PCPError, TypeError):
    """More or fewer arguments than a function takes, or roles for another number of them."""


def expect_arguments(
    function: Any, taker: str, arguments: Sequence[Any], roles: Sequence[Any] | None = None
) -> None:
    """Look whether a function can be called with so many arguments, and whether there are as many roles, if there are any.

    Raises:
        WrongArguments: it cannot, or there are not.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a callable without a signature
        signature = inspect.signature(lambda *_: None)
    try:
        signature.bind(*arguments)
    except TypeError as mistake:
        name = getattr(function, "__name__", type(function).__name__)
        called = "a function of " if name == "<lambda>" else name
        raise WrongArguments(
            f"{taker}: {called}{signature_in_short(signature)} was given {_count(len(arguments))}: {mistake}; expected one "
            f"for each parameter: {taker}(function, argument, ...) takes arrays, or pcp.spec((2, 3), 'f32') for one that "
            "is not there yet"
        ) from None
    if roles is not None and (isinstance(roles, str) or len(roles) != len(arguments)):
        raise WrongArguments(
            f"{taker}: roles={roles!r} was given for {_count(len(arguments))}; expected a list with one role for each, such as "
            f"{['input'] * len(arguments)}"
        )


def signature_in_short(signature: inspect.Signature) -> str:
    """The parameters of a function without their annotations."""
    names = [str(entry.replace(annotation=entry.empty)) for entry in signature.parameters.values()]
    return f"({', '.join(names)})"


def _count(number: int) -> str:
    return "no arguments" if not number else f"{number} argument{'s' if number > 1 else ''}"


def _library_of(value: Any) -> str | None:
    """The library whose own function or module a value is, as far as its type tells."""
    modules = [kind.__module__.partition(".")[0] for kind in type(value).__mro__]
    if "torch" in modules:
        return "torch"
    return "jax" if {"jax", "jaxlib"}.intersection(modules) else None


def _described(value: Any) -> str:
    if isinstance(value, str | os.PathLike):
        return f"the {'text' if isinstance(value, str) else 'file name'} {os.fspath(value)[:60]!r}"
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    return f"{'an' if name[0] in 'aeio' else 'a'} {name}"


def _remedy(value: Any) -> str:
    library = _library_of(value)
    if isinstance(value, Program):
        return "it is traced already"
    if isinstance(value, HoldsProgram):
        return "give its program, as imported.program"
    if hasattr(value, "symbols"):
        return f"its sizes are symbols, so give them: program.at({'=..., '.join(value.symbols)}=...)"
    if isinstance(getattr(value, "program", None), Program):
        return "give the Program that it was made of, its .program"
    if isinstance(value, str | os.PathLike):
        return "read a file with pcp.load(file), and MLIR text with pcp.Program.parse(text)"
    if library == "torch":
        return "make a Program of a module with pcp.from_torch(module, examples...)"
    if library == "jax" and callable(value):
        return "make a Program of a function of JAX with pcp.from_jax(function, examples...)"
    if callable(value):
        return (
            "make a Program of a function of Tensors with pcp.trace(function, specs...), "
            "of one of JAX with pcp.from_jax"
        )
    return "programs come from pcp.trace, pcp.load, pcp.from_jax and pcp.from_torch"
