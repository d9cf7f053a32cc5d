"""What images are made with: a model, the schedule of its noise, and perhaps what decodes its results."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.importers.torch import Imported
from pcp.ir import Program, TensorSpec
from pcp.ir.tree import flatten
from pcp.models.diffusion import autoencoder
from pcp.models.diffusion.families import INDEX, PARTS, SCHEDULER, WEIGHTS, ImageModel, from_diffusers
from pcp.models.diffusion.parts import Parts
from pcp.models.diffusion.schedule import Schedule
from pcp.ops.elementwise import convert
from pcp.ops.movement import broadcast_to, reshape, transpose
from pcp.tensor import ShapeMismatch, Tensor
from pcp.tracing import call
from pcp.training.data.safetensors_file import map_arrays
from pcp.training.run_folder import RunFolder

Array = np.ndarray[Any, Any]
_EXPECTED = (
    "give a folder that diffusers wrote (model_index.json, and in it unet or transformer, scheduler, and perhaps vae), or the "
    "folder of a run of dit-nano, dit-s or unet-nano"
)


class NoImageModel(PCPError):
    """Something that was to make images and does not."""


@dataclass(frozen=True)
class Pipeline:
    """A model that makes images.

    Arguments:
        predict: `(parameters, x, times, labels) -> prediction`; see `pcp.models.diffusion.sampling.Predict`.
        parameters: of the model, nested, and of the decoder.
        schedule: of its noise.
        shape: of what it takes, without the axis of images.
        classes: of images; 0 where they have none.
        no_class: the label of an image of no class; None where there is none.
        finish: from the parameters and results to images (images, height, width, channels), about from -1 to 1.
        fixed: images that the model takes at once; None: any number.
        check: refuses a shape that it does not take.
        held: plans that were made, by what was asked for.
    """

    predict: Callable[[Any, Tensor, Tensor, Tensor | None], Tensor]
    parameters: Any
    schedule: Schedule
    shape: tuple[int, ...]
    classes: int = 0
    no_class: int | None = None
    finish: Callable[[Any, Tensor], Tensor] | None = None
    fixed: int | None = None
    check: Callable[[tuple[int, ...]], None] | None = None
    held: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)


def open_pipeline(path: Path) -> Pipeline:
    """The pipeline in a folder that diffusers wrote, or of the newest checkpoint of a run.

    Raises:
        NoImageModel: there is none.
        UnsupportedImageModel, UnsupportedSchedule: PCP has no such model, or no such schedule.
        PCPError: a file cannot be read.
    """
    if not path.is_dir():
        said = "is a file" if path.exists() else "is not there"
        raise NoImageModel(f"{path} {said}; {_EXPECTED}. PCP downloads no models")
    settings = _json(path / "config.json") if (path / "config.json").exists() else {}
    if "_class_name" not in settings and not (path / INDEX).exists():
        if not (settings and "inner_steps" in settings):
            inner = sorted(each.parent.name for each in path.glob("*/config.json"))
            hint = f"; folders in it: {', '.join(inner[:6])}" if inner else ""
            raise NoImageModel(f"{path} holds no model of images{hint}; {_EXPECTED}")
        return _of_run(RunFolder.open(path))
    return _of_folder(path)


def _of_run(folder: RunFolder) -> Pipeline:
    from pcp.training.recipes.image_recipe import ImageRecipe  # what only runs need takes a while
    from pcp.training.recipes.prepare import prepare
    from pcp.training.recipes.written_pipeline import write_pipeline

    recipe = prepare(folder)
    if not isinstance(recipe, ImageRecipe):
        raise NoImageModel(
            f"the run in {folder.path} trains {folder.config().model}, which makes no images; {_EXPECTED}"
        )
    return _of_folder(write_pipeline(folder, recipe, folder.model_folder))


def _of_folder(path: Path) -> Pipeline:
    places = [path / PARTS[name][0] for name in ("UNet2DModel", "DiTTransformer2DModel")]
    place = next((each for each in (*places, path) if (each / "config.json").exists()), None)
    if place is None:
        raise NoImageModel(f"{path} has neither unet/config.json nor transformer/config.json; {_EXPECTED}")
    model, parameters = _model(place)
    scheduler = next(
        (each for each in (path / "scheduler" / SCHEDULER, path / SCHEDULER) if each.exists()), None
    )
    if scheduler is None:
        raise NoImageModel(
            f"{path} has no scheduler/{SCHEDULER}, which says how much noise there is at each time; {_EXPECTED}"
        )
    schedule = Schedule.of(_json(scheduler), str(scheduler))
    side = model.size or model.step * 8
    shape = (side, side, model.channels)
    alone = Pipeline(model, parameters, schedule, shape, model.classes, model.no_class, check=model.check)
    if not (path / "vae" / "config.json").exists():
        return alone
    vae, decoding = _model(path / "vae")
    if vae.settings["latent_channels"] != model.channels:
        raise NoImageModel(
            f"the vae in {path} decodes {vae.settings['latent_channels']} channels, its {model.family} makes "
            f"{model.channels}; give a folder whose parts belong together"
        )

    def predict(held: Any, x: Tensor, times: Tensor, labels: Tensor | None) -> Tensor:
        return model(held["model"], x, times, labels)

    def finish(held: Any, x: Tensor) -> Tensor:
        latents = x * (1 / vae.settings["scaling_factor"]) + (vae.settings["shift_factor"] or 0.0)
        return autoencoder.decode(Parts(held["vae"]), latents, vae.settings)

    return replace(alone, predict=predict, parameters={"model": parameters, "vae": decoding}, finish=finish)


def _model(place: Path) -> tuple[ImageModel, dict[str, Array]]:
    model = ImageModel.of(_json(place / "config.json"), str(place / "config.json"))
    file = place / WEIGHTS
    if not file.exists():
        raise NoImageModel(
            f"{place} has no {WEIGHTS}; write it with diffusers: {model.family}.from_pretrained({str(place)!r})"
            f".save_pretrained({str(place)!r})"
        )
    return model, from_diffusers(map_arrays(file), model, str(file))


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise NoImageModel(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(content, dict):
        raise NoImageModel(f"{path} holds no JSON object; {_EXPECTED}")
    return content


def imported_pipeline(imported: Imported, scheduler: Any) -> Pipeline:
    """A pipeline around a model that `pcp.from_torch` made: `(sample, timestep[, labels]) -> prediction`.

    Arguments:
        imported: its first input is images with noise, (images, channels, height, width), its second their times, a number or
            one for each image, its third labels if there is one.
        scheduler: a scheduler of diffusers, or its settings.

    Raises:
        NoImageModel: the model takes or gives something else, or there is no scheduler.
        UnsupportedSchedule: see `Schedule.of`.
    """
    if scheduler is None:
        raise NoImageModel(
            "an imported model does not say how much noise there is at each time; give scheduler=DDIMScheduler(...) of "
            'diffusers, or its settings, as scheduler={"beta_schedule": "linear", "prediction_type": "epsilon"}'
        )
    settings = (
        dict(scheduler)
        if isinstance(scheduler, Mapping)
        else {"_class_name": type(scheduler).__name__, **scheduler.config}
    )
    program, held = imported.program, imported.held()
    inputs = [entry.spec for entry in program.arguments[_leaves(held) :]]
    first = inputs[0] if inputs else None
    outputs = [each.spec for each in program.results if each.spec == first]
    if (
        first is None
        or len(first.shape) != 4
        or len(inputs) not in (2, 3)
        or not outputs
        or not first.dtype.is_float
    ):
        taken = ", ".join(map(str, inputs)) or "nothing"
        raise NoImageModel(
            f"the imported model takes {taken} and gives {', '.join(str(each.spec) for each in program.results)}; expected "
            "images (images, channels, height, width), a time, perhaps labels, and a result of the images' shape: "
            "pcp.from_torch(unet, sample, timestep)"
        )
    place = next(index for index, each in enumerate(program.results) if each.spec == first)
    return Pipeline(
        lambda parameters, x, times, labels: _asked(program, parameters, x, times, labels, inputs, place),
        tuple(held.values()),
        Schedule.of(settings, "the scheduler"),
        (*first.shape[2:], first.shape[1]),
        classes=int(len(inputs) == 3),
        fixed=first.shape[0],
    )


def _asked(
    program: Program,
    held: Any,
    x: Tensor,
    times: Tensor,
    labels: Tensor | None,
    inputs: list[TensorSpec],
    place: int,
) -> Tensor:
    """What a program from elsewhere says."""
    time = convert(times, inputs[1].dtype)
    told = [broadcast_to(time, inputs[1].shape) if inputs[1].shape else reshape(time[:1], ())]
    if labels is not None:
        told.append(convert(labels, inputs[2].dtype))
    images = convert(transpose(x, (0, 3, 1, 2)), inputs[0].dtype)
    said = flatten(call(program, *held, images, *told))[0][place]
    if not isinstance(said, Tensor):
        raise ShapeMismatch(f"the imported model gives {said!r}; expected an array")
    return convert(transpose(said, (0, 2, 3, 1)), x.dtype)


def _leaves(held: Mapping[str, Mapping[str, Any]]) -> int:
    return sum(len(each) for each in held.values())
