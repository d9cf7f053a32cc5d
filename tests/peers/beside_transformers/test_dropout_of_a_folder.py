"""`pcp train --model FOLDER --dropout`: the dropout of config.json, as in `train()` of transformers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tests.peers.beside_transformers.families import CAUSAL
from tests.peers.beside_transformers.test_fine_tuning import SHORT, TEXT, loss_of
from tests.training.tiny_run import assert_equal

import pcp
from pcp.distributed.algorithm_choice import algorithm_of
from pcp.distributed.round_arithmetic.programs import inner_step, worker_programs
from pcp.distributed.shepherd.new_run import check_run
from pcp.importers.training_folder import ModelNotTrainable, bring_model
from pcp.training.loop import train
from pcp.training.recipes.prepare import configured, prepare, write_trained_weights
from pcp.training.run_folder import RunFolder

RATES = {"resid_pdrop": 0.3, "embd_pdrop": 0.2, "attn_pdrop": 0.1}


def folder_of(tmp_path: Path, family: str, **settings: Any) -> dict[str, Any]:
    """The settings of a run of a tiny model of a family."""
    head, own = CAUSAL[family]
    kind = getattr(transformers, head)
    torch.manual_seed(0)
    model = kind(kind.config_class(**{**own, "vocab_size": 256, **settings}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)  # so that what is dropped matters
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "my.txt").write_text(TEXT)
    data = {"data": str(tmp_path / "my.txt"), "tokenizer": "bytes", "context": 16}
    return SHORT | data | {"model": str(tmp_path / "model"), "dropout": True}


def brought(run: Path, settings: dict[str, Any]) -> RunFolder:
    folder = RunFolder.create(run, configured(settings))
    bring_model(folder)
    return folder


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return folder_of(tmp_path_factory.mktemp("gpt2"), "gpt2", **RATES)


@pytest.fixture(scope="module")
def folder(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return brought(tmp_path_factory.mktemp("run") / "run", settings)


def test_losses_are_spread_as_those_of_transformers(folder: RunFolder, settings: dict[str, Any]) -> None:
    recipe: Any = prepare(folder)
    x, y = recipe.batches.batch(0)
    plan = pcp.plan(recipe.loss, "arena:cpu")
    keys = np.random.default_rng().integers(0, 2**32, (60, 2), dtype=np.uint32)
    mine = np.array([float(plan.run(recipe.parameters, x, y, key)) for key in keys])
    assert float(plan.run(recipe.parameters, x, y, keys[0])) == mine[0]
    model = transformers.AutoModelForCausalLM.from_pretrained(settings["model"]).train()
    tokens, targets = (torch.from_numpy(each.astype(np.int64)) for each in (x, y))

    def loss() -> float:
        return torch.nn.functional.cross_entropy(model(tokens).logits.flatten(0, 1), targets.flatten()).item()

    with torch.no_grad():
        theirs = np.array([loss() for _ in range(60)])
        model.eval()
        whole = loss()
    spread = np.sqrt((mine.var() + theirs.var()) / 60)
    assert abs(mine.mean() - theirs.mean()) < 5 * spread
    assert 0.6 < mine.std() / theirs.std() < 1.6
    assert np.abs(mine - whole).min() > 1e-5
    evaluated = pcp.plan(recipe.evaluation, "arena:cpu").run(recipe.parameters, (x, y))
    assert float(evaluated) == pytest.approx(whole, rel=1e-5)


def test_a_run_goes_on_with_the_bits_that_it_would_have_had(folder: RunFolder, tmp_path: Path) -> None:
    recipe = prepare(folder)
    records: list[Any] = []

    def stop(record: Any) -> None:
        if record.get("step") == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(recipe, folder, stop)
    trained = train(prepare(folder), folder, records.append)
    other = RunFolder.create(tmp_path / "other", folder.config())
    for name in ("loss.pcp", "evaluation.pcp", "weights.safetensors"):
        (other.path / name).write_bytes((folder.path / name).read_bytes())
    assert_equal(trained, train(prepare(other), other, lambda _: None))
    out = write_trained_weights(folder, recipe)
    assert out is not None
    loaded = transformers.AutoModelForCausalLM.from_pretrained(out)
    assert records[-1]["validation_loss"] == pytest.approx(loss_of(loaded, recipe), rel=1e-5)


@pytest.mark.parametrize("algorithm", ["diloco", "data-parallel"])
def test_workers_are_sent_steps_that_draw_by_themselves(folder: RunFolder, algorithm: str) -> None:
    config = folder.config().replaced(workers=2, inner_steps=4, steps=12, algorithm=algorithm)
    recipe: Any = prepare(folder)
    recipe = type(recipe)(config, recipe.imported, recipe.given)
    check_run(recipe)
    chosen = algorithm_of(config)
    step = worker_programs(inner_step(recipe, chosen), recipe.parameters, chosen)["step"]
    assert [str(entry.spec) for entry in step.arguments if entry.name.startswith("batch")] == [
        "i32[4,16]"
    ] * 2
    plan, state = pcp.plan(step, "arena:cpu"), inner_step(recipe, chosen).initial_state(recipe.parameters)
    losses = {
        float(plan.run(state | {"step": np.int32(n)}, recipe.batches.batch(0))[1]["loss"]) for n in (3, 4, 3)
    }
    assert len(losses) == 2


@pytest.mark.long
def test_low_rank_matrices_are_trained_with_dropout(settings: dict[str, Any], tmp_path: Path) -> None:
    folder = brought(tmp_path / "run", settings | {"lora": "rank=2"})
    recipe, records = prepare(folder), list[Any]()
    train(recipe, folder, records.append)
    out = write_trained_weights(folder, recipe)
    assert out is not None
    loaded = transformers.AutoModelForCausalLM.from_pretrained(out)
    assert records[-1]["validation_loss"] == pytest.approx(loss_of(loaded, recipe), rel=1e-4)


def test_a_model_that_drops_nothing_is_told_where_its_rates_stand(tmp_path: Path) -> None:
    settings = folder_of(tmp_path, "llama")
    words = r"LlamaForCausalLM in training mode drops nothing: its config\.json has \{'attention_dropout': 0\.0\}; leave"
    with pytest.raises(ModelNotTrainable, match=words):
        brought(tmp_path / "run", settings)
