"""Rows for elementwise operations, real and complex."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import lax

from pcp import Tensor
from pcp.ops import elementwise as e
from pcp.ops import movement
from pcp.tensor import current_builder, emit
from tests.autodiff.rows.row import Row, between, complex_row, from_text, normal
from tests.ops.elementwise_rows import BINARY as OF_TWO
from tests.ops.elementwise_rows import UNARY as OF_ONE
from tests.ops.elementwise_rows import ElementwiseRow


def derivative_rows(row: ElementwiseRow) -> list[Row]:
    """The tests of the derivative of an elementwise operation; none where it is zero."""
    if row.in_jax is None:
        return []
    further = [Row(row.operation, function, None, [domain]) for function, domain in row.also]
    return [Row(row.operation, row.apply, row.in_jax, row.domains), *further]


UNARY = [
    *(row for each in OF_ONE for row in derivative_rows(each)),
    Row(
        "chlo.polygamma",
        lambda x: _polygamma(x),
        lambda x: lax.polygamma(2.0, x),
        [between(0.5, 4, 3, 4)],
    ),
    Row(
        "convert",
        lambda x: x.astype("f32").astype("f64"),
        lambda x: x.astype("f4").astype("f8"),
        [normal(3)],
        0.1,
        1e-5,
    ),
    Row(
        "reduce_precision",
        lambda x: _reduce_precision(x),
        lambda x: lax.reduce_precision(x, 11, 52),
        [normal(3, 4)],
    ),
]


def _reduce_precision(x: Tensor) -> Tensor:
    from pcp.ir.bindings import ir

    i32 = ir.IntegerType.get_signless(32)
    bits = {"exponent_bits": ir.IntegerAttr.get(i32, 11), "mantissa_bits": ir.IntegerAttr.get(i32, 52)}
    return emit("reduce_precision", (x,), (x.spec,), bits)


def _polygamma(x: Tensor) -> Tensor:
    builder, order = current_builder(), movement.full(x.shape, 2, x.dtype)
    return Tensor(builder.emit("chlo.polygamma", [order.value, x.value], (x.spec,)).results[0], builder)


CHOICE = np.array([[True, False, True, True]] * 3)

BINARY = [
    *(row for each in OF_TWO for row in derivative_rows(each)),
    Row(
        "select",
        lambda x, y: e.where(CHOICE, x, y),
        lambda x, y: jnp.where(CHOICE, x, y),
        [normal(3, 4), normal(3, 4)],
    ),
    Row(
        "select",  # its condition may be a scalar
        from_text("""func.func @main(%p: tensor<f64>, %x: tensor<3xf64>, %y: tensor<3xf64>) -> tensor<3xf64> {
          %zero = stablehlo.constant dense<0.0> : tensor<f64>
          %c = stablehlo.compare GT, %p, %zero : (tensor<f64>, tensor<f64>) -> tensor<i1>
          %r = stablehlo.select %c, %x, %y : tensor<i1>, tensor<3xf64>
          return %r : tensor<3xf64> }"""),
        lambda p, x, y: jnp.where(p > 0, x, y),
        [between(1, 2), normal(3), normal(3)],
        float32=False,
    ),
    Row(
        "clamp",
        from_text("""func.func @main(%l: tensor<f64>, %x: tensor<9xf64>, %h: tensor<9xf64>) -> tensor<9xf64> {
          %r = stablehlo.clamp %l, %x, %h : (tensor<f64>, tensor<9xf64>, tensor<9xf64>) -> tensor<9xf64>
          return %r : tensor<9xf64> }"""),
        lambda low, x, high: lax.clamp(jnp.broadcast_to(low, (9,)), x, high),
        [between(-0.5, -0.3), normal(9), between(0.3, 0.6, 9)],
        float32=False,
    ),
    Row(
        "optimization_barrier",
        from_text("""func.func @main(%x: tensor<3xf64>, %y: tensor<2xf64>) -> (tensor<3xf64>, tensor<2xf64>) {
          %p = stablehlo.sine %x : tensor<3xf64>
          %r:2 = stablehlo.optimization_barrier %p, %y : tensor<3xf64>, tensor<2xf64>
          return %r#0, %r#1 : tensor<3xf64>, tensor<2xf64> }"""),
        lambda x, y: lax.optimization_barrier((jnp.sin(x), y)),
        [normal(3), normal(2)],
        float32=False,
    ),
]

HALVES = (normal(3), normal(3))

COMPLEX = [
    complex_row("exponential", e.exp, jnp.exp, *HALVES),
    complex_row("log", e.log, jnp.log, between(0.5, 2, 3), normal(3)),
    complex_row("sqrt", e.sqrt, jnp.sqrt, between(0.5, 2, 3), normal(3)),
    complex_row("tanh", e.tanh, jnp.tanh, *HALVES),
    complex_row("sine", e.sin, jnp.sin, *HALVES),
    complex_row("multiply", lambda x, y: x * y, None, *HALVES, *HALVES),
    complex_row("divide", lambda x, y: x / y, None, *HALVES, between(0.5, 2, 3), normal(3)),
    complex_row("power", lambda x: x**2, None, *HALVES),
    complex_row(
        "dot_general", lambda x, y: x @ y, None, normal(2, 3), normal(2, 3), normal(3, 2), normal(3, 2)
    ),
    Row(
        "real",
        lambda a, b: e.real(e.complex_(a, b) ** 2),
        lambda a, b: ((a + 1j * b) ** 2).real,
        HALVES,
        float32=False,
    ),
    Row(
        "imag",
        lambda a, b: e.imag(e.complex_(a, b) ** 2),
        lambda a, b: ((a + 1j * b) ** 2).imag,
        HALVES,
        float32=False,
    ),
    Row(
        "complex",
        lambda a, b: e.real(e.exp(e.complex_(a, b))),
        lambda a, b: jnp.exp(a + 1j * b).real,
        HALVES,
        float32=False,
    ),
    Row("abs", lambda a, b: abs(e.complex_(a, b)), lambda a, b: abs(a + 1j * b), HALVES, float32=False),
    Row(
        "convert",
        lambda a, b: e.real((a.astype("c128") * e.complex_(a, b)).astype("f64").astype("c128")),
        lambda a, b: (a * (a + 1j * b)).real,
        HALVES,
        float32=False,
    ),
]

# Rules that are None: an expression of x whose derivative is that of the factor x alone.
ZERO: dict[str, Callable[[Tensor], Tensor]] = {
    "floor": e.floor,
    "ceil": e.ceil,
    "round_nearest_even": e.round_,
    "round_nearest_afz": lambda x: emit("round_nearest_afz", (x,)),
    "sign": e.sign,
    "bitcast_convert": lambda x: e.bitcast(e.bitcast(x, "i64"), "f64"),
    "compare": lambda x: e.convert(x > 0.3, "f64"),
    "is_finite": lambda x: e.convert(e.is_finite(x), "f64"),
}
