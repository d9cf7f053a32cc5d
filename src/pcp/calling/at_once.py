"""One operation computed outside of a trace: traced alone, and run by the arena, which compiles nothing.

What was made for an operation is kept by its function, the shapes and element types of its arrays, and all its other arguments.
Numbers that meet a tensor are arguments of the program, so that a loop that counts makes one. An operation that is given a
function is made anew in every call: what that function reads may have changed.
"""

import functools
import inspect
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from pcp.backends import Target
from pcp.backends.arena.array import ArenaArray
from pcp.backends.arena.executable import ArenaExecutable
from pcp.backends.base import CompilationFailed
from pcp.calling.array import Array, asarray, known
from pcp.calling.kept import STORE
from pcp.foreign import is_foreign
from pcp.ir import DType, Program, Role
from pcp.ir.tree import flatten
from pcp.refusals import TensorHasNoValue, TracingError
from pcp.specs import NumberSpec
from pcp.tensor import Tensor, weak_dtype
from pcp.tracing import ArgumentSpec, trace_closure

_SMALL = 1 << 18
"""Bytes up to which an operation keeps its memory, and that of the arrays that it was called with last."""
_LOOKING = {"array_split", "compress", "delete", "index", "index_update", "insert", "repeat", "split"}
"""Operations whose arrays of NumPy, but the first argument, are looked at: they are bounded, and a mask decides the shape."""
_PLACES = {"argwhere", "bincount", "flatnonzero", "nonzero", "where"}
_OF_VALUES = _PLACES | {
    "compress", "extract", "intersect1d", "setdiff1d", "setxor1d", "union1d", "unique", "unique_values",
}  # fmt: skip
"""Operations whose results have sizes that depend on values; their functions of NumPy have the same parameters."""
_NUMBERS, _ARRAYS, _NOTHING = range(3)
"""What is an argument of the program, beside arrays: numbers that meet a tensor; nothing else; or not even arrays."""
_WIDEST = {float: np.float64, int: np.int64, complex: np.complex128}

NumPyArray = np.ndarray[Any, Any]
_Run = Callable[[Sequence[NumPyArray]], list[NumPyArray]]


_LOOKS = object()
"""What is kept of a call of an operation that looks at the values of its numbers, or of its arrays."""


def at_once(function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """What a function of Tensors returns for arrays, outside of any trace.

    Returns:
        Arrays in the place of Tensors, nested as the function returns them.

    Raises:
        TracingError: what the function raises where it is traced.
    """
    if _has_size_of_values(function, arguments, named):
        return _by_numpy(function, arguments, named)
    call = _Call(function, arguments, named)
    if call.is_kept:
        ready = STORE.get(call.key)
        if ready is _LOOKS:
            call = _Call(function, arguments, named, _ARRAYS)
            ready = STORE.get(call.key)
        if ready is not None and ready is not _LOOKS:
            return ready(call.arrays)
    for way in (_ARRAYS, _NOTHING):
        try:
            return call.first()
        except TracingError as error:
            if not isinstance(error, TensorHasNoValue) and not any(call.weak):
                raise
            if call.is_kept:
                STORE.put(call.key, _LOOKS)
        call = _Call(function, arguments, named, way)
    return call.first()


def _has_size_of_values(
    function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
) -> bool:
    """Whether the size of a result depends on values, since none was said."""
    name = getattr(function, "__name__", "")
    if name == "where":
        return len(arguments) == 1 and not named
    return name in _OF_VALUES and not any(named.get(size) for size in ("size", "length", "minlength"))


def _by_numpy(function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """What NumPy makes, whose size depends on the values; places are i32, as everywhere.

    Raises:
        TracingError: what the function raises where it is traced, of arguments that NumPy refuses.
    """
    name = function.__name__
    try:
        operands = [_plain(value) for value in arguments]
        computed = getattr(np, name)(*operands, **{key: _plain(value) for key, value in named.items()})
    except (TypeError, ValueError):
        return _Call(function, arguments, named, _ARRAYS).first()
    first = asarray(arguments[0]).dtype if arguments else None

    def wrapped(array: NumPyArray, is_place: bool) -> Array:
        return asarray(array, DType.i32) if is_place and array.dtype == np.int64 else asarray(array)

    if isinstance(computed, tuple):
        return tuple(wrapped(each, name in _PLACES or place > 0) for place, each in enumerate(computed))
    return wrapped(computed, name in _PLACES or (first is not DType.i64 and computed.dtype == np.int64))


def _plain(value: Any) -> Any:
    return asarray(value)._data if is_foreign(value) or type(value) is Array else value


class _Call:
    """One call of an operation, taken apart into arrays and all else.

    Arguments:
        function: the operation.
        arguments, named: its own.
        way: what is an argument of the program; all else is constant.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        way: int = _NUMBERS,
    ) -> None:
        self.arrays: list[NumPyArray] = []
        self.weak: list[DType | None] = []
        self.is_kept = True
        self._function, self._arguments, self._named = function, arguments, named
        self._looks = getattr(function, "__name__", "") in _LOOKING
        if self._looks:
            self._arguments = (*arguments[:1], *map(known, arguments[1:]))
            arguments = self._arguments
        self._way = way
        self._wide = any(map(_is_wide, arguments)) or any(map(_is_wide, named.values()))
        takes, rest, by_name = _takers(function)
        tokens = [
            self._token(value, takes[place] if place < len(takes) else rest)
            for place, value in enumerate(arguments)
        ]
        for name in named:
            tokens += [name, self._token(named[name], name in by_name)]
        self.key = (function, way, *tokens)

    def _token(self, value: Any, takes_numbers: bool = False) -> Any:
        """What a value is to the program: its arrays by shape and element type, all else by value."""
        kind = type(value)
        if kind is Array and self._is_array(value):
            return self._array(value._data)
        if kind is float or kind is int or kind is complex or isinstance(value, np.generic):
            if takes_numbers and self._is_argument(value):
                return self._array(np.asarray(value, _WIDEST.get(kind)), weak_dtype(value))
            return kind, repr(value)
        if value is None or value is Ellipsis or isinstance(value, bool | str | type | np.dtype):
            return kind, value
        if isinstance(value, tuple | list):
            return kind, *map(self._token, value)
        if isinstance(value, dict):
            return kind, *((key, self._token(entry)) for key, entry in value.items())
        if isinstance(value, slice):
            parts = (value.start, value.stop, value.step)
            return kind, *map(self._token, parts)
        if not self._is_array(value):
            self.is_kept = False  # a function, a Tensor, or something that will be refused
            return None
        return self._array(asarray(value)._data)

    def _array(self, array: NumPyArray, weak: DType | None = None) -> Any:
        self.arrays.append(array)
        self.weak.append(weak)
        return array.shape, array.dtype, weak

    def _is_argument(self, value: Any) -> bool:
        """Whether a number is an argument of the program; of integers the value says whether a narrow type holds it."""
        return (
            self._way == _NUMBERS
            and not self._looks
            and (self._wide or not isinstance(value, int | np.integer))
        )

    def _is_array(self, value: Any) -> bool:
        """Whether a value is an array that is an argument of the program."""
        if self._way == _NOTHING:
            return False
        if type(value) is Array:
            return True
        is_seen = self._looks and value is not self._arguments[0]
        return is_foreign(value) and not isinstance(value, Tensor) and not is_seen

    def first(self) -> Any:
        """The result, with what is made for it kept."""
        returned: list[Any] = []

        def form(*tensors: Tensor) -> Any:
            result = self._called(iter(tensors))
            returned.append(result)
            return result if _has_tensors(result) else ()

        specs = [
            ArgumentSpec(Array(array).spec, Role.input)
            if weak is None
            else NumberSpec(Array(array).spec, weak)
            for array, weak in zip(self.arrays, self.weak, strict=True)
        ]
        program, _ = trace_closure(form, *specs)
        if not program.results:
            return returned[0]
        ready = STORE.made(program, _Ready, _Ready)
        if self.is_kept:
            STORE.put(self.key, ready)
        return ready(self.arrays)

    def _called(self, leaves: Iterator[Tensor]) -> Any:
        """The function called with Tensors in the place of arrays."""
        takes, rest, by_name = _takers(self._function)
        arguments = [
            self._filled(value, takes[place] if place < len(takes) else rest, leaves)
            for place, value in enumerate(self._arguments)
        ]
        named = {name: self._filled(value, name in by_name, leaves) for name, value in self._named.items()}
        return self._function(*arguments, **named)

    def _filled(self, value: Any, takes_numbers: bool, leaves: Iterator[Tensor]) -> Any:
        if isinstance(value, float | int | complex | np.generic):
            is_argument = not isinstance(value, bool) and takes_numbers and self._is_argument(value)
            return next(leaves) if is_argument else value
        if isinstance(value, tuple | list):
            filled = [self._filled(entry, False, leaves) for entry in value]
            return type(value)(*filled) if hasattr(value, "_fields") else type(value)(filled)
        if isinstance(value, dict):
            return {key: self._filled(entry, False, leaves) for key, entry in value.items()}
        if isinstance(value, slice):
            parts = (value.start, value.stop, value.step)
            return slice(*(self._filled(part, False, leaves) for part in parts))
        if self._is_array(value):
            return next(leaves)
        return value.numpy() if type(value) is Array else value


class _Ready:
    """An operation that can be run.

    Arguments:
        program: what it computes.
    """

    def __init__(self, program: Program) -> None:
        self._specs = [entry.spec for entry in program.results]
        self._tree = program.result_tree
        self._is_one = self._tree.kind == "leaf"
        self._run = _runner(program)

    def __call__(self, arrays: Sequence[NumPyArray]) -> Any:
        results = self._run(arrays)
        if self._is_one:
            return Array(results[0], self._specs[0])
        return self._tree.unflatten(map(Array, results, self._specs))


@functools.cache
def _target() -> Target:
    return Target.of("arena:cpu")


def _runner(program: Program) -> _Run:
    """What computes a program on arrays of NumPy: the arena, and XLA what that lacks."""
    try:
        planned = _target().compile(program, cache=False)
    except CompilationFailed:
        return functools.partial(_by_xla, program)
    assert isinstance(planned, ArenaExecutable)
    if planned.memory.peak <= _SMALL:
        return functools.partial(_by_arena, planned.run)
    recording = planned.recording
    return lambda arrays: _by_arena(ArenaExecutable(recording, program).run, arrays)


def _by_arena(run: Callable[[Sequence[ArenaArray]], list[ArenaArray]], arrays: Sequence[NumPyArray]) -> Any:
    return [result.array for result in run([ArenaArray(array) for array in arrays])]


def _by_xla(program: Program, arrays: Sequence[NumPyArray]) -> list[NumPyArray]:
    target = Target.of("cpu:0")
    entries = zip(program.arguments, arrays, strict=True)
    placed = [target.place(array, entry.spec) for entry, array in entries]
    return [np.asarray(result) for result in target.compile(program).run(placed)]


@functools.lru_cache(4096)
def _takers(function: Callable[..., Any]) -> tuple[tuple[bool, ...], bool, frozenset[str]]:
    """Which arguments of a function may be a Tensor or a number: by place, those that follow, and by name."""
    try:
        hints = typing.get_type_hints(function)
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError, NameError):
        return (), False, frozenset()
    takes = {entry.name: _takes_both(hints.get(entry.name)) for entry in parameters}
    variable = [entry.name for entry in parameters if entry.kind is entry.VAR_POSITIONAL]
    places = tuple(
        takes[entry.name]
        for entry in parameters
        if entry.kind in (entry.POSITIONAL_ONLY, entry.POSITIONAL_OR_KEYWORD)
    )
    return places, any(takes[name] for name in variable), frozenset(name for name in takes if takes[name])


def _takes_both(hint: Any) -> bool:
    kinds = typing.get_args(hint)
    return Tensor in kinds and float in kinds


def _is_wide(value: Any) -> bool:
    """Whether a value is an array of floats or complex numbers."""
    data = value._data if type(value) is Array else value
    return isinstance(data, np.ndarray) and data.dtype.kind not in "biu"


def _has_tensors(result: Any) -> bool:
    return any(isinstance(leaf, Tensor) for leaf in flatten(result)[0])
