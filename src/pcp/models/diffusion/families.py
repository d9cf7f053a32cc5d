"""Models of images as rows: from the settings in a config.json of diffusers to what they compute and their parameters."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.ir import DType
from pcp.models.diffusion import autoencoder, transformer, unet
from pcp.models.diffusion.parts import Parameter, Parts, Settings
from pcp.models.parameters import Leaf, Parameters, described, drawn
from pcp.ops.elementwise import convert
from pcp.tensor import ShapeMismatch, Tensor
from pcp.tracing import spec, trace

Array = np.ndarray[Any, Any]


class UnsupportedImageModel(PCPError):
    """A model of images that PCP does not have, or has otherwise."""


@dataclass(frozen=True)
class Family:
    """A family.

    Arguments:
        predict: `(parts, images, times, labels, settings) -> prediction`; None for what is no denoiser.
        defaults: the settings that count, and their values where they are left out.
        supported: settings -> the values, or elements of lists, with which PCP computes the same.
        classes: the setting that says how many classes there are.
        none: whether one number more than the classes stands for no class, as guidance needs it.
    """

    predict: Callable[[Parts, Tensor, Tensor, Tensor | None, Settings], Tensor] | None
    defaults: Mapping[str, Any]
    supported: Mapping[str, tuple[object, ...]]
    classes: str = ""
    none: bool = False


FAMILIES = {
    "UNet2DModel": Family(unet.predict, unet.DEFAULTS, unet.SUPPORTED, "num_class_embeds"),
    "DiTTransformer2DModel": Family(
        transformer.predict, transformer.DEFAULTS, transformer.SUPPORTED, "num_embeds_ada_norm", True
    ),
    "AutoencoderKL": Family(None, autoencoder.DEFAULTS, autoencoder.SUPPORTED),
}
"""`_class_name` of a config.json -> the family."""
PARTS = {
    "UNet2DModel": ("unet", "DDIMPipeline"),
    "DiTTransformer2DModel": ("transformer", "DiTPipeline"),
    "AutoencoderKL": ("vae", ""),
}
"""A family -> its name in a pipeline, and the pipeline of diffusers that it is written for."""
WEIGHTS = "diffusion_pytorch_model.safetensors"
SCHEDULER = "scheduler_config.json"
INDEX = "model_index.json"
"""Files of a folder that diffusers writes."""


@dataclass(frozen=True)
class ImageModel:
    """A model of images: a family and its settings, as diffusers names them."""

    family: str
    settings: Settings

    @staticmethod
    def of(settings: Mapping[str, Any], where: str) -> "ImageModel":
        """The model that settings describe.

        Arguments:
            where: the file, for messages.

        Raises:
            UnsupportedImageModel: its family is unknown, or it has settings that change what it computes.
        """
        name = str(settings.get("_class_name"))
        if name not in FAMILIES:
            raise UnsupportedImageModel(
                f"{where} is of a {name}; PCP's own models of images are {', '.join(FAMILIES)}. Another is imported from "
                "PyTorch: pcp.from_torch(model, sample, timestep), then pcp.sample (docs/overview/diffusion.md)"
            )
        family = FAMILIES[name]
        taken = {key: _plain(settings.get(key, value)) for key, value in family.defaults.items()}
        for key, accepted in family.supported.items():
            given = taken[key] if isinstance(taken[key], tuple) else (taken[key],)
            wrong = [each for each in given if each not in accepted]
            if wrong:
                raise UnsupportedImageModel(
                    f"{where} sets {key} to {wrong[0]!r}; PCP's {name} supports only {' or '.join(map(repr, accepted))}. "
                    "Import the model from PyTorch: pcp.from_torch(model, sample, timestep)"
                )
        return ImageModel(name, taken)

    @property
    def channels(self) -> int:
        """Of the arrays that it takes and gives."""
        return int(self.settings["in_channels"])

    @property
    def size(self) -> int | None:
        """Pixels of a side of what it was made for; None where its settings do not say it."""
        size = self.settings["sample_size"]
        side = size[0] if isinstance(size, tuple) else size
        return None if side is None else int(side)

    @property
    def step(self) -> int:
        """Sides are multiples of this number of pixels."""
        s = self.settings
        return int(s["patch_size"]) if "patch_size" in s else 2 ** (len(s["block_out_channels"]) - 1)

    @property
    def classes(self) -> int:
        """How many classes it was trained on; 0 where images have none."""
        named = FAMILIES[self.family].classes
        return int(self.settings[named] or 0) if named else 0

    @property
    def no_class(self) -> int | None:
        """The label of an image of no class, which guidance needs; None where there is none."""
        return self.classes if FAMILIES[self.family].none else None

    def __call__(
        self, parameters: Parameters, images: Tensor, times: Tensor, labels: Tensor | None
    ) -> Tensor:
        """What the model says of noisy images.

        Arguments:
            parameters: by name, as `initial_parameters` makes them.
            images: (batch, height, width, channels).
            times: numbers (batch,).
            labels: whole numbers (batch,) where there are classes.

        Returns:
            (batch, height, width, channels): where a model has variances beside them, they are left out.

        Raises:
            ShapeMismatch: images of other channels, or sides that are no multiples of `step`.
            UnsupportedImageModel: it is no model that removes noise.
        """
        return self._predicted(Parts(parameters), images, times, labels)

    def _predicted(self, parts: Parts, images: Tensor, times: Tensor, labels: Tensor | None) -> Tensor:
        predict = FAMILIES[self.family].predict
        if predict is None:
            raise UnsupportedImageModel(
                f"a {self.family} removes no noise; expected a UNet2DModel or a DiTTransformer2DModel"
            )
        self.check(images.shape[1:])
        if bool(self.classes) != (labels is not None):
            takes, given = ("a", "none") if self.classes else ("no", "one")
            raise ShapeMismatch(
                f"a {self.family} of {self.classes} classes takes {takes} label; {given} was given"
            )
        label = None if labels is None else convert(labels, DType.i32)
        return predict(parts, images, times, label, self.settings)[..., : self.channels]

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse images of a shape (height, width, channels) that the model does not take; raises ShapeMismatch."""
        sides = shape[:2]
        square = "patch_size" not in self.settings or sides[0] == sides[1]
        if (
            len(shape) != 3
            or shape[2] != self.channels
            or any(s % self.step or s < 1 for s in sides)
            or not square
        ):
            kind = "" if "patch_size" not in self.settings else ", both the same"
            raise ShapeMismatch(
                f"images of shape {shape} were given; this {self.family} takes (height, width, {self.channels}), height and "
                f"width multiples of {self.step}{kind}"
            )

    def told(self) -> dict[str, Parameter]:
        """The parameters by name: shapes, and what they begin with."""
        parts, side = Parts(None), self.size or self.step * 8

        def ask(images: Tensor, times: Tensor, labels: Tensor) -> Tensor:
            if self.family == "AutoencoderKL":
                mean, _ = autoencoder.encode(parts, images, self.settings)
                return autoencoder.decode(parts, mean, self.settings)
            return self._predicted(parts, images, times, labels if self.classes else None)

        trace(ask, spec((1, side, side, self.channels), "f32"), spec((1,), "f32"), spec((1,), "i32"))
        return parts.told

    def initial_parameters(self, seed: int = 0) -> Parameters:
        """Random float32 parameters; equal seeds give equal parameters on every machine."""
        return self._made(drawn(seed))

    def parameter_shapes(self) -> Parameters:
        """The `TensorSpec` of each parameter; no memory is taken."""
        return self._made(described)

    def _made(self, leaf: Leaf) -> Parameters:
        return {name: leaf(each.shape, each.deviation, each.mean) for name, each in self.told().items()}


_OLD_NAMES = {".query.": ".to_q.", ".key.": ".to_k.", ".value.": ".to_v.", ".proj_attn.": ".to_out.0."}
"""Of attention, in files of older versions of diffusers."""


def from_diffusers(arrays: Mapping[str, Array], model: ImageModel, where: str) -> Parameters:
    """The parameters of a model from arrays as PyTorch has them.

    Arguments:
        arrays: by the names that diffusers gives them.
        where: the file, for messages.

    Raises:
        UnsupportedImageModel: arrays are missing, too many, or of other shapes.
    """
    named = {}
    for name, array in arrays.items():
        for old, new in _OLD_NAMES.items():
            name = name.replace(old, new)
        named[name] = array
    wanted = model.told()
    missing, extra = [n for n in wanted if n not in named], [n for n in named if n not in wanted]
    if missing or extra:
        lacks = (
            f"it lacks {', '.join(missing[:4])}" if missing else f"it has {', '.join(extra[:4])} beside them"
        )
        raise UnsupportedImageModel(
            f"{where} does not hold the {len(wanted)} parameters of this {model.family}: {lacks}; give the weights that belong "
            "to the config.json"
        )
    made = {}
    for name, each in wanted.items():
        array = np.asarray(named[name], np.float32)
        if (
            array.ndim == 2
            and array.shape[::-1] != each.shape
            and math.prod(array.shape) == math.prod(each.shape[2:])
        ):
            array = array[:, :, None, None]
        made[name] = ours = turned(name, array, back=False)
        if ours.shape != each.shape:
            raise UnsupportedImageModel(
                f"{where}: {name} is {array.shape}; expected {turned(name, np.empty(each.shape), back=True).shape}"
            )
    return made


def turned(name: str, array: Array, back: bool) -> Array:
    """An array in PCP's order of axes from PyTorch's, or `back`: outputs stand last in products, channels last in images."""
    if array.ndim == 4:
        return np.ascontiguousarray(array.transpose((3, 2, 0, 1) if back else (2, 3, 1, 0)))
    is_table = "embedding_table" in name or name == "class_embedding.weight"
    return array if array.ndim != 2 or is_table else np.ascontiguousarray(array.T)


def _plain(value: Any) -> Any:
    return tuple(map(_plain, value)) if isinstance(value, list) else value
