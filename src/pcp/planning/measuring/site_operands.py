"""The kinds of operands that a kernel is tried on at its site, each made from those that it was measured on."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from pcp.ir import DType

Array = np.ndarray[Any, Any]
Change = tuple[Array, Array]
"""A factor and an addend for an array; both broadcast to it, and are small or of few axes."""
_finfo: Any = ml_dtypes.finfo  # NumPy's knows no bfloat16

MOVED_UNITS = 8.0
"""How far operands are moved to see how sensitive results are, in roundings of their element type."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of operands at a site.

    Arguments:
        name: for messages.
        floats: from a generator, a shape and whether the array is the first, what changes the array on which the kernel was
            judged.
        integers: from a generator and the array to another one of values in it.
        is_judged: whether errors are compared, beside what is not finite.
        is_far: whether operands are so large that they may saturate what is computed.
        is_finite: whether there are neither infinities nor NaN.
        may_spread: whether NaN may stand anywhere whatever a kernel claims: what infinity minus infinity is depends on the form
            of the same mathematics. What it must not do is hide them.
        shrinks: whether operands become smaller, and results with them.
        matters: whether it is tried at large sites, too.
    """

    name: str
    floats: Callable[[np.random.Generator, tuple[int, ...], bool], Change]
    integers: Callable[[np.random.Generator, Array], Array] = lambda _, array: array
    is_judged: bool = True
    is_far: bool = False
    is_finite: bool = True
    may_spread: bool = False
    shrinks: bool = False
    matters: bool = False


_ONE, _ZERO = np.ones((), np.float32), np.zeros((), np.float32)
_SUBNORMAL = 1e-39


def unit_of(dtype: DType) -> float:
    """The rounding error of an element type."""
    return float(_finfo(dtype.numpy).eps) / 2


def moved(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, least: float) -> Change:
    """What moves every element by some roundings, and by a part of it at least, up or down."""
    step = np.float32(max(MOVED_UNITS * unit_of(dtype), least))
    return np.where(rng.random(shape, np.float32) < 0.5, 1 - step, 1 + step), _ZERO


def _skewed(rng: np.random.Generator, shape: tuple[int, ...], first: bool) -> Change:  # noqa: ARG001  (as all kinds)
    """Rows of unlike size."""
    rows = (*shape[:-1], 1) if shape else ()
    return np.exp(0.5 * np.asarray(rng.standard_normal(rows), np.float32)), _ZERO


def _equal(rng: np.random.Generator, array: Array) -> Array:
    return np.full_like(array, array.reshape(-1)[rng.integers(array.size)])


def _zipf(rng: np.random.Generator, array: Array) -> Array:
    ranks = np.exp(rng.random(array.shape) * math.log(array.size + 1.0)) - 1.0
    made: Array = array.reshape(-1)[np.minimum(ranks.astype(np.int64), array.size - 1)]
    return made


def _changed(factor: float, addend: float = 0.0, *, of: str = "all") -> Callable[..., Change]:
    """Times a factor, plus an addend: all operands, the first, or the others."""
    change = np.full((), factor, np.float32), np.full((), addend, np.float32)

    def floats(rng: np.random.Generator, shape: tuple[int, ...], first: bool) -> Change:  # noqa: ARG001
        return change if of == "all" or (of == "first") is first else (_ONE, _ZERO)

    return floats


def _of_first(make: Callable[[np.random.Generator, tuple[int, ...]], Change]) -> Callable[..., Change]:
    """What changes the first operand only; a single number stays."""

    def floats(rng: np.random.Generator, shape: tuple[int, ...], first: bool) -> Change:
        return make(rng, shape) if first and shape else (_ONE, _ZERO)

    return floats


def _ascending(rng: np.random.Generator, shape: tuple[int, ...]) -> Change:  # noqa: ARG001  (as all kinds)
    return np.full((), 1e-2, np.float32), np.linspace(-3, 3, shape[-1], dtype=np.float32)


def _descending(rng: np.random.Generator, shape: tuple[int, ...]) -> Change:
    factor, addend = _ascending(rng, shape)
    return factor, addend[::-1].copy()


def _one_hot(rng: np.random.Generator, shape: tuple[int, ...]) -> Change:
    """One number that is not 0 along the last axis."""
    chosen = np.arange(shape[-1]) == rng.integers(0, shape[-1], (*shape[:-1], 1))
    return chosen.astype(np.float32), 2 * chosen.astype(np.float32)


def _subnormal(rng: np.random.Generator, shape: tuple[int, ...]) -> Change:
    """Every second row is subnormal, of the others a quarter."""
    rows = np.arange(math.prod(shape[:-1])).reshape(*shape[:-1], 1) % 2 == 0
    chosen = rows | (rng.random(shape[-1:]) < 0.25)
    return np.where(chosen, _SUBNORMAL, 1).astype(np.float32), _ZERO


def _half_masked(rng: np.random.Generator, shape: tuple[int, ...]) -> Change:  # noqa: ARG001  (as all kinds)
    return _ONE, np.where(np.arange(shape[-1]) < shape[-1] // 2, -np.inf, 0).astype(np.float32)


def _with(*special: float) -> Callable[[np.random.Generator, tuple[int, ...], bool], Change]:
    """A few other numbers somewhere in the first operand."""

    def floats(rng: np.random.Generator, shape: tuple[int, ...], first: bool) -> Change:
        addend = np.zeros(shape, np.float32)
        if first:
            addend.reshape(-1)[rng.integers(addend.size, size=len(special))] = special
        return _ONE, addend

    return floats


NORMAL = Kind("normal", _changed(1.0))
"""The operands that the kernel is measured on, as they are."""

KINDS = (
    Kind("skewed", _skewed, _equal, matters=True),
    Kind("differently skewed", _skewed, _zipf),
    Kind("large", _changed(100.0, of="first"), is_far=True, matters=True),
    Kind("all large", _changed(100.0), is_judged=False),
    Kind("small", _changed(1e-6), shrinks=True),
    Kind("positive", _changed(1.0, 8.0, of="first")),
    Kind("negative", _changed(1.0, -8.0, of="first")),
    Kind("offset by a thousand", _changed(1.0, 1e3, of="first"), is_far=True, matters=True),
    Kind("offset by minus thirty thousand", _changed(1.0, -3e4, of="first"), is_far=True),
    Kind("offset by a million", _changed(1.0, 1e6, of="first"), is_far=True),
    Kind("otherwise offset", _changed(1.0, 8.0, of="others")),
    Kind("constant", _changed(0.0, 1.1, of="first")),
    Kind("zero", _changed(0.0, of="first"), shrinks=True),
    Kind("all zero", _changed(0.0), shrinks=True),
    Kind("one-hot", _of_first(_one_hot)),
    Kind("ascending", _of_first(_ascending)),
    Kind("descending", _of_first(_descending)),
    Kind("subnormal", _of_first(_subnormal), shrinks=True, matters=True),
    Kind("masked", _of_first(_half_masked), is_finite=False, matters=True),
    Kind("NaN", _with(*[np.nan] * 8), is_finite=False),
    Kind("infinite", _with(np.inf, -np.inf), is_finite=False, may_spread=True),
)
