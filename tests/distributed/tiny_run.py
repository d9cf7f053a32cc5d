"""A run that is tiny and whole: a GPT-2 of width 16 over random tokens, made where a test needs one."""

from pathlib import Path
from typing import Any

import numpy as np

from pcp.distributed.algorithms import Algorithm, DiLoCo
from pcp.distributed.job import Job
from pcp.distributed.messages import Adoption, Blob, DataRange, Lease
from pcp.distributed.round_arithmetic.programs import inner_step, worker_programs
from pcp.distributed.wire.blobs import BlobStore
from pcp.ir.tree import flatten
from pcp.models.published import gpt2_config
from pcp.training.data.token_file import write_token_file
from pcp.training.recipes.config import TrainingConfig
from pcp.training.recipes.decoder_recipe import DecoderRecipe
from pcp.training.recipes.recipe import Recipe

VOCABULARY = 11
MODEL = gpt2_config(layers=1, heads=2, width=16, context=8, vocabulary=VOCABULARY, bias=False)

DILOCO = DiLoCo(3)


def tiny_recipe(folder: Path, **settings: Any) -> DecoderRecipe:
    """A recipe of the tiny model; settings replace those of `TrainingConfig`."""
    chosen: dict[str, Any] = {
        "steps": 12,
        "batch": 2,
        "warmup_steps": 2,
        "inner_steps": 3,
        "workers": 2,
        "seed": 5,
    }
    tokens = np.random.default_rng(7).integers(0, VOCABULARY, 1500).astype(np.int32)
    token_file = write_token_file(folder / "tokens.bin", tokens, VOCABULARY)
    return DecoderRecipe(TrainingConfig(**(chosen | settings)), MODEL, token_file)


def store_job(recipe: Recipe, store: BlobStore, algorithm: Algorithm = DILOCO, **programs: bytes) -> Job:
    """Store what workers fetch; artifacts may be replaced by name."""
    made = worker_programs(inner_step(recipe, algorithm), recipe.parameters, algorithm)
    artifacts = {name: program.artifact() for name, program in made.items()} | programs
    return Job(
        {name: store.put(artifact) for name, artifact in artifacts.items()},
        store.put(recipe.tokens.path.read_bytes()),
        recipe.config.batch,
        recipe.model.context,
        recipe.config.seed,
        recipe.model.vocabulary,
    )


def lease_of(number: int, data: DataRange, parameters: Blob, first_step: int = 0) -> Lease:
    """A fresh lease of some batches of a run of one fragment."""
    adopt = (Adoption(0, number - 1, 0, parameters, None),)
    return Lease(number, 1, number, data, first_step, 0, (), True, adopt, 60.0)


def assert_equal_arrays(given: Any, expected: Any, relative: float = 0.0, absolute: float = 0.0) -> None:
    """Nested arrays are equal, leaf by leaf."""
    (found, tree), (wanted, wanted_tree) = flatten(given), flatten(expected)
    assert tree == wanted_tree
    for name, one, other in zip(tree.names(), found, wanted, strict=True):
        np.testing.assert_allclose(
            np.asarray(one), np.asarray(other), rtol=relative, atol=absolute, err_msg=name
        )
