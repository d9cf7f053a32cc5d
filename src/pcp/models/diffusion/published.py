"""Models of images known by name: from the size, the channels and the classes of images to a model, its schedule, and how it
is trained.

Sizes are small enough to be trained on a processor; `dit-s` has those of DiT-S of Peebles and Xie, 2022, table 1.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pcp.models.diffusion.families import ImageModel
from pcp.models.diffusion.schedule import Schedule
from pcp.models.parameters import InvalidConfiguration

_PATCHES = 8
_FLOW = {"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": 1.0}
_VELOCITY = {
    "_class_name": "DDIMScheduler", "num_train_timesteps": 1000, "beta_schedule": "squaredcos_cap_v2",
    "prediction_type": "v_prediction", "timestep_spacing": "trailing", "clip_sample": True, "clip_sample_range": 1.0,
    "set_alpha_to_one": True, "steps_offset": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Published:
    """A model by name.

    Arguments:
        settings: from pixels of a side, channels and classes to settings as diffusers names them.
        schedule: settings of the scheduler that it is trained with.
        training: defaults of a run that trains it.
    """

    settings: Callable[[int, int, int], dict[str, Any]]
    schedule: Mapping[str, Any]
    training: Mapping[str, Any] = field(
        default_factory=lambda: {
            "batch": 64,
            "learning_rate": 1e-3,
            "final_learning_rate": 1e-5,
            "weight_decay": 0.0,
            "beta2": 0.99,
        }
    )


def _dit(layers: int, heads: int, width: int) -> Callable[[int, int, int], dict[str, Any]]:
    def settings(size: int, channels: int, classes: int) -> dict[str, Any]:
        return {
            "_class_name": "DiTTransformer2DModel", "num_attention_heads": heads, "attention_head_dim": width // heads,
            "in_channels": channels, "out_channels": channels, "num_layers": layers, "sample_size": size,
            "patch_size": _patch(size), "num_embeds_ada_norm": max(classes, 1),
        }  # fmt: skip

    return settings


def _patch(size: int) -> int:
    """Pixels of a side of a patch: so many that there are eight or more patches on a side."""
    return next(patch for patch in range(max(1, size // _PATCHES), 0, -1) if size % patch == 0)


def _unet(channels_of_blocks: tuple[int, ...], layers: int) -> Callable[[int, int, int], dict[str, Any]]:
    def settings(size: int, channels: int, classes: int) -> dict[str, Any]:
        last, first = len(channels_of_blocks) - 1, "DownBlock2D"
        return {
            "_class_name": "UNet2DModel", "sample_size": size, "in_channels": channels, "out_channels": channels,
            "block_out_channels": channels_of_blocks, "layers_per_block": layers, "norm_num_groups": 8,
            "attention_head_dim": 16, "down_block_types": (first,) * last + ("AttnDownBlock2D",),
            "up_block_types": ("AttnUpBlock2D",) + ("UpBlock2D",) * last, "num_class_embeds": classes or None,
        }  # fmt: skip

    return settings


IMAGE_MODELS = {
    "dit-nano": Published(_dit(4, 4, 128), _FLOW),
    "dit-s": Published(_dit(12, 6, 384), _FLOW),
    "unet-nano": Published(_unet((32, 64), 1), _VELOCITY),
}


def image_model(name: str, size: int, channels: int, classes: int) -> tuple[ImageModel, Schedule]:
    """A model by name for images of a size, and its schedule.

    Arguments:
        size: pixels of a side.
        channels: of a pixel.
        classes: 0 for images without.

    Raises:
        InvalidConfiguration: the size does not fit the model.
    """
    row = IMAGE_MODELS[name]
    settings = row.settings(size, channels, classes)
    model = ImageModel.of(settings, name)
    if size % model.step or size < 1:
        raise InvalidConfiguration(
            f"{name} takes images whose sides are multiples of {model.step}; they are {size}"
        )
    return model, Schedule.of(row.schedule, name)
