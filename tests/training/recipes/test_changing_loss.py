"""A loss from a file that changes buffers beside its parameters: running means, the count of dropout."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.training.loss_files import Files, parameters, samples, save_arrays
from tests.training.tiny_run import assert_equal

import pcp
from pcp.distributed.shepherd.new_run import check_run
from pcp.planning import plan
from pcp.training.data.safetensors_file import read_arrays
from pcp.training.loop import train
from pcp.training.recipes.config import InvalidTrainingConfig
from pcp.training.recipes.loss_program import NotATrainableLoss, WrongWeights
from pcp.training.recipes.prepare import prepare, write_trained_weights
from pcp.training.run_folder import RunFolder
from pcp.training.step import training_step

BUFFERS = {"mean": np.zeros(3, np.float32), "calls": np.int32(0)}


def loss(weights: Any, buffers: Any, x: pcp.Tensor, y: pcp.Tensor) -> Any:
    mean = 0.9 * buffers["mean"] + 0.1 * x.mean(0)
    key = pcp.random.fold_in(pcp.random.key(1), buffers["calls"])
    hidden = pcp.nn.dropout(pcp.tanh((x - mean) @ weights["hidden"]["w"]), key, 0.2)
    value = ((hidden @ weights["out"] - y) ** 2).mean()
    return {"mean": mean, "calls": buffers["calls"] + 1}, (value, {"largest": pcp.max(x)})


def traced() -> pcp.Program:
    specs = (pcp.spec((8, 3), "f32"), pcp.spec((8,), "f32"))
    return pcp.trace(loss, pcp.specs_of(parameters()), pcp.specs_of(BUFFERS, "state"), *specs)


def files_of(folder: Path) -> Files:
    files = Files(folder / "loss.pcp", folder / "weights.safetensors", folder / "data.safetensors")
    traced().save(files.model)
    nested = parameters()
    save_arrays(files.weights, {"hidden.w": nested["hidden"]["w"], "out": nested["out"], **BUFFERS})
    save_arrays(files.data, samples())
    return files


def test_a_run_carries_them_and_goes_on_where_it_was(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    recipe, folder = files.prepared(tmp_path / "run", steps=20, checkpoint_every=10)
    records: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        train(recipe, folder, lambda record: _stop_at(record, 10))
    again = RunFolder.open(folder.path)
    recipe = prepare(again)
    trained = train(recipe, again, records.append)
    step = plan(training_step(traced(), recipe.optimizer, clip_norm=1.0))
    state: Any = step.program.initial_state(parameters(), BUFFERS)  # type: ignore[attr-defined]  # a TrainingStep
    for index in range(20):
        state, _ = step.run(state, recipe.batches.batch(index))
    assert_equal(trained, {"hidden": state["params"]["hidden"], "out": state["params"]["out"]})
    path = write_trained_weights(again, recipe)
    assert path is not None
    written = read_arrays(path)[0]
    assert int(written["calls"]) == 20
    np.testing.assert_array_equal(written["mean"], np.asarray(state["buffers"]["mean"]))
    found = [record["validation_loss"] for record in records if "validation_loss" in record]
    run = plan(traced())
    expected = recipe.validation_loss(
        lambda batch: run.run(trained, {n: np.array(b) for n, b in state["buffers"].items()}, *batch)[1]
    )
    assert found[-1] == pytest.approx(expected, rel=1e-4)


def _stop_at(record: Any, step: int) -> None:
    if record.get("step") == step:
        raise KeyboardInterrupt


def test_what_such_a_run_cannot_do_is_refused(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    recipe, _ = files.prepared(tmp_path / "workers", workers=2)
    words = r"loss\.pcp changes a state .* Workers send parameters alone, .* without --workers, or export .* by model\.eval"
    with pytest.raises(InvalidTrainingConfig, match=words):
        check_run(recipe)
    weights = {"hidden.w": parameters()["hidden"]["w"], "out": parameters()["out"]}
    save_arrays(files.weights, weights)
    with pytest.raises(WrongWeights, match=r"it lacks buffers\.calls: i32\[\], buffers\.mean: f32\[3\]"):
        files.prepared(tmp_path / "lacks")
    specs = (pcp.spec((8, 3), "f32"), pcp.spec((8,), "f32"))
    late = pcp.trace(
        lambda p, x, b, y: loss(p, b, x, y),
        pcp.specs_of(parameters()),
        specs[0],
        pcp.specs_of(BUFFERS, "state"),
        specs[1],
    )
    late.save(files.model)
    with pytest.raises(
        NotATrainableLoss, match=r"its argument b\.calls is a state .* only the second argument"
    ):
        files.prepared(tmp_path / "late")
