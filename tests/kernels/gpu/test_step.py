"""The gradients of GPT-2 and of a Llama with the fastest kernels of all families together, as a GPU computes them."""

import math
from typing import Any

import jax
import numpy as np
import pytest

import pcp
from pcp.ir.tree import map_tree
from pcp.kernels import apply_kernels
from pcp.models import decoder
from pcp.models.published import gpt2_config, llama_config
from pcp.planning.paths.preparation import prepared
from pcp.planning.search.everywhere import together
from pcp.planning.search.site_classes import kernels_by_site, site_classes
from tests.kernels.gpu.emulated import HERE, emulate

pytestmark = pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
# Interpreted, each program of a kernel is a turn of a loop, so on a processor there are fewer.
HEADS, CONTEXT, BATCH, TOKENS = (8, 64, 4, 512) if HERE else (2, 32, 2, 256)
SIZES = {"layers": 2, "heads": HEADS, "width": 64 * HEADS, "context": CONTEXT, "vocabulary": TOKENS}
OF_BOTH = {
    "attention.cudnn:bf16+result",
    "attention_gradient.cudnn:bf16+result",
    "cross_entropy.triton",
    "cross_entropy_gradient.triton:bf16",
    "normalisation_gradient.triton:bf16+sum",
    "product.xla:bf16+result",
    "residual_normalisation.triton:bf16+sum",
}
OF_GPT2 = {
    "gelu.triton:bf16",
    "gelu_gradient.triton:bf16",
    "joined.triton:bf16",
    "product_epilogue.xla:bf16+result",
}
OF_LLAMA = {"gated_silu.triton:bf16", "gated_silu_gradient.triton:bf16"}
MODELS: dict[str, tuple[Any, set[str]]] = {
    "gpt2": (gpt2_config(**SIZES), OF_BOTH | OF_GPT2),
    "llama": (
        llama_config(**SIZES, key_value_heads=HEADS // 2, hidden=128 * HEADS),
        OF_BOTH | OF_LLAMA,
    ),
}


@pytest.fixture(autouse=True)
def _emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    if not HERE:
        emulate(monkeypatch)


def _made(name: str) -> tuple[Any, list[Any], list[pcp.Plan], set[str]]:
    """Parameters, a batch, plans of the loss with its gradients as it is written and by kernels, and the names of these."""
    config, _ = MODELS[name]
    params = decoder.initial_parameters(config, seed=3)
    tokens = pcp.spec((BATCH, CONTEXT), "i32")
    loss = pcp.trace(
        lambda p, x, y: decoder.loss(p, x, y, config), map_tree(pcp.specs_of, params), tokens, tokens
    )
    plain = prepared(pcp.value_and_grad(loss, wrt=0))
    classes = site_classes(plain, "cuda")
    chosen = kernels_by_site(classes, next(together(classes, math.inf)))
    rng = np.random.default_rng(5)
    batch = [rng.integers(0, TOKENS, (BATCH, CONTEXT), np.int32) for _ in range(2)]
    plans = [pcp.plan(each, cache=False) for each in (plain, apply_kernels(plain, chosen))]
    return params, batch, plans, {kernel.name for kernel in chosen.values()}


@pytest.mark.share(2)
@pytest.mark.parametrize("name", MODELS)
def test_every_gradient_is_as_exact_as_bfloat16(name: str) -> None:
    """And of GPT-2 also those that are no number."""
    params, batch, plans, names = _made(name)
    assert names >= MODELS[name][1]
    right, found = (plan.run(params, *batch) for plan in plans)
    assert abs(found[0] - right[0]) < 1e-3
    gradients = (jax.tree_util.tree_leaves_with_path(each[1]) for each in (right, found))
    for (path, exact), (_, gradient) in zip(*gradients, strict=True):
        distance = np.linalg.norm(np.asarray(gradient, np.float64) - exact)
        assert distance <= 3e-2 * np.linalg.norm(exact), jax.tree_util.keystr(path)
    if name == "gpt2" and not HERE:
        what_is_no_number_reaches_the_gradients_that_it_reaches_as_written(params, batch, plans)


def what_is_no_number_reaches_the_gradients_that_it_reaches_as_written(
    params: Any, batch: list[Any], plans: list[pcp.Plan]
) -> None:
    last = params["blocks"][-1]
    for array in (
        last["attn"]["qkv"]["bias"],
        last["mlp"]["up"]["bias"],
        last["ln_1"]["scale"],
        params["wte"],
    ):
        for number in (np.nan, np.inf, 3e38):
            usual, array.flat[7] = array.flat[7], number
            right, found = (jax.tree_util.tree_leaves(plan.run(params, *batch)) for plan in plans)
            for exact, each in zip(right, found, strict=True):
                assert np.array_equal(np.isfinite(exact), np.isfinite(each))
            array.flat[7] = usual
