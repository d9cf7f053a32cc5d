"""A training step is planned as it is written, along a stored path, or by a search within the run's tolerance."""

import json
import logging
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pytest
from tests.training.test_loop import CONFIG, tiny

import pcp
from pcp.kernels import kernel_named, sites_of
from pcp.planning import Path, Plan
from pcp.planning.paths.preparation import prepared
from pcp.training import checkpoint, loop
from pcp.training import planned_step as planned_step_module
from pcp.training.planned_step import describe_path, planned_step
from pcp.training.run_folder import RunFolder
from pcp.training.step import TrainingStep

WEIGHTS = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
BATCH = (np.random.default_rng(1).normal(size=(16, 8)).astype(np.float32),)


def squares(weights: Any, x: Any) -> Any:
    return ((x @ weights) ** 2).mean()


@pytest.fixture(scope="module")
def step() -> TrainingStep:
    program = pcp.trace(squares, WEIGHTS, pcp.spec((16, 8), "f32"))
    return pcp.training_step(program, pcp.optimizers.adamw(1e-2))


@pytest.fixture(scope="module")
def bf16(step: TrainingStep) -> Path:
    """The path with the first product in bfloat16, made here."""
    site = next(each for each in sites_of(prepared(step), "cpu") if each.family == "product")
    here = pcp.plan(step).path
    return Path.of(step, {site.key: kernel_named("product.xla:bf16")}).made_on(here.hardware, here.versions)


def first_loss(plan: Plan, step: TrainingStep) -> float:
    return float(plan.run(step.initial_state(WEIGHTS), BATCH)[1]["loss"])


def test_without_a_tolerance_the_step_is_run_as_it_is_written(step: TrainingStep, bf16: Path) -> None:
    assert planned_step(step, "cpu:0", 0.0, 10.0, stored=bf16).path.is_plain


@pytest.mark.cpu
def test_a_stored_path_is_followed_and_nothing_is_measured(step: TrainingStep, bf16: Path) -> None:
    asked: list[Any] = []
    plan = planned_step(step, "cpu:0", 1e-2, 60.0, stored=bf16, progress=asked.append)
    assert plan.path == bf16
    assert not asked
    plain = first_loss(pcp.plan(step), step)
    assert 0 < abs(first_loss(plan, step) - plain) < 1e-2 * plain
    assert describe_path(plan) == f"path {bf16.digest[:12]}: other kernels at 1 places"


def test_a_path_of_other_versions_is_not_followed(
    step: TrainingStep, bf16: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = bf16.made_on(bf16.hardware, "jaxlib 0.0.1")
    with caplog.at_level(logging.WARNING):
        plan = planned_step(step, "cpu:0", 1e-2, 0.0, stored=other)
    assert plan.path.is_plain
    assert "the path of the checkpoint is not used" in caplog.text
    assert "nothing faster is known" in describe_path(plan)


def test_a_run_says_what_it_plans_and_goes_on_along_the_path_of_its_checkpoint(
    tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder.create(tmp_path / "run", replace(CONFIG, tolerance=1e-2, plan_seconds=0.0))
    recipe, _ = tiny(folder, stop=10)
    records: list[dict[str, Any]] = []
    with pytest.raises(KeyboardInterrupt):
        loop.train(recipe, folder, records.append)
    (planned,) = (record for record in records if record.get("event") == "planned")
    assert "nothing faster is known" in planned["message"]
    stored = _stored_path(folder)
    assert stored.program == recipe.step.digest
    given: list[Path | None] = []

    def watched(*arguments: Any, **keywords: Any) -> Plan:
        given.append(arguments[4])
        return planned_step(*arguments, **keywords)

    monkeypatch.setattr(loop, "planned_step", watched)
    again, _ = tiny(folder)
    loop.train(again, folder, records.append)
    assert given == [stored]


def test_a_run_is_judged_on_a_state_and_a_batch_of_its_own(
    tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder.create(tmp_path / "run", replace(CONFIG, tolerance=1e-2, plan_seconds=0.0))
    recipe, _ = tiny(folder, stop=9)
    examples: list[Any] = []

    def watched(*arguments: Any, **keywords: Any) -> Plan:
        if "tolerance" not in keywords:
            return pcp.plan(*arguments, **keywords)
        examples.append(keywords["example"])
        raise KeyboardInterrupt

    monkeypatch.setattr(planned_step_module, "plan", watched)
    with pytest.raises(KeyboardInterrupt):
        loop.train(recipe, folder, lambda _: None)
    ((state, batch),) = examples
    assert int(state["optimizer"]["count"]) == 8
    np.testing.assert_array_equal(batch, recipe.data.batches(CONFIG.batch, CONFIG.seed).batch(8))
    first = recipe.parameters["wte"]
    moved = np.linalg.norm(state["params"]["wte"] - first) / np.linalg.norm(first)
    assert 1e-3 < moved < 0.5, "it goes on from the run's first parameters"


def _stored_path(folder: RunFolder) -> Path:
    step = checkpoint.latest(folder.checkpoints)
    assert step is not None
    return Path.from_json(json.loads(json.dumps(checkpoint.load(folder.checkpoints).metadata["path"])))


def test_a_step_fits_in_the_memory_that_is_asked_for() -> None:
    weights = [np.ones((8, 256), np.float32) / 8, np.ones((256, 4), np.float32) / 16]
    program = pcp.trace(lambda w, x: (pcp.tanh(x @ w[0]) @ w[1]).mean(), weights, pcp.spec((1024, 8), "f32"))
    step = pcp.training_step(program, pcp.optimizers.sgd(1e-2))
    plain = planned_step(step, "cpu:0", 0.0, 0.0, memory="1GiB")
    assert describe_path(plain).startswith("the step runs as it is written: ")
    assert describe_path(plain).endswith("of 1.0 GiB that it may take: nothing is given up for that")
    whole = plain.memory["cpu:0"].peak
    plan = planned_step(step, "cpu:0", 0.0, 0.0, memory=f"{whole // 2}B")
    assert plan.memory["cpu:0"].peak <= whole // 2
    assert describe_path(plan).startswith(f"path {plan.path.digest[:12]}: ")
    assert planned_step(step, "cpu:0", 0.0, 0.0, stored=plan.path, memory=f"{whole // 2}B").path == plan.path
