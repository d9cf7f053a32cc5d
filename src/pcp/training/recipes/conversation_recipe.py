"""What a run of a decoder by name trains with on conversations, of which it learns the answers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pcp import nn
from pcp.ir import Program
from pcp.models import decoder
from pcp.models.config import DecoderConfig
from pcp.models.parameters import Parameters
from pcp.ops.elementwise import convert, maximum
from pcp.tensor import Tensor
from pcp.tracing import spec, specs_of, trace
from pcp.training.data.run_data import SampleData
from pcp.training.recipes.recipe import Recipe
from pcp.training.step import evaluation_step


@dataclass(frozen=True)
class ConversationRecipe(Recipe):
    """A decoder from random parameters, on rows of tokens and targets; a target below 0 is not learnt.

    Arguments:
        model: the sizes.
        given: tokens and targets, both i32[samples, context].
    """

    model: DecoderConfig
    given: SampleData

    @cached_property
    def parameters(self) -> Parameters:
        """The parameters before the first step."""
        return decoder.initial_parameters(self.model, self.config.seed)

    @property
    def data(self) -> SampleData:
        """What is trained on."""
        return self.given

    @cached_property
    def loss(self) -> Program:
        """The mean loss over the targets of a micro-batch that are learnt: `(parameters, tokens, targets) -> scalar`."""
        model = self.model

        def answer_loss(parameters: Any, tokens: Tensor, targets: Tensor) -> Tensor:
            scores = decoder.logits(parameters, tokens, model)
            return nn.cross_entropy(scores, maximum(targets, 0), convert(targets >= 0, "f32"))

        rows = spec((self.config.batch // self.config.accumulate, model.context), "i32")
        return trace(answer_loss, specs_of(self.parameters), rows, rows)

    @cached_property
    def evaluation(self) -> Program:
        """The loss again."""
        return evaluation_step(self.loss)

    def validation_loss(self, evaluate: Callable[..., Any]) -> float:
        """The mean of the loss over the batches of the validation part.

        Arguments:
            evaluate: runs `evaluation` with parameters bound: `(batch) -> scalar`.
        """
        size = self.config.batch // self.config.accumulate
        batches = self.given.validation.in_batches(size)
        return float(np.mean([np.asarray(evaluate(batch), np.float64) for batch in batches]))
