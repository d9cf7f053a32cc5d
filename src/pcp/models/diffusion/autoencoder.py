"""Images as smaller arrays of more channels, and back: diffusers' AutoencoderKL.

Source: Kingma and Welling, "Auto-Encoding Variational Bayes", 2013; Rombach et al., "Latent Diffusion Models",
2021, appendix G.
"""

from pcp.models.diffusion.parts import ACTIVATIONS, Parts, Residual, Settings, larger, smaller
from pcp.tensor import Tensor

DEFAULTS: Settings = {
    "in_channels": 3, "out_channels": 3, "down_block_types": ("DownEncoderBlock2D",),
    "up_block_types": ("UpDecoderBlock2D",), "block_out_channels": (64,), "layers_per_block": 1, "act_fn": "silu",
    "latent_channels": 4, "norm_num_groups": 32, "scaling_factor": 0.18215, "shift_factor": None,
    "latents_mean": None, "latents_std": None, "use_quant_conv": True, "use_post_quant_conv": True,
    "mid_block_add_attention": True, "sample_size": 32,
}  # fmt: skip
SUPPORTED: dict[str, tuple[object, ...]] = {
    "down_block_types": ("DownEncoderBlock2D",),
    "up_block_types": ("UpDecoderBlock2D",),
    "act_fn": tuple(ACTIVATIONS),
    "latents_mean": (None,),
    "latents_std": (None,),
}
_EPSILON = 1e-6


def encode(parts: Parts, images: Tensor, s: Settings) -> tuple[Tensor, Tensor]:
    """The distribution of what stands for images.

    Arguments:
        images: (batch, height, width, channels), from -1 to 1; the sides are multiples of 2^(blocks - 1).
        s: settings as of `DEFAULTS`.

    Returns:
        Mean and logarithm of the variance, each (batch, height / 2^(blocks - 1), width / 2^(blocks - 1), latent channels).
    """
    inner, shared = parts["encoder"], _shared(s)
    x = inner["conv_in"].conv(images, s["block_out_channels"][0])
    for number, outputs in enumerate(s["block_out_channels"]):
        part = inner["down_blocks"][number]
        for layer in range(s["layers_per_block"]):
            x = shared.block(part["resnets"][layer], x, None, outputs)
        if number < len(s["block_out_channels"]) - 1:
            x = smaller(part, x, 0)
    x = shared.middle(inner["mid_block"], x, None, s["mid_block_add_attention"])
    x = ACTIVATIONS["silu"](inner["conv_norm_out"].group_norm(x, s["norm_num_groups"], _EPSILON))
    x = inner["conv_out"].conv(x, 2 * s["latent_channels"])
    if s["use_quant_conv"]:
        x = parts["quant_conv"].conv(x, 2 * s["latent_channels"], 1)
    return x[..., : s["latent_channels"]], x[..., s["latent_channels"] :].clip(-30.0, 20.0)


def decode(parts: Parts, latents: Tensor, s: Settings) -> Tensor:
    """Images (batch, height, width, channels), about from -1 to 1, from what stands for them; arguments as of `encode`."""
    inner, shared, channels = parts["decoder"], _shared(s), s["block_out_channels"]
    x = (
        parts["post_quant_conv"].conv(latents, s["latent_channels"], 1)
        if s["use_post_quant_conv"]
        else latents
    )
    x = inner["conv_in"].conv(x, channels[-1])
    x = shared.middle(inner["mid_block"], x, None, s["mid_block_add_attention"])
    for number, outputs in enumerate(reversed(channels)):
        part = inner["up_blocks"][number]
        for layer in range(s["layers_per_block"] + 1):
            x = shared.block(part["resnets"][layer], x, None, outputs)
        if number < len(channels) - 1:
            x = larger(part, x)
    x = ACTIVATIONS["silu"](inner["conv_norm_out"].group_norm(x, s["norm_num_groups"], _EPSILON))
    return inner["conv_out"].conv(x, s["out_channels"])


def _shared(s: Settings) -> Residual:
    return Residual(s["norm_num_groups"], _EPSILON, s["act_fn"], None)
