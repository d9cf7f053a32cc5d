"""One row or more for every derivative rule: an expression that uses its operation, the same in JAX, and a domain.

`tests/autodiff/test_rules.py` puts each into the middle of a graph and checks it, and fails if a rule has no row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from pcp import Program, Tensor, call
from pcp.ops import elementwise as e
from pcp.ops import indexing, linear_algebra, movement, reduction
from pcp.ops.movement import broadcast_in_dim
from pcp.tensor import current_builder, emit

Array = np.ndarray[Any, Any]
Domain = Callable[[np.random.Generator], Array]


def normal(*shape: int) -> Domain:
    """Normally distributed values."""
    return lambda random: random.normal(size=shape)


def between(low: float, high: float, *shape: int) -> Domain:
    """Uniformly distributed values."""
    return lambda random: random.uniform(low, high, size=shape)


@dataclass(frozen=True)
class Row:
    """What checks one rule.

    Arguments:
        rule: its name, without `stablehlo.`.
        function: an expression of Tensors; its result is a Tensor or a tuple of them.
        reference: the same in JAX; None if `function` is both.
        domains: where each argument, in float64, is drawn from; none is at a kink or pole.
        step: of the finite differences, at which the expression changes smoothly and is resolved.
        tolerance: of the relative error of finite differences.
        second_order: whether the gradient is differentiated, too.
        float32: whether the expression keeps its meaning in float32.
    """

    rule: str
    function: Callable[..., Any]
    reference: Callable[..., Any] | None
    domains: Sequence[Domain]
    step: float = 1e-5
    tolerance: float = 1e-6
    second_order: bool = True
    float32: bool = True


def chlo(name: str) -> Callable[[Tensor], Tensor]:
    """An operation of CHLO that has no function in pcp.ops."""

    def apply(x: Tensor) -> Tensor:
        builder = current_builder()
        return Tensor(builder.emit(f"chlo.{name}", [x.value], (x.spec,)).results[0], builder)

    return apply


def from_text(text: str) -> Callable[..., Any]:
    """A function that calls the program `main` in MLIR text."""
    program = Program.parse(text)
    return lambda *arguments: call(program, *arguments)


def of_complex(
    function: Callable[..., Any], complex_of: Any = e.complex_, parts: Any = None
) -> Callable[..., Any]:
    """A function of pairs of real numbers by way of complex ones."""
    real, imag = parts or (e.real, e.imag)

    def apply(*halves: Any) -> Any:
        result = function(*(complex_of(a, b) for a, b in zip(halves[::2], halves[1::2], strict=True)))
        return real(result), imag(result)

    return apply


def complex_row(
    rule: str, function: Callable[..., Any], reference: Callable[..., Any] | None, *domains: Domain
) -> Row:
    """A row for complex numbers, each of which takes two domains: of its real and of its imaginary part."""
    parts = (jnp.real, jnp.imag)
    expected = of_complex(reference or function, lax.complex, parts)
    return Row(rule, of_complex(function), expected, domains)


UNARY = [
    Row("negate", lambda x: -x, None, [normal(3, 4)]),
    Row("abs", abs, None, [normal(3, 4)]),
    Row("exponential", e.exp, jnp.exp, [normal(3, 4)]),
    Row("exponential_minus_one", e.expm1, jnp.expm1, [normal(3, 4)]),
    Row("log", e.log, jnp.log, [between(0.5, 3, 3, 4)]),
    Row("log_plus_one", e.log1p, jnp.log1p, [between(-0.4, 2, 3, 4)]),
    Row("sqrt", e.sqrt, jnp.sqrt, [between(0.5, 3, 3, 4)]),
    Row("rsqrt", e.rsqrt, lax.rsqrt, [between(0.5, 3, 3, 4)]),
    Row("cbrt", e.cbrt, lax.cbrt, [between(0.5, 3, 3, 4)]),
    Row("sine", e.sin, jnp.sin, [normal(3, 4)]),
    Row("cosine", e.cos, jnp.cos, [normal(3, 4)]),
    Row("tan", e.tan, jnp.tan, [between(-1, 1, 3, 4)]),
    Row("tanh", e.tanh, jnp.tanh, [normal(3, 4)]),
    Row("logistic", e.sigmoid, jax.nn.sigmoid, [normal(3, 4)]),
    Row("chlo.erf", e.erf, lax.erf, [normal(3, 4)]),
    Row("chlo.erfc", chlo("erfc"), lax.erfc, [normal(3, 4)]),
    Row("chlo.erf_inv", chlo("erf_inv"), lax.erf_inv, [between(-0.7, 0.7, 3, 4)]),
    Row("chlo.square", chlo("square"), jnp.square, [normal(3, 4)]),
    Row("chlo.tan", chlo("tan"), jnp.tan, [between(-1, 1, 3, 4)]),
    Row("chlo.sinh", chlo("sinh"), jnp.sinh, [normal(3, 4)]),
    Row("chlo.cosh", chlo("cosh"), jnp.cosh, [normal(3, 4)]),
    Row("chlo.asin", chlo("asin"), jnp.arcsin, [between(-0.7, 0.7, 3, 4)]),
    Row("chlo.acos", chlo("acos"), jnp.arccos, [between(-0.7, 0.7, 3, 4)]),
    Row("chlo.atan", chlo("atan"), jnp.arctan, [normal(3, 4)]),
    Row("chlo.asinh", chlo("asinh"), jnp.arcsinh, [normal(3, 4)]),
    Row("chlo.acosh", chlo("acosh"), jnp.arccosh, [between(1.5, 3, 3, 4)]),
    Row("chlo.atanh", chlo("atanh"), jnp.arctanh, [between(-0.7, 0.7, 3, 4)]),
    Row("chlo.lgamma", chlo("lgamma"), lax.lgamma, [between(0.5, 4, 3, 4)]),
    Row("chlo.digamma", chlo("digamma"), lax.digamma, [between(0.5, 4, 3, 4)]),
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


def _remainder(x: Any, y: Any) -> Any:
    return e.remainder(x, y)


CHOICE = np.array([[True, False, True, True]] * 3)

BINARY = [
    Row("add", lambda x, y: x + y, None, [normal(3, 4), normal(4)]),
    Row("subtract", lambda x, y: x - y, None, [normal(3, 4), normal(3, 1)]),
    Row("multiply", lambda x, y: x * y, None, [normal(3, 4), normal(4)]),
    Row("multiply", lambda x: x * x, None, [normal(3, 4)]),
    Row("divide", lambda x, y: x / y, None, [normal(3, 4), between(0.5, 2, 3, 4)]),
    Row("power", lambda x, y: x**y, None, [between(0.5, 2, 3, 4), normal(3, 4)]),
    Row("power", lambda x: x**2, None, [normal(3, 4)]),
    Row("power", lambda x: x**3.0, None, [normal(3, 4)]),
    Row("power", lambda x: x**-1.5, None, [between(0.5, 2, 3, 4)]),
    Row("power", lambda x: x ** np.array([0.0, 1.0, 2.0, 3.0]), None, [normal(3, 4)]),
    Row("maximum", e.maximum, jnp.maximum, [normal(3, 4), normal(3, 4)]),
    Row("minimum", e.minimum, jnp.minimum, [normal(3, 4), normal(4)]),
    Row("remainder", _remainder, lax.rem, [between(2.1, 2.9, 3, 4), between(0.91, 1.01, 3, 4)]),
    Row("atan2", e.arctan2, jnp.arctan2, [normal(3, 4), between(0.5, 2, 3, 4)]),
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

MOVEMENT = [
    Row("transpose", lambda x: x.transpose(2, 0, 1), lambda x: x.transpose(2, 0, 1), [normal(2, 3, 4)]),
    Row("reshape", lambda x: x.reshape(4, 6), None, [normal(2, 3, 4)]),
    Row(
        "broadcast_in_dim",
        lambda x: x.broadcast_to((2, 3, 4)),
        lambda x: jnp.broadcast_to(x, (2, 3, 4)),
        [normal(3, 1)],
    ),
    Row(
        "broadcast_in_dim",
        lambda x: x.broadcast_to((5, 1, 3)),
        lambda x: jnp.broadcast_to(x, (5, 1, 3)),
        [normal(1, 3)],
    ),
    Row(
        "broadcast_in_dim",
        lambda x: broadcast_in_dim(x, (4, 1, 2, 3), (3, 1, 0)),
        lambda x: jnp.broadcast_to(x.transpose(2, 1, 0)[:, :, None], (4, 1, 2, 3)),
        [normal(3, 1, 4)],
    ),
    Row(
        "concatenate",
        lambda x, y: movement.concatenate([x, y, x], 1),
        lambda x, y: jnp.concatenate([x, y, x], 1),
        [normal(2, 3), normal(2, 2)],
    ),
    Row("slice", lambda x: x[1:, 1:7:3], None, [normal(3, 8)]),
    Row("slice", lambda x: x[2:2], None, [normal(3, 2)]),
    Row(
        "pad",
        lambda x, v: movement.pad(x, [(1, 2, 1), (-1, 3, 0)], v),
        lambda x, v: lax.pad(x, v, [(1, 2, 1), (-1, 3, 0)]),
        [normal(3, 4), normal()],
    ),
    Row(
        "pad",
        lambda x, v: movement.pad(x, [(-2, -1, 2)], v),
        lambda x, v: lax.pad(x, v, [(-2, -1, 2)]),
        [normal(4), normal()],
    ),
    Row("reverse", lambda x: x[::-1, :, ::-2], None, [normal(2, 3, 4)]),
]

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


def _einsum_row(formula: str, *domains: Domain) -> Row:
    return Row(
        "dot_general",
        lambda *x: linear_algebra.einsum(formula, *x),
        lambda *x: jnp.einsum(formula, *x),
        domains,
    )


LINEAR_ALGEBRA = [
    Row("dot_general", lambda x, y: x @ y, None, [normal(3, 4), normal(4, 2)]),
    Row("dot_general", lambda x, y: x @ y, None, [normal(2, 3, 4), normal(4, 5)]),
    Row("dot_general", lambda x, y: x @ y, None, [normal(4), normal(4)]),
    Row("dot_general", lambda x: x @ x.T, None, [normal(3, 4)]),
    _einsum_row("bqhd,bkhd->bhqk", normal(2, 3, 2, 4), normal(2, 5, 2, 4)),
    _einsum_row("i,j->ij", normal(3), normal(4)),
    _einsum_row("abc,cdab->d", normal(2, 3, 4), normal(4, 5, 2, 3)),
    Row(
        "dot_general",
        lambda x, y: linear_algebra.dot_general(x, y, ((2, 0), (0, 3)), ((3,), (1,))),
        lambda x, y: lax.dot_general(x, y, (((2, 0), (0, 3)), ((3,), (1,)))),
        [normal(2, 3, 4, 5), normal(4, 5, 3, 2)],
    ),
]

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
    Row(
        "scatter",
        from_text(scatter_text(REPLACE)),
        lambda x, u: x.at[np.array([0, 2])].set(u[1:3]),
        TABLES,
        float32=False,
    ),
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
        lambda x: indexing.dynamic_slice(x, (1, 9), (2, 3)) + indexing.dynamic_slice(x, (0, 1), (2, 3)),
        lambda x: x[1:3, 2:5] + x[:2, 1:4],
        [normal(3, 5)],
    ),
    Row(
        "dynamic_update_slice",
        lambda x, u: indexing.dynamic_update_slice(x, u, (1, 9)),
        lambda x, u: x.at[1:3, 2:5].set(u),
        [normal(3, 5), normal(2, 3)],
    ),
]

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
    Row("while", from_text(while_text(2, 1, 1, "LT")), loop(2, 1, 1), LOOP, float32=False),
]

ROWS = [*UNARY, *BINARY, *COMPLEX, *MOVEMENT, *REDUCTION, *LINEAR_ALGEBRA, *INDEXING, *CONTROL]

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
