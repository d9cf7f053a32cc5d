"""Training in this process: steps, evaluations and checkpoints, one after another."""

import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from pcp.ir.tree import map_tree
from pcp.planning import Path, Plan, plan
from pcp.planning.search.evidence import Progress
from pcp.training import checkpoint
from pcp.training.interruption import uninterrupted
from pcp.training.plan_record import differences, plan_record
from pcp.training.planned_step import describe_path, planned_step
from pcp.training.recipes.recipe import Recipe
from pcp.training.run_folder import RunFolder, load_state, save_state

log = logging.getLogger("pcp.training.loop")

REPORT_EVERY = 10
"""Steps between two reports; the loss reported is the mean of these steps."""

Report = Callable[[dict[str, Any]], None]


def train(recipe: Recipe, folder: RunFolder, report: Report) -> Any:
    """Train from the newest checkpoint in the folder, or from the beginning, to the last step.

    With the plan that the checkpoint was made with, a resumed run ends with the bits of one that was not interrupted;
    with another, a warning says what differs. An interruption (Ctrl-C) writes a checkpoint of the last whole step and is
    raised again.

    Arguments:
        report: receives records with `step`, `loss`, `validation_loss` where it was evaluated, and `tokens_per_second`.

    Raises:
        CheckpointNotSaved: the disk is full; the run can be resumed from the checkpoint before.
        CheckpointCorrupt, CheckpointForeign, CheckpointNewer: the newest checkpoint cannot be read.
        CheckpointMismatch: it is of another model.
    """
    config = recipe.config
    done, state, metadata = _start(recipe, folder)
    training = _planned(recipe, metadata.get("path"), report)
    evaluation = plan(recipe.evaluation, device=config.device)
    record = plan_record(training)
    made_with = {"plan": record, "path": training.path.to_json()}
    _compare(done, metadata, record, folder)
    saved = done
    losses: list[Any] = []
    began = time.perf_counter()
    try:
        while done < config.steps:
            batch = recipe.batches.batch(done)
            with uninterrupted():
                donated, state = state, None
                state, metrics = training.run(donated, batch)
                done += 1
            losses.append(metrics["loss"])
            evaluates = _due(done, config.evaluate_every, config.steps)
            if done % REPORT_EVERY == 0 or evaluates:
                record = {"step": done, "loss": float(np.mean([np.asarray(loss) for loss in losses]))}
                seconds = time.perf_counter() - began
                record["tokens_per_second"] = len(losses) * recipe.tokens_per_step / seconds
                record["learning_rate"] = float(metrics["learning_rate"])
                record["gradient_norm"] = float(metrics["gradient_norm"])
                if evaluates:
                    record["validation_loss"] = recipe.validation_loss(evaluation.bind(state["params"]).run)
                report(record)
                losses, began = [], time.perf_counter()
            if _due(done, config.checkpoint_every, config.steps):
                _save(recipe, folder, done, state, made_with)
                saved = done
    except KeyboardInterrupt:
        if state is None:
            log.warning("interrupted within step %d; --resume continues from the newest checkpoint", done + 1)
        elif done > saved:
            _save(recipe, folder, done, state, made_with)
        raise
    return map_tree(np.asarray, state["params"])


def _start(recipe: Recipe, folder: RunFolder) -> tuple[int, Any, dict[str, Any]]:
    first = recipe.step.initial_state(recipe.parameters)
    if checkpoint.latest(folder.checkpoints) is None:
        return 0, first, {}
    return load_state(folder, expected=first)


def _planned(recipe: Recipe, stored: str | None, report: Report) -> Plan:
    config = recipe.config

    def show(progress: Progress) -> None:
        report(
            {
                "event": "planning",
                "message": f"{progress.done + 1} of about {progress.total}: {progress.what}",
            }
        )

    path = None if stored is None else Path.from_json(stored)
    found = planned_step(
        recipe.step, config.device, config.tolerance, config.plan_seconds, path, show, config.memory
    )
    if config.tolerance or config.memory:
        report({"event": "planned", "message": describe_path(found)})
    return found


def _compare(step: int, metadata: dict[str, Any], made_with: dict[str, Any], folder: RunFolder) -> None:
    changed = differences(metadata["plan"], made_with) if "plan" in metadata else []
    if changed:
        log.warning(
            "the checkpoint of step %d in %s was made with another plan: %s; the run continues, but its numbers may differ "
            "from those of an uninterrupted run",
            step,
            folder.path,
            "; ".join(changed),
        )


def _save(recipe: Recipe, folder: RunFolder, step: int, state: Any, made_with: dict[str, Any]) -> None:
    host = map_tree(np.asarray, state)
    metadata = {"tokens": step * recipe.tokens_per_step, **made_with}
    save_state(folder, step, host, metadata, recipe.step.digest)


def _due(step: int, every: int, last: int) -> bool:
    return step == last or (every > 0 and step % every == 0)
