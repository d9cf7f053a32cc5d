"""Runs of a model so small that a step takes no time."""

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcp.ir.tree import flatten
from pcp.models.published import CONFIGURATIONS, gpt2_config
from pcp.training.recipes.config import TrainingConfig
from pcp.training.recipes.prepare import prepare
from pcp.training.recipes.recipe import Recipe
from pcp.training.run_folder import RunFolder

TINY = gpt2_config(layers=1, heads=2, width=8, context=8, vocabulary=99, bias=False)
CONFIG = TrainingConfig(
    model="gpt2-tiny",
    steps=12,
    batch=2,
    warmup_steps=2,
    evaluate_every=5,
    log_every=10,
    checkpoint_every=4,
    seed=11,
)

Prepared = Callable[..., tuple[Recipe, RunFolder]]


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepared:
    """Makes a run of the tiny model in a folder of a name."""
    monkeypatch.setitem(CONFIGURATIONS, "gpt2-tiny", TINY)
    text = tmp_path / "letters.txt"
    text.write_text("".join(random.Random(1).choices("abcde ", k=600)))

    def make(name: str, **settings: Any) -> tuple[Recipe, RunFolder]:
        config = dataclasses.replace(CONFIG, data=str(text), **settings)
        folder = RunFolder.create(tmp_path / name, config)
        return prepare(folder), folder

    return make


def assert_equal(ours: Any, theirs: Any) -> None:
    """Two nested values are equal bit for bit."""
    (leaves, tree), (expected, expected_tree) = flatten(ours), flatten(theirs)
    assert tree == expected_tree
    for name, a, b in zip(tree.names(), leaves, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=name)
