"""What a run of a decoder by name trains with."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pcp.ir import Program
from pcp.models import decoder
from pcp.models.config import DecoderConfig
from pcp.models.parameters import Parameters
from pcp.tracing import spec, specs_of, trace
from pcp.training.data.run_data import TextData
from pcp.training.data.shards.sharded_tokens import ShardedTokens
from pcp.training.data.token_file import TokenFile
from pcp.training.data.validation import mean_loss, validation_windows
from pcp.training.recipes.recipe import Recipe


@dataclass(frozen=True)
class DecoderRecipe(Recipe):
    """A decoder from random parameters, on a text."""

    model: DecoderConfig
    tokens: TokenFile | ShardedTokens

    @cached_property
    def parameters(self) -> Parameters:
        """The parameters before the first step."""
        return decoder.initial_parameters(self.model, self.config.seed)

    @cached_property
    def data(self) -> TextData:
        """The corpus in windows of the model's context."""
        return TextData(self.tokens, self.model.context)

    @cached_property
    def loss(self) -> Program:
        """The loss of one micro-batch: `(parameters, tokens, targets) -> scalar`."""
        return self._program(decoder.loss, "loss", self.config.batch // self.config.accumulate)

    @cached_property
    def evaluation(self) -> Program:
        """The losses of validation windows: `(parameters, tokens, targets) -> (windows,)`."""
        return self._program(decoder.window_losses, "window_losses", self.evaluation_batch)

    @property
    def evaluation_batch(self) -> int:
        """Validation windows evaluated together: as many as make a quarter of a million logits' rows, at most 128."""
        return max(1, min(128, 2**14 // self.model.context))

    def validation_loss(self, evaluate: Callable[..., Any]) -> float:
        """The mean loss over the whole validation part, in nats.

        Arguments:
            evaluate: runs `evaluation` with parameters bound: `(tokens, targets) -> (windows,)`.
        """
        windows = validation_windows(self.tokens.validation, self.model.context, self.evaluation_batch)
        return mean_loss((chunk, np.asarray(evaluate(chunk.inputs, chunk.targets))) for chunk in windows)

    def _program(self, function: Callable[..., Any], name: str, batch: int) -> Program:
        model, sequence = self.model, spec((batch, self.model.context), "i32")

        def traced(parameters: Any, tokens: Any, targets: Any) -> Any:
            return function(parameters, tokens, targets, model)

        traced.__name__ = name
        return trace(traced, specs_of(self.parameters), sequence, sequence)
