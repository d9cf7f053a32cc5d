"""The kinds of values that a kernel from outside is tried on: each is a way in which kernels were found to be wrong."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.ir.types import dtype_of, limits_of
from pcp.kernels.problems import Problem
from pcp.planning.measuring.site_operands import equal, zipf

Array = np.ndarray[Any, Any]
Generator = np.random.Generator
Indices = Callable[[Generator, int, tuple[int, ...]], Array]


@dataclass(frozen=True, slots=True)
class Draw:
    """One operand to be drawn.

    Arguments:
        problem: whose operand it is.
        rng: a generator.
        place: of the operand.
        shape: its shape.
    """

    problem: Problem
    rng: Generator
    place: int
    shape: tuple[int, ...]

    @property
    def is_first(self) -> bool:
        """Whether it is the first operand of floats."""
        return self.place == min(set(range(len(self.problem.specs))) - self.problem.ranges.keys())

    def normal(self) -> Array:
        """Normal numbers."""
        return self.rng.standard_normal(self.shape)

    def scaled(self, which: int) -> Array:
        """Normal numbers times a factor of the family's; gains and shifts keep their size, so that what is scaled shows."""
        factor = self.problem.definition.scales[which]
        if self.problem.dtype.itemsize == 2:
            factor = min(max(factor, 2.0**-4), 2.0**4)
        is_gain = self.problem.family == "normalisation" and self.place > 0
        return self.normal() * (1.0 if is_gain else factor)

    def denormal(self) -> Array:
        """Denormal numbers."""
        return self.rng.uniform(-1.0, 1.0, self.shape) * smallest_normal(self.problem.dtype.numpy) * 0.5

    def containing(self, *special: float) -> Array:
        """Normal numbers, with a few others in the first operand."""
        array = self.normal()
        if self.is_first:
            flat = array.reshape(-1)
            places = self.rng.permutation(flat.size)[: max(1, min(len(special), flat.size // 4))]
            for where, number in zip(places, special, strict=False):
                flat[where] = number
        return array


@dataclass(frozen=True, slots=True)
class Values:
    """A kind of values.

    Arguments:
        name: what it is called in reports.
        make: the values of an operand, in float64.
        typical: whether the error on such values is one that a user sees, and decides the tolerance. On others an honest kernel
            of low precision may have a large relative error, and every element is judged on the scale of its summands.
        finite: whether there are neither infinities nor NaN.
        indices: from a generator, what they are below and a shape to operands of integers; None draws them uniformly.
    """

    name: str
    make: Callable[[Draw], Array]
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
            array = kind.make(Draw(problem, rng, place, spec.shape))
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
        np.where(np.abs(array) < array.dtype.type(smallest_normal(array.dtype)), array.dtype.type(0), array)
        if array.dtype.kind in "fV"
        else array
        for array in arrays
    ]


def smallest_normal(dtype: np.dtype[Any]) -> float:
    """The smallest positive number that is not denormal."""
    return float(limits_of(dtype_of(dtype)).smallest_normal)


def kinds_for(problem: Problem) -> tuple[Values, ...]:
    """The kinds that say something of a problem: without integers there is nothing to be skewed."""
    return tuple(values for values in KINDS.values() if values.indices is None or problem.ranges)


def _uniform(rng: Generator, below: int, shape: tuple[int, ...]) -> Array:
    return rng.integers(0, below, shape)


def _sparse(drawn: Draw) -> Array:
    """One number that is not 0 along the last axis."""
    array = np.zeros(drawn.shape)
    count = (*drawn.shape[:-1], 1)
    chosen = drawn.rng.integers(0, drawn.shape[-1], count)
    np.put_along_axis(array, chosen, drawn.rng.standard_normal(count) + 2.0, -1)
    return array


def _cancelling(drawn: Draw) -> Array:
    """Along every axis, the second half is minus the first, or equal to it: sums of products are 0."""
    array = drawn.normal()
    for axis, size in enumerate(drawn.shape):
        half = size // 2
        first = np.take(array, range(half), axis)
        rest = np.take(array, range(2 * half, size), axis)
        array = np.concatenate([first, first if drawn.place else -first, rest], axis)
    return array


def _denormal(drawn: Draw) -> Array:
    """Denormal numbers in the first operand; the others are large, so that products with them are not."""
    if drawn.is_first:
        return drawn.denormal()
    is_narrow = drawn.problem.dtype.itemsize == 2 or drawn.problem.family != "product"
    return drawn.normal() * (1.0 if is_narrow else 2.0**60)


def _some_denormal(drawn: Draw) -> Array:
    chosen = drawn.rng.random(drawn.shape) < 0.25
    return np.where(chosen, drawn.denormal(), drawn.normal())


def _masked(drawn: Draw) -> Array:
    """Minus infinity in the first half of the last axis, as masks make it: only the rest counts."""
    array = drawn.normal()
    if drawn.is_first:
        array[..., : drawn.shape[-1] // 2] = -np.inf
    return array


KINDS: dict[str, Values] = {
    values.name: values
    for values in (
        Values("normal", Draw.normal),
        Values("again", Draw.normal),
        Values("changed", Draw.normal),
        Values("positive", lambda drawn: np.abs(drawn.normal())),
        Values("negative", lambda drawn: -np.abs(drawn.normal())),
        Values("large", lambda drawn: drawn.scaled(0)),
        Values("small", lambda drawn: drawn.scaled(1)),
        Values("offset", lambda drawn: drawn.normal() + drawn.problem.definition.offset * drawn.is_first),
        Values("sparse", _sparse),
        Values("half zero", lambda drawn: drawn.normal() * drawn.rng.integers(0, 2, drawn.shape)),
        Values("constant", lambda drawn: np.full(drawn.shape, drawn.rng.uniform(0.5, 2.0)), typical=False),
        Values("cancelling", _cancelling, typical=False),
        Values("denormal", _denormal, typical=False),
        Values("some denormal", _some_denormal, typical=False),
        Values(
            "infinities", lambda drawn: drawn.containing(np.inf, -np.inf, np.inf), typical=False, finite=False
        ),
        Values("minus infinity", lambda drawn: drawn.containing(-np.inf), typical=False, finite=False),
        Values("masked", _masked, typical=False, finite=False),
        Values("NaN", lambda drawn: drawn.containing(np.nan, np.nan), typical=False, finite=False),
        Values("zeros", lambda drawn: np.zeros(drawn.shape), typical=False),
        Values("equal indices", Draw.normal, typical=False, indices=equal),
        Values("Zipf indices", Draw.normal, typical=False, indices=zipf),
    )
}
"""By their names, in the order in which they are tried."""

GRADIENT_KINDS = ("normal", "again", "positive", "large", "small", "half zero")
