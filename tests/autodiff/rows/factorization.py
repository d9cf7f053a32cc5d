"""Rows for the Cholesky factorisation, triangular systems and sorting."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import solve_triangular

from pcp import ops
from tests.autodiff.rows.row import Array, Domain, Row, from_text, normal


def _definite(*shape: int) -> Domain:
    def draw(random: np.random.Generator) -> Array:
        x = random.normal(size=shape)
        return x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1])

    return draw


def _triangular(*shape: int) -> Domain:
    return lambda random: random.normal(size=shape) + 3 * np.eye(shape[-1])


def _from_lower(x: Any) -> Any:
    """JAX's factorisation of the symmetric matrix that has the lower triangle of x."""
    return jnp.linalg.cholesky(jnp.tril(x) + jnp.swapaxes(jnp.tril(x, -1), -1, -2), symmetrize_input=False)


def _solve_row(lower: bool, transposed: bool, unit: bool, *shapes: tuple[int, ...]) -> Row:
    return Row(
        "triangular_solve",
        lambda a, b: ops.triangular_solve(a, b, lower, transposed, unit),
        lambda a, b: solve_triangular(a, b, trans=int(transposed), lower=lower, unit_diagonal=unit),
        [_triangular(*shapes[0]), normal(*shapes[1])],
    )


UPPER = """
func.func public @main(%x: tensor<3x3xf64>) -> tensor<3x3xf64> {
  %0 = stablehlo.cholesky %x, lower = false : tensor<3x3xf64>
  %1 = stablehlo.iota dim = 0 : tensor<3x3xi32>
  %2 = stablehlo.iota dim = 1 : tensor<3x3xi32>
  %3 = stablehlo.compare LE, %1, %2 : (tensor<3x3xi32>, tensor<3x3xi32>) -> tensor<3x3xi1>
  %4 = stablehlo.constant dense<0.0> : tensor<3x3xf64>
  %5 = stablehlo.select %3, %0, %4 : tensor<3x3xi1>, tensor<3x3xf64>
  return %5 : tensor<3x3xf64>
}"""

RIGHT = """
func.func public @main(%a: tensor<3x3xf64>, %b: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %0 = "stablehlo.triangular_solve"(%a, %b) {left_side = false, lower = true, unit_diagonal = false,
    transpose_a = #stablehlo<transpose TRANSPOSE>} : (tensor<3x3xf64>, tensor<2x3xf64>) -> tensor<2x3xf64>
  return %0 : tensor<2x3xf64>
}"""

SORT = """
func.func public @main(%x: tensor<3x5xf64>, %y: tensor<3x5xf64>) -> (tensor<3x5xf64>, tensor<3x5xf64>) {
  %0:2 = "stablehlo.sort"(%x, %y) ({
    ^bb0(%a: tensor<f64>, %b: tensor<f64>, %c: tensor<f64>, %d: tensor<f64>):
      %1 = stablehlo.compare GT, %a, %b : (tensor<f64>, tensor<f64>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
  }) {dimension = 1 : i64, is_stable = true} : (tensor<3x5xf64>, tensor<3x5xf64>) -> (tensor<3x5xf64>, tensor<3x5xf64>)
  return %0#0, %0#1 : tensor<3x5xf64>, tensor<3x5xf64>
}"""

TOP_K = """
func.func public @main(%x: tensor<3x5xf64>) -> tensor<3x2xf64> {
  %values, %indices = chlo.top_k(%x, k = 2) : tensor<3x5xf64> -> (tensor<3x2xf64>, tensor<3x2xi32>)
  return %values : tensor<3x2xf64>
}"""


def _sorted_down(x: Any, y: Any) -> Any:
    minus, others = lax.sort((-x, y), num_keys=1)
    return -minus, others


FACTORIZATION = [
    Row("cholesky", ops.cholesky, _from_lower, [_definite(3, 3)]),
    Row("cholesky", ops.cholesky, _from_lower, [_definite(2, 4, 4)]),
    Row("cholesky", from_text(UPPER), lambda x: _from_lower(x.T).T, [_definite(3, 3)], float32=False),
    _solve_row(True, False, False, (3, 3), (3, 2)),
    _solve_row(False, True, False, (2, 3, 3), (2, 3, 2)),
    _solve_row(True, True, True, (3, 3), (3, 2)),
    _solve_row(False, False, True, (3, 3), (3, 1)),
    Row(
        "triangular_solve",
        from_text(RIGHT),
        lambda a, b: solve_triangular(a, b.T, lower=True).T,
        [_triangular(3, 3), normal(2, 3)],
        float32=False,
    ),
    Row("sort", from_text(SORT), _sorted_down, [normal(3, 5), normal(3, 5)], float32=False),
    Row("chlo.top_k", from_text(TOP_K), lambda x: lax.top_k(x, 2)[0], [normal(3, 5)], float32=False),
]
