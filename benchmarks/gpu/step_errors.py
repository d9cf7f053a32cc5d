"""How wrong a training step is, whoever computes it: by PCP's definition of an error, beside PCP's step in full float32.

That of a decoder starts from a state whose moments are warmed up, on tokens that no step before has seen.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pcp
from pcp.backends import Target
from pcp.ir.tree import flatten, map_tree
from pcp.models import decoder
from pcp.models.config import DecoderConfig
from pcp.planning.judging.comparison import Comparison
from pcp.planning.judging.judge import Judge, result_name
from pcp.planning.judging.tolerance import worst

RATE, BETAS, DECAY = 1e-3, (0.9, 0.99), 0.1
WARM = 8
"""Steps before the one that is judged."""
JUDGED = ("params", "first", "second", "loss")
Array = np.ndarray[Any, Any]
Tree = Any


@dataclass(frozen=True, slots=True)
class StepError:
    """How wrong a step is.

    Arguments:
        error: the smallest tolerance that all its results are within.
        result: which result that is.
        gradients: the largest error of a gradient, relative to its norm.
        loss: that of the loss.
    """

    error: float
    result: str
    gradients: float
    loss: float = 0.0


def loss_of(config: DecoderConfig, params: Tree, batch: int) -> pcp.Program:
    """The mean cross entropy of a batch of whole contexts."""
    tokens = pcp.spec((batch, config.context), "i32")
    return pcp.trace(
        lambda p, x, y: decoder.loss(p, x, y, config), map_tree(pcp.specs_of, params), tokens, tokens
    )


def decoder_step(config: DecoderConfig, params: Tree, batch: int) -> pcp.TrainingStep:
    """A decoder's training step: AdamW that decays matrices, clipping at 1."""
    loss = loss_of(config, params, batch)
    return pcp.training_step(loss, pcp.optimizers.adamw(RATE, betas=BETAS, weight_decay=DECAY), clip_norm=1.0)


def tokens_of(config: DecoderConfig, batch: int, index: int) -> tuple[Array, Array]:
    """The batch of one step: random tokens, and random targets."""
    rng = np.random.default_rng([7, index])
    size = (batch, config.context)
    return rng.integers(0, config.vocabulary, size, np.int32), rng.integers(
        0, config.vocabulary, size, np.int32
    )


class JudgedStep:
    """One step whose results are known, kept in a folder.

    Arguments:
        program: the step.
        params: before the first step.
        batch_of: what the step with an index computes on.
        folder: where the state before the step and its right results lie.
        warm: steps before it.
    """

    def __init__(
        self,
        program: pcp.TrainingStep,
        params: Tree,
        batch_of: Callable[[int], tuple[Any, ...]],
        folder: str,
        warm: int = WARM,
    ) -> None:
        self.program, self.params, self.folder, self.warm = program, params, Path(folder), warm
        self.batch_of, self.tokens = batch_of, batch_of(warm)

    @staticmethod
    def of_decoder(config: DecoderConfig, batch: int, folder: str) -> "JudgedStep":
        """That of a decoder, on random tokens."""
        params = decoder.initial_parameters(config, 0)
        tokens = functools.partial(tokens_of, config, batch)
        return JudgedStep(decoder_step(config, params, batch), params, tokens, folder)

    def compute(self, device: str) -> None:
        """Fill the folder: warm up, and take the step, in the program's own precision."""
        plan = pcp.plan(self.program, device=device, cache=False)
        state = self.program.initial_state(self.params)
        for index in range(self.warm):
            state, _ = plan.run(state, self.batch_of(index))
        self._save("before", flatten(state)[0])
        self._save("right", flatten(plan.run(state, self.tokens))[0])

    def state(self) -> dict[str, Any]:
        """The state before the step, as PCP's step takes it."""
        leaves = self._load("before")
        found: dict[str, Any] = self.program.argument_tree.unflatten([*leaves, *self.tokens])[0]
        return found

    def error(self, found: Mapping[str, Tree]) -> StepError:
        """How wrong a step's results are.

        Arguments:
            found: `params`, `first` and `second` (moments), nested as parameters are, and `loss`.
        """
        right = self._load("right")
        theirs = {name: iter(flatten(found[name])[0]) for name in JUDGED}
        results: list[Any] = []
        ignored: set[int] = set()
        for place, exact in enumerate(right):
            words = result_name(self.program, place).split(".")
            kind = next((name for name in JUDGED if name in words[:3]), None)
            if kind is None:
                ignored.add(place)
            results.append(exact if kind is None else np.asarray(next(theirs[kind]), exact.dtype))
        before = [*self._load("before"), *self.tokens]
        comparison = Comparison(Target.of("cpu:0"), compiled=False)
        errors = Judge(self.program, before, right, right, comparison, ignored=ignored).errors(results)
        largest = worst(errors)
        assert largest is not None
        of_gradients = max(each.error for each in errors if ".first." in each.name)
        of_loss = max(each.error for each in errors if each.name.endswith("loss"))
        return StepError(largest.least_tolerance, largest.name, of_gradients, of_loss)

    def _save(self, name: str, leaves: list[Any]) -> None:
        for place, leaf in enumerate(leaves):
            np.save(self.folder / f"{name}-{place}.npy", np.asarray(leaf))

    def _load(self, name: str) -> list[Array]:
        count = len(list(self.folder.glob(f"{name}-*.npy")))
        return [np.load(self.folder / f"{name}-{place}.npy") for place in range(count)]
