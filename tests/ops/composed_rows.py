"""Rows, as in `rows.py`, for the operations that are composed of others."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tests.ops.families.rows import FAMILIES
from tests.ops.operands import Shape, draw
from tests.ops.rows import ALL, FLOATS, NUMBERS, PAIRS, VECTORS, Row

from pcp import ops
from pcp.ir import DType

SIGNED = ("signed", "float")
INEXACT = ("float", "complex")
SUMMABLE = ("signed", "unsigned", "float", "complex")
MATRIX: tuple[tuple[Shape, ...], ...] = (((3, 4),), ((4, 3),), ((2, 3, 3),), ((0, 3),))
CUBE: tuple[tuple[Shape, ...], ...] = (((2, 3, 4),),)
ROWS_OF: tuple[tuple[Shape, ...], ...] = (((3, 7),), ((2, 0),))


def _with_gaps(rng: np.random.Generator, shapes: Sequence[Shape], dtype: DType) -> list[Any]:
    """Floats among which are NaN and infinities."""
    x = draw(rng, shapes[0], dtype, -2, 2)
    if dtype.is_float and x.size > 3:
        x.reshape(-1)[:3] = np.asarray([math.nan, math.inf, -math.inf], x.dtype)
    return [x]


def _with_ties(rng: np.random.Generator, shapes: Sequence[Shape], dtype: DType) -> list[Any]:
    """Elements of which many are equal, so that the order of equal ones shows."""
    return [np.round(draw(rng, shapes[0], dtype, -3, 3).astype(np.float64)).astype(dtype.numpy)]


def _places(rng: np.random.Generator, shapes: Sequence[Shape], dtype: DType) -> list[Any]:
    x = draw(rng, shapes[0], dtype, -9, 9)
    return [x, rng.integers(-3, 3, shapes[1]).astype(np.int32)]


def _distinct_places(rng: np.random.Generator, shapes: Sequence[Shape], dtype: DType) -> list[Any]:
    x, values = draw(rng, shapes[0], dtype, -9, 9), draw(rng, shapes[1], dtype, -9, 9)
    order = np.argsort(rng.random((shapes[0][0], shapes[1][1], shapes[0][2])), 1)
    return [x, order[: shapes[1][0], :, : shapes[1][2]].astype(np.int32), values]


def _put(x: Any, places: Any, values: Any) -> Any:
    result = x.copy()
    np.put_along_axis(result, places, values.astype(x.dtype), 1)
    return result


def _added(x: Any, places: Any, values: Any) -> Any:
    result = x.copy()
    np.add.at(result, places, values)
    return result


def _scatter_operands(rng: np.random.Generator, shapes: Sequence[Shape], dtype: DType) -> list[Any]:
    x, values = draw(rng, shapes[0], dtype, -3, 3), draw(rng, shapes[2], dtype, -3, 3)
    return [x, rng.integers(-3, 3, shapes[1]).astype(np.int32), values]


def _set_last(x: Any, values: Any) -> Any:
    result = x.copy()
    result[1:, ::-2] = values
    return result


def _positive_definite(rng: np.random.Generator, shapes: Sequence[Shape], dtype: DType) -> list[Any]:
    x = draw(rng, shapes[0], DType.c128 if dtype.kind == "complex" else DType.f64, -1, 1)
    x = x @ np.conj(np.swapaxes(x, -1, -2)) + 2 * np.eye(shapes[0][-1])
    rest = [draw(rng, shape, dtype, -1, 1) for shape in shapes[1:]]
    return [x.astype(dtype.numpy), *rest]


def _triangular(rng: np.random.Generator, shapes: Sequence[Shape], dtype: DType) -> list[Any]:
    x = draw(rng, shapes[0], dtype, -1, 1) + (3 * np.eye(shapes[0][-1])).astype(dtype.numpy)
    return [x.astype(dtype.numpy), draw(rng, shapes[1], dtype, -1, 1)]


def _ordered_row(rng: np.random.Generator, shapes: Sequence[Shape], dtype: DType) -> list[Any]:
    row = np.sort(_with_ties(rng, shapes[:1], dtype)[0].astype(np.float64)).astype(dtype.numpy)
    return [row, _with_ties(rng, shapes[1:], dtype)[0]]


def _from_largest(x: Any, axis: int) -> Any:
    """The order from the largest to the smallest, equal ones as they stand; no integer is rounded."""
    return np.argsort(~x if x.dtype.kind in "biu" else -x, axis, kind="stable")


def _top(x: Any, k: int) -> Any:
    places = _from_largest(x, 1)[:, :k]
    return np.take_along_axis(x, places, 1), places


def _cumulative(function: Any) -> list[Row]:
    return [
        Row(
            lambda x: getattr(ops, function[0])(x, -1),
            lambda x: function[1](x, -1),
            ROWS_OF,
            function[2],
            0.5,
            1.5,
            ulps=60,
        ),
        Row(
            lambda x: getattr(ops, function[0])(x, 0, reverse=True),
            lambda x: function[1](x[::-1], 0)[::-1],
            (((9, 2),),),
            function[2],
            0.5,
            1.5,
            ulps=60,
        ),
    ]


def _unary(name: str, reference: Any, low: float, high: float, kinds: tuple[str, ...] = FLOATS) -> list[Row]:
    return [Row(getattr(ops, name), reference, VECTORS, kinds, low, high, ulps=32)]


COMPOSED: dict[str, list[Row]] = {
    "exp2": _unary("exp2", np.exp2, -4, 4),
    "log2": _unary("log2", np.log2, 0.1, 9),
    "log10": _unary("log10", np.log10, 0.1, 9),
    "softplus": _unary("softplus", lambda x: np.logaddexp(x, 0), -9, 9),
    "round": [Row(ops.round, np.round, VECTORS, NUMBERS, -9, 9)],
    "trunc": _unary("trunc", np.trunc, -9, 9, NUMBERS),
    "conj": _unary("conj", np.conj, -9, 9, SUMMABLE),
    "is_nan": [Row(ops.is_nan, np.isnan, (((2, 3),),), ALL, operands=_with_gaps)],
    "is_inf": [Row(ops.is_inf, np.isinf, (((2, 3),),), ALL, operands=_with_gaps)],
    "nan_to_num": [
        Row(
            lambda x: ops.nan_to_num(x, nan=0.5)[..., :1],
            lambda x: np.nan_to_num(x, nan=0.5)[..., :1],
            (((1, 5),),),
            FLOATS,
            operands=_with_gaps,
        )
    ],
    "logical_and": [Row(ops.logical_and, np.logical_and, PAIRS, ALL, -1, 1)],
    "logical_or": [Row(ops.logical_or, np.logical_or, PAIRS, ALL, -1, 1)],
    "logical_not": [Row(ops.logical_not, np.logical_not, kinds=ALL, low=-1, high=1)],
    "logical_xor": [Row(ops.logical_xor, np.logical_xor, PAIRS, ALL, -1, 1)],
    "logaddexp": [Row(ops.logaddexp, np.logaddexp, PAIRS, FLOATS, -5, 5, ulps=16)],
    "hypot": [Row(ops.hypot, np.hypot, PAIRS, FLOATS, -5, 5, ulps=16)],
    "isclose": [
        Row(lambda x: ops.isclose(x, x + 1, atol=0.5), lambda x: np.isclose(x, x + 1, atol=0.5), kinds=FLOATS),
        Row(lambda x: ops.isclose(x, x), lambda x: np.isclose(x, x), (((2, 3),),), FLOATS, operands=_with_gaps),
    ],
    "full_like": [Row(lambda x: ops.full_like(x, 1), np.ones_like)],
    "zeros_like": [Row(lambda x: ops.zeros_like(x, "i8"), lambda x: np.zeros_like(x, np.int8))],
    "ones_like": [Row(ops.ones_like, np.ones_like)],
    "arange": [
        Row(lambda x: ops.arange(2, 17, 3, x.dtype), lambda _: np.arange(2, 17, 3), (((),),), NUMBERS),
        Row(lambda _: ops.arange(9, 2, -2), lambda _: np.arange(9, 2, -2), (((),),), FLOATS),
        Row(lambda x: ops.arange(0.5, 3, 0.25, x.dtype), lambda _: np.arange(0.5, 3, 0.25), (((),),), FLOATS),
        Row(lambda x: ops.arange(3, 1, dtype=x.dtype), lambda _: np.arange(3, 1), (((),),), NUMBERS),
    ],
    "linspace": [
        Row(lambda x, y: ops.linspace(x, y, 7, dtype=x.dtype), lambda x, y: np.linspace(x, y, 7), (((), ()),), FLOATS),
        Row(
            lambda x, y: ops.linspace(x, y, 4, False, dtype=x.dtype),
            lambda x, y: np.linspace(x, y, 4, endpoint=False),
            (((), ()),),
            FLOATS,
        ),
        Row(lambda x: ops.linspace(x, 9, 1, dtype=x.dtype), lambda x: np.linspace(x, 9, 1), (((),),), FLOATS),
    ],
    "eye": [Row(lambda x: ops.eye(3, 4, 1, x.dtype), lambda _: np.eye(3, 4, 1), (((),),), ALL)],
    "meshgrid": [
        Row(ops.meshgrid, np.meshgrid, (((3,), (4,), (2,)),)),
        Row(
            lambda x, y: ops.meshgrid(x, y, indexing="ij"),
            lambda x, y: np.meshgrid(x, y, indexing="ij"),
            (((3,), (4,)),),
        ),
    ],
    "flip": [Row(lambda x: ops.flip(x, 1), lambda x: np.flip(x, 1), CUBE)],
    "moveaxis": [
        Row(lambda x: ops.moveaxis(x, 0, -1), lambda x: np.moveaxis(x, 0, -1), CUBE),
        Row(lambda x: ops.moveaxis(x, (2, 0), (0, 1)), lambda x: np.moveaxis(x, (2, 0), (0, 1)), CUBE),
    ],
    "ravel": [Row(ops.ravel, np.ravel)],
    "roll": [
        Row(lambda x: ops.roll(x, 2), lambda x: np.roll(x, 2), (((2, 3),), ((0, 3),))),
        Row(lambda x: ops.roll(x, (-1, 5), (0, 2)), lambda x: np.roll(x, (-1, 5), (0, 2)), CUBE),
    ],
    "tile": [
        Row(lambda x: ops.tile(x, (2, 1, 3)), lambda x: np.tile(x, (2, 1, 3)), (((2, 2),), ((),), ((2, 0),))),
        Row(lambda x: ops.tile(x, 2), lambda x: np.tile(x, 2), CUBE),
    ],
    "repeat": [
        Row(lambda x: ops.repeat(x, 3, 1), lambda x: np.repeat(x, 3, 1), CUBE),
        Row(lambda x: ops.repeat(x, 2), lambda x: np.repeat(x, 2), CUBE),
    ],
    "unstack": [Row(lambda x: ops.unstack(x, 1), lambda x: tuple(np.moveaxis(x, 1, 0)), CUBE)],
    "diff": [Row(lambda x: ops.diff(x, axis=1), lambda x: np.diff(x, axis=1), CUBE, SIGNED)],
    "broadcast_arrays": [
        Row(ops.broadcast_arrays, lambda x, y: np.broadcast_arrays(x, y), (((3, 1), (4,)), ((), (2,))))
    ],
    "prod": [Row(lambda x: ops.prod(x, 1), lambda x: np.prod(x, 1), CUBE, SUMMABLE, 0.5, 1.5, ulps=40)],
    "std": [
        Row(lambda x: ops.std(x, 1), lambda x: np.std(x, 1), CUBE, FLOATS, ulps=40),
        Row(lambda x: ops.std(x, correction=1), lambda x: np.std(x, ddof=1), CUBE, FLOATS, ulps=40),
    ],
    "count_nonzero": [
        Row(lambda x: ops.count_nonzero(x, 1), lambda x: np.count_nonzero(x, 1), CUBE, ALL, operands=_with_ties)
    ],
    "median": [
        Row(lambda x: ops.median(x, 1), lambda x: np.median(x, 1), (((2, 5),), ((2, 6),)), NUMBERS),
        Row(lambda x: ops.median(x, keepdims=True), lambda x: np.median(x, keepdims=True), CUBE, FLOATS),
        Row(lambda x: ops.is_nan(ops.median(x)), lambda x: np.isnan(np.median(x)), (((2, 3),),), FLOATS, operands=_with_gaps),
    ],
    "quantile": [
        Row(lambda x: ops.quantile(x, 0.3, 0, True), lambda x: np.quantile(x, 0.3, 0, keepdims=True), CUBE, FLOATS),
        Row(lambda x: ops.quantile(x, 1.0, 0), lambda x: np.quantile(x, 1.0, 0), CUBE, FLOATS),
    ],
    "sort": [
        Row(ops.sort, np.sort, ROWS_OF, ALL, operands=_with_ties),
        Row(lambda x: ops.sort(x, 0, descending=True), lambda x: np.sort(x, 0)[::-1], ROWS_OF, ALL, operands=_with_ties),
    ],
    "argsort": [
        Row(ops.argsort, lambda x: np.argsort(x, kind="stable"), ROWS_OF, ALL, operands=_with_ties),
        Row(
            lambda x: ops.argsort(x, 0, descending=True),
            lambda x: _from_largest(x, 0),
            ROWS_OF,
            ALL,
            operands=_with_ties,
        ),
    ],
    "top_k": [
        Row(lambda x: ops.top_k(x, 3), lambda x: _top(x, 3), (((4, 7),), ((1, 3),)), ALL, operands=_with_ties),
        Row(
            lambda x: ops.top_k(x, 2, 0),
            lambda x: tuple(part.T for part in _top(x.T, 2)),
            (((7, 4),),),
            ALL,
            operands=_with_ties,
        ),
    ],
    "searchsorted": [
        Row(
            lambda x, y, s=side: ops.searchsorted(x, y, s),
            lambda x, y, s=side: np.searchsorted(x, y, s),
            (((9,), (3, 5)), ((0,), (2,))),
            ALL,
            operands=_ordered_row,
        )
        for side in ("left", "right")
    ],
    "take_along_axis": [
        Row(
            lambda x, i: ops.take_along_axis(x, i, 1),
            lambda x, i: np.take_along_axis(x, i, 1),
            (((2, 3, 4), (2, 5, 4)), ((2, 3), (1, 4)), ((2, 3), (2, 0))),
            operands=_places,
        )
    ],
    "put_along_axis": [
        Row(
            lambda x, i, v: ops.put_along_axis(x, i, v, 1),
            _put,
            (((3, 5, 4), (3, 2, 4)),),
            operands=_distinct_places,
        )
    ],
    "scatter_add": [
        Row(ops.scatter_add, _added, (((4, 3), (2, 2), (2, 2, 3)), ((4,), (6,), (6,))), NUMBERS, operands=_scatter_operands)
    ],
    "scatter_set": [
        Row(
            lambda x, v: ops.scatter_set(x, np.array([2, 0]), v, 1),
            lambda x, v: np.stack([v[:, 1], x[:, 1], v[:, 0]], 1),
            (((4, 3), (4, 2)),),
        )
    ],
    "index_update": [
        Row(lambda x, v: ops.index_update(x, (slice(1, None), slice(None, None, -2)), v), _set_last, (((4, 5), (3, 3)),))
    ],
    "cumsum": _cumulative(("cumsum", np.cumsum, SUMMABLE)),
    "cumprod": _cumulative(("cumprod", np.cumprod, FLOATS)),
    "cummax": _cumulative(("cummax", np.maximum.accumulate, NUMBERS)),
    "cummin": _cumulative(("cummin", np.minimum.accumulate, NUMBERS)),
    "logcumsumexp": _cumulative(("logcumsumexp", np.logaddexp.accumulate, FLOATS)),
    "tril": [Row(lambda x: ops.tril(x, 1), lambda x: np.tril(x, 1), MATRIX)],
    "triu": [Row(lambda x: ops.triu(x, -1), lambda x: np.triu(x, -1), MATRIX)],
    "diagonal": [
        Row(ops.diagonal, np.diagonal, MATRIX),
        Row(lambda x: ops.diagonal(x, -1, 0, 2), lambda x: np.diagonal(x, -1, 0, 2), CUBE),
    ],
    "diag": [
        Row(lambda x: ops.diag(x, 1), lambda x: np.diag(x, 1), (((3,),), ((3, 4),))),
        Row(lambda x: ops.diag(x, -2), lambda x: np.diag(x, -2), (((3,),), ((4, 3),))),
    ],
    "trace": [Row(ops.trace, np.trace, MATRIX[:3], SUMMABLE)],
    "outer": [Row(ops.outer, np.outer, (((3,), (4,)), ((2, 2), ()),), SUMMABLE)],
    "inner": [Row(ops.inner, np.inner, (((3,), (3,)), ((2, 3), (4, 3)), ((), (2,))), SUMMABLE, ulps=40)],
    "tensordot": [
        Row(ops.tensordot, np.tensordot, (((2, 3, 4), (3, 4, 5)),), SUMMABLE, ulps=60),
        Row(
            lambda x, y: ops.tensordot(x, y, ((0, -1), (1, 0))),
            lambda x, y: np.tensordot(x, y, ((0, -1), (1, 0))),
            (((2, 3, 4), (4, 2, 5)),),
            SUMMABLE,
            ulps=60,
        ),
    ],
    "norm": [
        Row(
            lambda x, o=order: ops.norm(x, o, 1),
            lambda x, o=order: np.linalg.norm(x, o, 1),
            CUBE,
            INEXACT,
            0.5,
            3,
            ulps=40,
        )
        for order in (0, 1, 2, 3, math.inf, -math.inf)
    ],
    "cholesky": [
        Row(
            lambda x: ops.cholesky(x if x.dtype.itemsize > 2 else x.astype("f32")),
            np.linalg.cholesky,
            (((3, 3),), ((2, 4, 4),)),
            INEXACT,
            operands=_positive_definite,
            ulps=4000,
        ),
    ],
    "triangular_solve": [
        Row(
            lambda a, b: ops.triangular_solve(a.astype("f64"), b.astype("f64"), lower=False, transposed=True),
            lambda a, b: np.linalg.solve(np.triu(a).swapaxes(-1, -2), b),
            (((3, 3), (3, 2)), ((2, 4, 4), (2, 4, 1))),
            FLOATS,
            operands=_triangular,
        ),
        Row(
            lambda a, b: ops.triangular_solve(a.astype("f64"), b.astype("f64"), unit_diagonal=True),
            lambda a, b: np.linalg.solve(np.tril(a, -1) + np.eye(3), b),
            (((3, 3), (3, 2)),),
            FLOATS,
            operands=_triangular,
        ),
    ],
    "cholesky_solve": [
        Row(
            lambda a, b: ops.cholesky_solve(a.astype("c128"), b.astype("c128")),
            np.linalg.solve,
            (((3, 3), (3, 2)),),
            ("complex",),
            operands=_positive_definite,
        )
    ],
}  # fmt: skip

# Those that take functions or windows, and the collectives: see test_control_flow.py, test_convolution.py, test_collectives.py.
TESTED_ELSEWHERE = {
    "while_loop", "fori_loop", "scan", "cond", "switch",
    "conv_general", "conv1d", "conv2d", "conv3d", "conv_transpose", "max_pool", "avg_pool", "reduce_window",
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute",
    "tap",
    # Families of NumPy's functions: see test_numpy_defaults.py.
    *FAMILIES, "minmax", "cross", "dot", "kron", "matrix_transpose", "matvec", "vdot", "vecdot", "vecmat",
}  # fmt: skip
