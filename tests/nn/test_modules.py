"""Modules: layers beside the functions and JAX, and training steps that carry what changes."""

from typing import Any

import jax
import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp import nn
from pcp.ir.tree import flatten, map_tree
from pcp.nn.initializers import InvalidInitializer

RANDOM = np.random.default_rng()


def normal(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


def noisy(model: Any) -> Any:
    """The same with every parameter moved, so that none is 0 or 1."""
    return map_tree(lambda leaf: (leaf + 0.1 * normal(*leaf.shape)).astype(leaf.dtype), model)


def heads(x: Any, layer: Any) -> Any:
    return (x @ layer.weight + layer.bias).reshape(2, 5, 2, 3)


def test_layers_compute_what_jax_does() -> None:
    rng = np.random.default_rng(1)
    layers = noisy(
        {
            "linear": nn.Linear.init(rng, 6, 4),
            "plain": nn.Linear.init(rng, 6, 4, bias=False),
            "norm": nn.LayerNorm.init(6),
            "rms": nn.RMSNorm.init(6),
            "attention": nn.MultiHeadAttention.init(rng, 6, 2),
            "conv": nn.Conv.init(rng, 6, 4, (3,), strides=2, groups=2),
            "table": nn.Embedding.init(rng, 7, 6),
            "both": nn.Sequential([nn.Linear.init(rng, 6, 3), nn.relu]),
        }
    )
    tokens = RANDOM.integers(0, 7, (2, 5)).astype(np.int32)
    x, context = normal(2, 5, 6), normal(2, 5, 6)

    def everything(layers: Any, x: Any, context: Any, tokens: Any) -> Any:
        found = {name: layers[name](x) for name in ("linear", "plain", "norm", "rms", "conv", "both")}
        found["attention"] = layers["attention"](x, context, causal=True)
        found["table"] = layers["table"](tokens)
        found["attend"] = layers["table"].attend(x)
        return found

    program = pcp.trace(everything, layers, *(pcp.spec(a.shape, a.dtype) for a in (x, context, tokens)))
    found = run(program, layers, x, context, tokens)
    a, norm, conv = layers["attention"], layers["norm"], layers["conv"]
    centred = x - x.mean(-1, keepdims=True)
    mixed = jax.nn.dot_product_attention(
        heads(x, a.query), heads(context, a.key), heads(context, a.value), is_causal=True
    )
    expected = {
        "linear": x @ layers["linear"].weight + layers["linear"].bias,
        "plain": x @ layers["plain"].weight,
        "norm": centred / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * norm.scale + norm.bias,
        "rms": x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * layers["rms"].scale,
        "attention": mixed.reshape(2, 5, 6) @ a.out.weight + a.out.bias,
        "conv": jax.lax.conv_general_dilated(
            x, conv.weight, (2,), "SAME", dimension_numbers=("NHC", "HIO", "NHC"), feature_group_count=2
        )
        + conv.bias,
        "table": layers["table"].weight[tokens],
        "attend": x @ layers["table"].weight.T,
        "both": np.maximum(x @ layers["both"].layers[0].weight + layers["both"].layers[0].bias, 0),
    }
    for name, wanted in expected.items():
        np.testing.assert_allclose(found[name], wanted, rtol=2e-4, atol=2e-5, err_msg=name)
    assert layers["plain"].bias is None


class Network(nn.Module):
    first: nn.Linear
    norm: nn.BatchNorm
    drop: list[nn.Dropout]
    last: nn.Linear
    word: str = "w"

    def __call__(self, x: Any) -> Any:
        x = nn.relu(self.norm(self.first(x)))
        for drop in self.drop:
            x = drop(x)
        return self.last(x)


def network(rate: float = 0.5) -> Network:
    rng = np.random.default_rng(5)
    dropping = [nn.Dropout.init(rng, rate) for _ in range(2)]
    return noisy_but_counts(
        Network(nn.Linear.init(rng, 4, 8), nn.BatchNorm.init(8, 0.9), dropping, nn.Linear.init(rng, 8, 3))
    )


def noisy_but_counts(model: Network) -> Network:
    params, buffers = nn.split(model)
    moved: Network = nn.merge(noisy(params), buffers)
    return moved


def loss(model: Network, x: Any, y: Any) -> Any:
    return ((model(x) - y) ** 2).mean()


def test_a_step_carries_running_means_and_calls() -> None:
    model = network(0.0)
    x, y = normal(16, 4), normal(16, 3)
    step = pcp.training_step(
        loss, pcp.optimizers.sgd(0.1), model, *(pcp.spec(a.shape, "f32") for a in (x, y))
    )
    state, metrics = run(step, step.initial_state(model), (x, y))

    def of_jax(params: Any, x: Any, y: Any) -> Any:
        z = x @ params.first.weight + params.first.bias
        mean, var = z.mean(0), z.var(0)
        z = (z - mean) / jax.numpy.sqrt(var + 1e-5) * params.norm.scale + params.norm.bias
        prediction = jax.nn.relu(z) @ params.last.weight + params.last.bias
        return ((prediction - y) ** 2).mean(), (mean, var)

    leaves, tree = flatten(nn.split(model)[0])
    (wanted, (mean, var)), gradient = jax.value_and_grad(
        lambda leaves: of_jax(tree.unflatten(leaves), x, y), has_aux=True
    )(leaves)
    assert metrics["loss"] == pytest.approx(float(wanted), rel=1e-5)
    for before, g, after in zip(leaves, gradient, flatten(state["params"])[0], strict=True):
        np.testing.assert_allclose(after, before - 0.1 * g, rtol=1e-4, atol=1e-5)
    trained = nn.merge(state["params"], state["buffers"])
    assert isinstance(trained, Network)
    np.testing.assert_allclose(trained.norm.mean, 0.1 * mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(trained.norm.variance, 0.9 + 0.1 * var, rtol=1e-4)
    assert [int(drop.count) for drop in trained.drop] == [1, 1]
    assert [float(leaf.sum()) for leaf in flatten(nn.split(model)[1])[0]] == [0, 0, 0, 8]
    z = x @ trained.first.weight + trained.first.bias
    z = (z - trained.norm.mean) / np.sqrt(
        trained.norm.variance + 1e-5
    ) * trained.norm.scale + trained.norm.bias
    expected = np.maximum(z, 0) @ trained.last.weight + trained.last.bias
    found = run(pcp.trace(lambda m, x: m(x), trained.eval(), pcp.spec(x.shape, "f32")), trained.eval(), x)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(pcp.ir.TreeMismatch, match=r"drop\.0\.training is True, but .* made with False"):
        run(pcp.trace(lambda m, x: m(x), trained.eval(), pcp.spec(x.shape, "f32")), trained, x)


def test_dropout_differs_from_step_to_step_and_layer_to_layer_and_not_from_run_to_run() -> None:
    x = np.ones((64, 50), np.float32)
    model = [nn.Dropout.init(np.random.default_rng(3), 0.3), nn.Dropout.init(np.random.default_rng(4), 0.3)]

    def dropped(params: Any, x: Any) -> Any:
        a, b = params["drop"]
        seen = {"first": (a(x) * x).mean(), "again": (a(x) * x).mean(), "other": (b(x) * x).mean()}
        return params["w"] * seen["first"], seen

    start = {"drop": model, "w": np.float32(1)}
    step = pcp.training_step(dropped, pcp.optimizers.sgd(0.0), start, pcp.spec(x.shape, "f32"))
    plan = pcp.plan(step, "arena:cpu")
    runs = []
    for _ in range(2):
        state, seen = step.initial_state(start), []
        for _ in range(3):
            state, metrics = plan.run(state, (x,))
            seen.append([float(metrics[name]) for name in ("first", "again", "other")])
        runs.append(seen)
        assert [int(drop.count) for drop in state["buffers"]["drop"]] == [6, 3]
    assert runs[0] == runs[1]
    shares = np.array(runs[0])
    assert len(set(shares.ravel())) == 9
    deviation = np.sqrt(0.3 / 0.7 / x.size)
    assert np.abs(shares - 1).max() < 6 * deviation


def test_parameters_alone_are_trained() -> None:
    model = network()
    specs = (pcp.spec((8, 4), "f32"), pcp.spec((8, 3), "f32"))
    step = pcp.training_step(loss, pcp.optimizers.adamw(0.1), model, *specs)
    moments = [entry.name for entry in step.arguments if "optimizer.first" in entry.name]
    assert [name.removeprefix("state.optimizer.first.") for name in moments] == [
        "first.bias", "first.weight", "last.bias", "last.weight", "norm.bias", "norm.scale",
    ]  # fmt: skip


def test_a_module_shows_its_shapes_and_is_a_dataclass() -> None:
    model = network(0.25)
    assert repr(model).startswith(
        "Network(first=Linear(weight=f32[4,8], bias=f32[8]), norm=BatchNorm(scale=f32[8]"
    )
    assert "Dropout(count=i32[], seed=" in repr(model)
    assert model.eval().train().norm.training
    assert not model.eval().drop[1].training
    assert model.norm.training
    for make in (lambda: nn.Linear(784, 256), lambda: nn.BatchNorm(8), lambda: nn.Dropout(0.1)):
        with pytest.raises(
            InvalidInitializer, match=r"was given \w+=[\d.]+; expected arrays, .* \w+\.init\(\.\.\.\)"
        ):
            make()
    with pytest.raises(pcp.tensor.ShapeMismatch, match="a width of 5 cannot be shared by 2 heads evenly"):
        nn.MultiHeadAttention.init(0, 5, 2)
