"""Numbers that change in the course of a run: learning rate and weight decay inside the step, the batch between steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pcp.ir.tree import flatten
from pcp.ops.elementwise import clip, convert
from pcp.optimizers import Optimizer, Schedule, WarmupCosine, kept_by, matrices
from pcp.tensor import Tensor, as_tensor
from pcp.training.recipes.config import Points, TrainingConfig

DECAY_SHARE = 10
"""A schedule of warm-up, stable rate and decay falls in the last tenth (Hu et al., "MiniCPM", 2024, section 4)."""


@dataclass(frozen=True, slots=True)
class Piecewise:
    """Straight lines between points; before the first and after the last, their values.

    Arguments:
        points: steps done and values, by rising steps.
    """

    points: Points

    def __call__(self, step: Tensor) -> Tensor:
        """The value after `step` steps, both scalar Tensors; an integer step is computed with in f32."""
        now = step if step.dtype.is_float else convert(step, "f32")
        value = as_tensor(self.points[0][1], now.dtype)
        for (begin, low), (end, high) in zip(self.points, self.points[1:], strict=False):
            value = value + clip(now - begin, 0, end - begin) * ((high - low) / (end - begin))
        return value


def learning_rate_of(config: TrainingConfig) -> Schedule:
    """The learning rate of a run: by its points, or by the name of a schedule from a peak to a final rate."""
    if config.learning_rates:
        return Piecewise(config.learning_rates)
    peak, warmup, steps, final = (
        config.learning_rate,
        config.warmup,
        config.steps,
        config.final_learning_rate,
    )
    if config.schedule == "cosine":
        return WarmupCosine(peak, warmup, steps, final)
    # As the cosine's: the first step has a rate of peak / (warmup + 1).
    rise = ((-1, 0.0), (warmup, peak)) if warmup else ((0, peak),)
    falls = max(warmup, steps - max(1, steps // DECAY_SHARE))
    ends: dict[str, tuple[tuple[int, float], ...]] = {
        "constant": (),
        "linear": ((steps, final),),
        "wsd": (*(((falls, peak),) if falls > warmup else ()), (steps, final)),
    }
    return Piecewise(rise + ends[config.schedule])


def weight_decay_of(config: TrainingConfig) -> float | Schedule:
    """The weight decay of a run: a number, or by its points."""
    return Piecewise(config.weight_decays) if config.weight_decays else config.weight_decay


@dataclass(frozen=True, slots=True)
class Decaying:
    """An optimizer without weight decay, and one beside it that changes with the steps.

    Arguments:
        inner: reports its `learning_rate`, by which the decay is multiplied.
        weight_decay: from the steps done.
    """

    inner: Optimizer
    weight_decay: Schedule

    @property
    def kept(self) -> Mapping[str, float]:
        """As the inner one's."""
        return kept_by(self.inner)

    def freezes(self, parameters: Any) -> frozenset[str]:
        """As the inner one's."""
        return getattr(self.inner, "freezes", lambda _: frozenset())(parameters)

    def initial_state(self, parameters: Any) -> Any:
        """As the inner one's."""
        return self.inner.initial_state(parameters)

    def update(
        self, gradients: Any, state: Any, parameters: Any, step: Tensor
    ) -> tuple[Any, Any, dict[str, Tensor]]:
        """One step; matrices are decayed."""
        updated, state, metrics = self.inner.update(gradients, state, parameters, step)
        rate = metrics["learning_rate"]
        taken = rate * self.weight_decay(convert(step, rate.dtype))
        (old, tree), new = flatten(parameters), flatten(updated)[0]
        decayed = [
            moved - convert(taken * convert(before, taken.dtype), moved.dtype)
            if matrices(name, before.shape)
            else moved
            for name, before, moved in zip(tree.names(), old, new, strict=True)
        ]
        return tree.unflatten(decayed), state, metrics


def batch_at(config: TrainingConfig, step: int) -> int:
    """Sequences or samples in the batch of a step, counted from 0."""
    return next((int(size) for first, size in reversed(config.batches) if first <= step), config.batch)


def described(config: TrainingConfig) -> str:
    """What changes in a run, and how, in one line."""
    rate = _listed(config.learning_rates) or (
        f"{config.learning_rate:g}, {_SHAPES[config.schedule]}".format(
            final=f"{config.final_learning_rate:g}",
            steps=config.steps,
            tenth=max(1, config.steps // DECAY_SHARE),
        )
        + (f" after a rise of {config.warmup} steps" if config.warmup else "")
    )
    decay = _listed(config.weight_decays) or f"{config.weight_decay:g}"
    batch = _listed(config.batches) or str(config.batch)
    return f"learning rate {rate}; weight decay {decay}; batch {batch}"


_SHAPES = {
    "cosine": "by a cosine to {final} at step {steps}",
    "linear": "linearly to {final} at step {steps}",
    "constant": "constant",
    "wsd": "constant but for the last {tenth} steps, which fall to {final}",
}


def _listed(points: Sequence[Sequence[Any]]) -> str:
    return ", ".join(f"{value:g} at step {step:g}" for step, value in points)
