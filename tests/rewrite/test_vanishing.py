"""Gradients that are zero in exact arithmetic are written as zero, and no others."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import pcp
from pcp import Program, autodiff
from pcp.rewrite.raising import raised
from pcp.rewrite.softmax_shifts import with_constant_shifts
from pcp.rewrite.vanishing import without_vanishing_sums
from pcp.rewrite.vanishing.whole import with_zeros
from tests.execution import exactly

RNG = np.random.default_rng(0)
X, Y = (RNG.normal(size=(2, 6, 8)) for _ in range(2))
WEIGHTS = {name: RNG.normal(size=(8, 8)) / 3 for name in ("q", "k", "v", "o")}
BIASES = {f"b{name}": RNG.normal(size=8) for name in ("q", "k", "v")}
SEPARATE = WEIGHTS | BIASES
JOINED = {"qkv": RNG.normal(size=(8, 24)) / 3, "b": RNG.normal(size=24), "o": RNG.normal(size=(8, 8))}
NORMED = {
    "w": WEIGHTS["q"],
    "b": BIASES["bq"],
    "gain": BIASES["bk"],
    "shift": BIASES["bv"],
    "o": WEIGHTS["o"],
}
CAUSAL = np.tril(np.ones((6, 6), bool))
Loss = Callable[..., Any]


def gradient(loss: Loss, weights: dict[str, Any], is_named: bool = True) -> Program:
    """As a training step differentiates: in largest elements that softmax takes off, nothing moves.

    Arguments:
        is_named: whether forms that are known become composites first, whose gradients are composites.
    """
    specs = {name: pcp.spec(each.shape, "f32") for name, each in weights.items()}
    traced = pcp.trace(loss, specs, pcp.spec(X.shape, "f32"), pcp.spec(Y.shape, "f32"))
    program = with_constant_shifts(traced)
    return autodiff.grad(raised(program) if is_named else program, wrt=0)


def zeros_in(loss: Loss, weights: dict[str, Any] = SEPARATE, is_named: bool = True) -> dict[str, int]:
    """How many elements of each gradient are written as 0; the others are what they were, and those were rounding."""
    plain = gradient(loss, weights, is_named)
    before, after = (exactly(each, weights, X, Y) for each in (plain, without_vanishing_sums(plain)))
    for name, old in before.items():
        np.testing.assert_allclose(after[name], old, rtol=1e-9, atol=1e-12)
    return {name: zeros for name, each in after.items() if (zeros := int((each == 0).sum()))}


def heads(x: Any, count: int = 2) -> Any:
    return x.reshape((2, -1, count, 4)).transpose((0, 2, 1, 3))


def softmax(scores: Any, axis: int = -1) -> Any:
    e = pcp.exp(scores - scores.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def loss_of(mixed: Any, w: Any, y: Any) -> Any:
    return ((mixed.transpose((0, 2, 1, 3)).reshape((2, -1, 8)) @ w["o"] - y) ** 2).mean()


def attention(
    weigh: Callable[[Any], Any] = softmax, keys: Callable[[Any], Any] = lambda k: k, values: Any = None
) -> Loss:
    """Attention written out; how scores become weights, and what becomes of keys and values."""

    def loss(w: Any, x: Any, y: Any) -> Any:
        q, k, v = (heads(x @ w[name] + w[f"b{name}"]) for name in "qkv")
        k, v = keys(k), v if values is None else values(k, v)
        return loss_of(weigh((q @ k.transpose((0, 1, 3, 2))) * 0.5) @ v, w, y)

    return loss


def masked(mask: Any, fill: float = -np.inf) -> Callable[[Any], Any]:
    return lambda scores: softmax(pcp.where(mask, scores, fill))


def composite(w: Any, x: Any, y: Any, **settings: Any) -> Any:
    q, k, v = ((x @ w[name] + w[f"b{name}"]).reshape((2, 6, 2, 4)) for name in "qkv")
    mixed = pcp.nn.scaled_dot_product_attention(q, k, v, **settings).reshape((2, 6, 8))
    return ((mixed @ w["o"] - y) ** 2).mean()


def in_bfloat16(w: Any, x: Any, y: Any) -> Any:
    q, k, v = (heads((x @ w[name]).astype("bf16") + w[f"b{name}"].astype("bf16")) for name in "qkv")
    weights = softmax((q @ k.transpose((0, 1, 3, 2))).astype("f32")).astype("bf16")
    return loss_of((weights @ v).astype("f32"), w, y)


def shared_keys(w: Any, x: Any, y: Any) -> Any:
    """Two heads of queries read one of keys."""
    q, k, v = heads(x @ w["q"]), *(heads(x @ w[n][:, :4] + w[f"b{n}"][:4], 1) for n in "kv")
    k, v = (
        pcp.broadcast_to(each.reshape((2, 1, 1, 6, 4)), (2, 1, 2, 6, 4)).reshape((2, 2, 6, 4))
        for each in (k, v)
    )
    return loss_of(masked(CAUSAL)((q @ k.transpose((0, 1, 3, 2))) * 0.5) @ v, w, y)


def by_rows_of_a_batch(w: Any, x: Any, y: Any) -> Any:
    q, k, v = (heads((x.reshape((12, 8)) @ w[n] + w[f"b{n}"]).reshape((2, 6, 8))) for n in "qkv")
    return loss_of(pcp.softmax(q @ k.transpose((0, 1, 3, 2))) @ v, w, y)


def without_shift(scores: Any) -> Any:
    e = pcp.exp(scores)
    return e / e.sum(-1, keepdims=True)


def by_shares(scores: Any) -> Any:
    """Softmax by the inverse of its sum, of scores that are taken apart."""
    e = pcp.exp(scores - pcp.stop_gradient(scores.max(-1, keepdims=True)))
    share = 1.0 / (e * 0.5 + e * 0.5).sum(-1, keepdims=True)
    return 2.0 * e * share - e * share


SEEN = masked(X[:, None, None, :, 0] > -0.5, -1e9)
"""Keys are seen by what the data says, and some query sees none."""


@pytest.mark.parametrize(
    "loss",
    [
        attention(),
        attention(pcp.softmax),
        attention(masked(CAUSAL)),
        attention(masked(np.tril(CAUSAL, -1), -1e30)),
        attention(lambda s: SEEN(pcp.where(CAUSAL, s, -1e9))),
        attention(lambda s: softmax(s + pcp.where(CAUSAL, 0.0, -1e9))),
        attention(lambda s: pcp.softmax(s + np.arange(6.0))),
        attention(lambda s: pcp.exp(pcp.log_softmax(s))),
        attention(lambda s: softmax(s) * softmax(s)),
        attention(keys=lambda k: k[:, :, 1:], values=lambda _, v: v[:, :, 1:]),
        lambda w, x, y: attention(lambda s: softmax(pcp.einsum("gh,bhqk->bgqk", w["v"][:2, :2], s)))(w, x, y),
        composite,
        lambda w, x, y: composite(w, x, y, causal=True, window=3),
        in_bfloat16,
        by_rows_of_a_batch,
    ],
)  # fmt: skip
def test_a_bias_of_all_keys_has_no_gradient(loss: Loss) -> None:
    assert zeros_in(loss) == {"bk": 8}


@pytest.mark.parametrize("weigh", [softmax, masked(CAUSAL), SEEN, without_shift, by_shares])
def test_nor_has_it_where_nothing_is_named(weigh: Callable[[Any], Any]) -> None:
    assert zeros_in(attention(weigh), is_named=False) == {"bk": 8}


def test_a_bias_of_keys_that_heads_share_has_none() -> None:
    assert zeros_in(shared_keys) == {"bk": 8, "bq": 8, "bv": 4, "k": 32, "v": 32}


def test_softmax_over_queries_sees_no_bias_of_queries() -> None:
    assert zeros_in(attention(lambda s: softmax(s, -2))) == {"bq": 8}


def rotated(k: Any) -> Any:
    turned = np.arange(6.0)[:, None] * np.array([1.0])
    a, b = k[..., :1], k[..., 1:2]
    moved = [a * np.cos(turned) - b * np.sin(turned), b * np.cos(turned) + a * np.sin(turned)]
    return pcp.concatenate([*moved, k[..., 2:]], -1)


@pytest.mark.parametrize(
    "loss",
    [
        attention(keys=rotated),  # half of each head
    ],
)
def test_of_keys_that_are_rotated_in_part_the_rest_has_none(loss: Loss) -> None:
    assert zeros_in(loss) == {"bk": 4}


@pytest.mark.parametrize(
    "split",
    [
        lambda h: (heads(h[:, :, 8 * i : 8 * i + 8]) for i in range(3)),
        lambda h: (h.reshape((2, 6, 3, 2, 4)).transpose((2, 0, 3, 1, 4))[i] for i in range(3)),
        lambda h: (h.reshape((2, 6, 2, 3, 4))[:, :, :, i].transpose((0, 2, 1, 3)) for i in range(3)),
        lambda h: (
            h.reshape((2, 6, 2, 12))[..., 4 * i : 4 * i + 4].transpose((0, 2, 1, 3)) for i in range(3)
        ),
    ],
)
@pytest.mark.parametrize("rows", [(2, 6), (12,)])
def test_of_a_joined_bias_the_part_of_keys_has_none(split: Any, rows: tuple[int, ...]) -> None:
    def loss(w: Any, x: Any, y: Any) -> Any:
        q, k, v = split((x.reshape((*rows, 8)) @ w["qkv"] + w["b"]).reshape((2, 6, 24)))
        return loss_of(masked(CAUSAL)(q @ k.transpose((0, 1, 3, 2))) @ v, w, y)

    assert zeros_in(loss, JOINED) == {"b": 8}


def normalised(axes: Any, moments: bool = False) -> Loss:
    def loss(w: Any, x: Any, y: Any) -> Any:
        h = x @ w["w"] + w["b"]
        mean = h.mean(axes, keepdims=True)
        variance = (
            (h * h).mean(axes, keepdims=True) - mean * mean
            if moments
            else ((h - mean) ** 2).mean(axes, keepdims=True)
        )
        z = (h - mean) * pcp.rsqrt(variance + 1e-5) * w["gain"] + w["shift"]
        return ((pcp.maximum(z, -9.0) @ w["o"] - y) ** 2).mean()

    return loss


@pytest.mark.parametrize("loss", [normalised((0, 1)), normalised((0, 1), moments=True), normalised(1)])
@pytest.mark.parametrize("is_named", [True, False])
def test_a_bias_before_a_normalisation_of_the_batch_has_none(loss: Loss, is_named: bool) -> None:
    assert zeros_in(loss, NORMED, is_named) == {"b": 8}


def test_nor_has_one_before_layers_in_a_loop() -> None:
    layers = {name: np.stack([each] * 2) for name, each in SEPARATE.items()}

    def loss(w: Any, x: Any, y: Any) -> Any:
        def layer(h: Any, own: Any) -> Any:
            q, k, v = (heads(h @ own[name] + own[f"b{name}"]) for name in "qkv")
            mixed = masked(CAUSAL)(q @ k.transpose((0, 1, 3, 2))) @ v
            return h + mixed.transpose((0, 2, 1, 3)).reshape((2, 6, 8)) @ own["o"], ()

        return ((pcp.scan(layer, x, w)[0] - y) ** 2).mean()

    assert zeros_in(loss, layers) == {"bk": 16}


def with_prefix(k: Any) -> Any:
    return pcp.concatenate([pcp.zeros((2, 2, 1, 4)), k], 2)


def with_sink(scores: Any) -> Any:
    e = pcp.exp(scores)
    return e / (e.sum(-1, keepdims=True) + 1)


@pytest.mark.parametrize(
    "loss",
    [
        attention(masked(CAUSAL, -3.0)),
        attention(lambda s: softmax(pcp.tanh(s))),
        attention(pcp.sigmoid),
        attention(with_sink),
        attention(lambda s: softmax(s) * s),
        attention(keys=lambda k: k / pcp.sqrt((k * k).mean(-1, keepdims=True))),
        attention(keys=with_prefix, values=lambda _, v: with_prefix(v)),
        attention(keys=lambda k: k * np.arange(6.0)[:, None]),
        attention(values=lambda k, v: k + v),
        lambda w, x, y: composite(w, x, y, cap=2.0),
        lambda w, x, y: attention(lambda s: softmax(s + w["bk"].sum() * np.arange(6.0)))(w, x, y),
        lambda w, x, y: attention()({**w, "bq": w["bk"]}, x, y) + 0.0 * w["bq"].sum(),
    ],
)  # fmt: skip
def test_what_keys_do_otherwise_keeps_its_gradient(loss: Loss) -> None:
    plain = gradient(loss, SEPARATE)
    assert np.abs(exactly(plain, SEPARATE, X, Y)["bk"]).min() > 1e-9
    assert "bk" not in zeros_in(loss)


def test_a_bias_before_a_normalisation_of_features_keeps_its_gradient() -> None:
    assert zeros_in(normalised(-1), NORMED) == {}


def test_a_mask_inside_of_another_hides_what_the_outer_one_alone_does_not() -> None:
    """A query whose keys are hidden by both together has weights that are no others'."""
    inner = X[:, None, None, :, 0] > -0.5

    def loss(w: Any, x: Any, y: Any) -> Any:
        def weigh(scores: Any) -> Any:
            return softmax(pcp.where(CAUSAL, pcp.where(inner, scores, -1e9) + w["bk"][0], -1e9))

        return attention(weigh)(w, x, y)

    plain = gradient(loss, SEPARATE)
    assert without_vanishing_sums(plain) is plain


def test_gradients_that_are_asked_for_have_zeros() -> None:
    specs = {name: pcp.spec(each.shape, "f32") for name, each in SEPARATE.items()}
    traced = pcp.trace(attention(masked(CAUSAL)), specs, pcp.spec(X.shape, "f32"), pcp.spec(Y.shape, "f32"))
    w, x, y = jax.tree.map(np.float32, (SEPARATE, X, Y))
    value, gradient = pcp.plan(pcp.value_and_grad(traced)).run(w, x, y)
    assert value.shape == ()
    for each in (gradient, pcp.plan(pcp.grad(traced)).run(w, x, y)):
        assert not np.asarray(each["bk"]).any()
        assert np.asarray(each["bq"]).any()


def test_a_step_keeps_the_moments_of_such_a_bias() -> None:
    traced = pcp.trace(
        attention(masked(CAUSAL)),
        {name: pcp.spec(each.shape, "f32") for name, each in SEPARATE.items()},
        pcp.spec(X.shape, "f32"),
        pcp.spec(Y.shape, "f32"),
    )
    steps = [
        pcp.training_step(traced, pcp.optimizers.adamw(1e-2), remat=r) for r in (None, "nothing_saveable")
    ]
    parts = pcp.training_step(traced, pcp.optimizers.adamw(1e-2), accumulate=2)
    for step, batch in (
        (steps[0], (X, Y)),
        (steps[1], (X, Y)),
        (parts, (np.tile(X, (2, 1, 1)), np.tile(Y, (2, 1, 1)))),
    ):
        state, _ = exactly(step, step.initial_state(SEPARATE), batch)
        assert not state["optimizer"]["first"]["bk"].any()
        assert state["optimizer"]["first"]["bq"].all()
        np.testing.assert_allclose(state["params"]["bk"], SEPARATE["bk"])


@pytest.mark.parametrize("is_whole_step", [False, True])
def test_gradients_that_jax_took_are_zeros_wherever_they_stand(is_whole_step: bool) -> None:
    def loss(weights: Any, x: Any, y: Any) -> Any:
        q, k, v = (x @ weights[name] + weights[f"b{name}"] for name in "qkv")
        shares = jax.nn.softmax(q @ k.swapaxes(-1, -2), -1)
        return ((shares @ v @ weights["o"] - y) ** 2).mean()

    def step(weights: Any, x: Any, y: Any) -> Any:
        gradients = jax.grad(loss)(weights, x, y)
        if not is_whole_step:
            return gradients  # else a quotient by the size of each, as an optimizer takes it
        return jax.tree.map(lambda w, g: w - 0.1 * g / (abs(g) + 1e-8), weights, gradients)

    narrow = jax.tree.map(lambda array: array.astype(np.float32), (SEPARATE, X, Y))
    imported = pcp.from_jax(step, *narrow)
    zeroed = with_zeros(imported)
    assert zeroed is not None
    before, after = (exactly(each, *narrow) for each in (imported, zeroed))
    still = narrow[0]["bk"] if is_whole_step else 0.0
    np.testing.assert_allclose(after.pop("bk"), still, rtol=1e-6, atol=0)
    np.testing.assert_allclose(
        before.pop("bk"), still, atol=1e-6
    )  # in float64, too, it is nothing but rounding
    for name, old in before.items():
        np.testing.assert_allclose(after[name], old, rtol=1e-7, atol=1e-9)
    assert with_zeros(zeroed) is None
