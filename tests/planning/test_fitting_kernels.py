"""Paths with kernels that fit in the memory that was asked for: kernels are chosen for one part of the batch."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.backends import Target
from pcp.ir.tree import flatten, map_tree
from pcp.kernels import kernel_named, sites_of
from pcp.models import decoder
from pcp.models.published import gpt2_config
from pcp.optimizers import adamw
from pcp.planning.fitting import fitted
from pcp.planning.judging.oracle import widened
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared
from pcp.tracing import spec, specs_of

pytestmark = pytest.mark.cpu
TARGET = Target.of("cpu:0")
WANTED = (
    "attention.native:bf16", "attention_gradient.native:bf16", "normalisation.native", "normalisation_gradient.native",
    "cross_entropy.native", "cross_entropy_gradient.native", "product.native:bf16", "adamw.native",
)  # fmt: skip
"""With residuals and without, before the sums over the batch and behind them."""
CONFIG = gpt2_config(vocabulary=64, context=32, layers=1, heads=1, width=32)
BATCH = 8


def peak(program: pcp.Program) -> int:
    return TARGET.compile(program).memory.peak


@pytest.fixture(scope="module")
def step() -> tuple[pcp.TrainingStep, tuple[Any, ...]]:
    parameters = decoder.initial_parameters(CONFIG)
    tokens = spec((BATCH, CONFIG.context), "i32")
    traced = pcp.trace(lambda p, x, y: decoder.loss(p, x, y, CONFIG), specs_of(parameters), tokens, tokens)
    made = pcp.training_step(traced, adamw(1e-3), clip_norm=1.0)
    batch = np.random.default_rng(0).integers(0, CONFIG.vocabulary, (2, BATCH, CONFIG.context))
    return made, (made.initial_state(parameters), tuple(batch.astype(np.int32)))


@pytest.fixture(scope="module")
def path(step: tuple[pcp.TrainingStep, Any]) -> Path:
    program, _ = step
    sites = [site for site in sites_of(prepared(program), "cpu") if not site.inside]
    chosen = {site.key: name for site in sites for name in WANTED if name in site.kernels}
    return Path.of(program, {key: kernel_named(name) for key, name in chosen.items()})


def kernels(path: Path) -> Counter[str]:
    return Counter(choice.kernel for choice in path.choices.values())


def test_kernels_are_chosen_for_a_part(step: tuple[pcp.TrainingStep, Any], path: Path) -> None:
    program, given = step
    whole = peak(path.applied(program))
    limit = int(0.75 * whole)
    fit = fitted(program, path, TARGET, limit)
    assert (fit.peak, fit.without) == (peak(fit.path.applied(program)), whole)
    assert fit.peak <= limit < whole
    assert fit.parts == fit.path.parts > 1
    assert set(kernels(fit.path)) == set(WANTED)
    assert kernels(fit.path) == kernels(path)
    assert Path.from_json(fit.path.to_json()) == fit.path
    found = flatten(pcp.plan(program, path=fit.path).run(*given))[0]
    wide = map_tree(lambda x: x.astype(np.float64) if x.dtype == np.float32 else x, given)
    exact = flatten(run(widened(program), *wide))[0]
    judged = [place for place, entry in enumerate(program.results) if "params" not in entry.name.split(".")]
    assert (
        len(judged) > len(found) / 2
    )  # moments and the loss; of a gradient near zero the first step has any sign
    for place in judged:
        one, other = np.asarray(found[place], np.float64), np.asarray(exact[place])
        assert np.linalg.norm(one - other) <= 0.03 * np.linalg.norm(other), program.results[place].name
