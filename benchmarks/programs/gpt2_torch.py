"""GPT-2's training step in PyTorch, eager or compiled, as nanoGPT writes it; parameters are nested as in `pcp.models.gpt2`."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from pcp.ir.tree import flatten, map_tree
from pcp.models.config import DecoderConfig

Tree = Any


def _norm(x: torch.Tensor, p: Tree) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], p["scale"], p.get("bias"), 1e-5)


def _linear(x: torch.Tensor, p: Tree) -> torch.Tensor:
    y = x @ p["weight"]
    return y + p["bias"] if "bias" in p else y


def logits(params: Tree, tokens: torch.Tensor, config: DecoderConfig) -> torch.Tensor:
    """The logits of the next token at every place."""
    batch, length = tokens.shape
    x = params["wte"][tokens] + params["wpe"][:length]
    for block in params["blocks"]:
        qkv = _linear(_norm(x, block["ln_1"]), block["attn"]["qkv"])
        q, k, v = (
            t.view(batch, length, config.heads, -1).transpose(1, 2) for t in qkv.split(config.width, dim=2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + _linear(mixed.transpose(1, 2).reshape(batch, length, config.width), block["attn"]["out"])
        hidden = F.gelu(_linear(_norm(x, block["ln_2"]), block["mlp"]["up"]), approximate="tanh")
        x = x + _linear(hidden, block["mlp"]["down"])
    return _norm(x, params["ln_f"]) @ params["wte"].T


def loss(params: Tree, tokens: torch.Tensor, targets: torch.Tensor, config: DecoderConfig) -> torch.Tensor:
    """The mean cross entropy of the next token."""
    found = logits(params, tokens, config)
    return F.cross_entropy(found.view(-1, config.vocabulary), targets.reshape(-1).long())


class Trainer:
    """A training step: clipping at 1, fused AdamW with decay on matrices.

    Arguments:
        params: arrays.
        config: what the loss takes.
        autocast: compute products in bf16.
        loss: of parameters, tokens, targets and config.
        compiled: compile forward and backward pass by `torch.compile` (inductor); the optimizer is fused in both cases.
        device: `cpu` or `cuda`.
    """

    def __init__(
        self,
        params: Tree,
        config: Any,
        rate: float,
        autocast: bool = False,
        device: str = "cpu",
        compiled: bool = False,
        loss: Callable[..., torch.Tensor] = loss,
    ) -> None:
        self.loss = torch.compile(loss) if compiled else loss
        self.params = map_tree(lambda a: torch.tensor(a, requires_grad=True, device=device), params)
        self.config = config
        self.autocast = autocast
        self.device = device
        leaves = flatten(self.params)[0]
        groups = [
            {"params": [p for p in leaves if p.ndim >= 2], "weight_decay": 0.1},
            {"params": [p for p in leaves if p.ndim < 2], "weight_decay": 0.0},
        ]
        self.leaves = leaves
        self._rebuilt = flatten(self.params)[1].unflatten
        self.optimizer = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.99), eps=1e-8, fused=True)

    def step(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """One step; returns the loss."""
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.autocast):
            value = self.loss(self.params, tokens, targets, self.config)
        value.backward()
        torch.nn.utils.clip_grad_norm_(self.leaves, 1.0)
        self.optimizer.step()
        return value.detach()

    def state(self) -> dict[str, Tree]:
        """Parameters and both moments, on the host, nested as parameters are."""
        moments = [self.optimizer.state[leaf] for leaf in self.leaves]
        found = {
            "params": self.leaves,
            "first": [each["exp_avg"] for each in moments],
            "second": [each["exp_avg_sq"] for each in moments],
        }
        return {name: self._rebuilt([x.detach().cpu().numpy() for x in each]) for name, each in found.items()}

    def load(self, state: Tree) -> None:
        """Go on from a state of `pcp.training_step` with AdamW; one step must have been taken before."""
        optimizer = state["optimizer"]
        trees = (state["params"], optimizer["first"], optimizer["second"])
        with torch.no_grad():
            for leaf, *values in zip(self.leaves, *(flatten(tree)[0] for tree in trees), strict=True):
                own = self.optimizer.state[leaf]
                for held, value in zip((leaf, own["exp_avg"], own["exp_avg_sq"]), values, strict=True):
                    held.copy_(torch.from_numpy(value))
                own["step"].fill_(float(optimizer["count"]))
