"""A transformer of patches of images: diffusers' DiTTransformer2DModel.

Source: Peebles and Xie, "Scalable Diffusion Models with Transformers", 2022, section 3.2.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from pcp import nn
from pcp.models.diffusion.parts import Parts, Settings, attended, of_times
from pcp.ops.movement import reshape, transpose
from pcp.tensor import Tensor

DEFAULTS: Settings = {
    "num_attention_heads": 16, "attention_head_dim": 72, "in_channels": 4, "out_channels": None, "num_layers": 28,
    "attention_bias": True, "sample_size": 32, "patch_size": 2, "activation_fn": "gelu-approximate",
    "num_embeds_ada_norm": 1000, "norm_type": "ada_norm_zero", "norm_elementwise_affine": False, "norm_eps": 1e-5,
}  # fmt: skip
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu-approximate": nn.gelu,
    "gelu": lambda x: nn.gelu(x, approximate=False),
}
SUPPORTED: dict[str, tuple[object, ...]] = {
    "activation_fn": tuple(_ACTIVATIONS),
    "norm_type": ("ada_norm_zero",),
    "norm_elementwise_affine": (False,),
}
_ANGLES = 256
_EPSILON = 1e-6


def predict(parts: Parts, x: Tensor, times: Tensor, labels: Tensor | None, s: Settings) -> Tensor:
    """What the network says of noisy images.

    Arguments:
        x: (batch, size, size, channels).
        times: (batch,).
        labels: whole numbers (batch,), at most `num_embeds_ada_norm`, which stands for none.
        s: settings as of `DEFAULTS`.
    """
    assert labels is not None
    patch, width = s["patch_size"], s["num_attention_heads"] * s["attention_head_dim"]
    batch, side = x.shape[0], x.shape[1] // patch
    outputs = s["out_channels"] or s["in_channels"]
    x = parts["pos_embed"]["proj"].conv(x, width, patch, patch, "VALID")
    x = reshape(x, (batch, side * side, width)) + places(width, side)[None]
    for layer in range(s["num_layers"]):
        x = _block(parts["transformer_blocks"][layer], x, times, labels, s)
    told = nn.silu(_told(parts["transformer_blocks"][0]["norm1"]["emb"], times, labels, width, s))
    shift, scale = _cut(parts["proj_out_1"].linear(told, 2 * width, deviation=0.0), 2)
    x = nn.layer_norm(x, epsilon=_EPSILON) * (1 + scale) + shift
    x = parts["proj_out_2"].linear(x, patch * patch * outputs, deviation=0.0)
    x = reshape(x, (batch, side, side, patch, patch, outputs))
    return reshape(transpose(x, (0, 1, 3, 2, 4, 5)), (batch, side * patch, side * patch, outputs))


def _block(parts: Parts, x: Tensor, times: Tensor, labels: Tensor, s: Settings) -> Tensor:
    width = x.shape[2]
    told = nn.silu(_told(parts["norm1"]["emb"], times, labels, width, s))
    cut = _cut(parts["norm1"]["linear"].linear(told, 6 * width, deviation=0.0), 6)
    shift, scale, gate, shift_2, scale_2, gate_2 = cut
    y = nn.layer_norm(x, epsilon=_EPSILON) * (1 + scale) + shift
    heads, each = s["num_attention_heads"], s["attention_head_dim"]
    x = x + gate * attended(parts["attn1"], y, heads, each, s["attention_bias"])
    y = nn.layer_norm(x, epsilon=s["norm_eps"]) * (1 + scale_2) + shift_2
    y = _ACTIVATIONS[s["activation_fn"]](parts["ff"]["net"][0]["proj"].linear(y, 4 * width))
    return x + gate_2 * parts["ff"]["net"][2].linear(y, width)


def _told(parts: Parts, times: Tensor, labels: Tensor, width: int, s: Settings) -> Tensor:
    """Time and class, (batch, width)."""
    time = parts["timestep_embedder"].two_layers(of_times(times, _ANGLES, True, 1), width)
    return time + parts["class_embedder"]["embedding_table"].table(
        labels, s["num_embeds_ada_norm"] + 1, width
    )


def _cut(x: Tensor, count: int) -> list[Tensor]:
    """Parts of the last axis, each for all rows."""
    width = x.shape[1] // count
    return [reshape(x[:, k * width : (k + 1) * width], (x.shape[0], 1, width)) for k in range(count)]


def places(width: int, side: int) -> np.ndarray[Any, Any]:
    """Sines and cosines of the column, then of the row, of each patch, f32[side * side, width].

    Source: Peebles and Xie, 2022, whose code takes it from He et al., "Masked Autoencoders", 2021.
    """
    speeds = 1 / 10000 ** (np.arange(width // 4, dtype=np.float64) / (width / 4))
    row, column = np.meshgrid(np.arange(side), np.arange(side), indexing="ij")
    angles = [np.outer(axis.ravel(), speeds) for axis in (column, row)]
    parts = [function(each) for each in angles for function in (np.sin, np.cos)]
    return np.concatenate(parts, 1).astype(np.float32)
