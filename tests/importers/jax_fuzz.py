"""Families of JAX's functions, each a function that draws one use with random attributes and shapes."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from tests.importers.random_choices import Array, Choices

Made = tuple[Any, ...]
"""What was drawn, in words; a function; and the arrays that it takes."""

FAMILIES: dict[str, Callable[["Draw"], Made]] = {}
KINKS = np.array([-3.0, -2.0, -1.0, -0.5, 0.5, 1.0, 1.5, 2.0, 3.0])


class Draw(Choices):
    """One stream of random choices."""

    def shape(self, low: int = 0, high: int = 3) -> tuple[int, ...]:
        shape = [self.integer(2, 4) for _ in range(self.integer(low, high))]
        if shape and self.integer(0, 6) == 0:
            shape[-1] = self.pick(0, 1, 1)
        return tuple(shape)

    def floats(self, *shape: int) -> Array:
        return self.near(KINKS, *shape)


def family(draw: Callable[[Draw], Made]) -> Callable[[Draw], Made]:
    """Enter a family under its name."""
    FAMILIES[draw.__name__] = draw
    return draw


UNARY = [
    "abs", "ceil", "cos", "exp", "exp2", "expm1", "fabs", "floor", "log", "log1p", "log2", "negative", "reciprocal",
    "rint", "sign", "sin", "sinc", "sinh", "cosh", "sqrt", "cbrt", "square", "tan", "tanh", "trunc", "arcsin",
    "arccos", "arctan", "arcsinh", "arctanh", "i0", "nan_to_num", "isfinite", "signbit", "deg2rad", "ravel", "angle",
    "spacing",
]  # fmt: skip
ACTIVATIONS = [
    "relu", "relu6", "sigmoid", "softplus", "silu", "gelu", "elu", "celu", "selu", "hard_sigmoid", "hard_silu",
    "hard_tanh", "leaky_relu", "log_sigmoid", "mish", "soft_sign", "squareplus", "sparse_plus", "sparse_sigmoid",
    "softmax", "log_softmax", "standardize", "glu", "logsumexp",
]  # fmt: skip
SPECIAL = [
    "erf", "erfc", "erfinv", "gammaln", "digamma", "expit", "logit", "ndtr", "ndtri", "log_ndtr", "entr", "i0e", "i1",
    "i1e", "spence", "exp1", "zeta2", "gammainc", "gammaincc", "betainc", "betaln", "xlogy", "xlog1py", "polygamma",
    "multigammaln", "rel_entr", "kl_div", "expi", "bernoulli",
]  # fmt: skip


@family
def unary(r: Draw) -> Made:
    if r.flag():
        name = r.pick(*ACTIVATIONS)
        return name, getattr(jax.nn, name), r.floats(*r.shape(1))
    name = r.pick(*UNARY)
    return name, getattr(jnp, name), r.pick(r.floats, r.positive)(*r.shape())


@family
def special(r: Draw) -> Made:
    name = r.pick(*SPECIAL)
    p, q, t = (r.positive(*r.pick((), (3,), (2, 1))) for _ in range(3))
    functions = jax.scipy.special
    match name:
        case "zeta2":
            return name, lambda p: functions.zeta(2.0, p), p
        case "polygamma":
            return name, lambda p: functions.polygamma(1, p), p
        case "multigammaln":
            return name, lambda p: functions.multigammaln(p + 2, 2), p
        case "gammainc" | "gammaincc" | "betaln" | "xlogy" | "xlog1py" | "rel_entr" | "kl_div":
            return name, getattr(functions, name), p, q
        case "betainc":
            return name, functions.betainc, p, q, t
    return name, getattr(functions, name), p


BINARY = [
    "add", "subtract", "multiply", "divide", "power", "float_power", "arctan2", "maximum", "minimum", "fmax", "fmin",
    "hypot", "mod", "fmod", "remainder", "floor_divide", "logaddexp", "logaddexp2", "copysign", "heaviside", "less",
    "equal", "ldexp", "nextafter", "gcd", "lcm", "bitwise_and", "left_shift", "right_shift", "float_power", "divmod",
    "logical_xor", "isclose",
]  # fmt: skip


@family
def binary(r: Draw) -> Made:
    name, shape = r.pick(*BINARY), r.shape()
    other = tuple(r.pick(size, 1) for size in shape[r.integer(0, len(shape)) :])
    if name in ("gcd", "lcm", "bitwise_and", "left_shift", "right_shift"):
        return name, getattr(jnp, name), r.integers(0, 9, *shape), r.integers(1, 4, *other)
    makers = (r.floats, r.normal, lambda *s: r.integers(1, 3, *s))
    return name, getattr(jnp, name), r.pick(*makers)(*shape), r.pick(*makers)(*other)


REDUCTIONS = [
    "sum", "mean", "prod", "max", "min", "argmax", "argmin", "all", "any", "std", "var", "median", "nansum",
    "nanmean", "nanmax", "nanstd", "ptp", "count_nonzero", "cumsum", "cumprod", "nancumsum", "sort", "argsort",
    "quantile", "percentile", "average", "cummax", "cummin", "cumlogsumexp", "diff", "trapezoid", "gradient", "flip",
    "roll", "top_k", "partition", "nanquantile", "norm",
]  # fmt: skip


@family
def reduction(r: Draw) -> Made:  # one case an operation
    name, shape = r.pick(*REDUCTIONS), r.shape(1)
    axis, x = r.axis(shape), r.floats(*shape)
    if r.integer(0, 4) == 0:
        x = r.integers(-2, 3, *shape)
    words, options = f"{name} {axis}", {"axis": axis}
    match name:
        case "std" | "var" | "nanstd":
            options |= {"ddof": r.integer(0, 1), "keepdims": r.flag()}
        case (
            "sum"
            | "mean"
            | "prod"
            | "max"
            | "min"
            | "all"
            | "any"
            | "median"
            | "nansum"
            | "nanmean"
            | "nanmax"
            | "ptp"
        ):
            options |= {"keepdims": r.flag()}
        case "sort" | "argsort":
            options |= {"descending": r.flag()}
        case "quantile" | "percentile" | "nanquantile":
            q, how = r.pick(0.25, 0.9, 1.0), r.pick("linear", "lower", "higher", "midpoint", "nearest")
            return f"{words} {q} {how}", lambda x: getattr(jnp, name)(x, q, axis=axis, method=how), x
        case "cummax" | "cummin" | "cumlogsumexp":
            reverse = r.flag()
            return f"{words} {reverse}", lambda x: getattr(lax, name)(x, axis % x.ndim, reverse), x
        case "roll":
            return words, lambda x: jnp.roll(x, 2, axis), x
        case "partition":
            return words, lambda x: jnp.partition(x, 1, axis)[:1], x
        case "top_k":
            return words, lambda x: lax.top_k(x, 1), x
        case "norm":
            order = r.pick(None, 1, 2, 3, np.inf, -np.inf, 0)
            return f"{words} {order}", lambda x: jnp.linalg.norm(x, order, axis=axis), x
    return f"{words} {options}", lambda x: getattr(jnp, name)(x, **options), x


@family
def places(r: Draw) -> Made:
    shape = tuple(r.integer(2, 4) for _ in range(3))
    x, axis = r.floats(*shape), r.axis(shape)
    i, mode = r.integers(-5, 5, r.integer(1, 4)), r.pick("clip", "wrap", "fill", None)
    y = r.normal(len(i), *shape[1:])
    name = r.pick("add", "multiply", "max", "min", "set", "power", "divide", "apply", "get")
    if name == "set":
        i = r.generator.permutation(shape[0])
        y = r.normal(*shape)
    return r.pick(
        (f"at {name} {mode}", lambda x, i, y: _updated(name, mode, x, i, y), x, i, y),
        (f"take {mode} {axis}", lambda x, i: jnp.take(x, i, axis, mode=mode), x, i),
        (
            f"take_along_axis {axis}",
            lambda x, i: jnp.take_along_axis(x, i, axis),
            x,
            r.integers(0, 1, *shape),
        ),
        ("where", lambda x: jnp.where(x > 0, x, jnp.where(x < -1, x * x, 0)), x),
        ("dynamic_slice", lambda x, i: lax.dynamic_slice(x, (i[0], 0, i[-1]), (2, 1, 2)), x, i),
        (
            "dynamic_update_slice",
            lambda x, i, y: lax.dynamic_update_slice(x, y[:1, :1], (i[0], 0, i[-1])),
            x,
            i,
            y,
        ),
        ("negative step", lambda x: x[::-1, None, ..., ::2], x),
        ("boolean", lambda x: jnp.compress(np.array([True, False] + [True] * (shape[0] - 2)), x, 0), x),
        ("segment_sum", lambda x, i: jax.ops.segment_sum(x, i % 3, 3), r.normal(len(i), 2), i),
        ("segment_max", lambda x, i: jax.ops.segment_max(x, i % 3, 4), r.normal(len(i), 2), i),
        ("searchsorted", lambda x, y: jnp.searchsorted(jnp.sort(x), y), r.floats(5), r.floats(3)),
        ("digitize", lambda x: jnp.digitize(x, jnp.array([-1.0, 0, 1])), x),
        ("interp", lambda x: jnp.interp(x, jnp.array([-1.0, 0.2, 1]), jnp.array([0.0, 2, 1])), r.normal(4)),
        ("bincount", lambda i: jnp.bincount(i % 4, length=5), i),
        ("pad", lambda x: jnp.pad(x, ((1, 2), (0, 1), (1, 1)), mode=r.pick("edge")), x),
        ("pad reflect", lambda x: jnp.pad(x, 1, mode="reflect"), x),
        ("pad negative", lambda x: lax.pad(x, 0.5, ((-1, 2, 1), (0, -1, 0), (1, 1, 2))), x),
        ("choose", lambda x: jnp.choose(np.array([0, 1]), [x[0, 0, :2], x[1, 1, :2]], mode="clip"), x),
    )


def _updated(name: str, mode: str | None, x: Any, i: Any, y: Any) -> Any:
    at = x.at[i]
    if name == "apply":
        return at.apply(jnp.sin) if mode is None else at.apply(jnp.sin, mode=mode)
    if name == "get":
        return at.get(mode=mode) if mode else at.get()
    options = {"mode": mode} if mode else {}
    return getattr(at, name)(y * 0 + 2 if name == "power" else y, **options)


@family
def algebra(r: Draw) -> Made:
    n = r.integer(1, 4)
    a, b = r.normal(n, n), r.normal(n, 2)
    linalg = jnp.linalg
    spd = lambda a: a @ a.T + jnp.eye(n)  # noqa: E731
    z = lambda a: a + 1j * jnp.roll(a, 1)  # noqa: E731
    precision = r.pick(None, "float32")
    return r.pick(
        ("matmul", lambda a, b: jnp.matmul(a, b, precision=precision), a, b),
        ("einsum", lambda a, b: jnp.einsum("ij,ik->jk", a, b), a, b),
        ("einsum trace", lambda a: jnp.einsum("ii->i", a), a),
        ("tensordot", lambda a: jnp.tensordot(a, a, 1), a),
        ("cholesky", lambda a: linalg.cholesky(spd(a)), a),
        ("solve", linalg.solve, a, b),
        ("inv", linalg.inv, a),
        ("det", linalg.det, a),
        ("slogdet", lambda a: linalg.slogdet(a), a),
        ("eigvalsh", lambda a: linalg.eigvalsh(spd(a)), a),
        ("svdvals", lambda a: linalg.svd(a, compute_uv=False), a),
        ("pinv", linalg.pinv, a),
        ("qr", lambda a: linalg.qr(a)[1], a),
        ("expm", jax.scipy.linalg.expm, a),
        ("solve_triangular", lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True), a, b),
        ("lu", lambda a: jax.scipy.linalg.lu(a)[2], a),
        ("fft", lambda a: jnp.abs(jnp.fft.fft(a, axis=0)) ** 2, a),
        ("rfft", lambda a: jnp.fft.rfft(a, n=5).imag, a),
        ("irfft", lambda a: jnp.fft.irfft(z(a), n=5), a),
        ("complex", lambda a: (jnp.exp(z(a)) * jnp.conj(z(a)) / (z(a) + 3)).imag, a),
        ("complex abs", lambda a: jnp.abs(z(a)) + jnp.angle(z(a)), a),
        ("complex power", lambda a: (z(a) ** 3 + jnp.sqrt(z(a))).real, a),
        ("kron", jnp.kron, a, b),
        ("cross", lambda a: jnp.cross(a, a[::-1]), r.normal(2, 3)),
        ("convolve", lambda a: jnp.convolve(a, a[:2], mode=r.pick("same")), r.normal(5)),
        ("polyval", lambda a: jnp.polyval(a, a[0]), r.normal(3)),
        (
            "tridiagonal",
            lambda a: lax.linalg.tridiagonal_solve(a[0], a[1] + 5, a[2], a[3:4].T),
            r.normal(4, 3),
        ),
        ("vander", lambda a: jnp.vander(a, 3), r.normal(3)),
    )


@family
def windows(r: Draw) -> Made:
    x, k = r.floats(1, 2, 5, 6), r.normal(2, 2, 2, 3)
    size, stride, padding = r.integer(1, 3), r.integer(1, 2), r.pick("SAME", "VALID", [(1, 0), (0, 2)])
    dilation, base = r.integer(1, 2), r.integer(1, 2)
    window, strides = (1, 1, size, 2), (1, 1, stride, 1)
    pads = padding if isinstance(padding, str) else [(0, 0), (0, 0), *padding]
    shape, method = (
        (1, 2, r.integer(1, 9), r.integer(1, 9)),
        r.pick("nearest", "linear", "cubic", "lanczos3", "lanczos5"),
    )
    antialias = r.flag()
    where = r.normal(2, 3)
    return r.pick(
        (
            f"conv {stride} {padding} {dilation} {base}",
            lambda x, k: lax.conv_general_dilated(x, k, (stride, 1), padding, (base, 1), (1, dilation)),
            x,
            k,
        ),
        (
            f"conv_transpose {padding}",
            lambda x, k: lax.conv_transpose(
                x, k, (stride, 1), padding, dimension_numbers=("NCHW", "OIHW", "NCHW")
            ),
            x,
            k,
        ),
        (f"max {pads}", lambda x: lax.reduce_window(x, -np.inf, lax.max, window, strides, pads), x),
        (f"min {pads}", lambda x: lax.reduce_window(x, np.inf, lax.min, window, strides, pads), x),
        (f"sum {pads}", lambda x: lax.reduce_window(x, 0.0, lax.add, window, strides, pads), x),
        (f"resize {method} {shape} {antialias}", lambda x: jax.image.resize(x, shape, method, antialias), x),
        (f"resize {method} {shape} {antialias}", lambda x: jax.image.resize(x, shape, method, antialias), x),
        (
            "map_coordinates",
            lambda x, c: jax.scipy.ndimage.map_coordinates(x[0, 0], [c[0] + 2, c[1] + 2], 1, mode="nearest"),
            x,
            where,
        ),
    )


@family
def control(r: Draw) -> Made:
    x = r.normal(4, 3)
    reverse, n = r.flag(), r.integer(0, 4)

    @jax.custom_jvp
    def doubled(x: Any) -> Any:
        return jnp.sin(x)

    doubled.defjvp(lambda primals, tangents: (doubled(*primals), 2 * tangents[0]))

    @jax.custom_vjp
    def tripled(x: Any) -> Any:
        return x * x

    tripled.defvjp(lambda x: (tripled(x), x), lambda x, g: (3 * g * x,))
    key = jax.random.key(r.integer(0, 99))
    p = r.positive(3) + 0.5
    return r.pick(
        (
            f"scan {reverse}",
            lambda x: lax.scan(lambda c, a: (jnp.tanh(c + a), c * a), x[0], x, reverse=reverse),
            x,
        ),
        (f"fori {n}", lambda x: lax.fori_loop(0, n, lambda i, a: jnp.sin(a) + i, x), x),
        ("cond", lambda x: lax.cond(x[0, 0] > 0, jnp.sin, lambda a: a * a, x), x),
        ("switch", lambda x: lax.switch(n, [jnp.sin, jnp.cos, jnp.tanh], x), x),
        ("map", lambda x: lax.map(lambda a: a.sum() * a, x), x),
        ("vmap", lambda x: jax.vmap(lambda a: jnp.outer(a, a), out_axes=1)(x), x),
        ("remat", lambda x: jax.checkpoint(lambda a: jnp.sin(a) ** 2)(x), x),
        ("custom_jvp", lambda x: doubled(x) * x, x),
        ("custom_jvp in scan", lambda x: lax.scan(lambda c, a: (c + doubled(a), tripled(c)), x[0], x), x),
        ("custom_vjp", lambda x: jax.vmap(tripled)(x), x),
        ("stop_gradient", lambda x: x * lax.stop_gradient(x), x),
        ("associative_scan", lambda x: lax.associative_scan(jnp.multiply, x, reverse=reverse), x),
        ("gamma", lambda p: jax.random.gamma(key, p), p),
        ("dirichlet", lambda p: jax.random.dirichlet(key, p), p),
        ("beta", lambda p: jax.random.beta(key, p, 1 + p), p),
        ("t", lambda p: jax.random.t(key, p), p),
        ("gradient", lambda x: jax.grad(lambda a: (doubled(a) ** 3).sum())(x), x),
        (
            "custom_root",
            lambda p: lax.custom_root(
                lambda y: y * y - p, p, lambda *_: jnp.sqrt(p), lambda g, y: y / g(jnp.ones_like(y))
            ),
            p,
        ),
    )
