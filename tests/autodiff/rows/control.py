"""Rows for branches and loops."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from tests.autodiff.rows.row import Row, between, from_text, normal

CASE = """func.func @main(%k: tensor<f64>, %x: tensor<3xf64>, %y: tensor<3xf64>) -> (tensor<3xf64>, tensor<f64>) {
  %i = stablehlo.convert %k : (tensor<f64>) -> tensor<i32>
  %r:2 = "stablehlo.case"(%i) ({
    %a = stablehlo.multiply %x, %y : tensor<3xf64>
    stablehlo.return %a, %k : tensor<3xf64>, tensor<f64>
  }, {
    %a = stablehlo.sine %x : tensor<3xf64>
    %b = stablehlo.multiply %k, %k : tensor<f64>
    stablehlo.return %a, %b : tensor<3xf64>, tensor<f64>
  }) : (tensor<i32>) -> (tensor<3xf64>, tensor<f64>)
  return %r#0, %r#1 : tensor<3xf64>, tensor<f64> }"""

IF = """func.func @main(%x: tensor<3xf64>, %y: tensor<3xf64>) -> tensor<3xf64> {
  %zero = stablehlo.constant dense<0.0> : tensor<f64>
  %s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] :
    (tensor<3xf64>, tensor<f64>) -> tensor<f64>
  %p = stablehlo.compare GT, %s, %zero : (tensor<f64>, tensor<f64>) -> tensor<i1>
  %r = "stablehlo.if"(%p) ({
    %a = stablehlo.multiply %x, %y : tensor<3xf64>
    stablehlo.return %a : tensor<3xf64>
  }, {
    stablehlo.return %y : tensor<3xf64>
  }) : (tensor<i1>) -> tensor<3xf64>
  return %r : tensor<3xf64> }"""


UNTIL = """func.func @main(%x: tensor<3xf64>, %end: tensor<f64>) -> tensor<3xf64> {
  %zero = stablehlo.constant dense<0.0> : tensor<f64>
  %r:2 = stablehlo.while(%t = %zero, %v = %x) : tensor<f64>, tensor<3xf64>
  cond {
    %p = stablehlo.compare LT, %t, %end : (tensor<f64>, tensor<f64>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1.0> : tensor<f64>
    %u = stablehlo.add %t, %one : tensor<f64>
    %s = stablehlo.sine %v : tensor<3xf64>
    %w = stablehlo.multiply %s, %x : tensor<3xf64>
    stablehlo.return %u, %w : tensor<f64>, tensor<3xf64>
  }
  return %r#1 : tensor<3xf64> }"""


def while_text(start: int, bound: int, step: int, direction: str, dtype: str = "i64") -> str:
    """A loop over c' = sin(w c) + i d with a matrix that is carried along, a captured vector d, and all states kept."""
    return f"""func.func @main(%w: tensor<3x3xf64>, %c: tensor<3xf64>, %d: tensor<3xf64>) -> (tensor<3xf64>, tensor<5x3xf64>) {{
      %i = stablehlo.constant dense<{start}> : tensor<{dtype}>
      %n = stablehlo.constant dense<{bound}> : tensor<{dtype}>
      %s = stablehlo.constant dense<{step}> : tensor<{dtype}>
      %o = stablehlo.constant dense<0> : tensor<{dtype}>
      %zero = stablehlo.constant dense<0.0> : tensor<5x3xf64>
      %r:5 = stablehlo.while(%a = %w, %x = %c, %k = %i, %m = %n, %all = %zero) :
        tensor<3x3xf64>, tensor<3xf64>, tensor<{dtype}>, tensor<{dtype}>, tensor<5x3xf64>
      cond {{
        %p = stablehlo.compare {direction}, %k, %m : (tensor<{dtype}>, tensor<{dtype}>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }} do {{
        %f = stablehlo.convert %k : (tensor<{dtype}>) -> tensor<f64>
        %g = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f64>) -> tensor<3xf64>
        %h = stablehlo.multiply %g, %d : tensor<3xf64>
        %y = stablehlo.dot_general %a, %x, contracting_dims = [1] x [0] : (tensor<3x3xf64>, tensor<3xf64>) -> tensor<3xf64>
        %z = stablehlo.sine %y : tensor<3xf64>
        %v = stablehlo.add %z, %h : tensor<3xf64>
        %row = stablehlo.reshape %v : (tensor<3xf64>) -> tensor<1x3xf64>
        %keep = stablehlo.dynamic_update_slice %all, %row, %k, %o :
          (tensor<5x3xf64>, tensor<1x3xf64>, tensor<{dtype}>, tensor<{dtype}>) -> tensor<5x3xf64>
        %j = stablehlo.add %k, %s : tensor<{dtype}>
        stablehlo.return %a, %v, %j, %m, %keep :
          tensor<3x3xf64>, tensor<3xf64>, tensor<{dtype}>, tensor<{dtype}>, tensor<5x3xf64>
      }}
      return %r#1, %r#4 : tensor<3xf64>, tensor<5x3xf64> }}"""


def loop(start: int, bound: int, step: int) -> Callable[..., Any]:
    """What `while_text` computes, in Python."""

    def run(w: Any, c: Any, d: Any) -> Any:
        kept = jnp.zeros((5, 3))
        for i in range(start, bound, step):
            c = jnp.sin(w @ c) + i * d
            kept = kept.at[i].set(c)
        return c, kept

    return run


LOOP = (normal(3, 3), normal(3), normal(3))

CONTROL = [
    Row(
        "case",
        from_text(CASE),
        lambda k, x, y: (jnp.sin(x), k * k),
        [between(1.2, 1.7), normal(3), normal(3)],
        float32=False,
    ),
    Row(
        "case",
        from_text(CASE),
        lambda k, x, y: (x * y, k),
        [between(0.2, 0.7), normal(3), normal(3)],
        float32=False,
    ),
    Row("if", from_text(IF), lambda x, y: x * y, [between(1, 2, 3), normal(3)], float32=False),
    Row("if", from_text(IF), lambda x, y: y, [between(-2, -1, 3), normal(3)], float32=False),
    Row("while", from_text(while_text(0, 4, 1, "LT")), loop(0, 4, 1), LOOP, float32=False),
    Row("while", from_text(while_text(1, 4, 2, "LE", "i32")), loop(1, 5, 2), LOOP, float32=False),
    Row("while", from_text(while_text(4, 0, -1, "GE")), loop(4, -1, -1), LOOP, float32=False),
    Row("while", from_text(while_text(4, 0, -2, "NE")), loop(4, 0, -2), LOOP, float32=False),
    Row(
        "while",
        from_text(UNTIL),
        lambda x, end: jnp.sin(jnp.sin(jnp.sin(x) * x) * x) * x,
        [normal(3), between(2.3, 2.7)],
        float32=False,
    ),
    Row("while", from_text(while_text(2, 1, 1, "LT")), loop(2, 1, 1), LOOP, float32=False),
]
