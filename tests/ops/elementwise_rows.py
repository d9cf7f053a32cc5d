"""One row for every elementwise operation of one or two operands: its value in NumPy, its derivative in JAX.

`tests/ops/test_operations.py` compares values, in every element type that the record admits; `tests/autodiff/test_rules.py`
puts the operation into the middle of a graph and compares gradients, tangents and second derivatives; and
`tests/batching/test_batching_rules.py` batches it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy import special
from tests.domains import Domain, between, normal
from tests.ops.operands import Operands, away_from_poles, modulo_divisor, power_operands, shift_operands

from pcp import Tensor
from pcp.ops.elementwise.forms import chlo
from pcp.ops.record import RECORDS, full_name
from pcp.tensor import OPERATIONS

Reference = Callable[..., Any]


@dataclass(frozen=True)
class ElementwiseRow:
    """The test of one operation.

    Arguments:
        operation: its name; one without a dialect is of StableHLO.
        reference: the same in NumPy; None for an operation without a function in `pcp.ops`.
        low, high: bounds of the operands at which values are compared.
        in_jax: the same in JAX; None where the derivative is zero.
        domains: where operands are drawn from at which derivatives are compared: at no kink or pole.
        also: further expressions of one operand whose derivatives are compared, each with where it is drawn from.
        ulps: how many roundings of the result's type the error of a value may be.
        operands: in place of `low` and `high`, how the operands are drawn at which values are compared.
        without: kinds of element types in which values are not compared.
        function: the one function that the row is for; None for all.
    """

    operation: str
    reference: Reference | None
    low: float
    high: float
    in_jax: Reference | None = None
    domains: Sequence[Domain] = ()
    ulps: float = 16
    also: Sequence[tuple[Callable[[Any], Any], Domain]] = ()
    operands: Operands | None = None
    without: tuple[str, ...] = ()
    function: str | None = None

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions of `pcp.ops` that are this operation."""
        return (self.function,) if self.function else RECORDS[full_name(self.operation)].functions

    @property
    def types(self) -> tuple[str, ...]:
        """The kinds of element types that it takes."""
        return RECORDS[full_name(self.operation)].types

    def apply(self, *operands: Tensor) -> Tensor:
        """The operation on Tensors."""
        return OPERATIONS[self.functions[0]](*operands) if self.functions else chlo(self.operation, *operands)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _bits(count: Callable[[str], int]) -> Reference:
    def apply(x: Any) -> Any:
        width = 8 * x.dtype.itemsize
        texts = [np.binary_repr(int(v) % 2**width, width) for v in x.reshape(-1)]
        return np.array([count(text) for text in texts], x.dtype).reshape(x.shape)

    return apply


N = (normal(3, 4),)


def _between(low: float, high: float) -> tuple[Domain, ...]:
    return (between(low, high, 3, 4),)


UNARY: tuple[ElementwiseRow, ...] = (
    ElementwiseRow("negate", np.negative, -9, 9, jnp.negative, N),
    ElementwiseRow("abs", np.abs, -9, 9, jnp.abs, N),
    ElementwiseRow("exponential", np.exp, -4, 4, jnp.exp, N),
    ElementwiseRow("exponential_minus_one", np.expm1, -1, 1, jnp.expm1, N),
    ElementwiseRow("log", np.log, 0.01, 9, jnp.log, _between(0.5, 3)),
    ElementwiseRow("log_plus_one", np.log1p, -0.5, 3, jnp.log1p, _between(-0.4, 2)),
    ElementwiseRow("sqrt", np.sqrt, 0, 9, jnp.sqrt, _between(0.5, 3)),
    ElementwiseRow("rsqrt", lambda x: 1 / np.sqrt(x), 0.1, 9, lax.rsqrt, _between(0.5, 3)),
    ElementwiseRow("cbrt", np.cbrt, -9, 9, lax.cbrt, _between(0.5, 3)),
    ElementwiseRow("sine", np.sin, -4, 4, jnp.sin, N),
    ElementwiseRow("cosine", np.cos, -4, 4, jnp.cos, N),
    ElementwiseRow("tan", np.tan, -1, 1, jnp.tan, _between(-1, 1)),
    ElementwiseRow("tanh", np.tanh, -2, 2, jnp.tanh, N, operands=away_from_poles(2)),
    ElementwiseRow("logistic", _sigmoid, -5, 5, jax.nn.sigmoid, N, operands=away_from_poles(5)),
    ElementwiseRow("chlo.erf", special.erf, -3, 3, lax.erf, N),
    ElementwiseRow("chlo.erfc", special.erfc, -2, 2, lax.erfc, N),
    ElementwiseRow("chlo.erf_inv", special.erfinv, -0.8, 0.8, lax.erf_inv, _between(-0.7, 0.7)),
    ElementwiseRow("chlo.square", None, 0, 0, jnp.square, N),
    ElementwiseRow("chlo.tan", None, 0, 0, jnp.tan, _between(-1, 1)),
    ElementwiseRow("chlo.sinh", np.sinh, -2, 2, jnp.sinh, N),
    ElementwiseRow("chlo.cosh", np.cosh, -2, 2, jnp.cosh, N),
    ElementwiseRow("chlo.asin", np.arcsin, -0.9, 0.9, jnp.arcsin, _between(-0.7, 0.7)),
    ElementwiseRow("chlo.acos", np.arccos, -0.9, 0.9, jnp.arccos, _between(-0.7, 0.7)),
    ElementwiseRow("chlo.atan", np.arctan, -4, 4, jnp.arctan, N),
    ElementwiseRow("chlo.asinh", np.arcsinh, -4, 4, jnp.arcsinh, N),
    ElementwiseRow("chlo.acosh", np.arccosh, 1.1, 4, jnp.arccosh, _between(1.5, 3)),
    ElementwiseRow("chlo.atanh", np.arctanh, -0.8, 0.8, jnp.arctanh, _between(-0.7, 0.7)),
    ElementwiseRow("chlo.lgamma", special.gammaln, 0.2, 6, lax.lgamma, _between(0.5, 4), ulps=32),
    ElementwiseRow("chlo.digamma", special.digamma, 0.2, 6, lax.digamma, _between(0.5, 4), ulps=32),
    ElementwiseRow("sign", np.sign, -2, 2),
    ElementwiseRow("floor", np.floor, -9, 9),
    ElementwiseRow("ceil", np.ceil, -9, 9),
    ElementwiseRow("round_nearest_even", np.round, -9, 9),
    ElementwiseRow("is_finite", np.isfinite, -9, 9),
    ElementwiseRow("not", np.invert, -99, 99),
    ElementwiseRow("popcnt", _bits(lambda text: text.count("1")), -99, 99),
    ElementwiseRow("count_leading_zeros", _bits(lambda text: len(text) - len(text.lstrip("0"))), -99, 99),
)

_SAME = (normal(3, 4), normal(3, 4))
_WIDER = (normal(3, 4), normal(4))
_POSITIVE = between(0.5, 2, 3, 4)
_NOT_COMPLEX = ("complex",)  # orders and angles of them mean nothing: XLA refuses them or picks an order


def _compare(function: str, reference: Reference, *without: str) -> ElementwiseRow:
    return ElementwiseRow("compare", reference, -3, 3, without=without, function=function)


BINARY: tuple[ElementwiseRow, ...] = (
    ElementwiseRow("add", np.add, -3, 3, jnp.add, _WIDER),
    ElementwiseRow("subtract", np.subtract, -3, 3, jnp.subtract, (normal(3, 4), normal(3, 1))),
    ElementwiseRow(
        "multiply", np.multiply, -3, 3, jnp.multiply, _WIDER, also=((lambda x: x * x, normal(3, 4)),)
    ),
    ElementwiseRow(
        "divide",
        np.divide,
        0.5,
        4,
        jnp.divide,
        (normal(3, 4), _POSITIVE),
        ulps=4,
        without=("bool", "signed", "unsigned", "complex"),
    ),
    ElementwiseRow(
        "power",
        np.power,
        -3,
        3,
        jnp.power,
        (_POSITIVE, normal(3, 4)),
        also=(
            (lambda x: x**2, normal(3, 4)),
            (lambda x: x**3.0, normal(3, 4)),
            (lambda x: x**-1.5, _POSITIVE),
            (lambda x: x ** np.array([0.0, 1.0, 2.0, 3.0]), normal(3, 4)),
        ),
        operands=power_operands,
    ),
    ElementwiseRow("maximum", np.maximum, -3, 3, jnp.maximum, _SAME, without=_NOT_COMPLEX),
    ElementwiseRow("minimum", np.minimum, -3, 3, jnp.minimum, _WIDER, without=_NOT_COMPLEX),
    ElementwiseRow(
        "remainder",  # of StableHLO, which is NumPy's fmod
        np.fmod,
        -3,
        3,
        lax.rem,
        (between(2.1, 2.9, 3, 4), between(0.91, 1.01, 3, 4)),
        operands=modulo_divisor,
    ),
    ElementwiseRow("atan2", np.arctan2, -3, 3, jnp.arctan2, (normal(3, 4), _POSITIVE), without=_NOT_COMPLEX),
    ElementwiseRow("and", np.bitwise_and, -3, 3),
    ElementwiseRow("or", np.bitwise_or, -3, 3),
    ElementwiseRow("xor", np.bitwise_xor, -3, 3),
    ElementwiseRow("shift_left", np.left_shift, -100, 100, operands=shift_operands),
    _compare("equal", np.equal),
    _compare("not_equal", np.not_equal),
    _compare("less", np.less, "complex"),
    _compare("less_equal", np.less_equal, "complex"),
    _compare("greater", np.greater, "complex"),
    _compare("greater_equal", np.greater_equal, "complex"),
)
