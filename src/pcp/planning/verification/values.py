"""The kinds of values that a kernel from outside is tried on: each is a way in which kernels were found to be wrong."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from pcp.kernels.problems import Problem

Array = np.ndarray[Any, Any]
_finfo: Any = ml_dtypes.finfo  # NumPy's knows no bfloat16
Generator = np.random.Generator
Indices = Callable[[Generator, int, tuple[int, ...]], Array]
Make = Callable[[Problem, Generator, int, tuple[int, ...]], Array]


@dataclass(frozen=True, slots=True)
class Values:
    """A kind of values.

    Arguments:
        name: what it is called in reports.
        make: from a problem, a generator, the place of an operand and its shape to its values, in float64.
        typical: whether the error on such values is one that a user sees, and decides the tolerance. On others an honest kernel
            of low precision may have a large relative error, and every element is judged on the scale of its summands.
        finite: whether there are neither infinities nor NaN.
        indices: from a generator, what they are below and a shape to operands of integers; None draws them uniformly.
    """

    name: str
    make: Make
    typical: bool = True
    finite: bool = True
    indices: Indices | None = None


def arguments_for(problem: Problem, values: Values, seed: int) -> list[Array]:
    """Operands of a problem; equal seeds make equal ones.

    In the kind `changed` all is as in `again`, but one element of each operand.
    """
    like = "again" if values.name == "changed" else values.name
    kind = KINDS[like]
    arguments = []
    for place, spec in enumerate(problem.specs):
        rng = np.random.default_rng([seed, list(KINDS).index(like), place])
        if place in problem.ranges:
            array = (kind.indices or _uniform)(rng, problem.ranges[place], spec.shape)
        else:
            array = kind.make(problem, rng, place, spec.shape)
        array = np.array(array, ndmin=len(spec.shape))
        if values.name == "changed" and place not in problem.ranges:
            flat = array.reshape(-1)
            flat[rng.integers(flat.size)] += 3.0
        with np.errstate(over="ignore"):
            arguments.append(array.astype(spec.dtype.numpy))
    return arguments


def flushed(arrays: list[Array]) -> list[Array]:
    """Arrays with zeros in the place of denormal numbers, as processors may read them."""
    return [
        np.where(np.abs(array) < _tiny(array), array.dtype.type(0), array)
        if array.dtype.kind in "fV"
        else array
        for array in arrays
    ]


def unit(dtype: np.dtype[Any]) -> float:
    """The rounding error of an element type."""
    return float(_finfo(dtype).eps) / 2


def smallest_normal(dtype: np.dtype[Any]) -> float:
    """The smallest positive number that is not denormal."""
    return float(_finfo(dtype).smallest_normal)


def _tiny(array: Array) -> Any:
    return array.dtype.type(smallest_normal(array.dtype))


def kinds_for(problem: Problem) -> tuple[Values, ...]:
    """The kinds that say something of a problem: without integers there is nothing to be skewed."""
    return tuple(values for values in KINDS.values() if values.indices is None or problem.ranges)


def _uniform(rng: Generator, below: int, shape: tuple[int, ...]) -> Array:
    return rng.integers(0, below, shape)


def _equal(rng: Generator, below: int, shape: tuple[int, ...]) -> Array:
    return np.full(shape, rng.integers(0, below))


def _zipf(rng: Generator, below: int, shape: tuple[int, ...]) -> Array:
    """As words are distributed in texts: the k-th most frequent one about 1/k as often as the first."""
    ranks: Array = np.exp(rng.random(shape) * np.log(below + 1.0)) - 1.0
    return np.minimum(ranks.astype(np.int64), below - 1)


def _first_float(problem: Problem) -> int:
    return next(place for place in range(len(problem.specs)) if place not in problem.ranges)


def _normal(problem: Problem, rng: Generator, place: int, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape)


def _scaled(which: int) -> Make:
    def make(problem: Problem, rng: Generator, place: int, shape: tuple[int, ...]) -> Array:
        factor = problem.definition.scales[which]
        if problem.dtype.itemsize == 2:
            factor = min(max(factor, 2.0**-4), 2.0**4)
        # Gains and shifts keep their size, so that what is scaled is seen in the result.
        gain = problem.family == "normalisation" and place > 0
        return rng.standard_normal(shape) * (1.0 if gain else factor)

    return make


def _offset(problem: Problem, rng: Generator, place: int, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape) + (problem.definition.offset if place == _first_float(problem) else 0.0)


def _sparse(problem: Problem, rng: Generator, place: int, shape: tuple[int, ...]) -> Array:
    """One number that is not 0 along the last axis."""
    array = np.zeros(shape)
    chosen = rng.integers(0, shape[-1], (*shape[:-1], 1))
    np.put_along_axis(array, chosen, rng.standard_normal((*shape[:-1], 1)) + 2.0, -1)
    return array


def _half_zero(problem: Problem, rng: Generator, place: int, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape) * rng.integers(0, 2, shape)


def _constant(problem: Problem, rng: Generator, place: int, shape: tuple[int, ...]) -> Array:
    return np.full(shape, rng.uniform(0.5, 2.0))


def _cancelling(problem: Problem, rng: Generator, place: int, shape: tuple[int, ...]) -> Array:
    """Along every axis, the second half is minus the first, or equal to it: sums of products are 0."""
    array = rng.standard_normal(shape)
    for axis, size in enumerate(shape):
        half = size // 2
        first = np.take(array, range(half), axis)
        rest = np.take(array, range(2 * half, size), axis)
        array = np.concatenate([first, first if place else -first, rest], axis)
    return array


def _denormal(problem: Problem, rng: Generator, place: int, shape: tuple[int, ...]) -> Array:
    """Denormal numbers in the first operand; the others are large, so that products with them are not."""
    tiny = smallest_normal(problem.dtype.numpy)
    if place == _first_float(problem):
        return rng.uniform(-1.0, 1.0, shape) * tiny * 0.5
    large = 1.0 if problem.dtype.itemsize == 2 or problem.family != "product" else 2.0**60
    return rng.standard_normal(shape) * large


def _some_denormal(problem: Problem, rng: Generator, place: int, shape: tuple[int, ...]) -> Array:
    tiny = smallest_normal(problem.dtype.numpy)
    chosen = rng.random(shape) < 0.25
    return np.where(chosen, rng.uniform(-1.0, 1.0, shape) * tiny * 0.5, rng.standard_normal(shape))


def _with(*special: float) -> Make:
    """Normal numbers with a few others in the first operand."""

    def make(problem: Problem, rng: Generator, place: int, shape: tuple[int, ...]) -> Array:
        array = rng.standard_normal(shape)
        if place == _first_float(problem):
            flat = array.reshape(-1)
            places = rng.permutation(flat.size)[: max(1, min(len(special), flat.size // 4))]
            for where, number in zip(places, special, strict=False):
                flat[where] = number
        return array

    return make


def _minus_infinity_first(problem: Problem, rng: Generator, place: int, shape: tuple[int, ...]) -> Array:
    """Minus infinity in the first half of the last axis, as masks make it: only the rest counts."""
    array = rng.standard_normal(shape)
    if place == _first_float(problem):
        array[..., : shape[-1] // 2] = -np.inf
    return array


def _zeros(problem: Problem, rng: Generator, place: int, shape: tuple[int, ...]) -> Array:
    return np.zeros(shape)


KINDS: dict[str, Values] = {
    values.name: values
    for values in (
        Values("normal", _normal),
        Values("again", _normal),
        Values("changed", _normal),
        Values("positive", lambda *drawn: np.abs(_normal(*drawn))),
        Values("negative", lambda *drawn: -np.abs(_normal(*drawn))),
        Values("large", _scaled(0)),
        Values("small", _scaled(1)),
        Values("offset", _offset),
        Values("sparse", _sparse),
        Values("half zero", _half_zero),
        Values("constant", _constant, typical=False),
        Values("cancelling", _cancelling, typical=False),
        Values("denormal", _denormal, typical=False),
        Values("some denormal", _some_denormal, typical=False),
        Values("infinities", _with(np.inf, -np.inf, np.inf), typical=False, finite=False),
        Values("minus infinity", _with(-np.inf), typical=False, finite=False),
        Values("masked", _minus_infinity_first, typical=False, finite=False),
        Values("NaN", _with(np.nan, np.nan), typical=False, finite=False),
        Values("zeros", _zeros, typical=False),
        Values("equal indices", _normal, typical=False, indices=_equal),
        Values("Zipf indices", _normal, typical=False, indices=_zipf),
    )
}
"""By their names, in the order in which they are tried."""

GRADIENT_KINDS = ("normal", "again", "positive", "large", "small", "half zero")
