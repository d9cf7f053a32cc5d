"""What a run of a loss from a file trains with."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pcp.ir import Program
from pcp.training.data.run_data import Data, TextData
from pcp.training.data.validation import validation_windows
from pcp.training.recipes.loss_program import LossProgram
from pcp.training.recipes.recipe import Recipe
from pcp.training.step import evaluation_step


@dataclass(frozen=True)
class ImportedRecipe(Recipe):
    """A loss that knows nothing of PCP, from weights that were given, on a text or on samples."""

    imported: LossProgram
    given: Data

    fixed_batch = True

    @property
    def parameters(self) -> Any:
        """The weights that were given."""
        return self.imported.parameters

    @property
    def held(self) -> tuple[Any, ...]:
        """The weights that stay, where low-rank matrices are trained beside them."""
        return () if self.imported.held is None else (self.imported.held,)

    @property
    def buffers(self) -> Any:
        """What the loss changes itself, such as running means."""
        return self.imported.buffers

    @property
    def data(self) -> Data:
        """What is trained on."""
        return self.given

    @property
    def loss(self) -> Program:
        """The loss of one micro-batch, as it was imported."""
        return self.imported.program

    @property
    def draws(self) -> bool:
        """Whether the loss draws random numbers, from a key."""
        return self.imported.draws

    @cached_property
    def evaluation(self) -> Program:
        """The loss again, or that without dropout: `(parameters, batch) -> scalar`."""
        return evaluation_step(self.imported.evaluation or self.loss)

    def validation_loss(self, evaluate: Callable[..., Any]) -> float:
        """The mean of the loss over the batches of the validation part; windows of a text that fill no batch are left out.

        Arguments:
            evaluate: runs `evaluation` with parameters bound: `(batch) -> scalar`.
        """
        return float(np.mean([_scalar(evaluate(batch)) for batch in self._validation_batches()]))

    def _validation_batches(self) -> Iterator[tuple[Any, ...]]:
        size = self.imported.batch_size
        if not isinstance(self.given, TextData):
            yield from self.given.validation.in_batches(size)
            return
        for chunk in validation_windows(self.given.tokens.validation, self.given.context, size):
            if chunk.windows == size:
                yield chunk.inputs, chunk.targets


def _scalar(result: Any) -> float:
    """The loss in a result that may have metrics beside it."""
    return float(np.asarray(result[0] if isinstance(result, tuple) else result, np.float64))
