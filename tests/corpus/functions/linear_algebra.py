"""Products in every arrangement, factorizations, solutions, matrix functions."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import linalg

from tests.corpus.arguments import definite, distinct, invertible, normal, together
from tests.corpus.case import Case

_SQUARE = invertible((4, 4))
_BATCH = invertible((2, 3, 3))


def _symmetric(x):
    return (x + jnp.swapaxes(x, -1, -2)) / 2


def _dot_general(x, y):
    return lax.dot_general(x, y, (((3, 0), (1, 3)), ((1,), (2,))))


def _reflections(x, t):
    product = jnp.eye(4)
    for k in range(3):
        vector = jnp.where(jnp.arange(4) > k, x[:, k], 0.0).at[k].set(1.0)
        product = product @ (jnp.eye(4) - t[k] * jnp.outer(vector, vector))
    return product[:, :3]


def _eigh(x):
    values, vectors = jnp.linalg.eigh(_symmetric(x))
    return values, vectors**2


def _svd(x):
    left, values, right = jnp.linalg.svd(x, full_matrices=False)
    return left**2, values, right**2


CASES = [
    Case("matrix_vector", lambda a, x: a @ x, normal((3, 4), (4,)), order=2),
    Case("vector_matrix", lambda x, a: x @ a, normal((3,), (3, 4))),
    Case("inner", jnp.inner, normal((2, 4), (3, 4)), order=2),
    Case("outer", jnp.outer, normal((3,), (4,)), order=2),
    Case("vector_dot", jnp.vdot, normal((5,), (5,))),
    Case("batched", lambda x, y: x @ y, normal((2, 3, 4), (2, 4, 5)), order=2),
    Case("batched_broadcast", lambda x, y: x @ y, normal((2, 1, 3, 4), (5, 4, 2))),
    Case("shared_matrix", lambda x, y: x @ y, normal((2, 3, 4), (4, 5))),
    Case("transposed", lambda x, y: x.T @ y.T, normal((4, 3), (5, 4))),
    Case("gram", lambda x: x.T @ x, normal((4, 3)), order=2),
    Case("tensordot", lambda x, y: jnp.tensordot(x, y, ((0, 2), (1, 0))), normal((2, 3, 4), (4, 2, 5))),
    Case("dot_general", _dot_general, normal((2, 3, 4, 5), (6, 5, 3, 2)), order=2),
    Case(
        "einsum_attention",
        lambda q, k, v: jnp.einsum("bhts,bshd->bthd", jnp.einsum("bthd,bshd->bhts", q, k), v),
        normal((2, 3, 2, 4), (2, 5, 2, 4), (2, 5, 2, 4)),
        order=2,
    ),
    Case("einsum_trace", lambda x, y: jnp.einsum("ij,ji->", x, y), normal((3, 4), (4, 3))),
    Case("einsum_diagonal", lambda x: jnp.einsum("bii->bi", x), normal((2, 3, 3)), order=2),
    Case(
        "einsum_three",
        lambda x, y, z: jnp.einsum("ab,bc,cd->ad", x, y, z),
        normal((2, 3), (3, 4), (4, 5)),
        order=2,
    ),
    Case("einsum_repeated_output", lambda x, y: jnp.einsum("ij,jk->ki", x, y), normal((3, 4), (4, 5))),
    Case("einsum_outer", lambda x, y: jnp.einsum("i,jk->jik", x, y), normal((2,), (3, 4))),
    Case(
        "einsum_ellipsis",
        lambda x, y: jnp.einsum("...ij,...jk->...ik", x, y),
        normal((2, 1, 3, 4), (5, 4, 2)),
    ),
    Case("multi_dot", lambda x, y, z: jnp.linalg.multi_dot([x, y, z]), normal((2, 5), (5, 3), (3, 4))),
    Case("kronecker", jnp.kron, normal((2, 3), (3, 2)), order=2),
    Case("cross", jnp.cross, normal((4, 3), (4, 3)), order=2),
    Case("trace", lambda x: jnp.trace(x, 1) * x, normal((4, 4))),
    Case("matrix_power", lambda x: jnp.linalg.matrix_power(x, 5), normal((3, 3)), order=2),
    Case("inverse_power", lambda x: jnp.linalg.matrix_power(x, -2), _SQUARE),
    Case("vandermonde", lambda x: jnp.vander(x, 4), normal((3,))),
    Case("convolve", lambda x, y: jnp.convolve(x, y, mode="same"), normal((7,), (3,)), order=2),
    Case("correlate", lambda x, y: jnp.correlate(x, y, mode="full"), normal((7,), (3,))),
    Case("cholesky", lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(4)), normal((4, 4)), order=2),
    Case("cholesky_batched", lambda x: jnp.linalg.cholesky(_symmetric(x)), definite((2, 3, 3))),
    Case("cholesky_upper", lambda x: linalg.cholesky(x @ x.T + jnp.eye(4)), normal((4, 4))),
    Case("solve", jnp.linalg.solve, together(_SQUARE, normal((4, 2))), order=2),
    Case("solve_vector", jnp.linalg.solve, together(_SQUARE, normal((4,)))),
    Case("solve_batched", jnp.linalg.solve, together(_BATCH, normal((2, 3, 2)))),
    Case(
        "solve_positive",
        lambda a, b: linalg.solve(_symmetric(a), b, assume_a="pos"),
        together(definite((4, 4)), normal((4, 2))),
    ),
    Case(
        "cholesky_solve",
        lambda a, b: linalg.cho_solve((jnp.linalg.cholesky(_symmetric(a)), True), b),
        together(definite((4, 4)), normal((4, 2))),
    ),
    Case(
        "triangular_solve",
        lambda a, b: linalg.solve_triangular(a, b, lower=True),
        together(_SQUARE, normal((4, 2))),
        order=2,
    ),
    Case(
        "triangular_solve_transposed",
        lambda a, b: linalg.solve_triangular(a, b, trans="T"),
        together(_SQUARE, normal((4, 2))),
    ),
    Case(
        "triangular_solve_unit",
        lambda a, b: linalg.solve_triangular(a, b, unit_diagonal=True),
        together(_SQUARE, normal((4,))),
    ),
    Case(
        "triangular_solve_right",
        lambda a, b: lax.linalg.triangular_solve(a, b, left_side=False, lower=True),
        together(_BATCH, normal((2, 4, 3))),
    ),
    Case("inverse", jnp.linalg.inv, _SQUARE, order=2),
    Case("inverse_batched", jnp.linalg.inv, _BATCH),
    Case("determinant", jnp.linalg.det, _SQUARE),
    Case("determinant_batched", jnp.linalg.det, _BATCH),
    Case("determinant_of_larger", jnp.linalg.det, invertible((5, 5))),
    Case("log_determinant", lambda x: jnp.linalg.slogdet(x)[1], _SQUARE, order=2),
    Case("lu", lambda x: linalg.lu(x)[1:], _SQUARE),
    Case("lu_solve", lambda a, b: linalg.lu_solve(linalg.lu_factor(a), b), together(_SQUARE, normal((4,)))),
    Case("qr", lambda x: jnp.linalg.qr(x)[1], normal((5, 3))),
    Case("qr_both", jnp.linalg.qr, normal((4, 3)), order=2),
    Case("eigenvalues", lambda x: jnp.linalg.eigvalsh(_symmetric(x)), definite((4, 4))),
    Case("eigenvectors", _eigh, definite((4, 4)), order=2),
    Case("eigenvectors_batched", _eigh, definite((2, 3, 3))),
    Case("singular_values", lambda x: jnp.linalg.svd(x, compute_uv=False), normal((4, 3))),
    Case(
        "singular_vectors",
        _svd,
        normal((4, 3)),
        tolerance=1e-9,
        note="near singular values divide by their difference",
    ),
    Case("nuclear_norm", lambda x: jnp.linalg.norm(x, "nuc"), normal((4, 3))),
    Case("spectral_norm", lambda x: jnp.linalg.norm(x, 2), normal((4, 3))),
    Case(
        "pseudo_inverse",
        jnp.linalg.pinv,
        normal((4, 3)),
        tolerance=1e-9,
        note="JAX's rule is another formula",
    ),
    Case(
        "least_squares",
        lambda a, b: jnp.linalg.lstsq(a, b)[0],
        normal((5, 3), (5,)),
        tolerance=1e-9,
        note="through singular vectors",
    ),
    Case(
        "normal_equations",
        lambda a, b: jnp.linalg.solve(a.T @ a + 0.1 * jnp.eye(3), a.T @ b),
        normal((5, 3), (5,)),
        order=2,
    ),
    Case("matrix_exponential", linalg.expm, lambda rng: (rng.normal(size=(3, 3)) / 3,)),
    Case("condition_number", jnp.linalg.cond, _SQUARE),
    Case("toeplitz", lambda c: linalg.toeplitz(c) @ c, normal((4,))),
    Case("block_diagonal", lambda x, y: linalg.block_diag(x, y), normal((2, 3), (3, 2))),
    Case("power_iteration", lambda x: _power_iteration(_symmetric(x)), definite((4, 4))),
    Case("newton_schulz", lambda x: _newton_schulz(x), normal((3, 4)), order=2),
    Case("gaussian_process", lambda x, y: _gaussian_process(x, y), normal((5, 2), (5,)), order=2),
    Case(
        "attention_scores",
        lambda q, k: jax.nn.softmax(q @ k.T / np.sqrt(4.0)),
        normal((3, 4), (5, 4)),
        order=2,
    ),
    Case(
        "tridiagonal_solve",
        lax.linalg.tridiagonal_solve,
        lambda rng: (
            *rng.normal(size=(1, 4)),
            rng.uniform(4, 5, 4),
            rng.normal(size=4),
            rng.normal(size=(4, 2)),
        ),
    ),
    Case("matrix_square_root", lambda x: _square_root(_symmetric(x)), definite((3, 3))),
    Case(
        "householder_product",
        lambda x, t: lax.linalg.householder_product(x, t),
        normal((4, 3), (3,)),
        reference=_reflections,
    ),
    Case("sorted_eigen_gap", lambda x: jnp.diff(jnp.linalg.eigvalsh(_symmetric(x))), definite((4, 4))),
    Case(
        "pairwise_distances",
        lambda x, y: jnp.sqrt(((x[:, None] - y[None]) ** 2).sum(-1)),
        distinct((4, 3), (5, 3)),
        order=2,
    ),
]


def _power_iteration(x):
    vector = jnp.ones(4) / 2
    for _ in range(5):
        vector = x @ vector
        vector = vector / jnp.linalg.norm(vector)
    return vector @ x @ vector


def _newton_schulz(x):
    x = x / jnp.linalg.norm(x)
    for _ in range(3):
        gram = x @ x.T
        x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
    return x


def _gaussian_process(x, y):
    kernel = jnp.exp(-((x[:, None] - x[None]) ** 2).sum(-1)) + 0.1 * jnp.eye(5)
    factor = jnp.linalg.cholesky(kernel)
    half = linalg.solve_triangular(factor, y, lower=True)
    return half @ half / 2 + jnp.log(jnp.diag(factor)).sum()


def _square_root(x):
    values, vectors = jnp.linalg.eigh(x)
    return vectors * jnp.sqrt(values) @ vectors.T
