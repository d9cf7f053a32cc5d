"""Rows for gathers, scatters and dynamic slices."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from pcp import backends
from pcp.ops.indexing import blocks
from tests.autodiff.rows.row import Row, from_text, normal

ROWS_OF_TABLE = np.array([[0, 3, 3], [-1, 2, 0]])

# Windows of two columns, some beyond the edge; a gather clamps those.
WINDOWS = """func.func @main(%x: tensor<4x5xf64>) -> tensor<2x3x2xf64> {
  %i = stablehlo.constant dense<[[1, 3], [-2, 4], [9, 0]]> : tensor<3x2xi32>
  %r = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 2], start_index_map = [0, 1],
    index_vector_dim = 1>, slice_sizes = array<i64: 2, 2>}> : (tensor<4x5xf64>, tensor<3x2xi32>) -> tensor<2x3x2xf64>
  return %r : tensor<2x3x2xf64> }"""

BATCHED = """func.func @main(%x: tensor<3x5xf64>) -> tensor<3x4xf64> {
  %i = stablehlo.constant dense<[[1, 3, 3, 0], [4, 2, 0, 0], [1, 1, 1, 2]]> : tensor<3x4xi32>
  %r = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1],
    operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>,
    slice_sizes = array<i64: 1, 1>}> : (tensor<3x5xf64>, tensor<3x4xi32>) -> tensor<3x4xf64>
  return %r : tensor<3x4xf64> }"""


def _windows(x: Any) -> Any:
    starts = [(1, 3), (0, 3), (2, 0)]
    return jnp.stack([x[i : i + 2, j : j + 2] for i, j in starts], 1)


def scatter_text(body: str, unique: bool = False, indices: str = "[[2], [0], [2], [4]]") -> str:
    """A scatter of four rows into a table of four; the last index lies outside."""
    return f"""func.func @main(%x: tensor<4x3xf64>, %u: tensor<4x3xf64>) -> tensor<4x3xf64> {{
      %i = stablehlo.constant dense<{indices}> : tensor<4x1xi32>
      %r = "stablehlo.scatter"(%x, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
        inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>,
        unique_indices = {str(unique).lower()}}}> ({{
      ^bb0(%a: tensor<f64>, %b: tensor<f64>):
        {body}
      }}) : (tensor<4x3xf64>, tensor<4x1xi32>, tensor<4x3xf64>) -> tensor<4x3xf64>
      return %r : tensor<4x3xf64> }}"""


ADD = "%c = stablehlo.add %a, %b : tensor<f64>\n stablehlo.return %c : tensor<f64>"
MULTIPLY = "%c = stablehlo.multiply %a, %b : tensor<f64>\n stablehlo.return %c : tensor<f64>"
REPLACE = "stablehlo.return %b : tensor<f64>"
DISTINCT = "[[3], [0], [2], [4]]"
TABLES = (normal(4, 3), normal(4, 3))

# Of windows for one place the last stays, where they are written one after another; a GPU promises no order.
LAST_WINS = Row(
    "scatter",
    from_text(scatter_text(REPLACE)),
    lambda x, u: x.at[np.array([0, 2])].set(u[1:3]),
    TABLES,
    float32=False,
)

BATCHED_SCATTER = """func.func @main(%x: tensor<3x5xf64>, %u: tensor<3x4xf64>) -> tensor<3x5xf64> {
  %i = stablehlo.constant dense<[[1, 3, 3, 0], [4, 2, 0, 0], [1, 1, 1, 2]]> : tensor<3x4xi32>
  %r = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [1],
    input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1],
    index_vector_dim = 2>}> ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %c = stablehlo.add %b, %a : tensor<f64>
    stablehlo.return %c : tensor<f64>
  }) : (tensor<3x5xf64>, tensor<3x4xi32>, tensor<3x4xf64>) -> tensor<3x5xf64>
  return %r : tensor<3x5xf64> }"""

INDEXING = [
    Row("gather", lambda x: x[ROWS_OF_TABLE], None, [normal(4, 3)]),
    Row("gather", lambda x: x[:, ROWS_OF_TABLE, :, np.array([[1], [0]])], None, [normal(2, 4, 3, 2)]),
    Row("gather", lambda x: x[ROWS_OF_TABLE] * x[1], None, [normal(4, 3)]),
    Row("gather", from_text(WINDOWS), _windows, [normal(4, 5)], float32=False),
    Row(
        "gather",
        from_text(BATCHED),
        lambda x: jnp.take_along_axis(x, np.array([[1, 3, 3, 0], [4, 2, 0, 0], [1, 1, 1, 2]]), 1),
        [normal(3, 5)],
        float32=False,
    ),
    Row(
        "scatter",
        from_text(scatter_text(ADD)),
        lambda x, u: x.at[np.array([2, 0, 2])].add(u[:3]),
        TABLES,
        float32=False,
    ),
    *([LAST_WINS] if backends.device().kind == "cpu" else []),
    Row(
        "scatter",
        from_text(scatter_text(REPLACE, True, DISTINCT)),
        lambda x, u: x.at[np.array([3, 0, 2])].set(u[:3]),
        TABLES,
        float32=False,
    ),
    Row(
        "scatter",
        from_text(scatter_text(MULTIPLY, True, DISTINCT)),
        lambda x, u: x.at[np.array([3, 0, 2])].multiply(u[:3], unique_indices=True),
        TABLES,
        float32=False,
    ),
    Row(
        "scatter",
        from_text(BATCHED_SCATTER),
        lambda x, u: x.at[np.arange(3)[:, None], np.array([[1, 3, 3, 0], [4, 2, 0, 0], [1, 1, 1, 2]])].add(u),
        [normal(3, 5), normal(3, 4)],
        float32=False,
    ),
    Row(
        "dynamic_slice",
        lambda x: blocks.dynamic_slice(x, (1, 9), (2, 3)) + blocks.dynamic_slice(x, (0, 1), (2, 3)),
        lambda x: x[1:3, 2:5] + x[:2, 1:4],
        [normal(3, 5)],
    ),
    Row(
        "dynamic_update_slice",
        lambda x, u: blocks.dynamic_update_slice(x, u, (1, 9)),
        lambda x, u: x.at[1:3, 2:5].set(u),
        [normal(3, 5), normal(2, 3)],
    ),
]
