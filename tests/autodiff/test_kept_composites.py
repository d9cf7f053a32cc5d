"""GPT-2 as a scan over its blocks, as a batch of single examples, and rematerialised: kernels find what the plain one has."""

import functools
import math
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp import Program, nn
from pcp.autodiff import save_only_these_names
from pcp.ir.tree import map_tree
from pcp.kernels import sites_of
from pcp.models import decoder
from pcp.models.published import gpt2_config
from pcp.planning.paths.preparation import prepared
from tests.execution import run, run_in_jax

CONFIG = gpt2_config(layers=2, heads=2, width=32, context=16, vocabulary=33, bias=False)
BATCH, LENGTH = 3, 16
NAMED = ("attention", "normalisation", "cross_entropy")
RNG = np.random.default_rng()


def sites(program: Program) -> dict[str, int]:
    """How many sites of each kind a program has."""
    found = (site for site in sites_of(prepared(program), "cpu") if not site.inside)
    return dict(Counter(site.family for site in found if site.family.startswith(NAMED)))


def parameters() -> Any:
    """Of the model, with numbers that tell one place from another."""
    initial = decoder.initial_parameters(CONFIG, 0)
    return map_tree(lambda leaf: leaf + RNG.normal(size=leaf.shape).astype("f4") * 0.05, initial)


def stacked(parameters: Any) -> Any:
    """The parameters with those of all blocks in one array each."""
    blocks = jax.tree.map(lambda *leaves: np.stack(leaves), *parameters["blocks"])
    return parameters | {"blocks": blocks}


def scanned_loss(p: Any, tokens: Any, targets: Any) -> Any:
    """The loss of the model, its blocks run by a loop."""

    def block(x: Any, b: Any) -> Any:
        x = x + nn.attention(nn.layer_norm(x, **b["ln_1"]), b["attn"], CONFIG.heads, causal=True)
        return x + nn.mlp(nn.layer_norm(x, **b["ln_2"]), b["mlp"]), ()

    x = nn.embedding(tokens, p["wte"]) + p["wpe"][: tokens.shape[-1]]
    x, _ = pcp.scan(block, x, p["blocks"])
    return nn.cross_entropy(nn.layer_norm(x, **p["ln_f"]) @ p["wte"].T, targets)


def loss(p: Any, tokens: Any, targets: Any) -> Any:
    return decoder.loss(p, tokens, targets, CONFIG)


def loss_of_examples(p: Any, tokens: Any, targets: Any) -> Any:
    """The same from the loss of a single sequence."""

    def of_one(p: Any, tokens: Any, targets: Any) -> Any:
        return loss(p, tokens[None], targets[None])

    return pcp.vmap(of_one, (None, 0, 0))(p, tokens, targets).mean()


def reference(p: Any, tokens: Any, targets: Any) -> Any:
    """The same in JAX, written out."""

    def norm(x: Any, scale: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale

    length = tokens.shape[1]
    x = p["wte"][tokens] + p["wpe"][:length]
    for b in p["blocks"]:
        qkv = norm(x, b["ln_1"]["scale"]) @ b["attn"]["qkv"]["weight"]
        q, k, v = (t.reshape(*t.shape[:2], CONFIG.heads, -1) for t in jnp.split(qkv, 3, -1))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
        weights = jax.nn.softmax(jnp.where(jnp.tri(length, dtype=bool), scores, -jnp.inf))
        mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape)
        x = x + mixed @ b["attn"]["out"]["weight"]
        hidden = jax.nn.gelu(norm(x, b["ln_2"]["scale"]) @ b["mlp"]["up"]["weight"])
        x = x + hidden @ b["mlp"]["down"]["weight"]
    logs = jax.nn.log_softmax(norm(x, p["ln_f"]["scale"]) @ p["wte"].T)
    return -jnp.take_along_axis(logs, targets[..., None], -1).mean()


TOKENS = pcp.spec((BATCH, LENGTH), "i32")
SHAPES = decoder.parameter_shapes(CONFIG)
PLAIN = pcp.trace(loss, SHAPES, TOKENS, TOKENS)


@functools.cache
def judged() -> tuple[tuple[Any, Any, Any], Any, Any]:
    """Parameters and tokens, and the loss and its gradient there by JAX in float64."""
    p = parameters()
    tokens, targets = (RNG.integers(0, CONFIG.vocabulary, (BATCH, LENGTH)).astype("i4") for _ in range(2))
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: leaf.astype("f8"), p)
        expected, gradient = run_in_jax(jax.value_and_grad(reference), wide, tokens, targets)
    return (p, tokens, targets), expected, gradient


def check(found: Program, arrange: Any = lambda p: p) -> None:
    """Compare loss and gradient with those of JAX in float64."""
    (p, tokens, targets), expected, gradient = judged()
    value, made = run(found, arrange(p), tokens, targets)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for one, other in zip(jax.tree.leaves(made), jax.tree.leaves(arrange(gradient)), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-6)


def test_a_scan_over_the_blocks_has_the_sites_of_one_block() -> None:
    p = pcp.specs_of(stacked(decoder.initial_parameters(CONFIG)))
    found = pcp.value_and_grad(pcp.trace(scanned_loss, p, TOKENS, TOKENS))
    assert sites(found) == {
        "normalisation": 3, "normalisation_gradient": 3, "attention": 1, "attention_gradient": 1, "cross_entropy": 1,
        "cross_entropy_gradient": 1,
    }  # fmt: skip
    check(found, stacked)


def test_a_batch_of_single_examples_has_the_sites_of_the_model() -> None:
    found = pcp.value_and_grad(pcp.trace(loss_of_examples, SHAPES, TOKENS, TOKENS))
    assert sites(found) == sites(pcp.value_and_grad(PLAIN))
    check(found)


def test_gradients_of_single_examples_have_the_sites_of_the_model() -> None:
    one = pcp.trace(lambda p, x, y: loss(p, x[None], y[None]), SHAPES, *[pcp.spec((LENGTH,), "i32")] * 2)
    found = pcp.vmap(pcp.value_and_grad(one), (None, 0, 0), size=BATCH)
    # What is normalised once more, for the gradient of the scale by each example, is no part of a named gradient.
    plain = sites(pcp.value_and_grad(PLAIN))
    assert sites(found) == plain | {"normalisation": 2 * plain["normalisation"]}
    mean = pcp.trace(lambda *a: map_tree(lambda t: t.mean(0), pcp.call(found, *a)), SHAPES, TOKENS, TOKENS)
    check(mean)


@pytest.mark.parametrize("remat", ["nothing_saveable", "dots_saveable"])
def test_a_backward_pass_that_keeps_less_has_the_sites_of_the_model(remat: str) -> None:
    found = pcp.value_and_grad(PLAIN, remat=remat)
    made, plain = sites(found), sites(pcp.value_and_grad(PLAIN))
    assert set(made) == set(plain)
    assert all(made[family] >= count for family, count in plain.items())  # what is made again has sites, too
    assert all(made[family] == count for family, count in plain.items() if family.endswith("gradient"))
    check(found)


@pytest.mark.cpu
def test_what_a_composite_computes_inside_is_not_kept_where_the_policy_says_so() -> None:
    def layers(x: Any, key: Any, value: Any) -> Any:
        for _ in range(8):
            x = pcp.tap("x", nn.scaled_dot_product_attention(x, key, value) * 2)
        return x.sum()

    program = pcp.trace(layers, *[pcp.spec((1, 256, 2, 8), "f32")] * 3)

    def temporaries(remat: Any) -> int:
        return pcp.plan(pcp.grad(program, remat=remat), tolerance=0.0).memory["cpu:0"].temporaries

    assert temporaries(save_only_these_names("x")) < 0.6 * temporaries(None)


def test_blocks_inside_of_which_nothing_is_kept_have_their_sites() -> None:
    def marked(scale: Any, x: Any) -> Any:
        return (pcp.checkpoint(lambda x: nn.layer_norm(pcp.softmax(x), scale))(x) ** 2).sum()

    shapes = pcp.spec((5,), "f32"), pcp.spec((3, 5), "f32")
    found = pcp.value_and_grad(pcp.trace(marked, *shapes), 1)
    assert {"softmax_gradient", "normalisation_gradient"} <= {
        s.family for s in sites_of(prepared(found), "cpu")
    }
    plain = pcp.trace(lambda s, x: (nn.layer_norm(pcp.softmax(x), s) ** 2).sum(), *shapes)
    arrays = [RNG.normal(size=entry.spec.shape).astype("f4") for entry in shapes]
    for one, other in zip(run(found, *arrays), run(pcp.value_and_grad(plain, 1), *arrays), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
