"""`pcp.linalg` beside NumPy, and its gradients beside JAX, in float64."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp.tensor import ShapeMismatch, WrongArgument

RNG = np.random.default_rng(3)
A = RNG.normal(size=(2, 4, 4)) + 2 * np.eye(4)
TALL = RNG.normal(size=(2, 5, 3))
WIDE = RNG.normal(size=(3, 5))
B = RNG.normal(size=(4, 3))
V = RNG.normal(size=4)
H = A @ A.swapaxes(-1, -2) + np.eye(4)
C = A + 1j * RNG.normal(size=A.shape)
HC = C @ np.conj(C.swapaxes(-1, -2)) + np.eye(4)
LOW = np.tril(A)
RANK2 = TALL[0][:, :2] @ RNG.normal(size=(2, 4))

SAME: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("solve", (A, B), {}), ("solve", (A, V), {}), ("solve", (C, B), {}), ("inv", (A,), {}), ("inv", (C,), {}),
    ("det", (A,), {}),
    ("det", (C,), {}), ("slogdet", (A,), {}), ("slogdet", (C,), {}), ("cholesky", (H,), {}), ("cholesky", (HC,), {}),
    ("cholesky", (H,), {"upper": True}), ("eigvalsh", (H,), {}), ("eigvalsh", (HC,), {}), ("svdvals", (TALL,), {}),
    ("norm", (TALL,), {}), ("norm", (V,), {}), ("norm", (V, 3), {}), ("norm", (A, None, 1), {}), ("norm", (A, 1, -1, True), {}),
    *[("norm", (TALL, order, (-2, -1)), {}) for order in (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)],
    ("norm", (A, 2, (0, 1), True), {}), ("norm", (WIDE, "nuc"), {}), ("matrix_norm", (A,), {"ord": 1}),
    ("vector_norm", (A,), {"axis": 1, "ord": 3}), ("matrix_power", (A, 5), {}), ("matrix_power", (A, -2), {}),
    ("matrix_power", (A, 0), {}), ("multi_dot", ([WIDE.T, WIDE, TALL[0], B[:3]],), {}),
    ("multi_dot", ([V, B, WIDE[:, 0]],), {}),
    ("cond", (A,), {}), ("cond", (A, 1), {}), ("cond", (A, -2), {}), ("matrix_rank", (RANK2,), {}), ("matrix_rank", (A,), {}),
    ("pinv", (TALL,), {}), ("pinv", (RANK2,), {}), ("pinv", (C,), {}), ("lstsq", (TALL[0], WIDE[:, :1].repeat(5, 0)[:5]), {}),
    ("lstsq", (TALL[1], V.repeat(2)[:5]), {}), ("lstsq", (RANK2, TALL[0]), {}), ("cross", (WIDE.T, TALL[0]), {}),
    ("diagonal", (TALL,), {"offset": -1}), ("trace", (A,), {}), ("tensorsolve", (A[0].reshape(4, 2, 2), V), {}),
    ("tensorinv", (A[0].reshape(4, 2, 2),), {"ind": 1}), ("matrix_transpose", (TALL,), {}), ("outer", (V, V), {}),
    ("vecdot", (C, A), {}), ("tensordot", (A, B), {"axes": 1}), ("matmul", (A, B), {}),
]  # fmt: skip


def computed(function: Callable[..., Any], *given: Any) -> Any:
    """What a function of Tensors makes, compiled."""
    return pcp.plan(pcp.trace(function, *given), "cpu:0", cache=False).run(*given)


def test_values_are_those_of_numpy() -> None:
    given = [arguments for _, arguments, _ in SAME]
    tensors = [[e for e in each if isinstance(e, np.ndarray | list)] for each in given]

    def everything(tensors: Any) -> list[Any]:
        made = []
        for (name, arguments, named), some in zip(SAME, tensors, strict=True):
            ready = iter(some)
            filled = [next(ready) if isinstance(e, np.ndarray | list) else e for e in arguments]
            made.append(getattr(pcp.linalg, name)(*filled, **named))
        return made

    with np.errstate(all="ignore"):
        for (name, arguments, named), mine in zip(SAME, computed(everything, tensors), strict=True):
            if name == "lstsq":
                named = {**named, "rcond": None}
            theirs = getattr(np.linalg, name)(*arguments, **named)
            many = isinstance(theirs, tuple)
            if name == "lstsq" and theirs[2] < len(theirs[0]):  # shapes do not say so
                mine, theirs = (mine[0], *mine[2:]), (theirs[0], *theirs[2:])
            for a, b in zip(mine if many else [mine], theirs if many else [theirs], strict=True):
                assert np.shape(a) == np.shape(b), (name, np.shape(a), np.shape(b))
                np.testing.assert_allclose(
                    np.asarray(a), b, rtol=1e-9, atol=1e-9, err_msg=f"{name} {arguments[1:]} {named}"
                )


def test_decompositions_multiply_to_what_was_given() -> None:
    def everything(a: Any, tall: Any, wide: Any, h: Any, hc: Any) -> Any:
        linalg = pcp.linalg
        q, r = linalg.qr(tall)
        full_q, full_r = linalg.qr(wide.T, "complete")
        u, s, vh = linalg.svd(tall, full_matrices=False)
        whole = linalg.svd(wide)
        w, v = linalg.eigh(h)
        wc, vc = linalg.eigh(hc, "U", symmetrize_input=False)
        e, x = linalg.eig(a)
        ev = pcp.expand_dims(e, 1)
        return (
            (q @ r, tall), (q.mT @ q, pcp.broadcast_to(pcp.eye(3), (2, 3, 3))), (full_q @ full_r, wide.T),
            (linalg.qr(tall, "r"), r),
            ((u * s[:, None]) @ vh, tall), ((whole.U * whole.S) @ whole.Vh[:3], wide), (h @ v, v * w[:, None]),
            (hc @ vc, vc * wc[:, None].astype("c128")), (a.astype("c128") @ x, x * ev), (linalg.eigvals(a), e),
            (linalg.svd(tall, compute_uv=False), s),
        )  # fmt: skip

    for number, (mine, wanted) in enumerate(computed(everything, A, TALL, WIDE, H, HC)):
        np.testing.assert_allclose(np.asarray(mine), np.asarray(wanted), atol=1e-9, err_msg=str(number))


def test_triangular_systems_are_those_of_jax() -> None:
    def everything(solve: Any, a: Any, b: Any, v: Any, c: Any) -> Any:
        return (
            solve(a, b, lower=True), solve(a, b, trans=1, lower=True), solve(a, b), solve(a, b, unit_diagonal=True),
            solve(a, v, trans="T"), solve(c, b, trans="C", lower=True), solve(c, b, trans=2),
        )  # fmt: skip

    given = (A[0], B, V, C[0])
    found = computed(lambda *a: everything(pcp.linalg.solve_triangular, *a), *given)
    with jax.enable_x64(True):
        wanted = everything(jax.scipy.linalg.solve_triangular, *map(jnp.asarray, given))
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(mine), theirs, rtol=1e-9)


def loss(xp: Any, a: Any, tall: Any, h: Any, b: Any) -> Any:
    """A loss that passes through every decomposition, in a form that signs and phases do not change."""
    linalg = xp.linalg
    q, r = linalg.qr(tall)
    u, s, _ = linalg.svd(tall, full_matrices=False)
    w, v = linalg.eigh(h)
    sign, logarithm = linalg.slogdet(a)
    parts = [
        linalg.solve(a, b), linalg.inv(a), linalg.det(a), logarithm * sign, linalg.cholesky(h),
        q * xp.sign(xp.diagonal(r, 0, 1, 2))[:, None],
        r * r, s, (u * s[:, None] ** 2) @ xp.swapaxes(u, 1, 2),
        w, (v * w[:, None] ** 3) @ xp.swapaxes(v, 1, 2),
        linalg.eigvalsh(h),
        linalg.pinv(tall), linalg.norm(a), linalg.norm(tall, 2, (1, 2)), linalg.norm(tall, "nuc", (1, 2)), linalg.cond(a),
        linalg.matrix_power(a, 3), linalg.matrix_power(a, -1), linalg.multi_dot([b, b.T, a[0]]),
        linalg.lstsq(tall[0], tall[1])[0],
    ]  # fmt: skip
    return sum(xp.sum(xp.tanh(part)) for part in parts)


def test_gradients_are_those_of_jax() -> None:
    given = (A, TALL, H, B)
    program = pcp.grad(pcp.trace(lambda *x: loss(pcp, *x), *given), wrt=(0, 1, 2, 3))
    mine = pcp.plan(program, "cpu:0", cache=False).run(*given)
    with jax.enable_x64(True):
        theirs = jax.jit(jax.grad(lambda *x: loss(jnp, *x), argnums=(0, 1, 2, 3)))(*given)
    for number, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-6, atol=1e-7, err_msg=str(number))


def test_polynomials_are_fitted_and_their_zeros_found() -> None:
    x, y = RNG.normal(size=9), RNG.normal(size=(9, 2))
    p, w = np.array([2.0, -3, 0.5, 1]), RNG.uniform(1, 2, 9)
    fitted, columns, weighted, zeros = computed(
        lambda x, y, p, w: (
            pcp.polyfit(x, y[:, 0], 3),
            pcp.polyfit(x, y, 2),
            pcp.polyfit(x, y, 2, w=w),
            pcp.roots(p),
        ),
        x,
        y,
        p,
        w,
    )
    np.testing.assert_allclose(fitted, np.polyfit(x, y[:, 0], 3), rtol=1e-8)
    np.testing.assert_allclose(columns, np.polyfit(x, y, 2), rtol=1e-8)
    np.testing.assert_allclose(weighted, np.polyfit(x, y, 2, w=w), rtol=1e-8)
    np.testing.assert_allclose(np.sort_complex(np.asarray(zeros)), np.sort_complex(np.roots(p)), rtol=1e-9)


def test_outside_of_a_trace_they_compute_at_once() -> None:
    np.testing.assert_allclose(pcp.linalg.solve(A, B), np.linalg.solve(A, B), rtol=1e-9)
    np.testing.assert_allclose(pcp.linalg.svd(TALL).S, np.linalg.svd(TALL).S, rtol=1e-9)
    assert pcp.linalg.det(np.eye(2, dtype=np.int32) * 3).dtype == "f32"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: pcp.linalg.solve(A, WIDE), ShapeMismatch, r"solve: a of shape .* expected b with 4 rows"),
        (lambda: pcp.linalg.inv(TALL), ShapeMismatch, r"inv: shape \(2, 5, 3\) was given; expected square matrices"),
        (lambda: pcp.linalg.svd(V), ShapeMismatch, r"svd: shape \(4,\) was given; expected at least two axes"),
        (lambda: pcp.linalg.qr(A, "raw"), WrongArgument, "qr: mode 'raw' was given; expected 'reduced'"),
        (lambda: pcp.linalg.norm(A[0], 7), WrongArgument, "norm: ord = 7 was given for matrices; expected None, 'fro'"),
        (lambda: pcp.linalg.norm(V, "fro"), WrongArgument, "norm: ord = 'fro' was given for vectors"),
        (lambda: pcp.linalg.eigh(A, "X"), WrongArgument, "eigh: UPLO = 'X' was given; expected 'L' or 'U'"),
        (lambda: pcp.linalg.lstsq(A[0], V[:3]), ShapeMismatch, r"lstsq: shapes \(4, 4\) and \(3,\) were given"),
        (lambda: pcp.linalg.multi_dot([A[0]]), ShapeMismatch, "multi_dot: shapes .* expected two matrices or more"),
        (lambda: pcp.linalg.solve_triangular(A, B, trans=7), WrongArgument, "solve_triangular: trans = 7 was given"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_explained(
    call: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()
