"""Derivatives of elementwise operations: g is the cotangent of the result y, then come the operands.

Complex numbers follow JAX: the map of cotangents is the transpose, without conjugation, of the derivative as a linear map.
So do kinks: equal operands of a maximum share the cotangent, and |x| has derivative 1 at 0.
"""

from pcp.autodiff.rule import Cotangent, Expanded, Outgoing, Primal, register_rules
from pcp.ir.toolkit.constants import splat_number
from pcp.ops.elementwise import (
    abs_,
    bitwise_and,
    complex_,
    convert,
    cos,
    equal,
    floor,
    greater,
    greater_equal,
    imag,
    less,
    log,
    power,
    real,
    real_type,
    sign,
    sin,
    where,
)
from pcp.tensor import Tensor, current_builder, emit


def conjugate(x: Tensor) -> Tensor:
    """The complex conjugate."""
    return complex_(real(x), -imag(x))


def _larger_gets(g: Tensor, x: Tensor, other: Tensor) -> Tensor:
    """g where x > other, half of it where they are equal, 0 elsewhere."""
    return where(greater(x, other), g, where(equal(x, other), 0.5 * g, 0))


def _abs(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    if x.dtype.is_float:
        return where(greater_equal(x, 0), g, -g)
    # d|x| = Re(conj(x) dx) / |x|
    return complex_(g, 0) * (conjugate(x) / complex_(where(equal(y, 0), 1, y), 0))


def _sign(primal: Primal, g: Tensor) -> Outgoing:
    """Zero for real numbers; of a complex one the sign is x / |x|, and 0 at 0."""
    (x,) = primal.inputs
    if x.dtype.is_float:
        return [None]
    size = abs_(x)
    return Expanded([x / complex_(where(equal(size, 0), 1, size), 0)])


def _power(primal: Primal, g: Tensor) -> list[Cotangent]:
    x, y = primal.inputs
    exponent = splat_number(primal.op.operands[1])
    return [
        _base_of_power(g, x, y, exponent) if primal.active[0] else None,
        g * (log(where(equal(x, 0), 1, x)) * primal.output()) if primal.active[1] else None,
    ]


def _base_of_power(g: Tensor, x: Tensor, y: Tensor, exponent: float | None) -> Tensor:
    if exponent == 2:
        return g * (2 * x)
    if exponent:
        return g * (exponent * power(x, exponent - 1))
    # The factor y is replaced where it is 0, so that 0 * 0^-1 is 0 there.
    return g * where(equal(y, 0), 0, y * power(x, where(equal(y, 0), 1, y - 1)))


def _convert(primal: Primal, g: Tensor) -> list[Cotangent]:
    (x,) = primal.inputs
    if x.dtype.is_float and not g.dtype.is_float:
        return [convert(real(g), x.dtype)]
    if not x.dtype.is_float and g.dtype.is_float:
        return [complex_(convert(g, real_type(x.dtype)), 0)]
    return [convert(g, x.dtype)]


def _clamp(primal: Primal, g: Tensor) -> list[Cotangent]:
    low, x, high = primal.inputs
    chosen = (less(x, low), bitwise_and(greater(x, low), less(x, high)), greater(x, high))
    parts = [
        where(mask, g, 0) if active else None for mask, active in zip(chosen, primal.active, strict=True)
    ]
    # A bound may be a scalar for a tensor of any shape.
    return [
        None if p is None else p.sum() if bound.shape == () else p
        for p, bound in zip(parts, primal.inputs, strict=True)
    ]


def _reduce_precision(primal: Primal, g: Tensor) -> list[Cotangent]:
    attributes = {name: primal.op.attributes[name] for name in ("exponent_bits", "mantissa_bits")}
    return [emit("reduce_precision", (g,), (g.spec,), attributes)]


def _barrier(primal: Primal, *cotangents: Cotangent) -> list[Cotangent]:
    """A barrier for the cotangents: what recomputes behind one must not be moved in front of it."""
    given = [g for g in cotangents if g is not None]
    builder = current_builder()
    op = builder.emit("stablehlo.optimization_barrier", [g.value for g in given], [g.spec for g in given])
    kept = (Tensor(value, builder) for value in op.results)
    return [None if g is None else next(kept) for g in cotangents]


register_rules(
    {
        "negate": (lambda g, y, x: -g,),
        "abs": (_abs,),
        "sign": _sign,
        "exponential": (lambda g, y, x: g * y,),
        "exponential_minus_one": (lambda g, y, x: g * (y + 1),),
        "log": (lambda g, y, x: g / x,),
        "log_plus_one": (lambda g, y, x: g / (x + 1),),
        "sqrt": (lambda g, y, x: g * (0.5 / y),),
        "rsqrt": (lambda g, y, x: g * (-0.5 * (y / x)),),
        "cbrt": (lambda g, y, x: g / (3 * (y * y)),),
        "sine": (lambda g, y, x: g * cos(x),),
        "cosine": (lambda g, y, x: -(g * sin(x)),),
        "tan": (lambda g, y, x: g * (y * y + 1),),
        "tanh": (lambda g, y, x: (g + g * y) * (1 - y),),  # g (1 - y^2)
        "logistic": (lambda g, y, x: g * (y * (1 - y)),),
        "add": (lambda g, y, a, b: g, lambda g, y, a, b: g),
        "subtract": (lambda g, y, a, b: g, lambda g, y, a, b: -g),
        "multiply": (lambda g, y, a, b: g * b, lambda g, y, a, b: g * a),
        "divide": (lambda g, y, a, b: g / b, lambda g, y, a, b: -((g / b) * y)),
        "power": _power,
        "maximum": (lambda g, y, a, b: _larger_gets(g, a, b), lambda g, y, a, b: _larger_gets(g, b, a)),
        "minimum": (lambda g, y, a, b: _larger_gets(g, b, a), lambda g, y, a, b: _larger_gets(g, a, b)),
        # x - b trunc(x / b)
        "remainder": (lambda g, y, a, b: g, lambda g, y, a, b: -(g * (sign(a / b) * floor(abs_(a / b))))),
        "atan2": (
            lambda g, y, a, b: g * (b / (a * a + b * b)),
            lambda g, y, a, b: -(g * (a / (a * a + b * b))),
        ),
        "select": (
            None,
            lambda g, y, p, a, b: where(p, g, 0),
            lambda g, y, p, a, b: where(p, 0, g),
        ),
        "clamp": _clamp,
        "convert": _convert,
        "reduce_precision": _reduce_precision,
        "optimization_barrier": _barrier,
        "real": (lambda g, y, x: complex_(g, 0),),
        "imag": (lambda g, y, x: complex_(0, -g),),
        "complex": (lambda g, y, a, b: real(g), lambda g, y, a, b: -imag(g)),
    }
)
