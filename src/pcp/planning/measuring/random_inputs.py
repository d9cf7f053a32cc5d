"""Random arguments for a program, from a recipe that is small enough to be sent to another process."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pcp.backends.processors import core_count
from pcp.interruption import all_of
from pcp.ir import Argument, Role
from pcp.ir.beginnings import Beginning

Array = np.ndarray[Any, Any]


DRAWN = (1 << 22) + 15
"""Numbers that are drawn for one argument at most; where it has more, they are repeated, in no step with any axis."""

ALONE = 1 << 20
"""Numbers in all from which every processor draws."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How arguments are made.

    Arguments:
        seed: of the generator; equal recipes make equal arguments.
        sets: how many different lists of arguments are made; one shows no stale result.
        ranges: name of an integer argument, its least value and one more than its largest; other integers are 0 or 1. Or name
            of an argument of floats, and the numbers that it lies between.
        begins: name of an argument, and what it is known to begin with.
        warm_calls: how often the plain program is called on its own state first, so that moments are as in a run; parameters
            stay as they begin. State that is not called `params` then begins as zero.
    """

    seed: int = 0
    sets: int = 2
    ranges: tuple[tuple[str, float, float], ...] = ()
    begins: tuple[tuple[str, Beginning], ...] = ()
    warm_calls: int = 0


def random_arguments(
    arguments: Sequence[Argument], recipe: Recipe, index: int, only: Sequence[int] | None = None
) -> list[Array]:
    """One list of arguments.

    Floats without a range are normal. Weights are scaled by the square root of their fan-in, so that activations keep their
    size; gains are near 1. State beside parameters is positive, as second moments are.

    Arguments:
        index: which list, from 0.
        only: places of those that are made; None makes all.
    """
    ranges, begins = {name: (low, high) for name, low, high in recipe.ranges}, dict(recipe.begins)

    def array_at(place: int) -> Array:
        entry, rng = arguments[place], np.random.default_rng([recipe.seed, index, place])
        is_float = entry.spec.dtype.is_differentiable
        if entry.name in begins:
            value = begins[entry.name].array(entry.spec, lambda: _normal(entry, rng))
        elif is_float and entry.name in ranges:
            value = rng.uniform(*ranges[entry.name], entry.spec.shape)
        else:
            value = _floats(entry, rng, recipe) if is_float else _integers(entry, rng, ranges, recipe)
        return np.asarray(value).astype(entry.spec.dtype.numpy, copy=False)

    places = [place for place in range(len(arguments)) if only is None or place in only]
    if sum(arguments[place].spec.size for place in places) < ALONE:
        return list(map(array_at, places))
    return all_of([functools.partial(array_at, place) for place in places], core_count())


def cold(recipe: Recipe) -> Recipe:
    """The recipe of arguments that need no call of the plain program: its moments are drawn."""
    return replace(recipe, warm_calls=0)


def _floats(entry: Argument, rng: np.random.Generator, recipe: Recipe) -> Array:
    shape = entry.spec.shape
    words = entry.name.split(".")
    if entry.role is Role.state and "params" not in words:
        if recipe.warm_calls:
            return np.zeros(shape, np.float32)
        values = _normal(entry, rng)
        return np.multiply(np.abs(values, out=values), np.float32(0.1), out=values)
    values = _normal(entry, rng)
    if entry.spec.dtype.kind == "complex":
        return np.asarray(values + 1j * rng.standard_normal(shape, np.float32))
    if entry.role is Role.input:
        return values
    if len(shape) >= 2:
        return values / np.float32(
            np.sqrt(max(1, min(values.size // max(1, shape[0]), values.size // max(1, shape[-1]))))
        )
    return 0.1 * values + np.float32(0.0 if "bias" in words[-1] or words[-1] == "b" else 1.0)


def _normal(entry: Argument, rng: np.random.Generator) -> Array:
    drawn = rng.standard_normal(min(entry.spec.size, DRAWN), np.float32)
    shape = entry.spec.shape
    values: Array = np.resize(drawn, shape) if entry.spec.size > DRAWN else drawn.reshape(shape)
    return values


def _integers(
    entry: Argument, rng: np.random.Generator, ranges: dict[str, tuple[float, float]], recipe: Recipe
) -> Array:
    if entry.name not in ranges and entry.role is Role.state:
        return np.full(entry.spec.shape, 0 if recipe.warm_calls else 3)
    low, high = ranges.get(entry.name, (0, 2))
    return rng.integers(int(low), int(high), entry.spec.shape)
