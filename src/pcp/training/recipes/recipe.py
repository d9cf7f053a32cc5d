"""What a run trains with, whatever is trained: a loss, its first parameters, and the data in its order."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pcp.ir import Program
from pcp.optimizers import Optimizer, WarmupCosine, by_name
from pcp.training.data.run_data import BatchSource, Data
from pcp.training.recipes.config import OWN, TrainingConfig
from pcp.training.step import TrainingStep, training_step


@dataclass(frozen=True)
class Recipe(ABC):
    """Everything a run trains with. Equal settings and data give equal programs, parameters and batches everywhere."""

    config: TrainingConfig

    @property
    @abstractmethod
    def parameters(self) -> Any:
        """The parameters before the first step, nested arrays."""

    @property
    def held(self) -> tuple[Any, ...]:
        """Arrays beside the parameters that stay as they are, nested, as the first argument of the step; none of most runs."""
        return ()

    @property
    @abstractmethod
    def data(self) -> Data:
        """What is trained on."""

    @property
    @abstractmethod
    def loss(self) -> Program:
        """The loss of one micro-batch: `(parameters, *held, *arrays of the batch) -> scalar`."""

    @property
    @abstractmethod
    def evaluation(self) -> Program:
        """What validation runs; its first arguments are what is held, and the parameters."""

    @abstractmethod
    def validation_loss(self, evaluate: Callable[..., Any]) -> float:
        """The mean loss over the validation part.

        Arguments:
            evaluate: runs `evaluation` with parameters bound.
        """

    @cached_property
    def optimizer(self) -> Optimizer:
        """That of the settings, with warm-up and cosine."""
        c = self.config
        make = by_name(c.optimizer)
        schedule = WarmupCosine(c.learning_rate, c.warmup, c.steps, c.final_learning_rate)
        settings: dict[str, Any] = {"betas": (c.beta1, c.beta2), "weight_decay": c.weight_decay}
        if c.momentum != OWN:
            settings["momentum"] = c.momentum
        taken = inspect.signature(make).parameters
        made: Optimizer = make(schedule, **{name: value for name, value in settings.items() if name in taken})
        return made

    @cached_property
    def step(self) -> TrainingStep:
        """The training step: `(*held, state, batch) -> (state, metrics)`."""
        c = self.config
        return training_step(
            self.loss,
            self.optimizer,
            clip_norm=c.clip_norm or None,
            accumulate=c.accumulate,
            remat=c.remat,
            bound=True,
        )

    @cached_property
    def batches(self) -> BatchSource:
        """The one sequence of training batches of the run."""
        return self.data.batches(self.config.batch, self.config.seed)

    @property
    def tokens_per_step(self) -> int:
        """Tokens that one step of one worker trains on; a sample that is no text counts as one."""
        return self.batches.tokens_per_batch
