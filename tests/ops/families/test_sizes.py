"""Functions whose sizes must be said, and those that NumPy has otherwise, beside JAX; and what is said of kinds of arrays."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.ops.families.rows import COUNTS, FLAGS, N, X, Z

import pcp
from pcp import ops
from pcp.tensor import ShapeMismatch, WrongArgument

ROWS = np.random.default_rng(5).integers(0, 3, (9, 2)).astype(np.int32)
GAPS = np.where(COUNTS % 2, COUNTS, np.nan).astype(np.float32)
FEW = np.array([3, 1, 3, 8], np.int32)


def everything(xp: Any, x: Any, n: Any, counts: Any, flags: Any, rows: Any, gaps: Any) -> list[Any]:
    """The same calls of PCP and of JAX."""
    return [
        xp.nonzero(n, size=20), xp.nonzero(flags, size=4), xp.nonzero(n, size=14, fill_value=-1),
        xp.flatnonzero(flags, size=70),
        xp.nonzero(n, size=14, fill_value=(5, 6)), xp.argwhere(n > 0, size=8), xp.flatnonzero(flags, size=9, fill_value=7),
        xp.compress(flags[0, 0], x, 2, size=4, fill_value=9), xp.extract(flags, x, size=40, fill_value=-1),
        xp.unique(counts, size=4), xp.unique(counts, size=9), xp.unique(counts, size=9, fill_value=77), xp.unique(rows, size=9),
        xp.unique(counts, True, True, True, size=6), xp.unique(rows, True, True, True, axis=0, size=9, fill_value=-1),
        xp.unique(gaps, return_counts=True, size=6, fill_value=-1), xp.unique_values(counts, size=6),
        xp.unique_counts(counts, size=6), xp.unique_inverse(counts, size=6), xp.unique_all(counts, size=6),
        xp.union1d(counts, FEW, size=9), xp.intersect1d(counts, FEW, size=5), xp.setdiff1d(counts, FEW, size=6),
        xp.setxor1d(counts, FEW, size=9), xp.setdiff1d(counts, FEW, size=2, fill_value=9),
        xp.bincount(counts, length=4), xp.bincount(counts, minlength=9, length=9), xp.bincount(counts, gaps * 0 + 2, length=8),
        xp.take(x, n[0], 1, mode="clip"), xp.take(x, n[0], 1, mode="wrap"), xp.where(n, size=20), xp.repeat(x, 2, axis=1),
        xp.nanvar(x[..., :2], 2, ddof=2),
    ]  # fmt: skip


def test_functions_with_sizes_are_those_of_jax() -> None:
    given = (X, N, COUNTS, FLAGS, ROWS, GAPS)
    found = pcp.plan(pcp.trace(lambda *a: everything(ops, *a), *given), "arena:cpu").run(*given)
    wanted = jax.jit(lambda *a: everything(jnp, *a))(
        *given
    )  # one compilation instead of one for every operation
    for number, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
        many = isinstance(theirs, tuple)
        for a, b in zip(mine if many else [mine], theirs if many else [theirs], strict=True):
            assert np.shape(a) == np.shape(b), number
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=f"call {number}")


def test_what_numpy_writes_in_place_is_returned() -> None:
    tall = np.arange(15.0, dtype=np.float32).reshape(5, 3)
    cube = np.zeros((3, 3, 3), np.float32)
    for given, arguments in (
        (tall, (9.0,)),
        (tall, (9.0, True)),
        (tall.T.copy(), (np.float32([1, 2]),)),
        (cube, (4.0,)),
    ):
        wanted = given.copy()
        np.fill_diagonal(wanted, *arguments)
        np.testing.assert_array_equal(np.asarray(ops.fill_diagonal(given, *arguments)), wanted)


def test_partitions_are_in_order() -> None:
    for kth in (0, 2, [1, 3]):
        np.testing.assert_array_equal(ops.partition(X, kth, 1), np.sort(X, 1))
        np.testing.assert_array_equal(ops.argpartition(X, kth), np.argsort(X, -1))
    assert np.asarray(ops.empty((2, 3))).shape == (2, 3)
    assert np.asarray(ops.empty_like(X, "i8", (2,))).dtype == np.int8
    for mine, theirs in zip(ops.mask_indices(3, np.triu, 1), np.mask_indices(3, np.triu, 1), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_outside_of_a_trace_no_size_is_needed() -> None:
    for mine, theirs in (
        (pcp.unique(COUNTS), np.unique(COUNTS)), (pcp.unique(X, return_counts=True)[1], np.unique(X, return_counts=True)[1]),
        (pcp.nonzero(N)[1], np.nonzero(N)[1]), (pcp.flatnonzero(FLAGS), np.flatnonzero(FLAGS)),
        (pcp.argwhere(N), np.argwhere(N)),
        (pcp.union1d(COUNTS, FEW), np.union1d(COUNTS, FEW)), (pcp.extract(FLAGS, X), X[FLAGS]),
        (pcp.where(FLAGS)[0], np.where(FLAGS)[0]),
        (pcp.bincount(COUNTS), np.bincount(COUNTS)), (pcp.compress(FLAGS[0, 0], X, 2), np.compress(FLAGS[0, 0], X, 2)),
    ):  # fmt: skip
        assert isinstance(mine, pcp.Array)
        assert mine.dtype == ("f32" if theirs.dtype == np.float32 else "i32")
        np.testing.assert_array_equal(mine, theirs)


def test_the_smallest_and_the_largest_come_together() -> None:
    least, most = ops.minmax(X, 1, keepdims=True)
    np.testing.assert_array_equal(least, X.min(1, keepdims=True))
    np.testing.assert_array_equal(most, X.max(1, keepdims=True))


def test_kinds_are_said_without_a_trace() -> None:
    assert (pcp.shape(X), pcp.ndim([[1, 2]]), pcp.size(X), pcp.size(X, 1)) == ((3, 4, 5), 2, 60, 4)
    assert (pcp.iscomplexobj(Z), pcp.isrealobj(Z), pcp.isrealobj(1.0)) == (True, False, True)
    assert [pcp.isscalar(each) for each in (1.0, np.float32(1), X, "1", np.array(1))] == [
        True,
        True,
        False,
        False,
        True,
    ]
    assert pcp.broadcast_shapes((3, 1), (4,), 1) == (3, 4)
    assert pcp.promote_types("bf16", np.float16) == pcp.float32
    assert pcp.result_type(X, 1, "i64") == pcp.float32
    assert (pcp.result_type(N, 1.5), pcp.result_type(1, 2.0), pcp.result_type(N, 1)) == ("f32", "f32", "i32")
    assert pcp.astype(X, pcp.int32).dtype == "i32"
    said: list[Any] = []
    pcp.trace(lambda x: said.append((pcp.shape(x), pcp.ndim(x), pcp.size(x), pcp.result_type(x, 1))) or x, X)
    assert said == [((3, 4, 5), 3, 60, "f32")]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ops.unique(X), WrongArgument, r"unique: no size was given; expected unique\(..., size=n\)"),
        (lambda: ops.nonzero(X), WrongArgument, "nonzero: no size was given"),
        (lambda: ops.bincount(N), WrongArgument, r"bincount: no length was given; expected bincount\(x, length=n\)"),
        (lambda: ops.where(FLAGS), WrongArgument, r"where: no size was given; expected where\(..., size=n\)"),
        (lambda: ops.where(FLAGS, X), WrongArgument, r"where: a condition was given with one of x and y alone"),
        (lambda: ops.convolve(X, X), ShapeMismatch, "convolve: shapes .* were given; expected vectors, none empty"),
        (lambda: ops.pad(X, 1, "mean"), WrongArgument, "pad: mode 'mean' was given; expected one of constant, edge, reflect"),
        (lambda: ops.quantile(X, 0.5, method="cubic"), WrongArgument, "quantile: method 'cubic' was given"),
        (lambda: ops.var(X, ddof=1, correction=1), WrongArgument, "var: ddof = 1 and correction = 1 were given; .* give one"),
        (lambda: ops.take(X, N, mode="raise"), WrongArgument, "take: mode 'raise' was given; expected None, 'clip', 'wrap'"),
        (lambda: ops.piecewise(X, [FLAGS], [1.0, 2.0, 3.0]), WrongArgument, "piecewise: 3 functions were given for 1"),
        (lambda: ops.gradient(X[:1], axis=0), ShapeMismatch, "gradient: axis 0 of shape .* has 1 elements"),
        (lambda: ops.average(X, 1, X[0]), ShapeMismatch, "average: weights of shape .* were given for shape"),
        (lambda: ops.cross(X, X), ShapeMismatch, "cross: vectors of 5 and 5 elements were given; expected 2 or 3"),
    ],
)  # fmt: skip
def test_what_these_refuse_is_explained(
    call: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        pcp.trace(call)
