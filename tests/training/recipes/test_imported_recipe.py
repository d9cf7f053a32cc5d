"""Runs of losses from files: that they learn, that they are what they would be without a file, and that they go on."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.training.loss_files import BATCH, Files, network_loss, parameters, plain, save_arrays, traced
from tests.training.tiny_run import assert_equal

import pcp
from pcp.ir.tree import flatten
from pcp.models import decoder
from pcp.models.published import CONFIGURATIONS, gpt2_config
from pcp.planning import plan
from pcp.training.data.safetensors_file import read_arrays
from pcp.training.display.metrics import Record
from pcp.training.loop import train
from pcp.training.recipes.config import TrainingConfig
from pcp.training.recipes.prepare import prepare, write_trained_weights
from pcp.training.recipes.recipe import Recipe
from pcp.training.run_folder import RunFolder
from pcp.training.step import training_step

TINY = gpt2_config(layers=1, heads=2, width=8, context=8, vocabulary=6, bias=False)


def records_of(recipe: Recipe, folder: RunFolder) -> list[Record]:
    records: list[Record] = []
    train(recipe, folder, records.append)
    return [record for record in records if "step" in record]


@pytest.mark.parametrize("make", [traced, plain])
def test_a_network_learns_from_samples(make: Any, tmp_path: Path) -> None:
    files: Files = make(tmp_path)
    recipe, folder = files.prepared(tmp_path / "run", steps=120)
    assert recipe.config.batch == BATCH
    assert recipe.tokens_per_step == BATCH
    records = records_of(recipe, folder)
    validation = [record["validation_loss"] for record in records if "validation_loss" in record]
    assert validation[-1] < 0.5 * validation[0]
    assert records[-1]["loss"] < 0.5 * records[0]["loss"]


def test_a_traced_loss_and_its_plain_text_train_alike(tmp_path: Path) -> None:
    """Names, nesting and the order of arguments differ; the numbers may not, but for the order of the global norm."""
    found = [records_of(*make(tmp_path).prepared(tmp_path / make.__name__)) for make in (traced, plain)]
    for ours, theirs in zip(*found, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-6)


@pytest.mark.cpu
def test_the_steps_are_those_of_the_loss_itself(tmp_path: Path) -> None:
    recipe, folder = traced(tmp_path).prepared(tmp_path / "run", steps=6, clip_norm=0.5)
    trained = train(recipe, folder, lambda _: None)
    step = plan(training_step(network_loss(), recipe.optimizer, clip_norm=0.5))
    state: Any = recipe.step.initial_state(parameters())
    for index in range(6):
        state, _ = step.run(state, recipe.batches.batch(index))
    assert_equal(trained, state["params"])


def test_the_validation_loss_is_the_mean_over_samples_that_are_not_trained_on(tmp_path: Path) -> None:
    recipe, folder = traced(tmp_path).prepared(tmp_path / "run")
    held, trained_on = (read_arrays(file)[0] for file in (folder.validation_file, folder.training_file))
    assert (len(held["1"]), len(trained_on["1"])) == (16, 184)
    assert not set(held["1"].tolist()) & set(trained_on["1"].tolist())
    p = parameters()
    errors = np.tanh(held["0"] @ p["hidden"]["w"]) @ p["out"] - held["1"]
    bound = plan(recipe.evaluation).bind(recipe.parameters)
    assert recipe.validation_loss(bound.run) == pytest.approx(float(np.mean(errors**2)), rel=1e-5)


def test_the_trained_weights_have_the_names_of_those_given(tmp_path: Path) -> None:
    files = plain(tmp_path)
    recipe, folder = files.prepared(tmp_path / "run", steps=5)
    trained = train(recipe, folder, lambda _: None)
    path = write_trained_weights(folder, recipe)
    assert path == folder.trained_file
    found, before = read_arrays(path)[0], read_arrays(files.weights)[0]
    assert_equal(found, {"arg1": trained["arg1"], "arg2": trained["arg2"]})
    assert [(found[name] == before[name]).all() for name in before] == [False, False]


def test_an_interrupted_run_goes_on_without_the_files_it_was_made_from(tmp_path: Path) -> None:
    files = plain(tmp_path)
    whole = records_of(*files.prepared(tmp_path / "whole", checkpoint_every=10))
    recipe, folder = files.prepared(tmp_path / "run", checkpoint_every=10)

    def stop(record: Record) -> None:
        if record.get("step") == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(recipe, folder, stop)
    for file in (files.model, files.weights, files.data):
        file.unlink()
    rest = records_of(prepare(RunFolder.open(folder.path)), folder)
    assert [r["loss"] for r in rest] == [r["loss"] for r in whole if r["step"] > 20]
    assert rest[-1]["validation_loss"] == whole[-1]["validation_loss"]


def test_accumulation_joins_batches_of_the_program(tmp_path: Path) -> None:
    recipe, folder = traced(tmp_path).prepared(tmp_path / "run", accumulate=3, steps=10)
    assert recipe.config.batch == 3 * BATCH
    assert recipe.batches.batch(0)[0].shape == (3 * BATCH, 3)
    assert np.isfinite(records_of(recipe, folder)[-1]["loss"])


def test_metrics_beside_the_loss_are_allowed(tmp_path: Path) -> None:
    def loss(params: Any, x: pcp.Tensor, y: pcp.Tensor) -> Any:
        error = pcp.tanh(x @ params["hidden"]["w"]) @ params["out"] - y
        return pcp.mean(error**2), {"largest": pcp.max(error)}

    files = traced(tmp_path)
    pcp.trace(loss, parameters(), pcp.spec((8, 3), "f32"), pcp.spec((8,), "f32")).save(files.model)
    assert records_of(*files.prepared(tmp_path / "run"))[-1]["validation_loss"] < 1


def test_buffers_are_constants_that_travel_with_the_weights(tmp_path: Path) -> None:
    """As `from_torch` makes programs: `(weights, buffers, inputs...)`, and an array of the state of a module for each."""
    buffers = {"scale": np.float32([2, 0.5, 1]), "mask": np.array([1, 0, 1], np.int32)}

    def loss(weights: Any, buffers: Any, x: pcp.Tensor, y: pcp.Tensor) -> pcp.Tensor:
        masked = x * buffers["scale"] * buffers["mask"].astype("f32")
        return pcp.mean((masked @ weights["hidden"]["w"] @ weights["out"] - y) ** 2)

    files, nested = traced(tmp_path), parameters()
    specs = (pcp.spec((8, 3), "f32"), pcp.spec((8,), "f32"))
    pcp.trace(loss, nested, buffers, *specs).save(files.model)
    save_arrays(files.weights, {"hidden.w": nested["hidden"]["w"], "out": nested["out"], **buffers})
    recipe, folder = files.prepared(tmp_path / "run", steps=10)
    assert [len(recipe.loss.arguments), sorted(recipe.parameters)] == [4, ["hidden", "out"]]
    train(prepare(RunFolder.open(folder.path)), folder, lambda _: None)
    write_trained_weights(folder, recipe)
    trained = read_arrays(folder.trained_file)[0]
    assert_equal({name: trained[name] for name in buffers}, buffers)
    assert (trained["out"] != nested["out"]).any()
    x, y = recipe.batches.batch(0)
    value = plan(recipe.loss).run(nested, x, y)
    masked = x * buffers["scale"] * buffers["mask"]
    expected = np.mean((masked @ nested["hidden"]["w"] @ nested["out"] - y) ** 2)
    assert float(value) == pytest.approx(expected, rel=1e-5)


def text_of(path: Path, count: int = 900) -> Path:
    path.write_text("".join(random.Random(1).choices("abcde ", k=count)))
    return path


def test_a_gpt2_from_a_file_has_exactly_the_losses_of_the_one_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CONFIGURATIONS, "gpt2-tiny", TINY)
    settings: dict[str, Any] = {
        "data": str(text_of(tmp_path / "letters.txt")), "steps": 12, "warmup_steps": 2, "seed": 11, "evaluate_every": 6,
    }  # fmt: skip
    named = RunFolder.create(tmp_path / "named", TrainingConfig(model="gpt2-tiny", batch=2, **settings))
    expected = records_of(prepare(named), named)
    start = decoder.initial_parameters(TINY, 11)
    tokens = pcp.spec((2, 8), "i32")
    pcp.trace(lambda p, a, b: decoder.loss(p, a, b, TINY), start, tokens, tokens).save(tmp_path / "gpt2.pcp")
    leaves, tree = flatten(start)
    weights = save_arrays(tmp_path / "w.safetensors", dict(zip(tree.names(), leaves, strict=True)))
    files = Files(tmp_path / "gpt2.pcp", weights, Path(settings["data"]))
    found = records_of(*files.prepared(tmp_path / "run", learning_rate=1e-3, **settings))
    assert [r["loss"] for r in found] == [r["loss"] for r in expected]
    assert [r["gradient_norm"] for r in found] == [r["gradient_norm"] for r in expected]
    # The one by name weighs every window; here those that fill no batch are left out.
    assert found[-1]["validation_loss"] == pytest.approx(expected[-1]["validation_loss"], rel=0.02)


def test_tokens_may_be_other_integers(tmp_path: Path) -> None:
    """PyTorch counts in i64, and a batch may be a dictionary."""
    wide = pcp.spec((2, 8), "i64")

    def loss(p: Any, batch: dict[str, pcp.Tensor]) -> pcp.Tensor:
        return decoder.loss(p, batch["tokens"], batch["wanted"], TINY)

    start = decoder.initial_parameters(TINY, 11)
    pcp.trace(loss, start, {"tokens": wide, "wanted": wide}).save(tmp_path / "gpt2.pcp")
    leaves, tree = flatten(start)
    weights = save_arrays(tmp_path / "w.safetensors", dict(zip(tree.names(), leaves, strict=True)))
    files = Files(tmp_path / "gpt2.pcp", weights, text_of(tmp_path / "letters.txt"))
    recipe, folder = files.prepared(tmp_path / "run", steps=4)
    assert [entry.spec.dtype for entry in recipe.loss.arguments[-2:]] == ["i32", "i32"]
    assert 0 < records_of(recipe, folder)[-1]["loss"] < np.log(6) + 0.5
