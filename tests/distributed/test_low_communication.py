"""Training that seldom communicates learns what data parallel training learns from as many tokens."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcp.distributed.algorithms import (
    Algorithm,
    DataParallel,
    DecoupledDiLoCo,
    DiLoCo,
    MuLoCo,
    NoLoCo,
    StreamingDiLoCo,
)
from pcp.distributed.round_arithmetic.lockstep import Lockstep
from pcp.distributed.wire import BlobStore
from pcp.models.published import gpt2_config
from pcp.training.data.token_file import write_token_file
from pcp.training.recipes.config import TrainingConfig
from pcp.training.recipes.decoder_recipe import DecoderRecipe
from tests.distributed.gossip.lockstep import PairsLockstep, Tamper

WORKERS, STEPS, VOCABULARY = 4, 1200, 10


def chain(count: int) -> np.ndarray[Any, Any]:
    """A text in which each token depends on the two before it."""
    generator = np.random.default_rng(0)
    odds = generator.dirichlet(np.full(VOCABULARY, 0.1), (VOCABULARY, VOCABULARY)).cumsum(-1)
    draws, tokens = generator.random(count), [0, 0]
    for draw in draws:
        tokens.append(min(int(np.searchsorted(odds[tokens[-2], tokens[-1]], draw)), VOCABULARY - 1))
    return np.array(tokens, np.uint16)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> DecoderRecipe:
    folder: Path = tmp_path_factory.mktemp("chain")
    tokens = write_token_file(folder / "tokens.bin", chain(120_000), VOCABULARY)
    config = TrainingConfig(
        steps=STEPS, batch=8, learning_rate=1e-2, final_learning_rate=1e-3, warmup_steps=30
    )
    return DecoderRecipe(config, gpt2_config(2, 2, 32, 16, VOCABULARY, bias=False), tokens)


def final_loss(recipe: DecoderRecipe, algorithm: Algorithm) -> float:
    run = Lockstep(recipe, algorithm, WORKERS)
    for _ in range(STEPS * algorithm.fragments // algorithm.inner_steps):
        run.round()
    run.flush()
    return run.validation_loss()


@pytest.mark.long
def test_pairs_without_a_global_step_learn_as_much(recipe: DecoderRecipe, store: BlobStore) -> None:
    diloco = final_loss(recipe, DiLoCo(30, 0.8, 0.7))
    run = PairsLockstep(recipe, NoLoCo(30, STEPS, 0.9), WORKERS, store)
    variances = run.train()
    loss = run.validation_loss()
    assert loss < diloco + 0.01, f"NoLoCo {loss:.4f}, DiLoCo {diloco:.4f}"
    assert variances[-1] < max(variances) / 4, "the schedule of the learning rate lets workers come together"


RANDOM = np.random.default_rng(3)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "tamper"),
    [
        ("turned round", lambda theta, slow: (2 * slow - theta, slow)),
        ("a thousand times and turned round", lambda theta, slow: (slow - 1000 * (theta - slow), slow)),
        ("noise", lambda *both: tuple(RANDOM.standard_normal(each.size).astype(np.float32) for each in both)),
        ("far away", lambda theta, slow: (theta, -1000 * slow)),
        ("no numbers", lambda theta, slow: (theta * np.nan, slow)),
    ],
)
def test_one_hostile_worker_of_four_costs_its_partners_little(
    recipe: DecoderRecipe, store: BlobStore, name: str, tamper: Tamper
) -> None:
    run = PairsLockstep(recipe, NoLoCo(30, STEPS, 0.9, merge="default"), WORKERS, store, tamper)
    run.train()
    loss = run.validation_loss()
    assert loss < 0.951 + 0.08, f"{name}: {loss:.4f}; 0.951 where all are honest"


@pytest.mark.long
def test_low_communication_costs_little(recipe: DecoderRecipe) -> None:
    control = final_loss(recipe, DataParallel())
    assert control < 0.5 * np.log(VOCABULARY)
    losses = {
        "DiLoCo": final_loss(recipe, DiLoCo(30, 0.8, 0.7)),
        "Streaming in four bits": final_loss(recipe, StreamingDiLoCo(30, 3, 1, 0.5, 0.7, 0.9)),
        "MuLoCo in four bits": final_loss(recipe, MuLoCo(30, 0.8, 0.7)),
        "decoupled in four bits": final_loss(recipe, DecoupledDiLoCo(30, 3, 1, 0.8, 0.7)),
    }
    assert {name: loss for name, loss in losses.items() if loss > control + 0.03} == {}
