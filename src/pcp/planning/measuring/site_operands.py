"""The kinds of operands that a kernel is tried on at its site, each made from those that it was measured on."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.ir import DType
from pcp.ir.types import limits_of
from pcp.planning.judging.changes import Change, rows_of

Array = np.ndarray[Any, Any]

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


_SUBNORMAL = 1e-39


def unit_of(dtype: DType) -> float:
    """The rounding error of an element type."""
    return float(limits_of(dtype).eps) / 2


def moved(rng: np.random.Generator, dtype: DType, least: float) -> Change:
    """What moves every element by some roundings, and by a part of it at least, up or down."""
    return Change(step=max(MOVED_UNITS * unit_of(dtype), least), seed=int(rng.integers(1 << 32)))


def equal(rng: np.random.Generator, below: int, shape: tuple[int, ...]) -> Array:
    """One index for all."""
    return np.full(shape, rng.integers(below))


def zipf(rng: np.random.Generator, below: int, shape: tuple[int, ...]) -> Array:
    """As words are distributed in texts: the k-th most frequent one about 1/k as often as the first."""
    ranks: Array = np.exp(rng.random(shape) * math.log(below + 1.0)) - 1.0
    return np.minimum(ranks.astype(np.int64), below - 1)


def _of_array(indices: Callable[..., Array]) -> Callable[[np.random.Generator, Array], Array]:
    """An array of values of another one, at such indices."""
    return lambda rng, array: array.reshape(-1)[indices(rng, array.size, array.shape)]


def _changed(factor: float, addend: float = 0.0, *, of: str = "all") -> Callable[..., Change]:
    """Times a factor, plus an addend: all operands, the first, or the others."""
    every = Change(factor, addend=addend)
    return lambda _, __, first: every if of == "all" or (of == "first") is first else Change()


def _of_first(make: Callable[[np.random.Generator, tuple[int, ...]], Change]) -> Callable[..., Change]:
    """What changes the first operand only; a single number stays."""
    return lambda rng, shape, first: make(rng, shape) if first and shape else Change()


def _one_hot(rng: np.random.Generator, shape: tuple[int, ...]) -> Change:
    """One number that is not 0 along the last axis."""
    rows, width = rows_of(shape)
    return Change(0.0, chosen=rng.integers(0, width, rows, np.int32), own=(1.0, 2.0))


def _subnormal(rng: np.random.Generator, shape: tuple[int, ...]) -> Change:
    """Every second row is subnormal, of the others a quarter."""
    rows, width = rows_of(shape)
    of_rows = np.where(np.arange(rows) % 2 == 0, _SUBNORMAL, 1.0)
    of_columns = np.where(rng.random(width) < 0.25, _SUBNORMAL, 1.0)
    return Change(rows=of_rows.astype(np.float32), columns=of_columns.astype(np.float32))


def _sloped(first: float, last: float) -> Callable[..., Change]:
    """Nearly the same row everywhere, from one number to another."""
    return _of_first(
        lambda _, shape: Change(1e-2, addend=np.linspace(first, last, shape[-1], dtype=np.float32))
    )


def _half_masked(_: np.random.Generator, shape: tuple[int, ...]) -> Change:
    return Change(addend=np.where(np.arange(shape[-1]) < shape[-1] // 2, -np.inf, 0).astype(np.float32))


def _skewed(rng: np.random.Generator, shape: tuple[int, ...], _: bool) -> Change:
    """Rows of unlike size."""
    return Change(rows=np.exp(0.5 * rng.standard_normal(rows_of(shape)[0], np.float32)))


def _with(*special: float) -> Callable[[np.random.Generator, tuple[int, ...], bool], Change]:
    """A few other numbers somewhere in the first operand."""

    def floats(rng: np.random.Generator, shape: tuple[int, ...], first: bool) -> Change:
        places = rng.integers(math.prod(shape), size=len(special)).tolist()
        return Change(places=tuple(places), values=special) if first else Change()

    return floats


NORMAL = Kind("normal", _changed(1.0))
"""The operands that the kernel is measured on, as they are."""

KINDS = (
    Kind("offset by a thousand", _changed(1.0, 1e3, of="first"), is_far=True, matters=True),
    Kind("zero", _changed(0.0, of="first"), shrinks=True),
    Kind("ascending", _sloped(-3, 3)),
    Kind("masked", _of_first(_half_masked), is_finite=False, matters=True),
    Kind("subnormal", _of_first(_subnormal), shrinks=True, matters=True),
    Kind("skewed", _skewed, _of_array(equal), matters=True),
    Kind("offset by minus thirty thousand", _changed(1.0, -3e4, of="first"), is_far=True),
    Kind("large", _changed(100.0, of="first"), is_far=True, matters=True),
    Kind("differently skewed", _skewed, _of_array(zipf)),
    Kind("descending", _sloped(3, -3)),
    Kind("offset by a million", _changed(1.0, 1e6, of="first"), is_far=True),
    Kind("constant", _changed(0.0, 1.1, of="first")),
    Kind("positive", _changed(1.0, 8.0, of="first")),
    Kind("negative", _changed(1.0, -8.0, of="first")),
    Kind("otherwise offset", _changed(1.0, 8.0, of="others")),
    Kind("NaN", _with(*[np.nan] * 8), is_finite=False),
    Kind("infinite", _with(np.inf, -np.inf), is_finite=False, may_spread=True),
    Kind("small", _changed(1e-6), shrinks=True),
    Kind("all zero", _changed(0.0), shrinks=True),
    Kind("one-hot", _of_first(_one_hot)),
    Kind("all large", _changed(100.0), is_judged=False),
)
"""In the order in which they find what others before them do not: a wrong kernel is refused after few."""
