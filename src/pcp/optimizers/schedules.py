"""Learning rates that depend on the step, computed inside the training step."""

import math
from dataclasses import dataclass

from pcp.errors import PCPError
from pcp.ops.elementwise import clip, convert, cos, minimum
from pcp.optimizers.base import is_number, is_within
from pcp.tensor import Tensor


class InvalidSchedule(PCPError):
    """A schedule whose steps or rates make no sense."""


@dataclass(frozen=True, slots=True)
class WarmupCosine:
    """A linear rise from 0 to `peak`, then half a cosine down to `final`, which it keeps.

    Arguments:
        peak: largest learning rate.
        warmup_steps: steps of the rise; the first step has rate peak / (warmup_steps + 1).
        total_steps: step at which `final` is reached.
        final: smallest learning rate.

    Raises:
        InvalidSchedule: the steps are not 0 <= warmup_steps < total_steps, or a rate is negative or not finite.

    Source: Loshchilov and Hutter, "SGDR", 2017, equation 5, with one cycle.
    """

    peak: float
    warmup_steps: int
    total_steps: int
    final: float = 0.0

    def __post_init__(self) -> None:
        rates = all(is_within(rate, 0) for rate in (self.peak, self.final))
        steps = is_number(self.warmup_steps) and is_number(self.total_steps)
        if not rates or not steps or not 0 <= self.warmup_steps < self.total_steps:
            raise InvalidSchedule(
                f"{self}: expected 0 <= warmup_steps < total_steps and rates that are finite and not negative, all numbers"
            )

    def __call__(self, step: Tensor) -> Tensor:
        """The learning rate after `step` steps, both scalar Tensors; an integer step is computed with in f32."""
        now = step if step.dtype.is_float else convert(step, "f32")
        rise = (now + 1) * (self.peak / (self.warmup_steps + 1))
        progress = clip((now - self.warmup_steps) / (self.total_steps - self.warmup_steps), 0, 1)
        fall = self.final + (self.peak - self.final) * 0.5 * (1 + cos(math.pi * progress))
        return minimum(rise, fall)
