"""Rows for scatters with every kind of body, and for select_and_scatter."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.autodiff.rows.indexing import DISTINCT, MULTIPLY, TABLES, scatter_text
from tests.autodiff.rows.row import Row, between, from_text, normal, of_jax

PLACES = np.array([2, 0, 2, 1])

# a + b + a b: another product, (1 + a)(1 + b) - 1, that is no single operation.
PRODUCT_OF_SUCCESSORS = """%s = stablehlo.add %a, %b : tensor<f64>
  %p = stablehlo.multiply %a, %b : tensor<f64>
  %c = stablehlo.add %s, %p : tensor<f64>
  stablehlo.return %c : tensor<f64>"""

SUBTRACT = "%c = stablehlo.subtract %a, %b : tensor<f64>\n stablehlo.return %c : tensor<f64>"

TWO_TENSORS = """func.func @main(%x: tensor<3x5xf64>, %y: tensor<3x5xf64>, %u: tensor<3x4xf64>, %v: tensor<3x4xf64>)
    -> (tensor<3x5xf64>, tensor<3x5xf64>) {
  %i = stablehlo.constant dense<[[1, 3, 3, 9], [4, 2, 0, 0], [1, 1, 1, 2]]> : tensor<3x4xi32>
  %r:2 = "stablehlo.scatter"(%x, %y, %i, %u, %v) <{scatter_dimension_numbers = #stablehlo.scatter<
    inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0],
    scatter_dims_to_operand_dims = [1], index_vector_dim = 2>}> ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>, %c: tensor<f64>, %d: tensor<f64>):
    %e = stablehlo.add %a, %d : tensor<f64>
    %f = stablehlo.multiply %b, %c : tensor<f64>
    stablehlo.return %e, %f : tensor<f64>, tensor<f64>
  }) : (tensor<3x5xf64>, tensor<3x5xf64>, tensor<3x4xi32>, tensor<3x4xf64>, tensor<3x4xf64>)
    -> (tensor<3x5xf64>, tensor<3x5xf64>)
  return %r#0, %r#1 : tensor<3x5xf64>, tensor<3x5xf64> }"""


def _two_tensors(x: Any, y: Any, u: Any, v: Any) -> Any:
    for row, places in enumerate([[1, 3, 3, 9], [4, 2, 0, 0], [1, 1, 1, 2]]):
        for column, place in enumerate(places):
            if place < 5:
                x = x.at[row, place].add(v[row, column])
                y = y.at[row, place].multiply(u[row, column], unique_indices=True)
    return x, y


def _products(x: Any, u: Any) -> Any:
    return x * jnp.stack([u[1], jnp.ones(3), u[0] * u[2], jnp.ones(3)])


def _products_of_successors(x: Any, u: Any) -> Any:
    return _products(1 + x, 1 + u) - 1


def _pooled(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (2, 3), (1, 2), [(1, 0), (0, 1)])


def _gradient_of_pooling(x: Any) -> Any:
    return jax.grad(lambda x: (_pooled(x) ** 3).sum())(x)


LARGEST_OF_SOURCES = """func.func @main(%x: tensor<4xf64>, %s: tensor<3xf64>, %i: tensor<f64>) -> tensor<4xf64> {
  %r = "stablehlo.select_and_scatter"(%x, %s, %i) <{window_dimensions = array<i64: 2>, window_strides = array<i64: 1>}> ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %p = stablehlo.compare GE, %a, %b : (tensor<f64>, tensor<f64>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }, {
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %m = stablehlo.multiply %a, %b : tensor<f64>
    stablehlo.return %m : tensor<f64>
  }) : (tensor<4xf64>, tensor<3xf64>, tensor<f64>) -> tensor<4xf64>
  return %r : tensor<4xf64> }"""


def _products_of_sources(x: Any, s: Any, i: Any) -> Any:
    kept = [jnp.arange(3) + (x[1:] > x[:-1]) == k for k in range(4)]
    return i * jnp.stack([jnp.prod(jnp.where(mask, s, 1)) for mask in kept])


SCATTERS = [
    Row(
        "scatter",
        from_text(scatter_text(SUBTRACT)),
        lambda x, u: x.at[np.array([2, 0, 2])].add(-u[:3]),
        TABLES,
        float32=False,
    ),
    of_jax("scatter", lambda x, u: x.at[PLACES].max(u), *TABLES),
    of_jax("scatter", lambda x, u: x.at[PLACES].min(u), *TABLES, long=True),
    Row("scatter", from_text(scatter_text(MULTIPLY)), _products, TABLES, float32=False),
    Row(
        "scatter",
        from_text(scatter_text(PRODUCT_OF_SUCCESSORS)),
        _products_of_successors,
        TABLES,
        float32=False,
    ),
    Row(
        "scatter",
        from_text(scatter_text(PRODUCT_OF_SUCCESSORS, True, DISTINCT)),
        lambda x, u: x.at[np.array([3, 0, 2])].set((1 + x[np.array([3, 0, 2])]) * (1 + u[:3]) - 1),
        TABLES,
        float32=False,
    ),
    Row(
        "scatter",
        from_text(TWO_TENSORS),
        _two_tensors,
        [normal(3, 5), normal(3, 5), normal(3, 4), normal(3, 4)],
        float32=False,
    ),
    of_jax("select_and_scatter", _gradient_of_pooling, normal(4, 5)),
    Row(
        "select_and_scatter",
        from_text(LARGEST_OF_SOURCES),
        _products_of_sources,
        [normal(4), between(0.5, 2, 3), between(0.5, 2)],
        float32=False,
    ),
]
