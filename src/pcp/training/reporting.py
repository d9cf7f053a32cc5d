"""Reports of a run in this process, read while the step after them runs, so that the device never waits for the host."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from pcp.backends import Target
from pcp.training.recipes.recipe import Recipe
from pcp.training.utilisation import Peak, model_flops, peak_of

Report = Callable[[dict[str, Any]], None]


class Reporting:
    """Gathers what steps return, and reports it when it is there anyway.

    Arguments:
        recipe: what is trained.
        report: receives the records.
    """

    def __init__(self, recipe: Recipe, report: Report) -> None:
        self._report, self._every = report, recipe.config.report_every
        self._speed = f"{recipe.unit}_per_second"
        peak, flops = self.count(recipe)
        if flops:
            report(
                {
                    "event": "peak",
                    "flops_per_second": peak.flops_per_second,
                    "flops_per_step": flops,
                    "message": f"MFU is relative to {peak.flops_per_second / 1e12:,.3g} TFLOP/s: {peak.source}",
                }
            )
        self._losses: list[Any] = []
        self._due: tuple[int, list[Any], dict[str, Any]] | None = None
        self.restart()

    def count(self, recipe: Recipe) -> tuple[Peak, int]:
        """Count from here on what a step of a recipe takes; of what peak its products are a share, and their operations."""
        config = recipe.config
        self._tokens = recipe.tokens_per_step
        peak, flops = peak_of(config.device), model_flops(recipe.loss) * config.accumulate
        count = len(Target.over(config.devices).devices) if config.devices else 1
        self._peak_share = flops / (peak.flops_per_second * count)
        return peak, flops

    def restart(self) -> None:
        """Begin to measure the speed anew: something else than training took time."""
        self._began = time.perf_counter()

    def take(self, step: int, metrics: dict[str, Any]) -> None:
        """What a step returned that runs now; reports what steps before it gave, if that is due."""
        self.flush()
        self._losses.append(metrics["loss"])
        if step % self._every == 0:
            self._gather(step, metrics)

    def end(self, step: int, metrics: dict[str, Any]) -> None:
        """Report all that steps up to this one returned, before others are counted."""
        self.flush()
        if self._losses:
            self._gather(step, metrics)
            self.flush()

    def flush(self, **more: float) -> None:
        """Report what is due, and wait for it."""
        if self._due is None:
            return
        (step, losses, metrics), self._due = self._due, None
        record: dict[str, Any] = {"step": step, "loss": float(np.mean([np.asarray(loss) for loss in losses]))}
        seconds = (now := time.perf_counter()) - self._began
        self._began = now
        record[self._speed] = len(losses) * self._tokens / seconds
        if self._peak_share:
            record["mfu"] = len(losses) * self._peak_share / seconds
        record["learning_rate"] = float(metrics["learning_rate"])
        record["gradient_norm"] = float(metrics["gradient_norm"])
        self._report(record | more)

    def evaluated(self, step: int, metrics: dict[str, Any], evaluate: Callable[[], float]) -> None:
        """Report a step at once, with the validation loss after it."""
        if self._due is None:
            self._gather(step, metrics)
        losses = self._due
        assert losses is not None
        np.asarray(losses[1][-1])  # the step has ended: what follows is no part of its time
        waited = time.perf_counter()
        loss = evaluate()
        self._began += time.perf_counter() - waited
        self.flush(validation_loss=loss)

    def _gather(self, step: int, metrics: dict[str, Any]) -> None:
        self._due, self._losses = (step, self._losses, metrics), []
