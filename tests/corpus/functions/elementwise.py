"""Functions of every element: arithmetic, powers, trigonometry, activations, selections."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.corpus.arguments import distinct, normal, positive, together, uniform
from tests.corpus.case import Case

SHAPE = (3, 4)
_INSIDE = uniform(-0.9, 0.9, SHAPE)
_TWO = normal(SHAPE, SHAPE)

_SMOOTH = {
    jnp.sin, jnp.cos, jnp.tanh, jnp.sinh, jnp.cosh, jnp.exp, jnp.exp2, jnp.expm1, jnp.arctan, jnp.arcsinh, jnp.sinc,
    jnp.square, jnp.deg2rad, jnp.negative, jax.nn.sigmoid, jax.nn.softplus, jax.nn.silu, jax.nn.mish, jax.nn.soft_sign,
    jax.nn.log_sigmoid, jax.nn.squareplus, jnp.cbrt, jnp.abs, jnp.absolute, jnp.nan_to_num,
}  # fmt: skip
_POSITIVE = {jnp.sqrt, jnp.log, jnp.log2, jnp.log10, jnp.log1p, jnp.reciprocal, lax.rsqrt}
_INSIDE_ONE = {jnp.arcsin, jnp.arccos, jnp.arctanh, jnp.tan}
_KINKED = {
    jax.nn.relu, jax.nn.relu6, jax.nn.leaky_relu, jax.nn.elu, jax.nn.selu, jax.nn.celu, jax.nn.hard_tanh,
    jax.nn.hard_sigmoid, jax.nn.hard_swish, jax.nn.sparse_plus, jax.nn.sparse_sigmoid,
}  # fmt: skip


def _named(functions: set, arguments, order: int) -> list[Case]:
    return [Case(f.__name__, f, arguments, order=order) for f in sorted(functions, key=lambda f: f.__name__)]


CASES = [
    *_named(_SMOOTH, normal(SHAPE), 2),
    *_named(_POSITIVE, positive(SHAPE), 2),
    *_named(_INSIDE_ONE, _INSIDE, 2),
    *_named(_KINKED, normal(SHAPE), 1),
    Case("arccosh", jnp.arccosh, uniform(1.2, 3.0, SHAPE), order=2),
    Case("gelu_tanh", jax.nn.gelu, normal(SHAPE), order=2),
    Case("gelu_exact", lambda x: jax.nn.gelu(x, approximate=False), normal(SHAPE), order=2),
    Case("glu", jax.nn.glu, normal(SHAPE), order=2),
    Case("cube", lambda x: x**3, normal(SHAPE), order=2),
    Case("negative_power", lambda x: x**-2, positive(SHAPE), order=2),
    Case("real_power", lambda x: x**2.5, positive(SHAPE), order=2),
    Case("power_of_two_arrays", lambda x, y: x**y, positive(SHAPE, SHAPE), order=2),
    Case("float_power", jnp.float_power, positive(SHAPE, SHAPE)),
    Case("constant_to_a_power", lambda x: 1.7**x, normal(SHAPE)),
    Case("divide", lambda x, y: x / y, together(normal(SHAPE), positive(SHAPE)), order=2),
    Case("multiply_broadcast", lambda x, y: x * y, normal((3, 1, 4), (2, 1)), order=2),
    Case("subtract_broadcast", lambda x, y: x - y, normal((4,), (3, 4))),
    Case("scalar_and_array", lambda x, y: x * y + x, normal((), (3, 4)), order=2),
    Case("hypot", jnp.hypot, _TWO, order=2),
    Case("arctan2", jnp.arctan2, _TWO, order=2),
    Case("logaddexp", jnp.logaddexp, _TWO, order=2),
    Case("logaddexp2", jnp.logaddexp2, _TWO),
    Case("maximum", jnp.maximum, _TWO),
    Case("minimum", jnp.minimum, _TWO),
    Case("fmax", jnp.fmax, _TWO),
    Case("clip", lambda x: jnp.clip(x, -0.5, 0.7), normal(SHAPE)),
    Case(
        "clamp_to_arrays",
        lax.clamp,
        lambda rng: (rng.uniform(-1, 0, SHAPE), rng.normal(size=SHAPE), rng.uniform(0, 1, SHAPE)),
    ),
    Case("where", lambda x, y: jnp.where(x > y, x * y, jnp.sin(y)), _TWO, order=2),
    Case(
        "three_way_select",
        lambda x, y, z: lax.select_n(jnp.int32(2 * (x > 0) * (y > 0)), x, y * z, z),
        normal(SHAPE, SHAPE, SHAPE),
    ),
    Case(
        "select_by_conditions",
        lambda x: jnp.select([x < -0.5, x < 0.5], [x**2, jnp.sin(x)], jnp.exp(x)),
        normal(SHAPE),
    ),
    Case(
        "piecewise",
        lambda x: jnp.piecewise(x, [x < 0, x >= 0], [lambda x: x**2, lambda x: jnp.sin(x)]),
        normal(SHAPE),
    ),
    Case("remainder", jnp.remainder, together(normal(SHAPE), positive(SHAPE))),
    Case("fmod", jnp.fmod, together(normal(SHAPE), positive(SHAPE))),
    Case("floor_times_x", lambda x: jnp.floor(x * 3) * x, normal(SHAPE)),
    Case("round_times_x", lambda x: jnp.round(x * 3) * x + jnp.trunc(x) * x**2, normal(SHAPE)),
    Case("sign_times_x", lambda x: jnp.sign(x) * x**2, normal(SHAPE), order=2),
    Case("copysign", lambda x, y: jnp.copysign(x, y) * y, _TWO),
    Case("heaviside", lambda x: jnp.heaviside(x, 0.5) * x, normal(SHAPE)),
    Case("modf", lambda x: jnp.modf(3 * x)[0] * x, normal(SHAPE)),
    Case("integer_power_by_squaring", lambda x: lax.integer_pow(x, 7), normal(SHAPE), order=2),
    Case("polynomial", lambda c, x: jnp.polyval(c, x), normal((5,), SHAPE), order=2),
    Case(
        "interpolation",
        lambda x, y: jnp.interp(x, jnp.arange(5.0), y),
        together(uniform(0.1, 3.9, SHAPE), normal((5,))),
    ),
    Case(
        "interpolation_points",
        lambda x, p, y: jnp.interp(x, p, y),
        lambda rng: (rng.uniform(0.1, 3.9, SHAPE), growing(rng), rng.normal(size=5)),
    ),
    Case("standardize", jax.nn.standardize, normal(SHAPE), order=2),
    Case("differences", lambda x: jnp.diff(x, n=2, axis=1), normal((3, 6))),
    Case("numeric_gradient", lambda x: jnp.stack(jnp.gradient(x)), normal((4, 5))),
    Case("trapezoid", lambda y, x: jnp.trapezoid(y, x), lambda rng: (rng.normal(size=(3, 5)), growing(rng))),
    Case("unwrap", jnp.unwrap, lambda rng: (rng.uniform(-9, 9, (3, 6)),)),
    Case(
        "composition",
        lambda x, y: jnp.sin(jnp.exp(x) * y) / (1 + x**2) + jnp.log(2 + jnp.cos(y)),
        _TWO,
        order=2,
    ),
    Case("reused_value", lambda x: (x * x + x) * (x * x - x) / (1 + x * x), normal(SHAPE), order=2),
    Case("long_chain", lambda x: _chained(x, 20), normal(SHAPE), order=2),
    Case("sorted_thresholds", lambda x: jnp.maximum(x, 0) * jnp.minimum(x, 1), distinct(SHAPE)),
]


def growing(rng):  # type: ignore[no-untyped-def]  # a maker's part
    """Five growing numbers from 0 to 4."""
    return np.arange(5) + rng.uniform(0, 0.1, 5)


def _chained(x: jax.Array, count: int) -> jax.Array:
    for i in range(count):
        x = jnp.sin(x * (1 + 0.1 * i)) + 0.3 * x
    return x
