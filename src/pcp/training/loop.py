"""Training in this process: steps, evaluations and checkpoints, one after another."""

import functools
import itertools
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp.ir.tree import map_tree
from pcp.planning import Path, Plan, plan
from pcp.planning.search.evidence import Progress
from pcp.training import checkpoint
from pcp.training.interruption import uninterrupted
from pcp.training.phases import Phase, phases_of
from pcp.training.plan_record import differences, plan_record
from pcp.training.planned_step import describe_path, planned_step, warm_example
from pcp.training.recipes.recipe import Recipe
from pcp.training.reporting import Report, Reporting
from pcp.training.run_folder import RunFolder, load_state, save_state

log = logging.getLogger("pcp.training.loop")


def train(recipe: Recipe, folder: RunFolder, report: Report) -> Any:
    """Train from the newest checkpoint in the folder, or from the beginning, to the last step.

    With the plan that the checkpoint was made with, a resumed run ends with the bits of one that was not interrupted;
    with another, a warning says what differs. An interruption (Ctrl-C) writes a checkpoint of the last whole step and is
    raised again.

    Arguments:
        report: receives records with `step`, `loss`, `validation_loss` where it was evaluated, `tokens_per_second` (of
            samples: `samples_per_second`), and `mfu`, the share of the device's peak that the model's products take; an event
            `peak` says of which.

    Raises:
        CheckpointNotSaved: the disk is full; the run can be resumed from the checkpoint before.
        CheckpointCorrupt, CheckpointForeign, CheckpointNewer: the newest checkpoint cannot be read.
        CheckpointMismatch: it is of another model.
    """
    config = recipe.config
    done, state, metadata = _start(recipe, folder)
    if done >= config.steps:
        return map_tree(np.asarray, state["params"])
    phase = _phase_of(recipe, done)
    goes_on = done == 0 or done > phase.first  # the plan of a phase that has ended is of another step
    stored = metadata.get("path") if goes_on else None
    training = _planned(phase, state, done, stored, report)
    if config.devices:
        evaluation = plan(recipe.evaluation, devices=config.devices, layout="dp")
    else:
        evaluation = plan(recipe.evaluation, device=config.device)
    made_with = _made_with(training)
    held = training.place_first(*recipe.held) if recipe.held else ()  # on the device once, for all
    if held:
        training, evaluation = training.bind(*held), evaluation.bind(*held)
    if goes_on:
        _compare(done, metadata, made_with["plan"], folder)
    saved = done
    reporting, metrics = Reporting(recipe, report), dict[str, Any]()
    try:
        while done < config.steps:
            if done == phase.end:
                reporting.end(done, metrics)
                phase = _phase_of(recipe, done)
                training = _planned(phase, state, done, None, report)
                made_with = _made_with(training)
                training = training.bind(*held) if held else training
                reporting.count(phase.recipe)
                reporting.restart()
            batch = phase.batch(done)
            with uninterrupted():
                donated, state = state, None
                state, metrics = training.run(donated, batch)
                done += 1
            reporting.take(done, metrics)
            if _due(done, config.evaluate_every, config.steps):
                bound = evaluation.bind(*(state[part] for part in ("buffers", "params") if part in state))
                reporting.evaluated(done, metrics, functools.partial(recipe.validation_loss, bound.run))
            if _due(done, config.checkpoint_every, config.steps):
                reporting.flush()
                _save(phase, folder, done, state, made_with, recipe.step.digest)
                reporting.restart()
                saved = done
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, and SIGTERM as the command line takes it
        if state is None:
            log.warning("interrupted within step %d; --resume continues from the newest checkpoint", done + 1)
        elif done > saved:
            reporting.flush()
            _save(phase, folder, done, state, made_with, recipe.step.digest)
        raise
    return map_tree(np.asarray, state["params"])


def _start(recipe: Recipe, folder: RunFolder) -> tuple[int, Any, dict[str, Any]]:
    first = recipe.step.initial_state(recipe.parameters, recipe.buffers)
    if checkpoint.latest(folder.checkpoints) is None:
        return 0, first, {}
    return load_state(folder, expected=first)


def _phase_of(recipe: Recipe, step: int) -> Phase:
    return next(phase for phase in phases_of(recipe) if step < phase.end)


def _made_with(training: Plan) -> dict[str, Any]:
    return {"plan": plan_record(training), "path": training.path.to_json()}


def _planned(phase: Phase, state: Any, done: int, stored: str | None, report: Report) -> Plan:
    recipe, config = phase.recipe, phase.recipe.config

    def example() -> Sequence[Any]:
        batches = (phase.batch(step) for step in itertools.count(done))
        return warm_example(recipe.step, config.device, state, batches, config.memory, recipe.held)

    def show(progress: Progress) -> None:
        report(
            {
                "event": "planning",
                "message": f"{progress.done + 1} of about {progress.total}: {progress.what}",
            }
        )

    path = None if stored is None else Path.from_json(stored)
    planned = planned_step(
        recipe.step,
        config.device,
        config.tolerance,
        config.plan_seconds,
        path,
        show,
        example,
        config.memory,
        (config.devices, config.layout or None) if config.devices else None,
    )
    if config.tolerance or config.memory:
        report({"event": "planned", "message": describe_path(planned)})
    return planned


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


def _save(
    phase: Phase, folder: RunFolder, step: int, state: Any, made_with: dict[str, Any], digest: str
) -> None:
    host = map_tree(np.asarray, state)
    save_state(folder, step, host, {"tokens": phase.tokens_behind(step), **made_with}, digest)


def _due(step: int, every: int, last: int) -> bool:
    return step == last or (every > 0 and step % every == 0)
