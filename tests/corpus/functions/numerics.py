"""Guarded and stable forms, low precision, randomness in the graph, and vmapped functions."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.corpus.arguments import definite, distinct, integers, normal, positive, together, typed, uniform
from tests.corpus.case import Case, Maker

SHAPE = (3, 4)
_M = normal(SHAPE)


def _key(seed: int) -> Maker:
    """A raw key of random numbers, which has no gradient."""
    return lambda _: (jax.random.key_data(jax.random.key(seed)),)


def _drawn(draw: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A function of an array and a raw key."""
    return lambda x, key: draw(x, jax.random.wrap_key_data(key))


def _low(dtype: str, name: str, function: Callable[..., Any], arguments: Maker, steps: int = 4) -> Case:
    epsilon = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}[dtype]
    note = "each of the two rounds in its own order"
    return Case(f"{name}_{dtype}", function, typed(dtype, arguments), tolerance=steps * epsilon, note=note)


def _mixed_mlp(x: Any, w: Any, v: Any) -> Any:
    hidden = jax.nn.gelu((x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)).astype(jnp.float32))
    return jnp.dot(hidden.astype(jnp.bfloat16), v.astype(jnp.bfloat16), preferred_element_type=jnp.float32)


def _per_example(w: Any, x: Any) -> Any:
    return jax.vmap(lambda row: jax.grad(lambda w: jnp.tanh(row @ w).sum())(w))(x)


_ROUNDED = "each of the two rounds in its own order"

CASES = [
    Case(
        "norm_guarded_at_zero", lambda x: jnp.sqrt(jnp.where((x > 0).any(1), (x**2).sum(1), 1.0)), _M, order=2
    ),
    Case("where_guard_before_sqrt", lambda x: jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.0)), 0.0), _M),
    Case(
        "where_guard_before_log", lambda x: jnp.where(x > 0, jnp.log(jnp.where(x > 0, x, 1.0)), -1.0) * x, _M
    ),
    Case(
        "where_guard_before_division",
        lambda x, y: jnp.where(abs(y) > 0.5, x / jnp.where(abs(y) > 0.5, y, 1.0), 0),
        normal(SHAPE, SHAPE),
    ),
    Case("sqrt_with_epsilon", lambda x: jnp.sqrt((x**2).sum(1) + 1e-6), _M, order=2),
    Case("log_of_a_tiny_softmax", lambda x: jnp.log(jax.nn.softmax(40 * x) + 1e-9), _M),
    Case("large_softplus", lambda x: jax.nn.softplus(200 * x) / 200, _M, order=2),
    Case("large_logsumexp", lambda x: jax.nn.logsumexp(500 * x, axis=1) / 500, _M),
    Case("large_sigmoid", lambda x: jax.nn.sigmoid(60 * x), _M),
    Case("large_tanh", lambda x: jnp.tanh(20 * x), _M),
    Case(
        "binary_cross_entropy_of_logits",
        lambda x, y: jnp.maximum(x, 0) - x * y + jnp.log1p(jnp.exp(-abs(x))),
        together(_M, uniform(0, 1, SHAPE)),
        order=2,
    ),
    Case("clip_by_norm", lambda x: x / jnp.maximum(1.0, jnp.linalg.norm(x)), _M, order=2),
    Case("huber", lambda x: jnp.where(abs(x) < 1, x**2 / 2, abs(x) - 0.5), _M),
    Case(
        "masked_attention",
        lambda q: jax.nn.softmax(jnp.where(jnp.tri(4, dtype=bool), q.T @ q, -1e30)) @ q.T,
        _M,
        order=2,
    ),
    Case(
        "minus_infinity_mask",
        lambda q: jax.nn.softmax(jnp.where(jnp.tri(4, dtype=bool), q.T @ q, -jnp.inf)),
        _M,
    ),
    Case(
        "rms_norm",
        lambda x, w: x * lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6) * w,
        normal(SHAPE, (4,)),
        order=2,
    ),
    Case(
        "cosine_similarity",
        lambda x, y: (x * y).sum(-1) / (jnp.linalg.norm(x, axis=-1) * jnp.linalg.norm(y, axis=-1)),
        normal(SHAPE, SHAPE),
        order=2,
    ),
    Case("sinkhorn", lambda x: _sinkhorn(x), _M, order=2),
    Case("smooth_maximum", lambda x: (x * jax.nn.softmax(9 * x)).sum(-1), _M, order=2),
    Case("straight_clip", lambda x: jnp.clip(x, None, 0.3) + jnp.clip(x, 0.1, None), _M),
    Case(
        "convert_to_float32_and_back",
        lambda x: (x.astype(jnp.float32) ** 2).astype(jnp.float64) * x,
        _M,
        tolerance=1e-6,
        note="it passes through float32",
    ),
    Case("truncated_to_integers", lambda x: x * (3 * x).astype(jnp.int32), _M),
    Case(
        "bits_and_back",
        lambda x: lax.bitcast_convert_type(lax.bitcast_convert_type(x, jnp.int64), jnp.float64) + x**2,
        _M,
        reference=lambda x: lax.stop_gradient(x) + x**2,
    ),
    Case("counted", lambda x: x * (x > 0).sum() + x**2 * jnp.arange(4), _M),
    Case(
        "dropout",
        _drawn(lambda x, k: jnp.where(jax.random.bernoulli(k, 0.7, x.shape), x / 0.7, 0.0) ** 2),
        together(_M, _key(3)),
        order=2,
    ),
    Case(
        "reparametrized_normal",
        _drawn(lambda x, k: x.sum(0) + jnp.exp(x) * jax.random.normal(k, x.shape)),
        together(_M, _key(4)),
        order=2,
    ),
    Case(
        "gumbel_softmax",
        _drawn(lambda x, k: jax.nn.softmax((x + jax.random.gumbel(k, x.shape)) / 0.7)),
        together(_M, _key(5)),
    ),
    Case(
        "split_keys",
        _drawn(
            lambda x, k: sum(
                jax.random.uniform(s, x.shape) * x**i for i, s in enumerate(jax.random.split(k, 3))
            )
        ),
        together(_M, _key(6)),
    ),
    Case(
        "random_permutation",
        _drawn(lambda x, k: jax.random.permutation(k, x) * jnp.arange(3.0)[:, None]),
        together(_M, _key(7)),
    ),
    Case("random_choice", _drawn(lambda x, k: jax.random.choice(k, x, (5,))), together(_M, _key(8))),
    Case(
        "noise_in_a_scan",
        _drawn(
            lambda x, k: lax.scan(
                lambda c, s: (c * 0.9 + jax.random.normal(s, (4,)) * c, c), x[0], jax.random.split(k, 4)
            )
        ),
        together(_M, _key(9)),
    ),
    Case("orthogonal_times_x", _drawn(lambda x, k: x @ jax.random.orthogonal(k, 4)), together(_M, _key(10))),
    Case(
        "monte_carlo_mean",
        _drawn(lambda x, k: jnp.tanh(x + jax.random.normal(k, (6, *x.shape))).mean(0)),
        together(_M, _key(11)),
        order=2,
    ),
    Case(
        "truncated_normal_noise",
        _drawn(lambda x, k: x * jax.random.truncated_normal(k, -2, 2, x.shape)),
        together(_M, _key(12)),
    ),
    Case("vmapped_gradient", _per_example, normal((4, 2), (5, 4)), order=2),
    Case(
        "vmapped_over_two_axes",
        jax.vmap(jax.vmap(lambda x, w: jnp.sin(x @ w), (0, None)), (None, 0)),
        normal((3, 4), (2, 4, 5)),
        order=2,
    ),
    Case("vmapped_solve", jax.vmap(jnp.linalg.solve), together(definite((3, 2, 2)), normal((3, 2, 2)))),
    Case("vmapped_sort", jax.vmap(lambda x: jnp.sort(x) * x), distinct((3, 5))),
    Case(
        "vmapped_convolution", jax.vmap(lambda x, k: jnp.convolve(x, k, mode="valid")), normal((3, 7), (3, 2))
    ),
    Case("vmapped_cond", jax.vmap(lambda x: lax.cond(x > 0, jnp.sin, jnp.square, x)), normal((6,)), order=2),
    Case("vmapped_cumsum", jax.vmap(jnp.cumsum, in_axes=1, out_axes=1), _M),
    Case(
        "vmapped_with_names",
        lambda x: jax.vmap(lambda v: v / lax.psum(jnp.exp(v), "batch"), axis_name="batch")(x),
        _M,
        order=2,
    ),
    Case(
        "vmapped_mean_of_axis",
        lambda x: jax.vmap(lambda v: v - lax.pmean(v, "i") * lax.axis_index("i"), axis_name="i")(x),
        _M,
    ),
    Case(
        "vectorized",
        jnp.vectorize(lambda a, b: jnp.dot(a, b) * a, signature="(n),(n)->(n)"),
        normal((3, 4), (4,)),
    ),
    Case("apply_along_axis", lambda x: jnp.apply_along_axis(lambda v: v * v.sum(), 0, x), _M),
    _low("float32", "sine", lambda x: jnp.sin(x) * x, _M),
    _low("float32", "mlp", lambda x, w: jnp.tanh(x @ w).sum(0), normal((5, 4), (4, 3))),
    _low("float32", "layer_norm", lambda x: jax.nn.standardize(x), _M, 64),
    _low("bfloat16", "product", lambda x, y: x * y + x, normal(SHAPE, SHAPE)),
    _low("bfloat16", "matmul", lambda x, y: x @ y, normal((5, 4), (4, 3))),
    _low(
        "bfloat16",
        "matmul_into_float32",
        lambda x, y: jnp.dot(x, y, preferred_element_type=jnp.float32),
        normal((5, 4), (4, 3)),
    ),
    _low("bfloat16", "softmax", lambda x: jax.nn.softmax(x), _M, 8),
    _low("bfloat16", "gelu", lambda x: jax.nn.gelu(x), _M, 16),
    _low(
        "bfloat16",
        "attention",
        lambda q, k, v: jax.nn.dot_product_attention(q, k, v),
        normal((1, 3, 2, 4), (1, 3, 2, 4), (1, 3, 2, 4)),
        16,
    ),
    _low(
        "bfloat16",
        "mean_in_float32",
        lambda x: x - x.astype(jnp.float32).mean(-1, keepdims=True).astype(x.dtype),
        _M,
    ),
    _low("bfloat16", "scan", lambda x: lax.scan(lambda c, v: (c * jnp.bfloat16(0.5) + v, c), x[0], x), _M, 8),
    _low("float16", "product", lambda x, y: x * y + x, normal(SHAPE, SHAPE)),
    _low("float16", "matmul", lambda x, y: x @ y, normal((5, 4), (4, 3)), 8),
    _low("float16", "logarithm", lambda x: jnp.log(x) * x, positive(SHAPE)),
    _low(
        "float16",
        "convolution",
        lambda x, k: lax.conv_general_dilated(x, k, (1,), "SAME"),
        normal((2, 3, 6), (4, 3, 3)),
        16,
    ),
    Case(
        "mixed_precision_mlp",
        _mixed_mlp,
        typed("float32", normal((3, 4), (4, 5), (5, 2))),
        tolerance=2.0**-7,
        note=_ROUNDED,
    ),
    Case(
        "loss_scaling",
        lambda w, x: (
            ((x.astype(jnp.float16) @ w.astype(jnp.float16)).astype(jnp.float32) ** 2).mean() * 128.0
        ),
        typed("float32", normal((4, 2), (3, 4))),
        tolerance=2.0**-9,
        note=_ROUNDED,
    ),
    Case(
        "quantized_weights",
        lambda s, x, q: x @ (q.astype(jnp.float64) * s),
        together(positive((5,)), normal((3, 4)), integers(-8, 8, (4, 5))),
        order=2,
    ),
]


def _sinkhorn(x: Any) -> Any:
    for _ in range(3):
        x = x - jax.nn.logsumexp(x, axis=1, keepdims=True)
        x = x - jax.nn.logsumexp(x, axis=0, keepdims=True)
    return jnp.exp(x)
