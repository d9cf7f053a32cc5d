"""A training step of GPT-2 with the fastest kernels of all families together, as a GPU computes it, beside the plain one."""

import dataclasses
import math

import jax
import numpy as np
import pytest

import pcp
from pcp.ir.tree import map_tree
from pcp.kernels import features
from pcp.models import gpt2
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared
from pcp.planning.search.everywhere import together
from pcp.planning.search.site_classes import kernels_by_site, site_classes
from tests.conftest import PLATFORM

pytestmark = pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
CONFIG = dataclasses.replace(
    gpt2.CONFIGURATIONS["gpt2"], layers=2, heads=8, width=512, context=64, vocabulary=512
)
BATCH = 4
EXPECTED = {
    "joined.triton_bf16",
    "product_epilogue.bf16_result",
    "gelu_gradient.triton_bf16",
    "normalisation_gradient.triton_bf16",
    "cross_entropy.triton",
    "attention_gradient.cudnn",
}


@pytest.mark.skipif(
    PLATFORM != "cuda" or bool(features.lacking(("sm_80",), "cuda")),
    reason="needs an NVIDIA GPU: PCP_TEST_PLATFORM=cuda",
)
def test_every_gradient_is_as_exact_as_bfloat16() -> None:
    params = gpt2.initial_parameters(CONFIG, seed=3)
    tokens = pcp.spec((BATCH, CONFIG.context), "i32")
    loss = pcp.trace(
        lambda p, x, y: gpt2.loss(p, x, y, CONFIG), map_tree(pcp.specs_of, params), tokens, tokens
    )
    training = pcp.training_step(loss, pcp.optimizers.adamw(1e-3))
    step = prepared(training)
    classes = site_classes(step, PLATFORM)
    chosen = kernels_by_site(classes, next(together(classes, math.inf)))
    assert {kernel.name for kernel in chosen.values()} >= EXPECTED
    rng = np.random.default_rng(5)
    batch = tuple(rng.integers(0, CONFIG.vocabulary, (BATCH, CONFIG.context), np.int32) for _ in range(2))
    moments = []
    for kernels in ({}, chosen):
        plan = pcp.plan(step, device=f"{PLATFORM}:0", path=Path.of(step, kernels), cache=False)
        state, _ = plan.run(training.initial_state(params), batch)
        moments.append(jax.tree_util.tree_leaves_with_path(state["optimizer"]["first"]))
    for (name, plain), (_, found) in zip(*moments, strict=True):
        distance = np.linalg.norm(np.asarray(found, np.float64) - np.asarray(plain))
        assert distance <= 3e-2 * np.linalg.norm(plain), jax.tree_util.keystr(name)
