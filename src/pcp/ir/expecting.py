"""Programs where programs are expected: what else is given instead, and what makes a program of it."""

import os
from typing import Any, TypeVar

from pcp.errors import PCPError
from pcp.ir.program import Program

T = TypeVar("T")


class ProgramExpected(PCPError):
    """Something that is no Program, or no function of Tensors, where one is needed."""


def expect_program(value: T, taker: str) -> T:
    """The value, if it is a Program.

    Raises:
        ProgramExpected: it is anything else; the message says what makes a Program of it.
    """
    if isinstance(value, Program):
        return value
    raise ProgramExpected(f"{taker} takes a Program; {_described(value)} was given: {_remedy(value)}")


def expect_function(value: T, taker: str, takes: str = "a Program or a function of Tensors") -> T:
    """The value, if it is a function that can be called with Tensors.

    Raises:
        ProgramExpected: it is no function, or one of another library.
    """
    if callable(value) and not isinstance(value, Program) and _library_of(value) is None:
        return value
    raise ProgramExpected(f"{taker} takes {takes}; {_described(value)} was given: {_remedy(value)}")


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
    return f"a {name}"


def _remedy(value: Any) -> str:
    library = _library_of(value)
    if isinstance(value, Program):
        return "it is traced already"
    if hasattr(value, "symbols"):
        return f"its sizes are symbols, so give them: program.at({'=..., '.join(value.symbols)}=...)"
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
