"""One training run of the study of low communication: W workers in lockstep, its curve, and what it sent."""

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pcp.distributed.algorithms import (
    Algorithm,
    DataParallel,
    DecoupledDiLoCo,
    DiLoCo,
    SparseLoCo,
    StreamingDiLoCo,
    segment_steps,
)
from pcp.distributed.compression import codec
from pcp.distributed.fragments import partition
from pcp.distributed.lockstep import Lockstep
from pcp.distributed.merging.attacks import attack
from pcp.models.gpt2 import GPT2Config
from pcp.training.config import TrainingConfig
from pcp.training.data import BatchSource
from pcp.training.gpt2_recipe import GPT2Recipe
from pcp.training.token_file import TokenFile

ALGORITHMS: dict[str, type[Any]] = {
    "data_parallel": DataParallel,
    "diloco": DiLoCo,
    "streaming": StreamingDiLoCo,
    "decoupled": DecoupledDiLoCo,
    "sparse": SparseLoCo,
}


@dataclass(frozen=True)
class Run:
    """What one run is; equal values give equal runs.

    Arguments:
        algorithm: one of `ALGORITHMS`.
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
        usual = {field.name: field.default for field in fields(ALGORITHMS[self.algorithm])}
        shown = {
            name: value
            for name, value in self.options
            if name in ("fragments", "delay", "outer_learning_rate") or value != usual[name]
        }
        shown.pop("inner_steps", None)
        return " ".join([self.algorithm, *(f"{name}={value}" for name, value in shown.items())])

    def described(self) -> Algorithm:
        """The algorithm."""
        made: Algorithm = ALGORITHMS[self.algorithm](**dict(self.options))
        return made

    @property
    def steps(self) -> int:
        """Inner steps of each worker: the same for every algorithm, whole multiples of H."""
        whole = self.tokens // (self.workers * self.batch * self.context)
        return max(1, whole // self.inner_steps) * self.inner_steps


class OnDevice:
    """Batches that stay on the device, since every algorithm is given the same ones."""

    def __init__(self, batches: BatchSource, device: Any) -> None:
        self.tokens_per_batch, self.shapes = batches.tokens_per_batch, batches.shapes
        self._batches, self._device = batches, device
        self._kept: dict[int, Any] = {}

    def batch(self, index: int) -> Any:
        """The arrays of one batch."""
        if index not in self._kept:
            self._kept[index] = jax.device_put(self._batches.batch(index), self._device)
        return self._kept[index]


def recipe_of(run: Run, tokens: TokenFile) -> GPT2Recipe:
    """What a run trains with: nanoGPT's recipe for characters."""
    config = TrainingConfig(
        steps=run.steps,
        batch=run.batch,
        learning_rate=run.learning_rate,
        final_learning_rate=run.learning_rate / 10,
        warmup_steps=min(100, run.steps // 10),
        seed=run.seed,
    )
    model = GPT2Config(
        run.layers, run.heads, run.width, run.context, vocabulary=tokens.vocabulary_size, bias=False
    )
    return GPT2Recipe(config, model, tokens)


def uploaded_bytes(run: Run, recipe: GPT2Recipe) -> int:
    """Bytes of the arrays that one worker pushes in the whole run."""
    algorithm = run.described()
    parts = partition(recipe.parameters, algorithm.fragments)
    sent = [codec(algorithm.upload).payload_bytes(parts.size(f)) for f in range(parts.count)]
    return sum(sent) * (run.steps // algorithm.inner_steps)


def trained(
    run: Run, tokens: TokenFile, device: str, batches: BatchSource, evaluations: int
) -> dict[str, Any]:
    """Train, and tell how it went; one JSON object."""
    recipe, algorithm = recipe_of(run, tokens), run.described()
    tamper = attack(run.attack, range(run.hostile)) if run.attack else None
    began = time.perf_counter()
    lockstep = Lockstep(recipe, algorithm, run.workers, device=device, batches=batches, tamper=tamper)
    curve = [(0, lockstep.validation_loss())]
    compiled = time.perf_counter()
    segment, evaluating = segment_steps(algorithm), 0.0
    rounds = run.steps // segment
    losses: list[Any] = []
    every = max(1, rounds // evaluations)
    for done in range(1, rounds + 1):
        losses += lockstep.round().losses
        if done % every == 0 and done < rounds:
            evaluating -= time.perf_counter()
            curve.append((done * segment, lockstep.validation_loss()))
            evaluating += time.perf_counter()
    lockstep.flush()
    curve.append((run.steps, lockstep.validation_loss()))
    seconds = time.perf_counter() - compiled - evaluating
    return {
        "key": run.key,
        "run": asdict(run),
        "label": run.label,
        "curve": curve,
        "loss": curve[-1][1],
        "training_loss": float(np.mean([float(loss) for loss in losses[-run.workers * run.inner_steps :]])),
        "parameters": partition(recipe.parameters, 1).size(0),
        "tokens": run.steps * run.workers * run.batch * run.context,
        "uploaded_bytes": uploaded_bytes(run, recipe),
        "seconds": seconds,
        "compile_seconds": compiled - began,
    }


def stored(file: Path) -> dict[str, dict[str, Any]]:
    """The results in a file of JSON lines, by key; none if there is no file."""
    lines: Sequence[str] = file.read_text().splitlines() if file.exists() else []
    return {row["key"]: row for row in map(json.loads, lines)}
