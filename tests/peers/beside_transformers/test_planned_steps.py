"""Training steps of imported models are planned within 1e-2 without an example: the plain path is exact enough everywhere."""

import functools
from pathlib import Path

import pytest
import torch
from tests.execution import exactly
from tests.peers.beside_transformers.families import made, tokens

import pcp
from pcp.backends import Target
from pcp.planning.chosen import searched
from pcp.planning.conditions import Conditions, evidence_of
from pcp.planning.search.loop import answered
from pcp.planning.search.strategy import Step, Strategy

ZEROS = {
    "bert": ("key.bias", 16, 16),
    "vit": ("attention.k_proj.bias", 16, 16),
    "gpt2": ("c_attn.bias", 16, 48),
    "bloom": ("query_key_value.bias", 16, 48),
    "phi": ("k_proj.bias", 4, 8),
    "qwen2": ("k_proj.bias", 0, 8),
}
"""By families: a bias, how many of its elements have a gradient of zero, and how many it has. Phi rotates half of
each key, Qwen2 all."""
QUICK_ONES = ("bert", "gpt2", "qwen2")


def least_of_plain(step: pcp.TrainingStep, folder: Path, tolerance: float = 1e-2) -> float:
    """The smallest tolerance that the plain step is within, which is at most the one given."""
    conditions = Conditions(
        Target.of(), 1 << 40, folder / "profile.sqlite", 600, strategy=Strategy(steps=(Step.plain,))
    )
    with evidence_of(conditions) as evidence:
        found, _ = answered(functools.partial(searched, step, tolerance, conditions, ()), evidence)
    assert found.measurement is not None
    assert found.measurement.least_plain is not None
    return found.measurement.least_plain


@pytest.mark.parametrize(
    "family",
    [pytest.param(name, marks=() if name in QUICK_ONES else pytest.mark.long) for name in ZEROS],
)
def test_the_plain_step_is_within_a_hundredth(family: str, tmp_path: Path) -> None:
    loss, inputs = made(family)
    imported = pcp.from_torch(loss, *inputs)
    step = pcp.training_step(imported.program, pcp.optimizers.adamw(1e-3))
    assert len(step.begins) == len(imported.weights) + len(imported.buffers)
    assert least_of_plain(step, tmp_path) < 1e-3
    held = step.initial_state(imported.weights, imported.buffers or None)
    state, _ = exactly(step, held, tuple(each.numpy() for each in inputs))
    name, zeros, size = ZEROS[family]
    biases = [each for key, each in state["optimizer"]["first"].items() if key.endswith(name)]
    assert [(int((each == 0).sum()), each.size) for each in biases] == [(zeros, size)] * 2


def test_a_step_whose_tokens_are_as_far_apart_as_buckets_of_distances_begin(tmp_path: Path) -> None:
    loss, _ = made("t5")
    inputs = tuple(tokens(1, 18) for _ in range(2))
    imported = pcp.from_torch(loss, *inputs)
    step = pcp.training_step(imported.program, pcp.optimizers.adamw(1e-3))
    assert least_of_plain(step, tmp_path) < 1e-3


@pytest.mark.parametrize("family", ["gpt2", "llama", pytest.param("bert", marks=pytest.mark.long)])
def test_a_step_of_a_model_in_bfloat16_is_as_exact_as_its_numbers(family: str, tmp_path: Path) -> None:
    loss, inputs = made(family)
    imported = pcp.from_torch(loss.to(torch.bfloat16), *inputs)
    step = pcp.training_step(imported.program, pcp.optimizers.adamw(1e-3))
    assert {each.dtype.name for each in imported.weights.values()} == {"bfloat16"}
    assert 1e-3 < least_of_plain(step, tmp_path, 0.05) < 0.03
