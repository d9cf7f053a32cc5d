"""GPT-2's and Llama's step of one token a text in PyTorch, with a cache of one size; parameters as in `pcp.models`."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from pcp.ir.tree import map_tree
from pcp.models.config import DecoderConfig

Tree = Any


class Decoder:
    """A decoder that is called with tokens (rows, 1) and their place (1,), and returns scores (rows, vocabulary).

    Arguments:
        parameters: arrays of GPT-2's or Llama's families, kept in `dtype` on `device`.
        rows: texts.
    """

    def __init__(
        self, parameters: Tree, config: DecoderConfig, rows: int, device: str, dtype: torch.dtype
    ) -> None:
        def held(each: Any) -> torch.Tensor:
            return torch.from_numpy(np.asarray(each, np.float32)).to(device, dtype)

        self.config, self.parameters = config, map_tree(held, parameters)
        shape = (config.layers, 2, rows, config.key_value_heads, config.context, config.head_width)
        self.cache = torch.zeros(shape, device=device, dtype=dtype)
        self.seen = torch.ones(config.context, config.context, dtype=torch.bool, device=device).tril()
        half = config.head_width // 2
        base = 1e4 if config.rotary is None else config.rotary.base
        speeds = base ** (-torch.arange(half, device=device, dtype=torch.float32) / half)
        angles = torch.outer(torch.arange(config.context, device=device, dtype=torch.float32), speeds)
        self.turns = angles.cos(), angles.sin()
        for block in self.parameters["blocks"]:
            attention = block["attn"]
            if "qkv" not in attention:  # one product for three
                kinds = ("query", "key", "value")
                attention["qkv"] = {"weight": torch.cat([attention[kind]["weight"] for kind in kinds], 1)}
            if "gate" in block["mlp"]:
                joined = torch.cat([block["mlp"][kind]["weight"] for kind in ("gate", "up")], 1)
                block["mlp"]["both"] = {"weight": joined}
            for product in (*attention.values(), *block["mlp"].values()):  # as torch.nn.Linear keeps it
                product["weight"] = product["weight"].T.contiguous()

    def __call__(self, tokens: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        p = self.parameters
        x = p["wte" if "wte" in p else "embedding"][tokens]
        if "wpe" in p:
            x = x + p["wpe"][place]
        for block, cache in zip(p["blocks"], self.cache, strict=True):
            x = self._block(x, block, cache, place)
        head = p["head"] if "head" in p else p["wte" if "wte" in p else "embedding"]
        return F.linear(self._norm(x, p["ln_f" if "ln_f" in p else "norm"]), head)[:, -1]

    def _norm(self, x: torch.Tensor, p: Tree) -> torch.Tensor:
        if "bias" in p:
            return F.layer_norm(x, x.shape[-1:], p["scale"], p["bias"], self.config.epsilon)
        return F.rms_norm(x, x.shape[-1:], p["scale"], self.config.epsilon)

    def _turned(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        cosine, sine = (each[place] for each in self.turns)
        first, second = x.float().chunk(2, -1)
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1).to(x.dtype)

    def _block(self, x: torch.Tensor, p: Tree, cache: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        config, rows = self.config, x.shape[0]
        first, second = ("ln_1", "ln_2") if "ln_1" in p else ("norm_1", "norm_2")
        sizes = [config.heads, config.key_value_heads, config.key_value_heads]
        joined = _product(self._norm(x, p[first]), p["attn"]["qkv"])
        parts = joined.split([size * config.head_width for size in sizes], -1)
        q, k, v = (each.view(rows, 1, -1, config.head_width).transpose(1, 2) for each in parts)
        if config.rotary is not None:
            q, k = self._turned(q, place), self._turned(k, place)
        cache[0, :, :, place], cache[1, :, :, place] = k, v
        mixed = F.scaled_dot_product_attention(
            q,
            cache[0],
            cache[1],
            attn_mask=self.seen[None, None, place],
            enable_gqa=config.heads != config.key_value_heads,
        )
        x = x + _product(mixed.transpose(1, 2).reshape(rows, 1, -1), p["attn"]["out"])
        y, mlp = self._norm(x, p[second]), p["mlp"]
        if "both" in mlp:
            gate, up = _product(y, mlp["both"]).chunk(2, -1)
            return x + _product(F.silu(gate) * up, mlp["down"])
        return x + _product(F.gelu(_product(y, mlp["up"]), approximate="tanh"), mlp["down"])


def _product(x: torch.Tensor, p: Tree) -> torch.Tensor:
    return F.linear(x, p["weight"], p.get("bias"))
