"""What a run trains with, whatever is trained: a loss, its first parameters, and the data in its order."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pcp.ir import Program
from pcp.optimizers import Optimizer, by_name, groups
from pcp.training.data.run_data import BatchSource, Data, DataKind
from pcp.training.recipes.config import OWN, TrainingConfig
from pcp.training.recipes.schedules import Decaying, learning_rate_of, weight_decay_of
from pcp.training.step import TrainingStep, training_step


@dataclass(frozen=True)
class Recipe(ABC):
    """Everything a run trains with. Equal settings and data give equal programs, parameters and batches everywhere."""

    config: TrainingConfig

    fixed_batch = False
    """Whether the loss is a program for one size of micro-batch."""

    @property
    @abstractmethod
    def parameters(self) -> Any:
        """The parameters before the first step, nested arrays."""

    @property
    def held(self) -> tuple[Any, ...]:
        """Arrays beside the parameters that stay as they are, nested, as the first argument of the step; none of most runs."""
        return ()

    @property
    def buffers(self) -> Any:
        """Arrays beside the parameters that a step changes, nested, before the first step; None of most runs."""
        return None

    @property
    def draws(self) -> bool:
        """Whether the loss draws random numbers, from a key that is its last argument."""
        return False

    @property
    def seed(self) -> int | None:
        """Of the random numbers that the loss draws; None where it draws none."""
        return self.config.seed if self.draws else None

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
        """That of the settings, with their schedules."""
        c = self.config
        make, rate, decay = by_name(c.optimizer), learning_rate_of(c), weight_decay_of(c)
        settings: dict[str, Any] = {"betas": (c.beta1, c.beta2)}
        settings["weight_decay"] = 0.0 if callable(decay) else decay
        if c.momentum != OWN:
            settings["momentum"] = c.momentum
        taken = inspect.signature(make).parameters
        chosen_optimizer: Optimizer = make(
            rate, **{name: value for name, value in settings.items() if name in taken}
        )
        chosen = groups(c.groups, chosen_optimizer) if c.groups else chosen_optimizer
        return Decaying(chosen, decay) if callable(decay) else chosen

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
            seed=self.seed,
        )

    @cached_property
    def batches(self) -> BatchSource:
        """The one sequence of training batches of the run."""
        return self.data.batches(self.config.batch, self.config.seed)

    @property
    def unit(self) -> str:
        """What a batch is counted in: `tokens` or `samples`."""
        return "samples" if self.data.kind is DataKind.samples else "tokens"

    @property
    def tokens_per_step(self) -> int:
        """Tokens that one step of one worker trains on; a sample that is no text counts as one."""
        return self.batches.tokens_per_batch
