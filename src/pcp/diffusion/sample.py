"""`pcp.sample`: images from a model, as arrays."""

import math
import time
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from pcp.diffusion.pipeline import NoImageModel, Pipeline, imported_pipeline, open_pipeline
from pcp.importers.torch import Imported
from pcp.ir import Program
from pcp.models.diffusion.samplers import own_sampler, steps_of
from pcp.models.diffusion.sampling import guided, sampling_program
from pcp.planning import Plan, plan
from pcp.tracing import specs_of

Array = np.ndarray[Any, Any]
Progress = Callable[[int, int, float], object]
"""Told how many images are made, of how many, and after how many seconds."""

_AT_ONCE = 16


class InvalidSampling(NoImageModel):
    """A setting of sampling that makes no sense."""


def sample(
    model: Pipeline | Imported | str | PathLike[str],
    count: int = 16,
    steps: int = 20,
    seed: int = 0,
    *,
    sampler: str | None = None,
    guidance: float = 1.0,
    labels: int | Sequence[int] | None = None,
    size: int | tuple[int, int] | None = None,
    scheduler: Any = None,
    batch: int | None = None,
    device: str | None = None,
    tolerance: float | None = None,
    progress: Progress | None = None,
) -> Array:
    """Images from a model that removes noise.

    Image i of a seed follows from the two numbers, but for rounding: it does not depend on how many are made, nor on the
    machine.

    Arguments:
        model: the folder of a run, or one that diffusers wrote; or what `open_pipeline` makes of it, which is compiled
            once; or a model that `pcp.from_torch` imported.
        count: of images.
        steps: how often the model is asked for each image.
        seed: of the noise.
        sampler: `ddim`, `ddpm`, `dpm++` or, for flows, `euler` or `dpm++`; None: that of the model's scheduler.
        guidance: how far the class is followed; 1: as the model says, more: further. Above 1 only with classes.
        labels: the class of all images, or of each; None: of a model with classes, one class after another.
        size: pixels of a side, or height and width; None: what the model was made for. Not of a model with a vae, nor an
        imported. scheduler: of an imported model, as diffusers' scheduler or its settings.
        batch: images at once; None: at most 16, or what an imported model takes.
        device, tolerance: as of `pcp.plan`; with a tolerance the fastest way is searched for.
        progress: told after every batch.

    Returns:
        u8[count, height, width, channels].

    Raises:
        NoImageModel: there is no model that makes images.
        InvalidSampling: a number or a label is none that can be.
        UnsupportedImageModel, UnsupportedSchedule: the model, its schedule or the sampler is none that PCP has.
        ShapeMismatch: a size that the model does not take.
    """
    pipeline = _opened(model, scheduler)
    if type(count) is not int or count < 1:
        raise InvalidSampling(f"count is {count}; expected a number of images, at least 1")
    if not math.isfinite(guidance):
        raise InvalidSampling(f"guidance is {guidance}; expected a finite number")
    classes = _labels(pipeline, labels, count)
    at_once = pipeline.fixed or min(batch or _AT_ONCE, count)
    if batch is not None and (batch < 1 or (batch != at_once and pipeline.fixed)):
        expected = f"{pipeline.fixed}, which the model was imported for" if pipeline.fixed else "at least 1"
        raise InvalidSampling(f"batch is {batch}; expected {expected}")
    planned = _planned(pipeline, at_once, steps, sampler, guidance, _shape(pipeline, size), device, tolerance)
    key = np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)
    begun, made = time.monotonic(), list[Array]()
    for first in range(0, count, at_once):
        numbers = np.arange(first, first + at_once, dtype=np.int32)
        told = (
            [] if classes is None else [np.resize(classes[first : first + at_once], at_once).astype(np.int32)]
        )
        made.append(as_bytes(np.asarray(planned.run(key, numbers, *told))))
        if progress is not None:
            progress(min(first + at_once, count), count, time.monotonic() - begun)
    return np.concatenate(made)[:count]


def program_of(
    pipeline: Pipeline,
    count: int,
    steps: int = 20,
    sampler: str | None = None,
    guidance: float = 1.0,
    shape: tuple[int, ...] | None = None,
) -> Program:
    """One program for all of sampling: `(parameters, key, numbers[, labels]) -> images`; see `sampling_program`.

    Arguments:
        count: images at once.
        steps, sampler, guidance: as of `sample`.
        shape: of what the model takes; None: as it was made for.
    """
    table = steps_of(sampler or own_sampler(pipeline.schedule), pipeline.schedule, steps)
    if guidance != 1 and pipeline.no_class is None:
        raise InvalidSampling(
            f"guidance is {guidance}, but the model has no label for images of no class; leave it out, or train dit-nano on "
            "images with classes"
        )
    return sampling_program(
        guided(pipeline.predict, guidance, pipeline.no_class),
        specs_of(pipeline.parameters),
        shape or pipeline.shape,
        table,
        count,
        bool(pipeline.classes),
        pipeline.finish,
    )


def as_bytes(images: Array) -> Array:
    """Pixels about from -1 to 1 as bytes."""
    return np.asarray(np.round((np.clip(images, -1, 1) + 1) * 127.5), np.uint8)


def _opened(model: Any, scheduler: Any) -> Pipeline:
    if isinstance(model, Imported):
        return imported_pipeline(model, scheduler)
    if scheduler is not None:
        raise InvalidSampling("scheduler is for imported models; a folder has its own: choose by sampler")
    return model if isinstance(model, Pipeline) else open_pipeline(Path(model))


def _planned(
    pipeline: Pipeline,
    count: int,
    steps: int,
    sampler: str | None,
    guidance: float,
    shape: tuple[int, ...],
    device: str | None,
    tolerance: float | None,
) -> Plan:
    asked = (count, steps, sampler, guidance, shape, device, tolerance)
    if asked not in pipeline.held:
        program = program_of(pipeline, count, steps, sampler, guidance, shape)
        planned = plan(program, device=device, tolerance=tolerance)
        pipeline.held[asked] = planned.bind(pipeline.parameters)
    kept: Plan = pipeline.held[asked]
    return kept


def _labels(pipeline: Pipeline, labels: int | Sequence[int] | None, count: int) -> Array | None:
    if not pipeline.classes:
        if labels is not None:
            raise InvalidSampling("labels were given, but the model knows no classes; leave them out")
        return None
    if labels is None:
        return np.arange(count) % pipeline.classes
    given = np.resize(np.asarray(labels), count) if np.ndim(labels) == 0 else np.asarray(labels)
    top = pipeline.classes if pipeline.fixed is None else np.iinfo(np.int32).max
    if given.shape != (count,) or given.dtype.kind not in "iu" or given.min() < 0 or given.max() >= top:
        raise InvalidSampling(
            f"labels are {labels}; expected one class from 0 to {top - 1}, or {count} of them, one for each image"
        )
    return given


def _shape(pipeline: Pipeline, size: int | tuple[int, int] | None) -> tuple[int, ...]:
    if size is None:
        return pipeline.shape
    if pipeline.finish is not None or pipeline.check is None:  # a vae, or imported
        raise InvalidSampling(f"size is {size}, but this model makes images of one size; leave it out")
    sides = (size, size) if isinstance(size, int) else tuple(size)
    shape = (*sides, pipeline.shape[-1])
    pipeline.check(shape)
    return shape
