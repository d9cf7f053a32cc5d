"""What a traced function is told about its mistakes, and the border that tells it: every message ends with the user's line.

Operations check what they can say something particular about. What else goes wrong inside of one because of its arguments
becomes a `WrongArgument` at the border, which finds the argument that its annotation does not admit.
"""

import collections.abc
import contextvars
import functools
import importlib
import inspect
import sys
import types
import typing
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, TypeVar

import numpy as np

from pcp.errors import PCPError
from pcp.ir import DType
from pcp.ir.bindings import InvalidProgram
from pcp.ir.types import InvalidShape, UnknownDType

_PACKAGE = Path(__file__).resolve().parent
_METHODS = {str(Path(__file__).parent / name) for name in ("tensor.py", "methods.py")}
_COMMAND = str(Path(__file__).parent / "cli" / "main.py")


class TracingError(PCPError):
    """A mistake in a traced function; the message ends with the user's file and line."""

    def __init__(self, message: str) -> None:
        super().__init__(message + _place())


class ShapeMismatch(TracingError):
    """Shapes, ranks or axes that do not fit the operation."""


class DTypeMismatch(TracingError):
    """Element types that do not fit the operation."""


class IndexOutOfBounds(TracingError):
    """A static index beyond the size of its axis."""


class LeakedTensor(TracingError):
    """A Tensor used after the function, or the branch or loop body, that made it was traced."""


class NoTrace(TracingError):
    """An operation outside of any traced function."""


class TensorHasNoValue(TracingError):
    """A Tensor used where Python needs a number: in an `if`, a loop bound, `float()`."""


class WrongArgument(TracingError):
    """An argument of a kind that the operation does not take, or arguments that do not go together."""


class StandsForNumber:
    """What a traced function sees in the place of a number: a size that is a symbol."""

    __slots__ = ()

    @property
    def number(self) -> Any:
        """What it stands for."""
        raise NotImplementedError


STANDING: contextvars.ContextVar[bool] = contextvars.ContextVar("pcp_standing", default=False)
"""Whether such may be among the arguments of operations."""


BUILDER: contextvars.ContextVar[Any] = contextvars.ContextVar("pcp_builder", default=None)
"""What operations add to, in this thread; None outside of any trace."""
Outside = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Computes what a function of Tensors returns for arrays, outside of any trace."""
_CALLING = "pcp.calling"
"""A later layer, imported by whoever first computes outside of a trace."""


@functools.cache
def at_once() -> Outside:
    """What computes a single operation: without compiling anything."""
    computed: Outside = importlib.import_module(f"{_CALLING}.at_once").at_once
    return computed


@functools.cache
def with_value() -> Callable[[Any, Any], Any]:
    """What makes a Tensor that has a value, of an array or a number, and an element type or None."""
    made: Callable[[Any, Any], Any] = importlib.import_module(f"{_CALLING}.array").given
    return made


@functools.cache
def planned() -> Outside:
    """What computes a derivative: by a plan."""
    computed: Outside = importlib.import_module(f"{_CALLING}.derivatives").outside
    return computed


def numbers_of(tree: Any) -> Any:
    """Nested arguments with a number for whatever stands for one."""
    match tree:
        case StandsForNumber():
            return tree.number
        case slice():
            return slice(*map(numbers_of, (tree.start, tree.stop, tree.step)))
        case tuple() | list() if any(map(_may_stand, tree)):
            items = map(numbers_of, tree)
            return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
        case dict() if any(map(_may_stand, tree.values())):
            return {key: numbers_of(value) for key, value in tree.items()}
        case np.ndarray() if tree.dtype == object:
            return np.array(numbers_of(tree.tolist()))
    return tree


def _may_stand(argument: Any) -> bool:
    return isinstance(argument, StandsForNumber | slice | tuple | list | dict | np.ndarray)


def user_frame() -> FrameType | None:
    """The innermost frame of the call stack outside of this package; None in a command of `pcp`, which has no user's line."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_of_package(frame.f_code.co_filename):
        if frame.f_code.co_filename == _COMMAND:
            return None
        frame = frame.f_back
    return frame


@functools.cache
def is_of_package(file: str) -> bool:
    """Whether a file lies in this package's folder, not just beside it in one whose name begins alike."""
    return Path(file).resolve().is_relative_to(_PACKAGE)


def _place() -> str:
    where = user_frame()
    return f"\n  at {where.f_code.co_filename}:{where.f_lineno}, in {where.f_code.co_name}" if where else ""


def with_users_line(error: PCPError) -> PCPError:
    """The error with the user's line at its end, if it has none."""
    text = str(error)
    return error if "\n  at " in text else type(error)(f"{text}{_place()}")


_F = TypeVar("_F", bound=Callable[..., Any])

_RAW = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError, StopIteration)
_UNPLACED = (InvalidShape, UnknownDType, InvalidProgram)
_FOREIGN = {"numpy", "ml_dtypes", "jaxlib", "jax", *sys.stdlib_module_names}


def explained(function: _F) -> _F:
    """The function, whose caller outside of this package learns in PCP's words what is wrong with its arguments. Outside of any
    trace it computes at once.

    What a function of the caller raises, such as the body of a loop, passes unchanged.
    """

    flags = _flags(function)

    @functools.wraps(function)
    def bordered(*arguments: Any, **named: Any) -> Any:
        if STANDING.get():
            arguments, named = numbers_of(arguments), numbers_of(named)
        for place, flag in flags:
            switch = arguments[place] if len(arguments) > place else named.get(flag, False)
            if not isinstance(switch, bool | np.bool_):
                raise WrongArgument(
                    f"{_name(function)}: {flag} = {_shown(switch)} was given; expected True or False"
                )
        try:
            if BUILDER.get() is None:
                return at_once()(function, arguments, named)
            return function(*arguments, **named)
        except _UNPLACED as error:
            if _is_called_inside() or "\n  at " in str(error):
                raise
            raise type(error)(f"{_name(function)}: {error}{_place()}") from None
        except _RAW as error:
            if _is_called_inside() or not _is_own(error.__traceback__):
                raise
            raise WrongArgument(_explanation(function, arguments, named, error)) from error

    return typing.cast(_F, bordered)


def _flags(function: Callable[..., Any]) -> list[tuple[int, str]]:
    """Places and names of the parameters that are True or False. Any other value would count as True without a word, as an
    element type that NumPy has at the place of `keepdims`."""
    parameters = enumerate(inspect.signature(function).parameters.values())
    by_name = inspect.Parameter.KEYWORD_ONLY
    return [
        (sys.maxsize if entry.kind is by_name else place, entry.name)
        for place, entry in parameters
        if entry.annotation is bool
    ]


def _is_called_inside() -> bool:
    """Whether the caller of the border is in this package; methods of Tensor stand for their own caller."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename in _METHODS:
        frame = frame.f_back
    return frame is not None and is_of_package(frame.f_code.co_filename)


def _is_own(traceback: TracebackType | None) -> bool:
    """Whether an exception came from this package, or from a library on its behalf, and not from a function of the user."""
    while traceback is not None:
        frame = traceback.tb_frame
        foreign = str(frame.f_globals.get("__name__")).partition(".")[0]
        if not is_of_package(frame.f_code.co_filename) and foreign not in _FOREIGN:
            return False
        traceback = traceback.tb_next
    return True


def _name(function: Callable[..., Any]) -> str:
    return str(function.__name__).rstrip("_")


def _explanation(
    function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any], error: Exception
) -> str:
    name, signature = _name(function), inspect.signature(function)
    try:
        bound = signature.bind(*arguments, **named).arguments
    except TypeError as mistake:
        return f"{name}: {mistake}; expected {name}({', '.join(signature.parameters)})"
    hints = typing.get_type_hints(function)
    for parameter, value in bound.items():
        each = signature.parameters[parameter].kind is inspect.Parameter.VAR_POSITIONAL
        for argument in value if each else (value,):
            if not admits(hints.get(parameter, Any), argument):
                expected = described(hints[parameter])
                return f"{name}: {parameter} = {_shown(argument)} was given; expected {expected}"
    shown = ", ".join(f"{parameter} = {_shown(value)}" for parameter, value in bound.items())
    return f"{name}: {shown} were given, which do not go together: {error}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:70]}... ({type(value).__name__})"


_WORDS = {
    int: "an integer", float: "a number", complex: "a number", bool: "True or False", str: "a string", type(None): "None",
    np.ndarray: "an array", np.generic: "a NumPy scalar", DType: "an element type", dict: "a dictionary",
}  # fmt: skip
_MANY = {int: "integers", float: "numbers", str: "strings"}
_WIDER: dict[type, tuple[type, ...]] = {
    int: (int, np.integer),
    float: (int, float, np.integer, np.floating),
    complex: (int, float, complex, np.number),
}


def admits(hint: Any, value: Any) -> bool:
    """Whether a value is what an annotation says; of containers, every element as well."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(admits(each, value) for each in inner)
    if origin is collections.abc.Callable:
        return callable(value)
    if origin is tuple and (not inner or inner[-1] is not Ellipsis):
        fits = isinstance(value, tuple | list) and len(value) == len(inner)
        return fits and all(admits(each, entry) for each, entry in zip(inner, value, strict=True))
    if origin in (tuple, collections.abc.Sequence, list):
        fits = isinstance(value, collections.abc.Sequence) and not isinstance(value, str | bytes)
        return fits and all(admits(inner[0], entry) for entry in value)
    kind = origin or hint
    if hint is Any or not isinstance(kind, type):
        return True
    if kind in _WIDER:
        return isinstance(value, _WIDER[kind]) and not isinstance(value, bool | np.bool_)
    return isinstance(value, kind)


def described(hint: Any) -> str:
    """An annotation in words."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(described(each) for each in inner))
    if origin is collections.abc.Callable:
        return "a function"
    if origin in (tuple, collections.abc.Sequence, list):
        of = [entry for entry in inner if entry is not Ellipsis]
        return f"a sequence of {_MANY.get(of[0]) or described(of[0])}" if len(set(of)) == 1 else "a tuple"
    kind = origin or hint
    return _WORDS.get(kind, f"a {getattr(kind, '__name__', kind)}")
