"""Rows for reductions, with the bodies that have rules and with others."""

from typing import Any

import jax.numpy as jnp

from pcp.ops.reductions import primitives as reduction
from tests.autodiff.rows.row import Row, from_text, normal

GENERAL_BODY = """func.func @main(%x: tensor<2x5xf64>) -> tensor<2xf64> {
  %i = stablehlo.constant dense<1.0> : tensor<f64>
  %r = "stablehlo.reduce"(%x, %i) <{dimensions = array<i64: 1>}> ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %one = stablehlo.constant dense<1.0> : tensor<f64>
    %c = stablehlo.subtract %a, %one : tensor<f64>
    %d = stablehlo.subtract %b, %one : tensor<f64>
    %e = stablehlo.multiply %c, %d : tensor<f64>
    %f = stablehlo.add %c, %d : tensor<f64>
    %g = stablehlo.add %e, %f : tensor<f64>
    %h = stablehlo.add %g, %one : tensor<f64>
    stablehlo.return %h : tensor<f64>
  }) : (tensor<2x5xf64>, tensor<f64>) -> tensor<2xf64>
  return %r : tensor<2xf64> }"""

LARGEST_AND_COMPANION = """func.func @main(%x: tensor<2x5xf64>, %y: tensor<2x5xf64>) -> (tensor<2xf64>, tensor<2xf64>) {
  %i = stablehlo.constant dense<0xFFF0000000000000> : tensor<f64>
  %j = stablehlo.constant dense<0.0> : tensor<f64>
  %r:2 = "stablehlo.reduce"(%x, %y, %i, %j) <{dimensions = array<i64: 1>}> ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>, %c: tensor<f64>, %d: tensor<f64>):
    %p = stablehlo.compare GT, %a, %c : (tensor<f64>, tensor<f64>) -> tensor<i1>
    %e = stablehlo.select %p, %a, %c : tensor<i1>, tensor<f64>
    %f = stablehlo.select %p, %b, %d : tensor<i1>, tensor<f64>
    stablehlo.return %e, %f : tensor<f64>, tensor<f64>
  }) : (tensor<2x5xf64>, tensor<2x5xf64>, tensor<f64>, tensor<f64>) -> (tensor<2xf64>, tensor<2xf64>)
  return %r#0, %r#1 : tensor<2xf64>, tensor<2xf64> }"""

SUM_FROM = """func.func @main(%x: tensor<3x4xf64>, %i: tensor<f64>) -> tensor<4xf64> {
  %r = stablehlo.reduce(%x init: %i) applies stablehlo.add across dimensions = [0] :
    (tensor<3x4xf64>, tensor<f64>) -> tensor<4xf64>
  return %r : tensor<4xf64> }"""


def _companion(x: Any, y: Any) -> Any:
    return x.max(1), jnp.take_along_axis(y, x.argmax(1)[:, None], 1)[:, 0]


REDUCTION = [
    Row("reduce", lambda x: x.sum(1), None, [normal(2, 3, 4)]),
    Row("reduce", lambda x: x.max((0, 2)), None, [normal(2, 3, 4)]),
    Row("reduce", lambda x: x.min(-1), None, [normal(2, 3, 4)]),
    Row("reduce", lambda x: x.var(0), None, [normal(5, 3)]),
    Row("reduce", lambda x: reduction.product(x, (0, 2)), lambda x: jnp.prod(x, (0, 2)), [normal(2, 3, 4)]),
    Row("reduce", lambda x: reduction.product(x), jnp.prod, [normal(7)]),
    Row("reduce", from_text(SUM_FROM), lambda x, i: x.sum(0) + i, [normal(3, 4), normal()], float32=False),
    Row("reduce", from_text(GENERAL_BODY), lambda x: jnp.prod(x, 1), [normal(2, 5)], float32=False),
    Row("reduce", from_text(LARGEST_AND_COMPANION), _companion, [normal(2, 5), normal(2, 5)], float32=False),
]
