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
    numbers: dict[int, None] = {}
    for value in (value for function in functions for value in _values(function, 0)):
        if isinstance(value, int | float) and not isinstance(value, bool) and 3 < value < _LARGEST:
            numbers.setdefault(int(value))
    return tuple(sorted(numbers, reverse=True)[:_MOST])


def numbers_in_text(text: str) -> tuple[int, ...]:
    """Integers from 4 on in the text of a program."""
    return numbers_in(*(int(digits) for digits in dict.fromkeys(_INTEGERS.findall(text))))


def _values(source: Any, depth: int) -> Iterator[Any]:
    if isinstance(source, int | float):
        yield source
    if depth > _DEPTH:
        return
    if isinstance(source, tuple | list | frozenset) and len(source) < 64:
        for value in source:
            yield from _values(value, depth + 1)
    if isinstance(source, functools.partial):
        yield from _values(source.func, depth + 1)
        yield from _values((*source.args, *source.keywords.values()), depth + 1)
    if isinstance(source, types.MethodType):
        source = source.__func__
    source = inspect.unwrap(source) if callable(source) else source
    code = source if isinstance(source, types.CodeType) else getattr(source, "__code__", None)
    if isinstance(code, types.CodeType):
        for value in code.co_consts:
            yield from _values(value, depth + isinstance(value, types.CodeType))
    if isinstance(source, types.FunctionType):
        held = inspect.getclosurevars(source)
        same = source.__module__
        for value in (*held.nonlocals.values(), *held.globals.values(), *(source.__defaults__ or ())):
            if isinstance(value, int | float | tuple) or getattr(value, "__module__", None) == same:
                yield from _values(value, depth + 1)
