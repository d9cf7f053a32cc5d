"""A network of convolutions that goes down to small images and up again: diffusers' UNet2DModel.

Source: Ronneberger et al., "U-Net", 2015; Ho et al., "Denoising Diffusion Probabilistic Models", 2020, appendix B.
"""

from pcp.models.diffusion.parts import (
    ACTIVATIONS,
    Parts,
    Residual,
    Settings,
    doubled,
    halved,
    larger,
    of_times,
    smaller,
)
from pcp.ops.movement import concatenate
from pcp.tensor import Tensor

DEFAULTS: Settings = {
    "sample_size": None, "in_channels": 3, "out_channels": 3, "center_input_sample": False,
    "time_embedding_type": "positional", "time_embedding_dim": None, "freq_shift": 0, "flip_sin_to_cos": True,
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D"),
    "mid_block_type": "UNetMidBlock2D",
    "up_block_types": ("AttnUpBlock2D", "AttnUpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
    "block_out_channels": (224, 448, 672, 896), "layers_per_block": 2, "mid_block_scale_factor": 1,
    "downsample_padding": 1, "downsample_type": "conv", "upsample_type": "conv", "act_fn": "silu",
    "attention_head_dim": 8, "norm_num_groups": 32, "attn_norm_num_groups": None, "norm_eps": 1e-5,
    "resnet_time_scale_shift": "default", "add_attention": True, "class_embed_type": None, "num_class_embeds": None,
}  # fmt: skip
"""The settings that change what it computes, and their values where a file leaves them out."""

_DOWN = ("DownBlock2D", "AttnDownBlock2D")
_UP = ("UpBlock2D", "AttnUpBlock2D")
SUPPORTED: dict[str, tuple[object, ...]] = {
    "time_embedding_type": ("positional",),
    "mid_block_type": ("UNetMidBlock2D", None),
    "downsample_type": ("conv", "resnet"),
    "upsample_type": ("conv", "resnet"),
    "act_fn": tuple(ACTIVATIONS),
    "resnet_time_scale_shift": ("default", "scale_shift"),
    "class_embed_type": (None,),
    "attn_norm_num_groups": (None,),
    "down_block_types": _DOWN,
    "up_block_types": _UP,
}
"""Settings -> the values, or the elements of lists, with which PCP computes the same."""


def predict(parts: Parts, x: Tensor, times: Tensor, labels: Tensor | None, s: Settings) -> Tensor:
    """What the network says of noisy images.

    Arguments:
        x: (batch, height, width, channels); the sides are multiples of 2^(blocks - 1).
        times: (batch,).
        labels: whole numbers (batch,) where there are classes; else None.
        s: settings as of `DEFAULTS`.
    """
    common = (s["norm_num_groups"], s["norm_eps"], s["act_fn"], s["attention_head_dim"])
    shifts = s["resnet_time_scale_shift"] == "scale_shift"
    shared = Residual(*common, shifts, s["mid_block_scale_factor"])
    time = _time(parts, times, labels, s)
    x = parts["conv_in"].conv(2 * x - 1.0 if s["center_input_sample"] else x, s["block_out_channels"][0])
    kept = [x]
    for number, outputs in enumerate(s["block_out_channels"]):
        x = _down(parts["down_blocks"][number], number, x, time, outputs, kept, shared, s)
    if s["mid_block_type"]:
        x = shared.middle(parts["mid_block"], x, time, s["add_attention"], not shifts)
    for number, outputs in enumerate(reversed(s["block_out_channels"])):
        x = _up(parts["up_blocks"][number], number, x, time, outputs, kept, shared, s)
    x = ACTIVATIONS["silu"](parts["conv_norm_out"].group_norm(x, s["norm_num_groups"], s["norm_eps"]))
    return parts["conv_out"].conv(x, s["out_channels"], deviation=0.0)


def _down(
    parts: Parts,
    number: int,
    x: Tensor,
    time: Tensor,
    outputs: int,
    kept: list[Tensor],
    shared: Residual,
    s: Settings,
) -> Tensor:
    """Blocks at one size, then the next smaller one; what each leaves is kept."""
    attends = s["down_block_types"][number] == _DOWN[1]
    for layer in range(s["layers_per_block"]):
        x = shared.block(parts["resnets"][layer], x, time, outputs)
        if attends:
            x = shared.attention(parts["attentions"][layer], x)
        kept.append(x)
    if number == len(s["block_out_channels"]) - 1:
        return x
    if attends and s["downsample_type"] == "resnet":
        x = shared.block(parts["downsamplers"][0], x, time, outputs, halved)
    else:
        x = smaller(parts, x, s["downsample_padding"])
    kept.append(x)
    return x


def _up(
    parts: Parts,
    number: int,
    x: Tensor,
    time: Tensor,
    outputs: int,
    kept: list[Tensor],
    shared: Residual,
    s: Settings,
) -> Tensor:
    """Blocks at one size, each beside what was kept on the way down, then the next larger one."""
    attends = s["up_block_types"][number] == _UP[1]
    for layer in range(s["layers_per_block"] + 1):
        x = shared.block(parts["resnets"][layer], concatenate([x, kept.pop()], 3), time, outputs)
        if attends:
            x = shared.attention(parts["attentions"][layer], x)
    if number == len(s["block_out_channels"]) - 1:
        return x
    if attends and s["upsample_type"] == "resnet":
        return shared.block(parts["upsamplers"][0], x, time, outputs, doubled)
    return larger(parts, x)


def _time(parts: Parts, times: Tensor, labels: Tensor | None, s: Settings) -> Tensor:
    first = s["block_out_channels"][0]
    width = s["time_embedding_dim"] or 4 * first
    angles = of_times(times, first, s["flip_sin_to_cos"], s["freq_shift"])
    time = parts["time_embedding"].two_layers(angles, width)
    return (
        time
        if labels is None
        else time + parts["class_embedding"].table(labels, s["num_class_embeds"], width)
    )
