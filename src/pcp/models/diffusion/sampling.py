"""Sampling as one program: all steps in a loop, from numbers of images to images."""

import functools
import operator
from collections.abc import Callable
from typing import Any

from pcp.batching import vmap
from pcp.ir import Program
from pcp.models.diffusion.samplers import Steps
from pcp.ops.control.loops import fori_loop
from pcp.ops.elementwise import clip
from pcp.ops.indexing.reading import take
from pcp.ops.movement import broadcast_to, concatenate, reshape
from pcp.ops.movement.filling import full
from pcp.ops.random import fold_in, normal
from pcp.tensor import Tensor, as_tensor
from pcp.tracing import spec, trace

Predict = Callable[[Any, Tensor, Tensor, Tensor | None], Tensor]
"""What a model says: from parameters, noisy images (batch, ...), times (batch,), and labels (batch,) or None."""
Shape = tuple[int, ...]


def noise_of(key: Tensor, numbers: Tensor, step: Any, shape: Shape) -> Tensor:
    """Normal numbers (images, *shape): those of an image follow from key, its number and the step, whatever is beside it.

    Arguments:
        key: u32[2].
        numbers: whole numbers of shape (images,).
        step: 0 for the first noise, 1 and more for that of steps.
        shape: of an image.
    """
    drawn = vmap(lambda number: normal(fold_in(fold_in(key, number), step), shape))(numbers)
    return as_tensor(drawn)


def guided(predict: Predict, guidance: float, no_class: int | None) -> Predict:
    """A model whose word is led away from what it says of images of no class.

    Arguments:
        guidance: 1 leaves the model as it is; more follows the class further.
        no_class: the label of no class.

    Source: Ho and Salimans, "Classifier-Free Diffusion Guidance", 2022, equation 6.
    """
    if guidance == 1 or no_class is None:
        return predict

    def led(parameters: Any, x: Tensor, times: Tensor, labels: Tensor | None) -> Tensor:
        assert labels is not None
        count, none = x.shape[0], full(labels.shape, no_class, labels.dtype)
        twice = predict(
            parameters, concatenate([x, x], 0), concatenate([times, times], 0), concatenate([labels, none], 0)
        )
        return twice[count:] + guidance * (twice[:count] - twice[count:])

    return led


def sampled(
    predict: Predict,
    parameters: Any,
    key: Tensor,
    numbers: Tensor,
    labels: Tensor | None,
    steps: Steps,
    shape: Shape,
) -> Tensor:
    """Images of some numbers, (images, *shape).

    Arguments:
        predict: the model, for images of that shape.
        parameters: of it.
        key: of the noise, u32[2].
        numbers: of the images, whole numbers of shape (images,).
        labels: their classes, or None.
        steps: of a sampler.
        shape: of an image.
    """
    first = noise_of(key, numbers, 0, shape)
    names, remembers = list(steps.columns), "x_before" in steps.columns
    columns = {name: as_tensor(steps.columns[name]) for name in names}
    times = as_tensor(steps.times)

    def step(number: Tensor, carry: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x = carry[0]
        row = {name: take(column, number, 0) for name, column in columns.items()}
        told = broadcast_to(reshape(take(times, number, 0), (1,)), (x.shape[0],))
        said = predict(parameters, x, told, labels)

        def mixed(prefix: str, values: dict[str, Tensor]) -> Tensor:
            terms = [row[prefix + name] * value for name, value in values.items() if prefix + name in row]
            return functools.reduce(operator.add, terms)

        image = mixed("image_", {"x": x, "p": said})
        if steps.clip is not None:
            image = clip(image, -steps.clip, steps.clip)
        values = {"x": x, "p": said, "image": image}
        if remembers:
            values["before"] = carry[1]
        if "x_noise" in row:
            values["noise"] = noise_of(key, numbers, number + 1, shape)
        moved = mixed("x_", values)
        return (moved, image) if remembers else (moved,)

    begun = (first, first * 0.0) if remembers else (first,)
    last: Tensor = fori_loop(0, len(steps.times), step, begun)[0]
    return last


def sampling_program(
    predict: Predict,
    parameters: Any,
    shape: Shape,
    steps: Steps,
    count: int,
    with_labels: bool = False,
    finish: Callable[[Any, Tensor], Tensor] | None = None,
) -> Program:
    """One program for all of sampling: `(parameters, key, numbers[, labels]) -> images`.

    Arguments:
        predict: the model; see `guided`.
        parameters: nested specs of what it takes, and `finish`.
        shape: of what it takes, without the axis of images.
        steps: of a sampler; see `steps_of`.
        count: images at once.
        with_labels: whether the model takes labels.
        finish: what is made of the results, from the parameters and these; None: nothing.

    Returns:
        A program whose arguments are the parameters, key u32[2], numbers i32[count], and labels i32[count] if it takes them.
    """

    def sample(held: Any, key: Tensor, numbers: Tensor, *labels: Tensor) -> Tensor:
        made = sampled(predict, held, key, numbers, labels[0] if labels else None, steps, shape)
        return made if finish is None else finish(held, made)

    batch = [spec((count,), "i32")] * (2 if with_labels else 1)
    return trace(sample, parameters, spec((2,), "u32"), *batch)
