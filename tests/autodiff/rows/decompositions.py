"""Rows for the linear algebra of JAX on a CPU, which calls LAPACK."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.autodiff.rows.row import Array, Domain, Row, halves, normal, of_jax


def _call(name: str) -> str:
    return f"custom_call.lapack_{name}_ffi"


def _apart(*shape: int) -> Domain:
    """Matrices whose eigenvalues and singular values are well apart."""
    size = min(shape[-2:])

    def draw(random: np.random.Generator) -> Array:
        u, _, vh = np.linalg.svd(random.normal(size=shape), full_matrices=False)
        return u * np.arange(1.0, size + 1) @ vh

    return draw


def _definite(x: Any) -> Any:
    return x @ jnp.swapaxes(x.conj(), -1, -2) + jnp.eye(x.shape[-1])


def _squares_of_vectors(x: Any) -> Any:
    values, vectors = jnp.linalg.eigh(x)
    return values, vectors[..., :1, :] * vectors  # the sign of a vector is free


def _svd(x: Any) -> Any:
    u, s, vh = jnp.linalg.svd(x, full_matrices=False)
    sign = u[..., :1, :]
    return u * sign, s, vh * jnp.swapaxes(sign, -1, -2)


def _solved_from_the_right(way: int) -> Any:
    def function(a: Any, b: Any) -> Any:
        return lax.linalg.triangular_solve(
            a + 3 * jnp.eye(3, dtype=a.dtype),
            b,
            left_side=False,
            lower=True,
            transpose_a=way > 0,
            conjugate_a=way > 1,
        )

    return function


def _complex(rule: str, function: Any, *domains: Domain, **options: Any) -> Row:
    return of_jax(_call(rule), halves(function), *domains, float32=False, **options)


SMALL = {"float32": False}  # in float32 other vectors may come out

DECOMPOSITIONS = [
    of_jax(_call("dpotrf"), lambda x: jnp.linalg.cholesky(_definite(x)), normal(2, 3, 3)),
    of_jax(_call("dpotrf"), lambda x: jnp.linalg.cholesky(_definite(x), upper=True), normal(3, 3), long=True),
    _complex("zpotrf", lambda x: jnp.linalg.cholesky(_definite(x)), normal(3, 3), normal(3, 3)),
    of_jax(_call("dtrsm"), _solved_from_the_right(0), normal(3, 3), normal(2, 3)),
    _complex("ztrsm", _solved_from_the_right(2), normal(3, 3), normal(3, 3), normal(2, 3), normal(2, 3)),
    of_jax(_call("dgetrf"), jnp.linalg.slogdet, _apart(4, 4)),
    of_jax(_call("dgetrf"), jnp.linalg.solve, _apart(4, 4), normal(4, 2)),
    of_jax(_call("dgetrf"), jnp.linalg.inv, _apart(2, 3, 3), long=True),
    of_jax(_call("dgetrf"), jnp.linalg.det, _apart(4, 4), long=True),
    of_jax(_call("dgetrf"), lambda x: jax.scipy.linalg.lu(x)[1:], normal(5, 3), long=True),
    of_jax(_call("dgetrf"), lambda x: jax.scipy.linalg.lu(x)[1:], normal(3, 5), long=True),
    _complex("zgetrf", jnp.linalg.solve, *[normal(3, 3)] * 2, *[normal(3, 1)] * 2),
    of_jax(_call("dgeqrf"), jnp.linalg.qr, normal(5, 3)),
    of_jax(_call("dorgqr"), jnp.linalg.qr, normal(3, 3), long=True),
    of_jax(_call("dorgqr"), lambda x: jnp.linalg.qr(x, mode="complete"), normal(4, 2), long=True),
    of_jax(_call("dorgqr"), jnp.linalg.qr, normal(2, 3, 4)),
    _complex("zgeqrf", jnp.linalg.qr, normal(3, 3), normal(3, 3)),
    _complex("zungqr", jnp.linalg.qr, normal(4, 2), normal(4, 2), long=True),
    of_jax(_call("dsyevd"), _squares_of_vectors, _apart(4, 4), **SMALL),
    of_jax(_call("dsyevd"), lambda x: jnp.linalg.eigvalsh(x, UPLO="U"), _apart(2, 3, 3), long=True),
    _complex("zheevd", jnp.linalg.eigvalsh, _apart(3, 3), normal(3, 3)),
    of_jax(_call("dgesdd"), _svd, _apart(4, 3), **SMALL),
    of_jax(_call("dgesdd"), _svd, _apart(3, 4), **SMALL, long=True),
    of_jax(_call("dgesdd"), jnp.linalg.svdvals, _apart(3, 4)),
    of_jax(_call("dgesdd"), jnp.linalg.pinv, _apart(4, 3), long=True),
    _complex("zgesdd", jnp.linalg.svdvals, _apart(3, 3), normal(3, 3)),
    of_jax(
        _call("dgeev"),
        halves(lambda x: jnp.linalg.eigvals(x.real)),
        _apart(3, 3),
        normal(),
        second_order=False,  # which JAX refuses
        float32=False,
    ),
    _complex(
        "zgeev",
        lambda x: lax.linalg.eig(x, compute_left_eigenvectors=False, enable_eigvec_derivs=True),
        _apart(3, 3),
        normal(3, 3),
    ),
    of_jax(
        _call("dgtsv"),
        lambda low, mid, high, b: lax.linalg.tridiagonal_solve(low, mid + 4, high, b),
        *[normal(4)] * 3,
        normal(4, 2),
    ),
    _complex(
        "zgtsv",
        lambda low, mid, high, b: lax.linalg.tridiagonal_solve(low, mid + 4, high, b),
        *[normal(4)] * 6,
        *[normal(4, 2)] * 2,
        long=True,
    ),
]
