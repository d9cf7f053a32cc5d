"""How wrong results are, against a float64 evaluation; the measure that a tolerance is compared with.

The error of a tensor y is ||y - y64|| / ||y64||. A tensor that the plain float32 path itself cannot compute to 1e-4, because it
is zero or cancels in exact arithmetic, is judged on the scale at which float32 worked: ||y - y64|| / (||y32 - y64|| / 2^-24). A
number that is not finite where the exact one is makes the error infinite. State is judged by what is added to what stays of it,
so that an update does not hide behind the parameter that it is added to, nor a gradient behind its moment: m' - beta m is as
wrong as the gradient. How much stays a program says of each argument (`Argument.kept`); where it says nothing, all of it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.ir import Program

FLOAT32_FAILS = 1e-4
"""The relative error of the plain path from which on a tensor is judged on the scale of float32's own error."""
UNIT = 2.0**-24
"""The rounding error of float32."""
_CHUNK = 1 << 14
_SAFE_SQUARES = (1e-200, 1e300)

Array = np.ndarray[Any, Any]
Norms = tuple[float, float, float]
"""Of y - exact, exact and plain - exact."""


@dataclass(frozen=True, slots=True)
class ResultError:
    """How wrong one result is.

    Arguments:
        name: of the result.
        error: the measure of this module.
        plain: the same of the plain path.
    """

    name: str
    error: float
    plain: float


def error_of(y: Array, exact: Array, plain: Array | None = None) -> float:
    """The error of one tensor.

    Arguments:
        y: the tensor, real or complex.
        exact: the same in float64.
        plain: the same by the plain path; None takes the relative error whatever it is.
    """
    norms = _norms_of_finite(y, exact, exact if plain is None else plain)
    if norms is None:
        return _error_in_general(y, exact, plain)
    return error_from(norms, plain is not None)


def error_from(norms: Norms, has_plain: bool) -> float:
    """The error of one tensor of which three norms are known; without a plain path the relative one."""
    distance, scale, missed = norms
    if has_plain and missed > FLOAT32_FAILS * scale:
        scale = missed / UNIT
    return distance / scale


def is_safe(squares: Array) -> bool:
    """Whether the squares of three norms are numbers that float64 holds, and not too small for their roots to be exact."""
    return bool((squares[:2] > _SAFE_SQUARES[0]).all() and (squares < _SAFE_SQUARES[1]).all())


def _norms_of_finite(y: Array, exact: Array, plain: Array) -> Norms | None:
    """The norms of y - exact, exact and plain - exact, in one walk over memory.

    Returns:
        None where some number is not finite, or is so large or small that its square leaves float64.
    """
    parts = [array.reshape(-1) for array in (y, exact, plain)]
    squares = np.zeros(3)
    with np.errstate(all="ignore"):
        for start in range(0, exact.size, _CHUNK):
            found, right, near = (
                part[start : start + _CHUNK].astype(exact.dtype, copy=False) for part in parts
            )
            for index, vector in enumerate((found - right, right, near - right)):
                squares[index] += np.sum(
                    (vector * vector.conj()).real
                )  # one thread: a BLAS's others would spin
    if not is_safe(squares):
        return None
    distance, scale, missed = map(float, np.sqrt(squares))
    return distance, scale, missed


def _error_in_general(y: Array, exact: Array, plain: Array | None) -> float:
    wide = y.astype(exact.dtype)
    finite = np.isfinite(exact)
    if (
        not np.array_equal(wide[~finite], exact[~finite], equal_nan=True)
        or not np.isfinite(wide[finite]).all()
    ):
        return float("inf")
    distance = _norm(wide[finite] - exact[finite])
    if distance == 0.0:
        return 0.0
    scale = _norm(exact[finite])
    if plain is not None:
        missed = _norm(plain.astype(exact.dtype)[finite] - exact[finite])
        if missed > FLOAT32_FAILS * scale:
            scale = missed / UNIT
    return distance / scale if scale > 0.0 else float("inf")


def judged(program: Program, arguments: Sequence[Any], results: Iterable[Any]) -> Iterator[Array]:
    """What is judged of a call: every result, of a state what is new in it, in float64 or complex128, one after another.

    Arguments:
        program: what was called.
        arguments: its flat arguments before the call.
        results: its flat results.
    """
    donors = {
        entry.alias: (entry.kept, before)
        for entry, before in zip(program.arguments, arguments, strict=True)
        if entry.alias is not None and entry.spec.dtype.is_differentiable and entry.kept
    }
    for index, result in enumerate(results):
        kept, before = donors.get(index, (0.0, None))
        yield added(result, before, kept)


def added(result: Any, before: Any, kept: float) -> Array:
    """A result in float64 or complex128, less what stays in it of the state it comes from, if it does from any."""
    made = np.asarray(result).astype(_wide(result))
    if before is not None and kept:
        made -= kept * np.asarray(before).astype(made.dtype)
    return made


def errors_of(
    program: Program, exact: Iterable[Array], plain: Iterable[Array], found: Iterable[Array]
) -> list[ResultError]:
    """The error of every floating-point result, and that of the plain path; other results must be equal to the plain ones.

    Arguments:
        program: what was called, for the names of its results.
        exact, plain, found: what `judged` made of the results in float64, by the plain path, and by the path in question.
    """
    made = []
    for index, (entry, y64, y32, y) in enumerate(zip(program.results, exact, plain, found, strict=True)):
        name = entry.name or str(index)
        if entry.spec.dtype.is_differentiable:
            made.append(ResultError(name, error_of(y, y64, y32), error_of(y32, y64, y32)))
        else:
            made.append(ResultError(name, _unequal(y, y32), 0.0))
    return made


def worst(errors: Sequence[ResultError]) -> float:
    """The largest error; 0 if there are none."""
    return max((entry.error for entry in errors), default=0.0)


def _unequal(y: Array, expected: Array) -> float:
    return 0.0 if np.array_equal(y, expected) else float("inf")


def _norm(x: Array) -> float:
    largest = float(np.max(np.abs(x), initial=0.0))
    if largest == 0.0 or not np.isfinite(largest):
        return largest
    return largest * float(np.linalg.norm((x / largest).ravel()))


def _wide(array: Any) -> np.dtype[Any]:
    kind = np.asarray(array).dtype
    return np.dtype(np.complex128 if kind.kind == "c" else np.float64 if kind.kind in "fV" else kind)
