"""The UNet of DDPM in plain PyTorch: levels of 128, 256 and 256 channels, attention at the last of them.

Source: Ho, Jain and Abbeel, "Denoising Diffusion Probabilistic Models", 2020.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

GROUPS, WIDTHS = 32, (128, 256, 256)


class Residual(nn.Module):
    """Two convolutions behind normalised groups, with the time in between."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.GroupNorm(GROUPS, before), nn.GroupNorm(GROUPS, after)
        self.first, self.second = (nn.Conv2d(size, after, 3, padding=1) for size in (before, after))
        self.time = nn.Linear(4 * WIDTHS[0], after)
        self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: Any, time: Any) -> Any:
        y = self.first(F.silu(self.norm_1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.second(F.silu(self.norm_2(y)))


class Pixels(nn.Module):
    """Attention of all pixels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, channels)
        self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(self.norm(x)).flatten(2).transpose(1, 2).chunk(3, -1)
        y = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
        return x + self.out(y.transpose(1, 2).reshape(x.shape))


class UNet(nn.Module):
    """Down, through attention of all pixels, and up again, from images to the loss.

    Arguments:
        depth: residual blocks of a level on the way down.
    """

    def __init__(self, depth: int) -> None:
        super().__init__()
        width = WIDTHS[0]
        self.time = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width))
        self.first, self.downs, self.ups = (
            nn.Conv2d(3, width, 3, padding=1),
            nn.ModuleList(),
            nn.ModuleList(),
        )
        kept = [width]
        for level, after in enumerate(WIDTHS):
            for _ in range(depth):
                self.downs.append(Residual(width, after))
                width = after
                kept.append(width)
            if level + 1 < len(WIDTHS):
                self.downs.append(nn.Conv2d(width, width, 3, 2, 1))
                kept.append(width)
        self.middle = nn.ModuleList((Residual(width, width), Pixels(width), Residual(width, width)))
        for level, after in reversed(list(enumerate(WIDTHS))):
            for _ in range(depth + 1):
                self.ups.append(Residual(width + kept.pop(), after))
                width = after
            if level:
                self.ups.append(nn.Conv2d(width, width, 3, padding=1))
        self.norm, self.last = nn.GroupNorm(GROUPS, width), nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Any, noise: Any) -> Any:
        half = WIDTHS[0] // 2
        angles = (
            torch.arange(x.shape[0])[:, None]
            * 100
            * torch.exp(torch.arange(half) * (-math.log(10000) / half))
        )
        time = self.time(torch.cat([angles.sin(), angles.cos()], -1).to(x))
        x = self.first(x)
        kept = [x]
        for each in self.downs:
            x = each(x, time) if isinstance(each, Residual) else each(x)
            kept.append(x)
        before, pixels, after = self.middle
        x = after(pixels(before(x, time)), time)
        for each in self.ups:
            if isinstance(each, Residual):
                x = each(torch.cat([x, kept.pop()], 1), time)
            else:
                x = each(F.interpolate(x, scale_factor=2, mode="nearest"))
        return F.mse_loss(self.last(F.silu(self.norm(x))), noise)
