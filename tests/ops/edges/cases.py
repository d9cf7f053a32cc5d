"""Operands at the edges of their types and shapes, made from the rows of the operations.

A case is one row of an operation on operands of one element type, shape and filling. Shapes: the row's own, none, one
element, 10^5 elements. Fillings: NaN, infinities, the largest and smallest numbers among ordinary ones. Layouts: how the
same elements may lie in the memory of the caller.
"""

import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from tests.ops.composed_rows import COMPOSED
from tests.ops.edges.exceptions import DIFFERENT, ONE_SHAPE
from tests.ops.operands import Shape, draw
from tests.ops.rows import ROWS, Row
from tests.suite.share import part

from pcp.ir import DType
from pcp.ir.types import COMPUTING

EVERY = ROWS | COMPOSED
MANY = 100_000

DAILY = tuple(map(DType, ("bool", "i8", "bf16", "f32", "c64")))
"""The element types of the quick part; the long one takes all."""

Fill = Callable[[np.random.Generator, Any, DType], Any]
WIDE = {"float": np.float64, "complex": np.complex128}


def _some(rng: np.random.Generator, x: Any, values: Sequence[Any]) -> Any:
    """A fifth of the elements, at least one, replaced by some of the values."""
    if not x.size or not values:
        return x
    given = np.asarray(values, x.dtype)
    places = rng.random(x.shape) < 0.2
    places.reshape(-1)[rng.integers(x.size)] = True
    filled = np.where(places, rng.choice(given, x.shape), x)
    if len(given) == 2 and x.size > 1:  # both of them, so that they meet each other in another operand
        filled.reshape(-1)[rng.permutation(x.size)[:2]] = given
    return filled


def _nan(rng: np.random.Generator, x: Any, dtype: DType) -> Any:
    return _some(rng, x, [np.nan] if dtype.is_differentiable else [])


def _infinite(rng: np.random.Generator, x: Any, dtype: DType) -> Any:
    return _some(rng, x, [np.inf, -np.inf] if dtype.is_float else [])


def _extreme(rng: np.random.Generator, x: Any, dtype: DType) -> Any:
    """One largest float, since two would overflow in one order and not in another; the smallest, zeros; any integers."""
    if dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        return _some(rng, x, [limits.min, limits.max, limits.max - 1, 0, 1, limits.max // 2])
    if not dtype.is_float or not x.size:
        return x
    limits = ml_dtypes.finfo(dtype.numpy)
    mixed = _some(rng, x, [limits.tiny, -limits.tiny, 0.0, -0.0]).copy()
    mixed.reshape(-1)[rng.integers(x.size)] = limits.max * rng.choice([-1, 1])
    return mixed


FILLS: dict[str, Fill] = {"nan": _nan, "infinite": _infinite, "extreme": _extreme}
FILLED: dict[str, Callable[[DType], bool]] = {
    "nan": lambda dtype: dtype.is_differentiable,
    "infinite": lambda dtype: dtype.is_float,
    "extreme": lambda dtype: dtype.is_float or dtype.is_integer,
}
"""Which element types a filling changes anything of."""


def _strided(x: Any) -> Any:
    if not x.ndim:
        return x
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1] + 1), x.dtype)
    wide[..., 1::2] = x
    return wide[..., 1::2]


def _fortran(x: Any) -> Any:
    return np.asfortranarray(x[::-1].copy())[::-1] if x.ndim else x


def _other_byte_order(x: Any) -> Any:
    return x if x.dtype == DType.bf16.numpy else x.astype(x.dtype.newbyteorder())


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "strided": _strided,
    "columns first and backwards": _fortran,
    "big-endian": _other_byte_order,
}


@dataclass(frozen=True)
class Case:
    """One call of an operation, with what NumPy makes of it in a wider type."""

    label: str
    row: Row
    dtype: DType
    fill: str
    operands: list[Any]
    expected: Any


SIZES = ("own", "empty", "one", "many")
"""Which shapes a case has: those of its row, or others made of them."""


def _resized(shapes: Sequence[Shape], size: Callable[[int], int]) -> tuple[Shape, ...]:
    return tuple(tuple(size(n) for n in shape) for shape in shapes)


def _sizes(row: Row) -> dict[str, tuple[Shape, ...]]:
    """The shapes of a row's last case made empty, of one element, and of about 10^5: equal sizes stay equal."""
    shapes = max(row.shapes, key=lambda shapes: sum(map(len, shapes)))
    if row.shapes[0] == ((),) * len(shapes):  # any shape goes
        vector = ((0,),) * len(shapes)
        return {
            "empty": vector,
            "one": _resized(vector, lambda _: 1),
            "many": _resized(vector, lambda _: MANY),
        }
    largest = max((n for shape in shapes for n in shape), default=1)
    many = min(
        int(
            (MANY / max(1, np.prod([n for n in shape if n != largest]))) ** (1 / max(1, shape.count(largest)))
        )
        for shape in shapes
    )
    return {
        "empty": _resized(shapes, lambda _: 0),
        "one": _resized(shapes, lambda _: 1),
        "many": _resized(shapes, lambda n: many if n == largest else n),
    }


def _made(row: Row, shapes: tuple[Shape, ...], dtype: DType, fill: str, rng: np.random.Generator) -> Any:
    operands = (
        row.operands(rng, shapes, dtype)
        if row.operands is not None
        else [draw(rng, shape, dtype, row.low, row.high) for shape in shapes]
    )
    if fill in FILLS:
        operands = [FILLS[fill](rng, np.asarray(x), dtype) if x.dtype == dtype.numpy else x for x in operands]
    wide = [
        x.astype(WIDE[dtype.kind]) if x.dtype == dtype.numpy and dtype.kind in WIDE else x for x in operands
    ]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of means of nothing
        return operands, row.reference(*wide)


@dataclass(frozen=True)
class _Place:
    """Where a case stands in the table of its operation."""

    label: str
    row: Row
    dtype: DType
    fill: str
    size: str
    shapes: tuple[Shape, ...]

    def case(self) -> Case | None:
        """The case, if NumPy takes such shapes."""
        rng = np.random.default_rng(zlib.crc32(self.label.encode()))
        try:
            operands, expected = _made(self.row, self.shapes, self.dtype, self.fill, rng)
        except (ValueError, IndexError, ZeroDivisionError, TypeError):
            return None
        return Case(self.label, self.row, self.dtype, self.fill, operands, expected)


def cases_of(name: str, thorough: bool, of: int = 1, sizes: Sequence[str] = SIZES) -> Iterator[Case]:
    """The cases of an operation; thorough: in every element type, with every filling of every shape.

    Arguments:
        of: how many parts the table has, of which this run's share is one, with every shape and filling in it.
        sizes: those of the table that are wanted.
    """
    table = [place for place in _places(name, thorough) if place.size in sizes]
    kinds = dict.fromkeys((place.size, place.fill) for place in table)
    chosen = [
        place
        for kind in kinds
        for place in part(
            (each for each in table if (each.size, each.fill) == kind), of, lambda each: each.label
        )
    ]
    found = False
    for place in [*chosen, *(each for each in table if each not in chosen)]:
        if found and place not in chosen:
            return
        case = place.case()
        if case is not None:
            found = True
            yield case


def _places(name: str, thorough: bool) -> Iterator[_Place]:
    for number, row in enumerate(EVERY[name]):
        for dtype in COMPUTING if thorough else DAILY:
            if dtype.kind not in row.kinds:
                continue
            plain = {"own": max(row.shapes, key=lambda shapes: sum(map(len, shapes)))}
            sizes = plain | (_sizes(row) if (thorough or number == 0) and name not in ONE_SHAPE else {})
            for size, shapes in sizes.items():
                fills = FILLS if size == "own" or thorough else ["extreme"]
                compared = [fill for fill in fills if (name, fill) not in DIFFERENT and FILLED[fill](dtype)]
                for fill in compared or ["ordinary"]:
                    if (name, fill) not in DIFFERENT:
                        label = f"{name}[{number}] {dtype} {size} {fill} {shapes}"
                        yield _Place(label, row, dtype, fill, size, shapes)


def same(one: Any, other: Any) -> bool:
    """Whether two arrays hold the same numbers, where NaN is one."""
    left, right = np.asarray(one), np.asarray(other)
    if left.dtype != right.dtype:
        return False
    if left.dtype.kind in "biu":
        return bool((left == right).all())
    return np.array_equal(left.astype(np.complex128), right.astype(np.complex128), equal_nan=True)
