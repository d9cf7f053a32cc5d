"""Rows for special functions, operations with implicit broadcasting and Fourier transforms."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy import special

from tests.autodiff.rows.row import Row, between, complex_row, from_text, halves, normal, of_jax


def _broadcast_row(name: str, reference: Any) -> Row:
    text = f"""func.func @main(%x: tensor<3x4xf64>, %y: tensor<4xf64>) -> tensor<3x4xf64> {{
      %r = "chlo.broadcast_{name}"(%x, %y) {{broadcast_dimensions = array<i64: 1>}}
        : (tensor<3x4xf64>, tensor<4xf64>) -> tensor<3x4xf64>
      return %r : tensor<3x4xf64> }}"""
    return Row(
        f"chlo.broadcast_{name}",
        from_text(text),
        lambda x, y: reference(x, y + jnp.zeros_like(x)),
        [between(2.1, 2.9, 3, 4), between(0.91, 1.01, 4)],
        float32=False,
        long=name != "subtract",
    )


def _of_order(name: str, reference: Any) -> Row:
    text = f"""func.func @main(%x: tensor<4xf64>) -> tensor<4xf64> {{
      %n = stablehlo.constant dense<3.0> : tensor<f64>
      %r = chlo.broadcast_{name} %n, %x : (tensor<f64>, tensor<4xf64>) -> tensor<4xf64>
      return %r : tensor<4xf64> }}"""
    return Row(f"chlo.broadcast_{name}", from_text(text), reference, [between(0.5, 3, 4)], float32=False)


SELECT = """func.func @main(%x: tensor<4xf64>, %y: tensor<3x4xf64>) -> tensor<3x4xf64> {
  %p = chlo.broadcast_compare %y, %x {comparison_direction = #chlo<comparison_direction GT>}
    : (tensor<3x4xf64>, tensor<4xf64>) -> tensor<3x4xi1>
  %r = chlo.broadcast_select %p, %x, %y : (tensor<3x4xi1>, tensor<4xf64>, tensor<3x4xf64>) -> tensor<3x4xf64>
  return %r : tensor<3x4xf64> }"""

COMPLEX = """func.func @main(%x: tensor<3x4xf64>, %y: tensor<4xf64>) -> (tensor<3x4xf64>, tensor<3x4xf64>) {
  %z = chlo.broadcast_complex %x, %y : (tensor<3x4xf64>, tensor<4xf64>) -> tensor<3x4xcomplex<f64>>
  %c = chlo.conj %z : tensor<3x4xcomplex<f64>> -> tensor<3x4xcomplex<f64>>
  %w = stablehlo.multiply %c, %c : tensor<3x4xcomplex<f64>>
  %r = stablehlo.real %w : (tensor<3x4xcomplex<f64>>) -> tensor<3x4xf64>
  %i = stablehlo.imag %w : (tensor<3x4xcomplex<f64>>) -> tensor<3x4xf64>
  return %r, %i : tensor<3x4xf64>, tensor<3x4xf64> }"""


def _square_of_conjugate(x: Any, y: Any) -> Any:
    z = lax.complex(x, jnp.zeros_like(x)) - 1j * y
    return (z * z).real, (z * z).imag


SPECIAL = [
    of_jax("chlo.bessel_i1e", special.i1e, between(-12, 12, 9)),
    of_jax("chlo.zeta", lambda q: special.zeta(3.0, q), between(0.5, 3, 4)),
    _broadcast_row("add", lambda x, y: x + y),
    _broadcast_row("subtract", lambda x, y: x - y),
    _broadcast_row("multiply", lambda x, y: x * y),
    _broadcast_row("divide", lambda x, y: x / y),
    _broadcast_row("power", lambda x, y: x**y),
    _broadcast_row("maximum", jnp.maximum),
    _broadcast_row("minimum", jnp.minimum),
    _broadcast_row("remainder", lax.rem),
    _broadcast_row("atan2", jnp.arctan2),
    _of_order("zeta", lambda x: special.zeta(3.0, x)),
    _of_order("polygamma", lambda x: lax.polygamma(3.0, x)),
    Row("chlo.broadcast_select", from_text(SELECT), jnp.minimum, [normal(4), normal(3, 4)], float32=False),
    Row(
        "chlo.broadcast_complex",
        from_text(COMPLEX),
        _square_of_conjugate,
        [normal(3, 4), normal(4)],
        float32=False,
    ),
    Row(
        "chlo.conj",
        from_text(COMPLEX),
        _square_of_conjugate,
        [normal(3, 4), normal(4)],
        float32=False,
        long=True,
    ),
]

FOURIER = [
    of_jax("fft", halves(jnp.fft.fft), normal(2, 5), normal(2, 5), float32=False),
    of_jax("fft", halves(jnp.fft.ifft2), normal(3, 4), normal(3, 4), float32=False, long=True),
    of_jax("fft", lambda x: abs(jnp.fft.rfft2(x)) ** 2, normal(3, 6)),
    of_jax("fft", lambda x: abs(jnp.fft.rfft(x)) ** 2, normal(5), long=True),
    of_jax("fft", lambda a, b: jnp.fft.irfft(a + 1j * b), normal(2, 4), normal(2, 4), float32=False),
    of_jax(
        "fft",
        lambda a, b: jnp.fft.irfft2(a + 1j * b, (4, 5)),
        normal(4, 3),
        normal(4, 3),
        float32=False,
        long=True,
    ),
]

COMPLEX_NUMBERS = [
    complex_row("sign", lambda x: _sign(x), lambda x: x / abs(x), normal(3), normal(3)),
    of_jax("abs", halves(abs), normal(3), normal(3), float32=False, long=True),
    of_jax("power", halves(lambda x, y: x**y), *[normal(3)] * 4, float32=False, long=True),
    of_jax("logistic", halves(jax.nn.sigmoid), normal(3), normal(3), float32=False, long=True),
    of_jax("reduce", halves(jnp.prod), normal(5), normal(5), float32=False, long=True),
    of_jax("sort", halves(lambda x: lax.sort(x)), normal(5), normal(5), float32=False, long=True),
]


def _sign(x: Any) -> Any:
    from pcp.tensor import emit

    return emit("sign", (x,), (x.spec,))
