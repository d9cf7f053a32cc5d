"""Comparing results where they lie: on a GPU by small compiled programs, of which only sums are read; elsewhere by NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pcp.backends import Backend, Device, Executable
from pcp.backends.base import Buffer
from pcp.ir import DType, Program, Result, TensorSpec
from pcp.ir.types import dtype_of
from pcp.ops.elementwise import bitcast, convert, imag, real
from pcp.ops.reduction import sum_
from pcp.planning.tolerance import Norms, ResultError, added, error_from, error_of, is_safe
from pcp.tensor import Tensor
from pcp.tracing import spec, trace

SMALL = 1 << 14
"""Elements of an array up to which reading it is quicker than compiling something."""
_UNSIGNED = {1: DType.u8, 2: DType.u16, 4: DType.u32, 8: DType.u64}

Array = np.ndarray[Any, Any]


class Comparison:
    """Compares results; what it compiles is kept by shape and element types.

    Arguments:
        device: where results lie.
        compiled: whether programs compare; None says on a GPU.
    """

    def __init__(self, backend: Backend, device: Device, compiled: bool | None = None) -> None:
        self._backend, self._device = backend, device
        self._is_compiled = device.kind != "cpu" if compiled is None else compiled
        self._made: dict[tuple[Any, ...], Executable] = {}

    def same_bits(self, a: Any, b: Any) -> bool:
        """Whether two arrays are equal bit for bit."""
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        specs = [_spec(a), _spec(b)]
        if not self._compiles(specs[0]):
            return same_bits(a, b)
        return float(self._run("bits", _differing, specs, [a, b])[0]) == 0.0

    def error(
        self, entry: Result, exact: Any, plain: Any, found: Any, before: Any = None, kept: float = 1.0
    ) -> ResultError:
        """The error of one result, and that of the plain path; what is no floating-point number must be equal to the plain one.

        Arguments:
            entry: the result.
            exact: in float64.
            plain: by the plain path; None takes the relative error whatever it is.
            found: by the path in question.
            before, kept: what it came from, and how much of that stays in it; see `pcp.ir.Argument`.
        """
        if not entry.spec.dtype.is_differentiable:
            is_equal = np.array_equal(np.asarray(found), np.asarray(exact if plain is None else plain))
            return ResultError(entry.name, 0.0 if is_equal else float("inf"), 0.0)
        norms = None
        if self._compiles(entry.spec):
            norms = self._norms(exact, plain, found, before, kept)
        if norms is not None:
            _, scale, missed = norms
            mine = error_from(norms, plain is not None)
            theirs = 0.0 if plain is None else error_from((missed, scale, missed), True)
            return ResultError(entry.name, mine, theirs)
        y64, y = added(exact, before, kept), added(found, before, kept)
        if plain is None:
            return ResultError(entry.name, error_of(y, y64), 0.0)
        y32 = added(plain, before, kept)
        return ResultError(entry.name, error_of(y, y64, y32), error_of(y32, y64, y32))

    def _norms(self, exact: Any, plain: Any, found: Any, before: Any, kept: float) -> Norms | None:
        """The norms of found - exact, of what is new in exact, and of plain - exact; None if they are none."""
        arrays = [exact, exact if plain is None else plain, found, exact if before is None else before]
        factor = np.float64(0.0 if before is None else kept)
        sums = self._run("norms", _sums, [*map(_spec, arrays), TensorSpec((), DType.f64)], [*arrays, factor])
        squares = np.array([float(value) for value in sums])
        if not is_safe(squares):
            return None
        distance, scale, missed = map(float, np.sqrt(squares))
        return distance, scale, missed

    def _compiles(self, of: TensorSpec) -> bool:
        return self._is_compiled and of.size > SMALL

    def _run(
        self, what: str, function: Callable[..., Any], specs: list[TensorSpec], arrays: list[Any]
    ) -> list[Buffer]:
        key = (what, *specs)
        made = self._made.get(key)
        if made is None:
            program: Program = trace(function, *(spec(each.shape, each.dtype) for each in specs))
            made = self._made[key] = self._backend.compile(program, self._device, {}, cache=True)
        placed = [self._here(array, each) for array, each in zip(arrays, specs, strict=True)]
        return made.run(placed)

    def _here(self, array: Any, of: TensorSpec) -> Buffer:
        if self._backend.is_buffer(array) and self._backend.is_on(array, self._device):
            return array
        return self._backend.place(np.asarray(array), of, self._device, alias=False)


def same_bits(a: Any, b: Any) -> bool:
    """Whether two arrays are equal bit for bit, on the processor."""
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and bool(np.array_equal(_bytes(a), _bytes(b)))


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _spec(array: Any) -> TensorSpec:
    return TensorSpec(tuple(array.shape), dtype_of(array.dtype))


def _sums(exact: Tensor, plain: Tensor, found: Tensor, before: Tensor, kept: Tensor) -> tuple[Tensor, ...]:
    wide = exact.dtype
    right = exact
    return tuple(
        _square(difference)
        for difference in (
            convert(found, wide) - right,
            right - convert(kept, wide) * convert(before, wide),
            convert(plain, wide) - right,
        )
    )


def _square(x: Tensor) -> Tensor:
    parts = [real(x), imag(x)] if x.dtype.kind == "complex" else [x]
    total = sum_(parts[0] * parts[0])
    for part in parts[1:]:
        total = total + sum_(part * part)
    return total


def _differing(a: Tensor, b: Tensor) -> Tensor:
    """How many elements have other bits."""
    if a.dtype.kind == "complex":
        return _differing(real(a), real(b)) + _differing(imag(a), imag(b))
    if a.dtype.is_float:
        size = np.dtype(a.dtype.numpy).itemsize
        a, b = bitcast(a, _UNSIGNED[size]), bitcast(b, _UNSIGNED[size])
    return sum_(convert(a != b, DType.f32))
