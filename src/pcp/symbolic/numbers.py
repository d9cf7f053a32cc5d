"""Numbers that a function holds, next to which it may choose otherwise by its sizes."""

import functools
import inspect
import re
import types
from collections.abc import Iterator
from typing import Any

_INTEGERS = re.compile(r"(?<![\w.%#@])\d{1,13}(?![\d.])")
_DEPTH = 3
_MOST = 12
_LARGEST = 2_000_000
"""Beyond it nothing is compared unless a constraint reaches further."""


def numbers_in(*functions: Any) -> tuple[int, ...]:
    """Integers from 4 on in the code of functions, in what they close over, and in functions of their module that they name."""
    found: dict[int, None] = {}
    for value in (value for function in functions for value in _values(function, 0)):
        if isinstance(value, int | float) and not isinstance(value, bool) and 3 < value < _LARGEST:
            found.setdefault(int(value))
    return tuple(sorted(found, reverse=True)[:_MOST])


def numbers_in_text(text: str) -> tuple[int, ...]:
    """Integers from 4 on in the text of a program."""
    return numbers_in(*(int(found) for found in dict.fromkeys(_INTEGERS.findall(text))))


def _values(given: Any, depth: int) -> Iterator[Any]:
    if isinstance(given, int | float):
        yield given
    if depth > _DEPTH:
        return
    if isinstance(given, tuple | list | frozenset) and len(given) < 64:
        for value in given:
            yield from _values(value, depth + 1)
    if isinstance(given, functools.partial):
        yield from _values(given.func, depth + 1)
        yield from _values((*given.args, *given.keywords.values()), depth + 1)
    if isinstance(given, types.MethodType):
        given = given.__func__
    given = inspect.unwrap(given) if callable(given) else given
    code = given if isinstance(given, types.CodeType) else getattr(given, "__code__", None)
    if isinstance(code, types.CodeType):
        for value in code.co_consts:
            yield from _values(value, depth + isinstance(value, types.CodeType))
    if isinstance(given, types.FunctionType):
        held = inspect.getclosurevars(given)
        same = given.__module__
        for value in (*held.nonlocals.values(), *held.globals.values(), *(given.__defaults__ or ())):
            if isinstance(value, int | float | tuple) or getattr(value, "__module__", None) == same:
                yield from _values(value, depth + 1)
