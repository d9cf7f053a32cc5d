"""What a run of a model of images by name trains with."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pcp.ir import Program
from pcp.models.diffusion import loss as diffusion
from pcp.models.diffusion.families import ImageModel
from pcp.models.diffusion.published import image_model
from pcp.models.diffusion.schedule import Schedule
from pcp.models.parameters import Parameters
from pcp.tensor import Tensor
from pcp.tracing import spec, specs_of, trace
from pcp.training.data.run_data import SampleData
from pcp.training.drawn_numbers import key_of
from pcp.training.recipes.recipe import Recipe


@dataclass(frozen=True)
class ImageRecipe(Recipe):
    """A model that removes noise from images, from random parameters.

    Arguments:
        given: images, u8[samples, height, width, channels], and labels, i32[samples], if there are classes.
    """

    given: SampleData

    @cached_property
    def described(self) -> tuple[ImageModel, Schedule]:
        """The model, and the schedule of its noise."""
        images, *labels = self.given.training.arrays
        held_out = self.given.validation.arrays[1:]
        classes = 1 + max(int(each.max()) for each in (*labels, *held_out)) if labels else 0
        return image_model(self.config.model, images.shape[1], images.shape[3], classes)

    @cached_property
    def parameters(self) -> Parameters:
        """The parameters before the first step."""
        return self.described[0].initial_parameters(self.config.seed)

    @property
    def draws(self) -> bool:
        """The loss draws times and noise."""
        return True

    @property
    def data(self) -> SampleData:
        """What is trained on."""
        return self.given

    @cached_property
    def loss(self) -> Program:
        """The loss of one micro-batch: `(parameters, images[, labels], key) -> scalar`."""
        model, schedule = self.described

        def denoising_loss(parameters: Any, images: Tensor, *others: Tensor) -> Tensor:
            *labels, random_key = others
            return diffusion.loss(
                parameters, images, labels[0] if labels else None, random_key, model, schedule
            )

        return trace(denoising_loss, specs_of(self.parameters), *self._batch, spec((2,), "u32"))

    @cached_property
    def evaluation(self) -> Program:
        """The same with noise that follows from the images: `(parameters, batch) -> scalar`."""
        model, schedule = self.described

        def denoising_loss(parameters: Any, batch: tuple[Tensor, ...]) -> Tensor:
            images, *labels = batch
            drawn = key_of(0, images[0, 0, 0, 0] * 0, batch)
            return diffusion.loss(parameters, images, labels[0] if labels else None, drawn, model, schedule)

        return trace(denoising_loss, specs_of(self.parameters), tuple(self._batch))

    def validation_loss(self, evaluate: Callable[..., Any]) -> float:
        """The mean of the loss over the batches of the validation part.

        Arguments:
            evaluate: runs `evaluation` with parameters bound: `(batch) -> scalar`.
        """
        batches = self.given.validation.in_batches(self._size)
        return float(np.mean([np.asarray(evaluate(batch), np.float64) for batch in batches]))

    @property
    def _size(self) -> int:
        return self.config.batch // self.config.accumulate

    @property
    def _batch(self) -> list[Any]:
        return [spec((self._size, *each.shape[1:]), each.dtype) for each in self.given.training.arrays]
