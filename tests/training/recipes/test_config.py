"""Settings: ranges, types, TOML and JSON."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from pcp.training.recipes.config import InvalidTrainingConfig, TrainingConfig, read_config
from pcp.training.recipes.prepare import configured


def test_the_defaults_are_nanogpts_recipe() -> None:
    config = TrainingConfig()
    assert (config.steps, config.batch, config.learning_rate, config.final_learning_rate) == (
        2000,
        12,
        1e-3,
        1e-4,
    )
    assert (config.warmup, config.beta1, config.beta2) == (100, 0.9, 0.99)
    assert (config.weight_decay, config.clip_norm) == (0.1, 1.0)


@pytest.mark.parametrize(
    ("steps", "warmup"), [(1, 0), (9, 0), (60, 6), (999, 99), (1000, 100), (50_000, 100)]
)
def test_a_short_run_warms_up_for_a_tenth_of_its_steps(steps: int, warmup: int) -> None:
    assert TrainingConfig(steps=steps).warmup == warmup
    assert configured({"steps": steps}).warmup_steps == warmup
    assert configured({"steps": 60, "warmup_steps": 40}).warmup_steps == 40


def test_json_brings_back_every_setting() -> None:
    settings = {
        field.name: f"other-{field.name}" if isinstance(field.default, str) else 7
        for field in dataclasses.fields(TrainingConfig)
    }
    settings |= {"steps": 700, "vocabulary": 700, "beta1": 0.25, "beta2": 0.5, "outer_momentum": 0.125}
    settings |= {"dropout": True, "groups": {"*.bias": {"rate": 0.5}, "embed*": "frozen"}}
    settings |= {"optimizer": "sgd", "momentum": 0.5, "schedule": "wsd"}
    settings |= {"learning_rates": ((0, 7.0),), "weight_decays": (), "batches": ()}
    settings |= {"shares": "equal", "audit_rate": 0.75, "wire": {"strangers": 9, "messages_per_second": 2.5}}
    config = TrainingConfig().replaced(**settings)
    assert dataclasses.asdict(config) == settings
    assert isinstance(config.learning_rate, float)
    assert TrainingConfig.from_json(config.to_json()) == config
    assert config != TrainingConfig()


def test_toml_overrides_defaults(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('model = "gpt2"\nsteps = 7\nwarmup_steps = 3\nlearning_rate = 1e-4\n')
    config = TrainingConfig().replaced(**read_config(path))
    assert (config.model, config.steps, config.warmup_steps, config.learning_rate) == ("gpt2", 7, 3, 1e-4)
    assert config.batch == TrainingConfig().batch
    path.write_text('data = ["train.bin", "val.bin"]\n')
    assert read_config(path) == {"data": "train.bin,val.bin"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps is 0; expected at least 1"),
        ({"shares": "fair"}, "shares is fair; expected measured or equal"),
        ({"audit_rate": 1.5}, "audit_rate is 1.5; expected a share of the leases, from 0 to 1"),
        ({"audit_tolerance": -1.0}, "audit_tolerance is -1.0; expected at least 0"),
        ({"batch": -1}, "batch is -1; expected at least 1"),
        ({"inner_steps": 0}, "inner_steps is 0; expected at least 1"),
        ({"workers": -1}, "workers is -1; expected at least 0"),
        ({"evaluate_every": -1}, "evaluate_every is -1; expected at least 0"),
        ({"checkpoint_every": -1}, "checkpoint_every is -1; expected at least 0"),
        ({"clip_norm": -0.5}, r"clip_norm is -0\.5; expected at least 0"),
        ({"weight_decay": -0.5}, r"weight_decay is -0\.5; expected at least 0"),
        ({"final_learning_rate": -1e-4}, r"final_learning_rate is -0\.0001; expected at least 0"),
        ({"seed": -1}, "seed is -1; expected at least 0"),
        ({"beta1": 1.0}, r"beta1 is 1\.0; expected at least 0 and below 1"),
        ({"beta2": -0.1}, r"beta2 is -0\.1; expected at least 0 and below 1"),
        ({"learning_rate": 0}, r"learning_rate is 0\.0; expected above 0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan; expected above 0"),
        (
            {"warmup_steps": 2000},
            "warmup_steps is 2000; expected at least 0 and below steps, which is 2000; leave it out for a tenth",
        ),
        (
            {"optimizer": "adamW"},
            "optimizer is adamW; expected one of adamw, adam, lion, muon, adafactor, sgd, nesterov",
        ),
        (
            {"optimizer": "lion", "momentum": 0.9},
            r"momentum is 0\.9; expected at least 0 and below 1, with an optimizer that has one: muon, sgd, nesterov",
        ),
        ({"optimizer": "sgd", "momentum": 1.0}, r"momentum is 1\.0; expected at least 0 and below 1"),
        ({"accumulate": 5}, "accumulate is 5; expected a divisor of batch, which is 12"),
        (
            {"rate": 1},
            r"there is no setting 'rate' \(did you mean 'remat'\?\); choose one of model, weights, data, field, tokenizer, ",
        ),
        (
            {"groups": {"*.bias": {"rat": 0.1}}},
            r"the group '\*\.bias' is \{'rat': 0\.1\}; expected rate, a factor .* as \{ rate = 0\.1, decay = 0",
        ),
        ({"groups": {"*": "froze"}}, r"the group '\*' is froze; expected rate"),
        ({"groups": {"*": {"rate": -1.0}}}, r"the group '\*' is \{'rate': -1\.0\}; expected rate"),
        ({"groups": {"*": {}}}, r"the group '\*' is \{\}; expected rate"),
        (
            {"groups": {"*": "frozen"}, "workers": 2, "algorithm": "muloco"},
            "algorithm is muloco; expected another for groups",
        ),
        (
            {"groups": {"*": {"decay": 0.0}}, "weight_decay": [[0, 0.0], [9, 0.1]]},
            "weight_decay is .*expected one number, where a group has a decay",
        ),
        ({"steps": 1.5}, r"steps is 1\.5; expected a value of type int"),
        ({"steps": True}, "steps is True; expected a value of type int"),
        ({"model": 2}, "model is 2; expected a value of type str"),
        ({"learning_rate": "fast"}, "learning_rate is 'fast'; expected a value of type float"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidTrainingConfig, match=message):
        TrainingConfig().replaced(**settings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the settings of the run are not JSON: "),
        ("[1]", "the settings of the run are not a JSON object"),
        ('{"speed": 1}', "there is no setting 'speed'"),
    ],
)
def test_settings_that_cannot_be_read_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidTrainingConfig, match=message):
        TrainingConfig.from_json(text)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no file .*run.toml; give a TOML file of settings"),
        (b"steps: 7", "run.toml is not a TOML file: "),
        (b"\xff\xfe", "run.toml is not a TOML file: "),
    ],
)
def test_toml_that_cannot_be_read_is_refused(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidTrainingConfig, match=message):
        read_config(path)
