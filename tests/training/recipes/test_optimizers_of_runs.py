"""The optimizer that the settings of a run name."""

from typing import Any

import numpy as np
import pytest

from pcp.distributed.algorithms.base import InvalidAlgorithm
from pcp.distributed.algorithms.muloco import MuLoCo
from pcp.optimizers import SGD, Adafactor, AdamW, Lion, Muon, WarmupCosine, by_name, groups
from pcp.optimizers.names import OPTIMIZERS
from pcp.training.recipes.config import OPTIMIZER_CHOICES, WITH_MOMENTUM, TrainingConfig
from pcp.training.recipes.recipe import Recipe


def optimizer_of(**settings: Any) -> Any:
    config = TrainingConfig().replaced(**settings)
    holder = type("Holder", (), {"config": config})()
    return Recipe.optimizer.func(holder)


def test_every_optimizer_has_the_settings_that_it_knows() -> None:
    shared: dict[str, Any] = {"weight_decay": 0.3, "beta1": 0.7, "beta2": 0.8, "steps": 100}
    rate = WarmupCosine(1e-3, 10, 100, 1e-4)
    rest = AdamW(rate, (0.7, 0.8), weight_decay=0.3)
    expected = {
        "adamw": rest,
        "adam": AdamW(rate, (0.7, 0.8), weight_decay=0.0),
        "lion": Lion(rate, (0.7, 0.8), 0.3),
        "muon": Muon(rest, weight_decay=0.3),
        "adafactor": Adafactor(rate, weight_decay=0.3),
        "sgd": SGD(rate, weight_decay=0.3),
        "nesterov": SGD(rate, 0.9, nesterov=True, weight_decay=0.3),
    }
    assert {name: optimizer_of(optimizer=name, **shared) for name in OPTIMIZER_CHOICES} == expected
    for name in WITH_MOMENTUM:
        assert optimizer_of(optimizer=name, momentum=0.6, **shared).momentum == 0.6
    assert tuple(OPTIMIZERS) == OPTIMIZER_CHOICES


def test_muloco_trains_with_muon_alone() -> None:
    algorithm = MuLoCo(5)
    own = by_name("muon")(1e-3, weight_decay=0.2)
    assert algorithm.inner_optimizer(own) is own
    assert algorithm.inner_optimizer(by_name("adamw")(1e-3, weight_decay=0.2)) == own
    with pytest.raises(
        InvalidAlgorithm, match=r"muloco was given the optimizer Lion\(.*expected adamw or muon"
    ):
        algorithm.inner_optimizer(by_name("lion")(1e-3))


def test_groups_of_a_run_are_those_of_its_optimizer() -> None:
    chosen: dict[str, Any] = {"*.bias": {"rate": 0.5, "decay": 0}, "embed*": "frozen"}
    found, base = optimizer_of(groups=chosen, steps=100), optimizer_of(steps=100)
    assert found == groups(chosen, base)
    assert found.freezes(_shaped()) == {"embed.w"}
    assert optimizer_of(groups=chosen | {"*.bias": {"rate": 0.5}}, weight_decay=[[0, 0.1]]).freezes(
        _shaped()
    ) == {"embed.w"}


def _shaped() -> Any:
    return {"embed": {"w": np.zeros((2, 2))}, "head": {"bias": np.zeros(2)}}
