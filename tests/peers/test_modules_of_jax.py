"""Modules of flax and equinox, imported: results and gradients are JAX's, and weights have names that a reader knows."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax
import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from tests.execution import run

import pcp
from pcp.ir.tree import map_tree

RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


def assert_close(given: Any, expected: Any) -> None:
    map_tree(
        lambda a, b: np.testing.assert_allclose(np.asarray(a), b, rtol=2e-4, atol=2e-5),
        given,
        pcp.jax_arrays(expected),
    )


class LinenMLP(linen.Module):
    @linen.compact
    def __call__(self, x: Any) -> Any:
        return linen.Dense(2)(linen.LayerNorm()(nnx.gelu(linen.Dense(4)(x))))


class LinenConvolution(linen.Module):
    @linen.compact
    def __call__(self, x: Any) -> Any:
        x = linen.Conv(4, (3, 3))(x[..., None])
        return linen.max_pool(linen.relu(x), (2, 2), (2, 2)).mean((1, 2))


class LinenLSTM(linen.Module):
    @linen.compact
    def __call__(self, x: Any) -> Any:
        return linen.RNN(linen.OptimizedLSTMCell(5))(x)


class LinenAttention(linen.Module):
    @linen.compact
    def __call__(self, x: Any) -> Any:
        return linen.MultiHeadDotProductAttention(num_heads=2)(x)


class NnxBlock(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(6, 6, rngs=rngs)
        self.norm = nnx.BatchNorm(6, rngs=rngs)
        self.layers = nnx.List([nnx.Linear(6, 6, rngs=rngs) for _ in range(2)])

    def __call__(self, x: Any) -> Any:
        x = self.norm(self.first(x))
        for layer in self.layers:
            x = x + jnp.tanh(layer(x))
        return x


class SelfAttention(eqx.Module):
    inner: eqx.nn.MultiheadAttention

    def __call__(self, x: Any) -> Any:
        return self.inner(x, x, x)


def linen_case(module: linen.Module, x: Any) -> tuple[Callable[..., Any], Any, Any]:
    return lambda params, x: (module.apply(params, x) ** 2).mean(), module.init(jax.random.key(0), x), x


def nnx_case(x: Any) -> tuple[Callable[..., Any], Any, Any]:
    graph, params, rest = nnx.split(NnxBlock(nnx.Rngs(0)), nnx.Param, ...)

    def loss(params: Any, x: Any) -> Any:
        own = jax.tree.map(lambda leaf: leaf, rest)  # statistics that the trace may change
        return (nnx.merge(graph, params, own)(x) ** 2).mean()

    return loss, params, x


def eqx_case(module: Any, x: Any) -> tuple[Callable[..., Any], Any, Any]:
    return lambda module, x: (jax.vmap(module)(x) ** 2).mean(), module, x


def key() -> Any:
    return jax.random.key(int(RANDOM.integers(1 << 30)))


CASES: dict[str, Callable[[], tuple[Callable[..., Any], Any, Any]]] = {
    "linen mlp": lambda: linen_case(LinenMLP(), normal(3, 6)),
    "linen convolution": lambda: linen_case(LinenConvolution(), normal(2, 6, 6)),
    "linen lstm": lambda: linen_case(LinenLSTM(), normal(2, 4, 3)),
    "linen attention": lambda: linen_case(LinenAttention(), normal(2, 5, 4)),
    "nnx": lambda: nnx_case(normal(3, 6)),
    "eqx mlp": lambda: eqx_case(eqx.nn.MLP(3, 2, 4, 2, key=key()), normal(5, 3)),
    "eqx convolution": lambda: eqx_case(
        eqx.nn.Sequential(
            [eqx.nn.Conv2d(1, 3, 3, key=key()), eqx.nn.GroupNorm(3, 3), eqx.nn.Lambda(jax.nn.silu)]
        ),
        normal(2, 1, 6, 6),
    ),
    "eqx attention": lambda: eqx_case(
        SelfAttention(eqx.nn.MultiheadAttention(2, 4, key=key())), normal(2, 5, 4)
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_jax(case: str) -> None:
    function, params, x = CASES[case]()
    program = pcp.from_jax(function, params, pcp.spec(x.shape, "f32"))
    expected, expected_gradient = eqx.filter_value_and_grad(function)(params, x)
    for given in (params, pcp.jax_arrays(params)):
        value, gradient = run(pcp.value_and_grad(program), given, x)
        np.testing.assert_allclose(value, expected, rtol=2e-5)
        assert_close(pcp.jax_arrays(gradient), expected_gradient)
        assert jax.tree.structure(gradient) == jax.tree.structure(params)


@flax.struct.dataclass
class Pair:
    left: Any
    right: Any
    word: str = flax.struct.field(pytree_node=False)


def test_a_traced_function_takes_and_returns_what_other_libraries_registered() -> None:
    optimizer = optax.adam(1e-3)
    pair = Pair(normal(2), {"a": normal(2)}, "w")
    state = optimizer.init({"pair": pair})

    def function(pair: Any, state: Any) -> Any:
        assert pair.word == "w"
        moment = state[0].mu["pair"]
        return pair.replace(left=pair.left + moment.left), state

    program = pcp.trace(function, pair, state)
    found, after = run(program, pair, state)
    assert type(found) is Pair
    assert (found.word, type(after[0]).__name__) == ("w", "ScaleByAdamState")
    np.testing.assert_array_equal(found.left, pair.left)
    assert jax.tree.structure(after[0].mu) == jax.tree.structure(state[0].mu)
    with pytest.raises(
        pcp.ir.TreeMismatch, match=r"argument.0 is Pair with .*, but the program was made with Pair"
    ):
        run(program, pair.replace(word="x"), state)


def test_a_step_trains_a_module_and_returns_one() -> None:
    module, x = eqx.nn.MLP(3, 2, 4, 1, key=key()), normal(5, 3)
    loss = lambda m, x: (jax.vmap(m)(x) ** 2).mean()  # noqa: E731
    step = pcp.training_step(
        pcp.from_jax(loss, module, x, roles=["weight", "input"]), pcp.optimizers.sgd(0.1)
    )
    state, metrics = run(step, step.initial_state(module), (x,))
    assert metrics["loss"] == pytest.approx(float(loss(module, x)), rel=1e-5)
    wanted = eqx.apply_updates(module, jax.tree.map(lambda g: -0.1 * g, eqx.filter_grad(loss)(module, x)))
    assert isinstance(state["params"], eqx.nn.MLP)
    np.testing.assert_allclose(state["params"](x[0]), wanted(x[0]), rtol=1e-4, atol=1e-6)


def test_names_are_paths_in_the_module() -> None:
    module = eqx.nn.MLP(3, 2, 4, 1, key=key())
    program = pcp.from_jax(lambda module, x: module(x), module, normal(3))
    assert [entry.name for entry in program.arguments] == [
        f"module.layers.{i}.{name}" for i in range(2) for name in ("bias", "weight")
    ] + ["x"]
    dense = linen.Dense(2)
    variables = flax.core.freeze(dense.init(key(), normal(3)))
    frozen = pcp.from_jax(lambda variables, x: dense.apply(variables, x), variables, normal(3))
    assert [entry.name for entry in frozen.arguments] == [
        "variables.params.bias",
        "variables.params.kernel",
        "x",
    ]


def test_a_module_with_state_returns_its_successor() -> None:
    graph, state = nnx.split(NnxBlock(nnx.Rngs(0)))

    def step(state: Any, x: Any) -> Any:
        module = nnx.merge(graph, state)
        loss = (module(x) ** 2).mean()
        return nnx.state(module), loss

    x = normal(3, 6)
    program = pcp.from_jax(step, state, x, roles=["state", "input"])
    assert all(entry.alias is not None for entry in program.arguments if entry.name != "x")
    after, loss = run(program, *pcp.jax_arrays((state, x)))
    expected, expected_loss = step(state, x)
    assert_close(after, expected)
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)


def test_dropout_takes_its_key_at_every_call() -> None:
    module = eqx.nn.Sequential([eqx.nn.Linear(3, 8, key=key()), eqx.nn.Dropout(0.5)])
    x, at = normal(3), key()
    program = pcp.from_jax(lambda module, x, key: module(x, key=key), module, x, at)
    assert str(program.arguments[-1].spec) == "u32[2]"
    assert_close(run(program, *pcp.jax_arrays((module, x, at))), module(x, key=at))


def test_a_step_of_optax() -> None:
    optimizer = optax.chain(optax.clip_by_global_norm(0.1), optax.adamw(1e-2))
    params = {"w": normal(3, 2)}

    def step(params: Any, state: Any, x: Any) -> Any:
        gradient = jax.grad(lambda p: ((x @ p["w"]) ** 2).mean())(params)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    state, x = optimizer.init(params), normal(4, 3)
    program = pcp.from_jax(step, params, state, x, roles=["state", "state", "input"])
    assert_close(run(program, *pcp.jax_arrays((params, state, x))), step(params, state, x))


class NnxTrained(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(4, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = nnx.Dropout(0.3, rngs=rngs)
        self.last = nnx.Linear(8, 2, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.last(self.dropout(nnx.relu(self.norm(self.first(x)))))


def test_batch_norm_and_dropout_of_nnx_are_carried_by_a_step() -> None:
    """Running means, the count and the key of dropout: with the same masks, losses are those of nnx."""
    graph, params, rest = nnx.split(NnxTrained(nnx.Rngs(int(RANDOM.integers(1 << 30)))), nnx.Param, ...)

    def loss(params: Any, rest: Any, x: Any, y: Any) -> Any:
        model = nnx.merge(graph, params, rest)
        return nnx.split(model, nnx.Param, ...)[2], ((model(x) - y) ** 2).mean()

    x, y = normal(16, 4), normal(16, 2)
    program = pcp.from_jax(loss, params, rest, x, y, roles=["weight", "state", "input", "input"])
    step = pcp.training_step(program, pcp.optimizers.sgd(0.1))
    state, theirs = step.initial_state(params, rest), (params, rest)

    @jax.jit
    def wanted(params: Any, rest: Any, x: Any, y: Any) -> Any:
        def first(params: Any) -> Any:
            own = jax.tree.map(lambda leaf: leaf, rest)  # which this trace may change
            new, value = loss(params, own, x, y)
            return value, new

        (value, new), gradient = jax.value_and_grad(first, has_aux=True)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient), new, value

    for _ in range(3):
        x, y = normal(16, 4), normal(16, 2)
        state, metrics = run(step, state, (x, y))
        *theirs, value = wanted(*theirs, x, y)
        assert float(metrics["loss"]) == pytest.approx(float(value), rel=1e-4)
    random = state["buffers"]["dropout"]["rngs"]
    assert int(random["count"].get_value()) == 3
    assert jax.dtypes.issubdtype(random["key"].get_value().dtype, jax.dtypes.prng_key)
    assert_close(pcp.jax_arrays((state["params"], state["buffers"])), tuple(theirs))
    trained = nnx.merge(graph, state["params"], state["buffers"])
    trained.eval()
    assert trained(x).shape == (16, 2)
