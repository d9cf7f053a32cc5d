"""Rows for convolutions and for reductions over windows."""

from typing import Any

import numpy as np
from jax import lax

from pcp import ops
from pcp.tensor import Tensor
from tests.autodiff.rows.row import Row, between, from_text, normal

NHWC = ("NHWC", "HWIO", "NHWC")


def _conv_row(x: tuple[int, ...], kernel: tuple[int, ...], orders: Any = NHWC, **options: Any) -> Row:
    count = len(x) - 2
    chosen: dict[str, Any] = {
        "strides": (1,) * count,
        "padding": [(0, 0)] * count,
        "input_dilation": (1,) * count,
        "kernel_dilation": (1,) * count,
        "groups": 1,
    } | options
    names = tuple(chosen.values())
    return Row(
        "convolution",
        lambda a, b: ops.conv_general(a, b, *names, orders=orders),
        lambda a, b: lax.conv_general_dilated(a, b, *names[:4], orders, names[4]),
        [normal(*x), normal(*kernel)],
    )


BATCH_GROUPS = """
func.func public @main(%x: tensor<6x5x2xf64>, %k: tensor<3x2x6xf64>) -> tensor<2x3x6xf64> {
  %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1]}
    {batch_group_count = 3 : i64, feature_group_count = 1 : i64}
    : (tensor<6x5x2xf64>, tensor<3x2x6xf64>) -> tensor<2x3x6xf64>
  return %0 : tensor<2x3x6xf64>
}"""

REVERSED = """
func.func public @main(%x: tensor<2x5x2xf64>, %k: tensor<3x2x4xf64>) -> tensor<2x3x4xf64> {
  %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {reverse = [1]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<2x5x2xf64>, tensor<3x2x4xf64>) -> tensor<2x3x4xf64>
  return %0 : tensor<2x3x4xf64>
}"""


def _window_row(reduction: str, *arguments: Any) -> Row:
    reducer, start = {
        "sum": (lax.add, 0.0),
        "max": (lax.max, -np.inf),
        "min": (lax.min, np.inf),
    }[reduction]
    return Row(
        "reduce_window",
        lambda x: ops.reduce_window(x, reduction, *arguments),
        lambda x: lax.reduce_window(x, start, reducer, *arguments),
        [normal(5, 7)],
        second_order=reduction == "sum",  # the gradient of the others is constant between kinks
    )


def _products(x: Tensor) -> Tensor:
    return ops.reduce_window(x, "product", (2, 2), 1, [(1, 0), (0, 0)])


WINDOWS = [
    _conv_row((2, 5, 6, 3), (3, 2, 3, 4)),
    _conv_row((2, 5, 6, 3), (3, 2, 3, 4), strides=(2, 3), padding=[(1, 2), (0, 1)], kernel_dilation=(1, 2)),
    _conv_row((2, 5, 6, 3), (3, 2, 3, 4), strides=(2, 1), padding=[(2, 2), (-1, 3)], input_dilation=(2, 3)),
    _conv_row((2, 5, 6, 4), (2, 2, 2, 6), groups=2, strides=(2, 1), padding=[(1, 0), (0, 0)]),
    _conv_row((2, 4, 3, 5), (6, 2, 2, 3), ("NCHW", "OIHW", "NCHW"), groups=2),
    _conv_row((4, 7, 2), (6, 3, 2), ("CNH", "OHI", "HNC"), groups=2),
    _conv_row((2, 3), (3, 4), ("NC", "IO", "NC")),
    Row(
        "convolution",
        from_text(BATCH_GROUPS),
        lambda x, k: _batch_groups(x, k),
        [normal(6, 5, 2), normal(3, 2, 6)],
        float32=False,
    ),
    Row(
        "convolution",
        from_text(REVERSED),
        lambda x, k: _plain(x, k[::-1]),
        [normal(2, 5, 2), normal(3, 2, 4)],
        float32=False,
    ),
    _window_row("sum", (2, 3), (1, 2), "VALID"),
    _window_row("sum", (3, 2), (2, 1), [(1, 2), (2, 0)], (2, 1), (1, 3)),
    _window_row("max", (2, 3), (1, 2), "VALID"),
    _window_row("max", (3, 2), (2, 1), [(1, 2), (1, 0)]),
    _window_row("min", (2, 2), (2, 2), "SAME"),
    Row(
        "reduce_window",
        _products,
        lambda x: _jax_products(x),
        [between(0.5, 1.5, 4, 3)],
    ),
]


def _plain(x: Any, k: Any) -> Any:
    return lax.conv_general_dilated(x, k, (1,), "VALID", dimension_numbers=("NHC", "HIO", "NHC"))


def _batch_groups(x: Any, k: Any) -> Any:
    return lax.conv_general_dilated(
        x, k, (1,), "VALID", dimension_numbers=("NHC", "HIO", "NHC"), batch_group_count=3
    )


def _jax_products(x: Any) -> Any:
    from jax import numpy as jnp

    whole = jnp.pad(x, [(1, 0), (0, 0)], constant_values=1)
    return whole[:-1, :-1] * whole[1:, :-1] * whole[:-1, 1:] * whole[1:, 1:]
