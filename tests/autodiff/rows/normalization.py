"""Rows for batch normalisation, maps, reductions over windows with other bodies, and operations of the past."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.autodiff.rows.row import Row, between, from_text, normal, of_jax

TRAINING = """func.func @main(%x: tensor<5x3x2xf64>, %s: tensor<3xf64>, %o: tensor<3xf64>)
    -> (tensor<5x3x2xf64>, tensor<3xf64>, tensor<3xf64>) {
  %r:3 = "stablehlo.batch_norm_training"(%x, %s, %o) <{epsilon = 0.01 : f32, feature_index = 1 : i64}>
    : (tensor<5x3x2xf64>, tensor<3xf64>, tensor<3xf64>) -> (tensor<5x3x2xf64>, tensor<3xf64>, tensor<3xf64>)
  return %r#0, %r#1, %r#2 : tensor<5x3x2xf64>, tensor<3xf64>, tensor<3xf64> }"""

INFERENCE = """func.func @main(%x: tensor<5x3xf64>, %s: tensor<3xf64>, %o: tensor<3xf64>, %m: tensor<3xf64>,
    %v: tensor<3xf64>) -> tensor<5x3xf64> {
  %r = "stablehlo.batch_norm_inference"(%x, %s, %o, %m, %v) <{epsilon = 0.01 : f32, feature_index = 1 : i64}>
    : (tensor<5x3xf64>, tensor<3xf64>, tensor<3xf64>, tensor<3xf64>, tensor<3xf64>) -> tensor<5x3xf64>
  return %r : tensor<5x3xf64> }"""

GRAD = """func.func @main(%x: tensor<5x3xf64>, %s: tensor<3xf64>, %g: tensor<5x3xf64>)
    -> (tensor<5x3xf64>, tensor<3xf64>, tensor<3xf64>) {
  %o = stablehlo.constant dense<0.0> : tensor<3xf64>
  %r:3 = "stablehlo.batch_norm_training"(%x, %s, %o) <{epsilon = 0.01 : f32, feature_index = 1 : i64}>
    : (tensor<5x3xf64>, tensor<3xf64>, tensor<3xf64>) -> (tensor<5x3xf64>, tensor<3xf64>, tensor<3xf64>)
  %d:3 = "stablehlo.batch_norm_grad"(%x, %s, %r#1, %r#2, %g) <{epsilon = 0.01 : f32, feature_index = 1 : i64}>
    : (tensor<5x3xf64>, tensor<3xf64>, tensor<3xf64>, tensor<3xf64>, tensor<5x3xf64>)
    -> (tensor<5x3xf64>, tensor<3xf64>, tensor<3xf64>)
  return %d#0, %d#1, %d#2 : tensor<5x3xf64>, tensor<3xf64>, tensor<3xf64> }"""

EPSILON = 0.009999999776482582  # as float32, which the attribute is


def _normalized(x: Any, s: Any, o: Any, m: Any, v: Any) -> Any:
    def wide(row: Any) -> Any:
        return row.reshape(1, -1, *[1] * (x.ndim - 2))

    return (x - wide(m)) / jnp.sqrt(wide(v) + EPSILON) * wide(s) + wide(o)


def _training(x: Any, s: Any, o: Any) -> Any:
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    mean, variance = x.mean(axes), x.var(axes)
    return _normalized(x, s, o, mean, variance), mean, variance


def _grad(x: Any, s: Any, g: Any) -> Any:
    _, pull_back = jax.vjp(lambda x, s, o: _training(x, s, o)[0], x, s, jnp.zeros(3, x.dtype))
    return pull_back(g)


MAP = """func.func @main(%x: tensor<2x3xf64>, %y: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %r = "stablehlo.map"(%x, %y) <{dimensions = array<i64: 0, 1>}> ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %two = stablehlo.constant dense<2.0> : tensor<f64>
    %c = stablehlo.multiply %a, %two : tensor<f64>
    %d = stablehlo.power %b, %c : tensor<f64>
    stablehlo.return %d : tensor<f64>
  }) : (tensor<2x3xf64>, tensor<2x3xf64>) -> tensor<2x3xf64>
  return %r : tensor<2x3xf64> }"""

LARGEST_AND_COMPANION = """func.func @main(%x: tensor<5xf64>, %y: tensor<5xf64>) -> (tensor<2xf64>, tensor<2xf64>) {
  %i = stablehlo.constant dense<0xFFF0000000000000> : tensor<f64>
  %j = stablehlo.constant dense<0.0> : tensor<f64>
  %r:2 = "stablehlo.reduce_window"(%x, %y, %i, %j) <{window_dimensions = array<i64: 3>, window_strides = array<i64: 2>}> ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>, %c: tensor<f64>, %d: tensor<f64>):
    %p = stablehlo.compare GT, %a, %c : (tensor<f64>, tensor<f64>) -> tensor<i1>
    %e = stablehlo.select %p, %a, %c : tensor<i1>, tensor<f64>
    %f = stablehlo.select %p, %b, %d : tensor<i1>, tensor<f64>
    stablehlo.return %e, %f : tensor<f64>, tensor<f64>
  }) : (tensor<5xf64>, tensor<5xf64>, tensor<f64>, tensor<f64>) -> (tensor<2xf64>, tensor<2xf64>)
  return %r#0, %r#1 : tensor<2xf64>, tensor<2xf64> }"""


def _companion(x: Any, y: Any) -> Any:
    tops = [x[:3], x[2:]]
    others = [y[:3], y[2:]]
    return jnp.stack([t.max() for t in tops]), jnp.stack(
        [o[t.argmax()] for t, o in zip(tops, others, strict=True)]
    )


EINSUM = """func.func @main(%x: tensor<3x4xf64>, %y: tensor<4x2xf64>) -> tensor<2x3xf64> {
  %r = "stablehlo.einsum"(%x, %y) <{einsum_config = "ab,bc->ca"}> : (tensor<3x4xf64>, tensor<4x2xf64>) -> tensor<2x3xf64>
  return %r : tensor<2x3xf64> }"""

SELECTED = """func.func @main(%x: tensor<3x4xf64>) -> tensor<3x2xf64> {
  %i = stablehlo.constant dense<[3, 1]> : tensor<2xi32>
  %r = "stablehlo.torch_index_select"(%x, %i) <{batch_dims = 0 : i64, dim = 1 : i64}>
    : (tensor<3x4xf64>, tensor<2xi32>) -> tensor<3x2xf64>
  return %r : tensor<3x2xf64> }"""

SHARDED = """func.func @main(%x: tensor<3xf64>) -> tensor<3xf64> {
  %y = stablehlo.multiply %x, %x : tensor<3xf64>
  %z = stablehlo.custom_call @Sharding(%y) {mhlo.sharding = "{replicated}"} : (tensor<3xf64>) -> tensor<3xf64>
  return %z : tensor<3xf64> }"""

NORMALIZATION = [
    Row(
        "batch_norm_training",
        from_text(TRAINING),
        _training,
        [normal(5, 3, 2), normal(3), normal(3)],
        float32=False,
    ),
    Row(
        "batch_norm_inference",
        from_text(INFERENCE),
        _normalized,
        [normal(5, 3), normal(3), normal(3), normal(3), between(0.5, 2, 3)],
        float32=False,
    ),
    Row("batch_norm_grad", from_text(GRAD), _grad, [normal(5, 3), normal(3), normal(5, 3)], float32=False),
]

GENERAL_BODIES = [
    Row(
        "map", from_text(MAP), lambda x, y: y ** (2 * x), [normal(2, 3), between(0.5, 2, 2, 3)], float32=False
    ),
    Row("reduce_window", from_text(LARGEST_AND_COMPANION), _companion, [normal(5), normal(5)], float32=False),
    of_jax("reduce_window", lambda x: lax.cumlogsumexp(x, axis=1, reverse=True), normal(2, 5)),
    of_jax("reduce_window", lambda x: lax.cummax(x), normal(6, 2), long=True),
    of_jax("reduce_window", lambda x: lax.cumsum(x), normal(6, 2), long=True),
]

OTHERS = [
    Row("einsum", from_text(EINSUM), lambda x, y: (x @ y).T, [normal(3, 4), normal(4, 2)], float32=False),
    Row("torch_index_select", from_text(SELECTED), lambda x: x[:, [3, 1]], [normal(3, 4)], float32=False),
    Row("custom_call.Sharding", from_text(SHARDED), lambda x: x * x, [normal(3)], float32=False),
]
