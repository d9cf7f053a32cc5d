"""One training run of the study of low communication: W workers in lockstep, its curve, and what it sent."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

import pcp
from benchmarks.distributed.attacks import attack
from benchmarks.distributed.fleet import Fleet, StackedBatches, trained_alone
from pcp.distributed.algorithms import ALGORITHMS, Algorithm, segment_steps
from pcp.distributed.compression import codec
from pcp.distributed.round_arithmetic.fragments import partition
from pcp.distributed.round_arithmetic.lockstep import Lockstep
from pcp.models.published import gpt2_config
from pcp.training.data.token_file import TokenFile
from pcp.training.recipes.config import TrainingConfig
from pcp.training.recipes.decoder_recipe import DecoderRecipe

KINDS: dict[str, type[Any]] = {name.replace("-", "_"): kind for name, kind in ALGORITHMS.items()}
"""The algorithms by the names that results give them."""


@dataclass(frozen=True)
class Run:
    """What one run is; equal values give equal runs.

    Arguments:
        algorithm: one of `KINDS`.
        options: its arguments, sorted.
        learning_rate: largest inner learning rate.
        seed: of parameters and data.
        workers: W.
        tokens: trained on by all together, at most.
        layers, heads, width, context: sizes of the model.
        batch: sequences in a worker's batch.
        attack: what hostile workers do; "" for none.
        hostile: how many.
    """

    algorithm: str
    options: tuple[tuple[str, Any], ...]
    learning_rate: float
    seed: int
    workers: int = 4
    tokens: int = 10_000_000
    layers: int = 4
    heads: int = 4
    width: int = 208
    context: int = 128
    batch: int = 8
    inner_steps: int = 30
    attack: str = ""
    hostile: int = 0

    @property
    def key(self) -> str:
        """Names the run's result."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """The algorithm and what is not its default, for people."""
        usual = {field.name: field.default for field in fields(KINDS[self.algorithm])}
        shown = {
            name: value
            for name, value in self.options
            if name in ("fragments", "delay", "outer_learning_rate", "outer_momentum") or value != usual[name]
        }
        shown.pop("inner_steps", None)
        return " ".join([self.algorithm, *(f"{name}={value}" for name, value in shown.items())])

    def described(self) -> Algorithm:
        """The algorithm."""
        made: Algorithm = KINDS[self.algorithm](**dict(self.options))
        return made

    @property
    def steps(self) -> int:
        """Inner steps of each worker: the same for every algorithm, whole multiples of H."""
        whole = self.tokens // (self.workers * self.batch * self.context)
        return max(1, whole // self.inner_steps) * self.inner_steps


def recipe_of(run: Run, tokens: TokenFile) -> DecoderRecipe:
    """What a run trains with: nanoGPT's recipe for characters."""
    config = TrainingConfig(
        steps=run.steps,
        batch=run.batch,
        learning_rate=run.learning_rate,
        final_learning_rate=run.learning_rate / 10,
        warmup_steps=min(100, run.steps // 10),
        seed=run.seed,
    )
    model = gpt2_config(
        run.layers, run.heads, run.width, run.context, vocabulary=tokens.vocabulary_size, bias=False
    )
    return DecoderRecipe(config, model, tokens)


def uploaded_bytes(run: Run, recipe: DecoderRecipe) -> int:
    """Bytes of the arrays that one worker pushes in the whole run."""
    algorithm = run.described()
    parts = partition(recipe.parameters, algorithm.fragments)
    sent = [codec(algorithm.upload).payload_bytes(parts.size(f)) for f in range(parts.count)]
    return sum(sent) * (run.steps // algorithm.inner_steps)


def trained(
    run: Run, tokens: TokenFile, device: str, batches: StackedBatches, evaluations: int, fleet: bool
) -> dict[str, Any]:
    """Train, and tell how it went; one JSON object.

    Arguments:
        run: what.
        tokens: the corpus.
        device: where.
        batches: of one worker, in the run's order.
        evaluations: points of the curve.
        fleet: whether all workers' steps are one program, and data parallel training is one process with their batches.
    """
    recipe, algorithm = recipe_of(run, tokens), run.described()
    segment = run.inner_steps // algorithm.fragments
    rounds = run.steps // segment
    began = time.perf_counter()
    if fleet and algorithm.pushes_gradients:
        wide = replace(recipe, config=recipe.config.replaced(batch=run.batch * run.workers))
        training = alone(wide, run.workers, segment, batches, device)
    else:
        training = apart(run, recipe, algorithm, batches, device, fleet)
    evaluating, curve, losses = 0.0, [], []
    every = max(1, rounds // evaluations)
    started = began
    for done, (loss, made) in enumerate(training):
        losses += made
        if done == 0:
            curve.append((0, loss()))
            started = time.perf_counter()
        elif done % every == 0 or done == rounds:
            np.asarray(losses[-1])  # so that what is under way counts as training
            evaluating -= time.perf_counter()
            curve.append((done * segment, loss()))
            evaluating += time.perf_counter()
    seconds = time.perf_counter() - started - evaluating
    flat = np.concatenate([np.ravel(each) for each in losses[-run.workers * run.inner_steps :]])
    return {
        "key": run.key,
        "run": asdict(run),
        "label": run.label,
        "curve": curve,
        "loss": curve[-1][1],
        "training_loss": float(np.mean(flat[-run.inner_steps :])),
        "parameters": partition(recipe.parameters, 1).size(0),
        "tokens": run.steps * run.workers * run.batch * run.context,
        "uploaded_bytes": uploaded_bytes(run, recipe),
        "seconds": seconds,
        "compile_seconds": started - began,
    }


Trained = Iterator[tuple[Callable[[], float], Sequence[Any]]]
"""What computes the validation loss, and the losses of the steps made: at the beginning, and after each segment."""


def apart(
    run: Run, recipe: DecoderRecipe, algorithm: Algorithm, batches: StackedBatches, device: str, fleet: bool
) -> Trained:
    """Workers that train apart and merge."""
    tamper = attack(run.attack, range(run.hostile)) if run.attack else None
    make = Fleet if fleet else Lockstep
    lockstep = make(recipe, algorithm, run.workers, device=device, batches=batches, tamper=tamper)
    yield lockstep.validation_loss, ()
    segment = segment_steps(algorithm)
    rounds, per = run.steps // segment, run.inner_steps // algorithm.fragments // segment
    losses: list[Any] = []
    for done in range(1, rounds + 1):
        losses += lockstep.round().losses
        if done == rounds:
            lockstep.flush()
        if done % per == 0:
            yield lockstep.validation_loss, losses
            losses = []


def alone(recipe: DecoderRecipe, workers: int, segment: int, batches: StackedBatches, device: str) -> Trained:
    """Data parallel training as it is: one process with the batches of all workers as one.

    Arguments:
        recipe: its batch is that of all workers together.
        workers: W.
        segment: steps in one call.
        batches: of one worker.
        device: where.
    """
    evaluate = pcp.plan(recipe.evaluation, device=device)
    for parameters, losses in trained_alone(recipe, workers, segment, batches):
        yield (
            lambda held=parameters: recipe.validation_loss(lambda *batch: evaluate.run(held, *batch)),
            losses,
        )


def stored(file: Path) -> dict[str, dict[str, Any]]:
    """The results in a file of JSON lines, by key; none if there is no file."""
    lines: Sequence[str] = file.read_text().splitlines() if file.exists() else []
    return {row["key"]: row for row in map(json.loads, lines)}
