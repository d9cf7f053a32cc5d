"""Small networks of images, of transformers and by hand as `diffusers` and DiT write them; each returns its loss."""

import math

import torch
import torch.nn.functional as F
from tests.peers.beside_transformers.families import Loss, built
from torch import nn

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]
GROUPS = 8


def swin() -> Made:
    model = built(
        "SwinForImageClassification",
        {
            "image_size": 32,
            "embed_dim": 16,
            "depths": [2, 2],
            "num_heads": [2, 4],
            "window_size": 4,
            "num_labels": 3,
        },
    )
    return Loss(model, ["pixel_values", "labels"]), (torch.randn(2, 3, 32, 32), torch.randint(0, 3, (2,)))


def convnext() -> Made:
    model = built(
        "ConvNextForImageClassification",
        {"hidden_sizes": [16, 32], "depths": [2, 2], "num_stages": 2, "num_labels": 3},
    )
    return Loss(model, ["pixel_values", "labels"]), (torch.randn(2, 3, 32, 32), torch.randint(0, 3, (2,)))


def segformer() -> Made:
    settings = {
        "num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [16, 32], "patch_sizes": [7, 3],
        "strides": [4, 2], "num_attention_heads": [2, 4], "mlp_ratios": [2, 2], "decoder_hidden_size": 16, "num_labels": 3,
    }  # fmt: skip
    model = built("SegformerForSemanticSegmentation", settings)
    labels = torch.randint(0, 3, (2, 32, 32))
    return Loss(model, ["pixel_values", "labels"]), (torch.randn(2, 3, 32, 32), labels)


class Residual(nn.Module):
    """Two convolutions behind normalised groups, with the time in between."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList((nn.GroupNorm(GROUPS, before), nn.GroupNorm(GROUPS, after)))
        self.first, self.second = (nn.Conv2d(size, after, 3, padding=1) for size in (before, after))
        self.time, self.skip = nn.Linear(32, after), nn.Conv2d(before, after, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        y = self.first(F.silu(self.norms[0](x))) + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.second(F.silu(self.norms[1](y)))


class Pixels(nn.Module):
    """Attention of all pixels, whose channels are first."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, channels)
        self.q, self.k, self.v, self.out = (nn.Conv2d(channels, channels, 1) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, shape = self.norm(x), x.shape
        q, k, v = (each(y).flatten(2) for each in (self.q, self.k, self.v))
        weights = (torch.bmm(q.permute(0, 2, 1), k) * shape[1] ** -0.5).softmax(2)
        return x + self.out(torch.bmm(v, weights.permute(0, 2, 1)).reshape(shape))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 32))
        self.first, self.last = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 3, 3, padding=1)
        self.down, self.up = Residual(32, 32), Residual(64, 32)
        self.halve, self.pixels, self.norm = nn.Conv2d(32, 32, 3, 2, 1), Pixels(32), nn.GroupNorm(GROUPS, 32)

    def forward(self, x: torch.Tensor, noise: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        angles = time.float()[:, None] * torch.exp(torch.arange(16) * (-math.log(10000) / 16))
        embedded = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        wide = self.down(self.first(x), embedded)
        low = F.interpolate(self.pixels(self.halve(wide)), scale_factor=2, mode="nearest")
        y = self.up(torch.cat([low, wide], 1), embedded)
        return F.mse_loss(self.last(F.silu(self.norm(y))), noise)


def ddpm() -> Made:
    return UNet(), (torch.randn(2, 3, 16, 16), torch.randn(2, 3, 16, 16), torch.randint(0, 1000, (2,)))


class Block(nn.Module):
    """As DiT writes it: a condition scales and shifts what is normalised, and gates what is added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))
        self.embedding = nn.Linear(width, width)
        self.condition = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x: torch.Tensor, condition: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x)
        shift, scale, gate, *others = self.condition(condition)[:, None].chunk(6, -1)
        y = self.norms[0](x) * (1 + scale) + shift
        x = x + gate * self.attention(y, y, y, need_weights=False)[0]
        y = self.norms[1](x) * (1 + others[1]) + others[0]
        return F.mse_loss(x + others[2] * self.wide(y), target)


def dit() -> Made:
    return Block(32), (torch.randn(2, 16, 32), torch.randn(2, 32), torch.randn(2, 16, 32))
