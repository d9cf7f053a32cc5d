"""Loops, branches, scans, nested and captured; recomputation and functions with rules of their own."""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from tests.corpus.arguments import integers, normal, positive, together, uniform
from tests.corpus.case import Case

_V = (4,)
_INDEX = integers(0, 3, ())


def _recurrence(w, h, xs):
    def body(h, x):
        h = jnp.tanh(h @ w + x)
        return h, h.sum()

    return lax.scan(body, h, xs)


def _nested_scan(w, xs):
    def outer(total, row):
        inner = lax.scan(lambda c, x: (jnp.sin(c * w) + x, c * x), total, row)
        return inner[0], inner[1].sum()

    return lax.scan(outer, jnp.float64(0.3), xs)


def _fori(x, count):
    return lax.fori_loop(0, count, lambda i, c: jnp.sin(c) + 0.1 * i * x, x)


def _fori_with_updates(x):
    def body(i, c):
        return c.at[i].set(jnp.sin(c[i - 1]) + c[i] ** 2)

    return lax.fori_loop(1, 4, body, x)


def _fori_reading(x, y):
    return lax.fori_loop(
        0, 4, lambda i, c: c * y[i] + lax.dynamic_index_in_dim(x, 3 - i, keepdims=False), jnp.float64(1)
    )


def _scan_with_branch(x):
    def body(c, v):
        c = lax.cond(v > 0, lambda c: c * v, lambda c: jnp.sin(c) - v, c)
        return c, c

    return lax.scan(body, jnp.float64(0.5), x)


def _kalman(a, q, ys):
    def body(state, y):
        mean, cov = state
        mean, cov = a @ mean, a @ cov @ a.T + q @ q.T
        gain = cov[:, 0] / (cov[0, 0] + 0.5)
        return (mean + gain * (y - mean[0]), cov - jnp.outer(gain, cov[0])), mean[0]

    return lax.scan(body, (jnp.ones(2), jnp.eye(2)), ys)


def _runge_kutta(x, p):
    def slope(s):
        return jnp.array([p[0] * s[0] - p[1] * s[0] * s[1], p[2] * s[0] * s[1] - p[3] * s[1]])

    def step(s, _):
        k1 = slope(s)
        k2 = slope(s + 0.05 * k1)
        k3 = slope(s + 0.05 * k2)
        k4 = slope(s + 0.1 * k3)
        s = s + 0.1 * (k1 + 2 * k2 + 2 * k3 + k4) / 6
        return s, s

    return lax.scan(step, x, None, length=6)


def _descent(w, x, y):
    def step(w, _):
        return w - 0.1 * jax.grad(lambda w: ((jnp.tanh(x @ w) - y) ** 2).mean())(w), None

    return lax.scan(step, w, None, length=3)[0]


def _viterbi(transitions, scores):
    return lax.scan(lambda a, s: ((a[:, None] + transitions).max(0) + s, None), scores[0], scores[1:])[0]


def _forward_algorithm(transitions, scores):
    return lax.scan(
        lambda a, s: (jax.nn.logsumexp(a[:, None] + transitions, axis=0) + s, None), scores[0], scores[1:]
    )[0]


@jax.custom_vjp
def _clear_rule(x):
    return jnp.sin(x) * x


_clear_rule.defvjp(lambda x: (_clear_rule(x), x), lambda x, g: (g * (jnp.cos(x) * x + jnp.sin(x)),))


@jax.custom_jvp
def _forward_rule(x):
    return jnp.log1p(jnp.exp(x))


_forward_rule.defjvp(lambda p, t: (_forward_rule(*p), jax.nn.sigmoid(*p) * t[0]))


def _two_blocks(body):
    return lambda x, w: body(body(x, w), w) * x


def _block(x, w):
    return jnp.tanh(x @ w) + x


CASES = [
    Case("scan_recurrence", _recurrence, normal((4, 4), _V, (5, 4)), order=2),
    Case("scan_nested", _nested_scan, normal((), (3, 4)), order=2),
    Case(
        "scan_reversed",
        lambda x: lax.scan(lambda c, v: (c * 0.9 + v**2, c * v), 0.0, x, reverse=True),
        normal((6,)),
        order=2,
    ),
    Case(
        "scan_unrolled", lambda x: lax.scan(lambda c, v: (jnp.sin(c + v), c), 0.1, x, unroll=3), normal((6,))
    ),
    Case(
        "scan_unrolled_uneven",
        lambda x: lax.scan(lambda c, v: (jnp.sin(c + v), c), 0.1, x, unroll=4),
        normal((6,)),
    ),
    Case(
        "scan_without_inputs", lambda x: lax.scan(lambda c, _: (jnp.cos(c), c), x, None, length=4), normal(_V)
    ),
    Case(
        "scan_without_outputs",
        lambda x, w: lax.scan(lambda c, v: (c * w + v, None), x[0], x)[0],
        normal((5, 3), (3,)),
    ),
    Case(
        "scan_of_trees",
        lambda x, y: lax.scan(
            lambda c, v: ({"a": c["a"] + v["p"], "b": c["b"] * v["q"]}, c["a"] * v["q"]),
            {"a": jnp.float64(0), "b": jnp.float64(1)},
            {"p": x, "q": y},
        ),
        normal((4,), (4,)),
    ),
    Case(
        "scan_with_counter",
        lambda x: lax.scan(
            lambda c, v: ((c[0] + 1, c[1] * v + c[0]), c[1]), (jnp.float64(0), jnp.float64(1)), x
        ),
        normal((5,)),
    ),
    Case(
        "scan_with_integers",
        lambda x: lax.scan(lambda c, v: ((c[0] + 1, jnp.sin(c[1]) + v * c[0]), c[0]), (0, 0.3), x),
        normal((5,)),
        order=2,
    ),
    Case("scan_with_branch", _scan_with_branch, normal((6,))),
    Case(
        "scan_checkpointed",
        lambda w, h, xs: lax.scan(jax.checkpoint(lambda h, x: (jnp.tanh(h @ w + x), h.sum())), h, xs),
        normal((4, 4), _V, (5, 4)),
        order=2,
    ),
    Case(
        "scan_vmapped",
        lambda h, xs: jax.vmap(lambda h, x: lax.scan(lambda c, v: (jnp.sin(c) * v, c), h, x))(h, xs),
        normal((3,), (3, 5)),
    ),
    Case("scan_of_one", lambda x: lax.scan(lambda c, v: (c * v, c), x.sum(), x), normal((1,))),
    Case("fori_loop", lambda x: _fori(x, 5), normal(_V), order=2),
    Case("fori_loop_from_two", lambda x: lax.fori_loop(2, 7, lambda i, c: c * jnp.cos(x * i), x), normal(_V)),
    Case(
        "fori_loop_nested",
        lambda x: lax.fori_loop(
            0, 3, lambda _, c: lax.fori_loop(0, 2, lambda j, d: jnp.sin(d) * x + j, c), x
        ),
        normal(_V),
    ),
    Case("fori_loop_updates", _fori_with_updates, normal(_V), order=2),
    Case("fori_loop_reads", _fori_reading, normal(_V, _V), order=2),
    Case("scan_as_while", lambda x: lax.scan(lambda c, _: (c * jnp.cos(c), None), x, None, 5)[0], normal(_V)),
    Case(
        "cond",
        lambda x, i: lax.cond(i > 0, jnp.sin, lambda x: x**2, x),
        together(normal(_V), _INDEX),
        order=2,
    ),
    Case(
        "cond_capturing",
        lambda x, y, i: lax.cond(i > 0, lambda: x * y, lambda: x / (2 + y**2)),
        together(normal(_V, _V), _INDEX),
        order=2,
    ),
    Case(
        "cond_by_value",
        lambda x, y: lax.cond(x.sum() > y.sum(), lambda a, b: a * b, lambda a, b: a - b**2, x, y),
        normal(_V, _V),
    ),
    Case(
        "cond_nested",
        lambda x, i: lax.cond(i > 0, lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x), jnp.exp, x),
        together(normal(_V), _INDEX),
    ),
    Case(
        "cond_one_constant",
        lambda x, i: lax.cond(i > 5, jnp.zeros_like, lambda x: x**3, x) + x,
        together(normal(_V), _INDEX),
    ),
    Case(
        "switch",
        lambda x, i: lax.switch(i, [jnp.sin, jnp.cos, lambda x: x**3], x),
        together(normal(_V), _INDEX),
        order=2,
    ),
    Case(
        "switch_clamped",
        lambda x, i: lax.switch(i + 9, [jnp.sin, jnp.cos, lambda x: x**3], x),
        together(normal(_V), _INDEX),
    ),
    Case(
        "switch_several_results",
        lambda x, i: lax.switch(
            i, [lambda x: (x, x.sum()), lambda x: (x**2, x.max()), lambda x: (-x, x[0])], x
        ),
        together(normal(_V), _INDEX),
    ),
    Case(
        "switch_vmapped",
        jax.vmap(lambda x, i: lax.switch(i, [jnp.sin, jnp.cos, jnp.exp], x)),
        together(normal((5,)), integers(0, 3, (5,))),
    ),
    Case("map", lambda x: lax.map(lambda v: jnp.outer(v, jnp.sin(v)), x), normal((3, 4)), order=2),
    Case(
        "map_in_batches", lambda x: lax.map(lambda v: jnp.sin(v) * v.sum(), x, batch_size=2), normal((5, 3))
    ),
    Case(
        "associative_scan",
        lambda x: lax.associative_scan(lambda a, b: a * b + a + b, x),
        normal((7,)),
        order=2,
    ),
    Case(
        "associative_scan_pairs",
        lambda a, b: lax.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (a, b)),
        normal((8,), (8,)),
        order=2,
    ),
    Case(
        "associative_scan_reversed",
        lambda x: lax.associative_scan(jnp.logaddexp, x, reverse=True),
        normal((5,)),
    ),
    Case("checkpoint", _two_blocks(jax.checkpoint(_block)), normal((3, 4), (4, 4)), order=2),
    Case(
        "checkpoint_of_dots",
        _two_blocks(jax.checkpoint(_block, policy=jax.checkpoint_policies.dots_saveable)),
        normal((3, 4), (4, 4)),
    ),
    Case(
        "checkpoint_nested",
        lambda x, w: jax.checkpoint(lambda x: jax.checkpoint(_block)(x, w) * x)(x),
        normal((3, 4), (4, 4)),
    ),
    Case("nested_jit", _two_blocks(jax.jit(_block)), normal((3, 4), (4, 4)), order=2),
    Case(
        "jit_called_often",
        lambda x, w: functools.reduce(lambda h, _: jax.jit(_block)(h, w), range(4), x),
        normal((3, 4), (4, 4)),
    ),
    Case("inline_jit", _two_blocks(jax.jit(_block, inline=True)), normal((3, 4), (4, 4))),
    Case("custom_vjp", lambda x: _clear_rule(x) * x, normal(_V), order=2),
    Case("custom_jvp", lambda x: _forward_rule(x) * x, normal(_V), order=2),
    Case(
        "gradient_inside",
        lambda x, w: jax.grad(lambda x: jnp.tanh(x @ w).sum())(x) * x,
        normal((3, 4), (4, 4)),
        order=2,
    ),
    Case("hessian_inside", lambda x: jax.hessian(lambda x: (x**3).sum() * x.prod())(x), normal((3,))),
    Case("jacobian_inside", lambda x: jax.jacfwd(lambda x: jnp.sin(x) * x.sum())(x), normal((3,)), order=2),
    Case(
        "forward_derivative_inside",
        lambda x, v: jax.jvp(lambda x: jnp.exp(x) * x.sum(), (x,), (v,)),
        normal((3,), (3,)),
    ),
    Case(
        "gradient_of_scan_inside",
        lambda x: jax.grad(lambda x: lax.scan(lambda c, v: (jnp.sin(c * v), c), 0.5, x)[0])(x),
        normal((4,)),
        order=2,
    ),
    Case("kalman_filter", _kalman, normal((2, 2), (2, 2), (5,))),
    Case("runge_kutta", _runge_kutta, together(positive((2,)), uniform(0.3, 1.0, (4,))), order=2),
    Case("gradient_descent_unrolled", _descent, normal((3,), (5, 3), (5,)), order=2),
    Case("viterbi_score", _viterbi, normal((3, 3), (5, 3))),
    Case("forward_algorithm", _forward_algorithm, normal((3, 3), (5, 3)), order=2),
    Case(
        "optimization_barrier",
        lambda x, y: sum(lax.optimization_barrier((x * y, x))),
        normal(_V, _V),
        order=2,
    ),
    Case("precision_reduced_to_itself", lambda x: lax.reduce_precision(x, 11, 52) * x, normal(_V), order=2),
    Case(
        "composite",
        lambda x: lax.composite(lambda x: jnp.sin(x) * x, "corpus.composite")(x) * x,
        normal(_V),
        order=2,
        reference=lambda x: jnp.sin(x) * x * x,
    ),
]
