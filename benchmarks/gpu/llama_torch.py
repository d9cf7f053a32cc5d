"""Llama's loss in PyTorch, attention by SDPA with shared keys; parameters are nested as in `pcp.models.llama`."""

from typing import Any

import torch
import torch.nn.functional as F

from pcp.models.config import DecoderConfig

Tree = Any


def _norm(x: torch.Tensor, p: Tree, epsilon: float) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], p["scale"], epsilon)


def _turned(x: torch.Tensor, base: float) -> torch.Tensor:
    half = x.shape[-1] // 2
    speeds = base ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angles = torch.outer(torch.arange(x.shape[-2], device=x.device, dtype=torch.float32), speeds)
    first, second = x.float().chunk(2, -1)
    cosine, sine = angles.cos(), angles.sin()
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1).to(x.dtype)


def _block(x: torch.Tensor, p: Tree, config: DecoderConfig) -> torch.Tensor:
    batch, length, width = x.shape
    y, base = _norm(x, p["norm_1"], config.epsilon), config.rotary.base
    q, k, v = (
        (y @ p["attn"][kind]["weight"]).view(batch, length, -1, config.head_width).transpose(1, 2)
        for kind in ("query", "key", "value")
    )
    mixed = F.scaled_dot_product_attention(
        _turned(q, base),
        _turned(k, base),
        v,
        is_causal=True,
        enable_gqa=config.heads != config.key_value_heads,
    )
    x = x + mixed.transpose(1, 2).reshape(batch, length, width) @ p["attn"]["out"]["weight"]
    y, mlp = _norm(x, p["norm_2"], config.epsilon), p["mlp"]
    hidden = F.silu(y @ mlp["gate"]["weight"]) * (y @ mlp["up"]["weight"])
    return x + hidden @ mlp["down"]["weight"]


def loss(params: Tree, tokens: torch.Tensor, targets: torch.Tensor, config: DecoderConfig) -> torch.Tensor:
    """The mean cross entropy of the next token."""
    x = params["embedding"][tokens]
    for block in params["blocks"]:
        x = _block(x, block, config)
    head = params["embedding" if config.tied else "head"]
    logits = _norm(x, params["norm"], config.epsilon) @ head.T
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten().long())
