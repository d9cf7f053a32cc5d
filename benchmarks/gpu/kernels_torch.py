"""The same operations in PyTorch: SDPA by cuDNN or as flash attention, flex_attention, and the others by torch.compile."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from benchmarks.gpu.kernel_cases import CAP, Case
from benchmarks.gpu.kernels_pcp import KEPT
from benchmarks.own_process import Run

Step = Callable[[], Sequence[torch.Tensor]]


def _attention(operands: Sequence[torch.Tensor], how: str) -> Step:
    backends = {
        "cuDNN": SDPBackend.CUDNN_ATTENTION,
        "flash": SDPBackend.FLASH_ATTENTION,
        "any": SDPBackend.MATH,
    }
    *qkv, cotangent = operands

    def step() -> Sequence[torch.Tensor]:
        with sdpa_kernel([backends[how]]):
            y = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in qkv), is_causal=True)
            return torch.autograd.grad(y.transpose(1, 2), qkv, cotangent)

    return step


def _flex(operands: Sequence[torch.Tensor]) -> Step:
    """Causal attention with a cap, or of lengths, by flex_attention."""
    q, k, v, cotangent, *ends = operands
    batch, length = q.shape[:2]

    def capped(score: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return CAP * torch.tanh(score / CAP)

    def inside(b: torch.Tensor, _: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return (i < ends[0][b]) & (j < ends[0][b])

    def earlier(_b: torch.Tensor, _h: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return i >= j

    mask = create_block_mask(
        inside if ends else earlier, batch if ends else None, None, length, length, device=q.device
    )
    form = torch.compile(flex_attention)

    def step() -> Sequence[torch.Tensor]:
        turned = (x.transpose(1, 2) for x in (q, k, v))
        y = form(*turned, score_mod=None if ends else capped, block_mask=mask)
        return torch.autograd.grad(y.transpose(1, 2), (q, k, v), cotangent)

    return step


def _masked(operands: Sequence[torch.Tensor], how: str) -> Step:
    """Attention of lengths by a mask of the keys; causal attention with a cap as it is written."""
    q, k, v, cotangent, *ends = operands
    length = q.shape[1]
    places = torch.arange(length, device=q.device)
    seen = (places < ends[0][:, None])[:, None, None] if ends else places <= places[:, None]

    def capped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = CAP * torch.tanh((q @ k.transpose(-1, -2)).float() * (q.shape[-1] ** -0.5 / CAP))
        return torch.softmax(scores.masked_fill(~seen, -torch.inf), -1).to(v.dtype) @ v

    written = torch.compile(capped) if how == "torch.compile" else capped

    def step() -> Sequence[torch.Tensor]:
        q_, k_, v_ = (x.transpose(1, 2) for x in (q, k, v))
        y = F.scaled_dot_product_attention(q_, k_, v_, attn_mask=seen) if ends else written(q_, k_, v_)
        return torch.autograd.grad(y.transpose(1, 2), (q, k, v), cotangent)

    return step


def _norm(operands: Sequence[torch.Tensor], operation: str) -> Step:
    x, cotangent, *weights = operands

    def form(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        wide, shape = x.float(), x.shape[-1:]
        if operation == "rms_norm":
            return F.rms_norm(wide, shape, weights[0], 1e-5).bfloat16()
        return F.layer_norm(wide, shape, weights[0], weights[1], 1e-5).bfloat16()

    compiled = torch.compile(form)
    return lambda: torch.autograd.grad(compiled(x, *weights), [x, *weights], cotangent)


def _cross_entropy(operands: Sequence[torch.Tensor]) -> Step:
    logits, targets = operands[0], operands[1].long()
    compiled = torch.compile(lambda x: F.cross_entropy(x.float(), targets))

    def step() -> Sequence[torch.Tensor]:
        loss = compiled(logits)
        return [loss.detach(), *torch.autograd.grad(loss, logits)]

    return step


def _adamw(operands: Sequence[torch.Tensor], how: str) -> Step:
    params = operands[0].detach().clone().requires_grad_()
    params.grad = operands[1].detach()
    settings = {"lr": 1e-3, "betas": (0.9, 0.99), "weight_decay": 0.1, "fused": how == "fused"}
    optimizer = torch.optim.AdamW([params], **settings)
    step = torch.compile(optimizer.step) if how == "torch.compile" else optimizer.step
    start = params.detach().clone()

    def run() -> Sequence[torch.Tensor]:
        step()
        return [params.detach() - start]

    first = run()  # which differs from what later calls give

    def again() -> Sequence[torch.Tensor]:
        step()
        return first

    return again


def variants(case: Case, device: str) -> list[str]:
    """How PyTorch computes a case, the ways that are compared."""
    if case.operation == "attention":
        return ["cuDNN", "flash"] if device.startswith("cuda") else ["any"]
    if case.operation == "attention_padded":
        return ["flex_attention", "mask"] if device.startswith("cuda") else ["mask"]
    if case.operation == "attention_capped":
        return ["flex_attention", "torch.compile"] if device.startswith("cuda") else ["as written"]
    return ["fused", "torch.compile"] if case.operation == "adamw" else ["torch.compile"]


def made(case: Case, device: str, how: str) -> Step:
    """One call of a case, and its results."""
    kind = device.partition(":")[0]
    operands = []
    for given in case.operands():
        operand = torch.from_numpy(given).to(kind)
        if given.ndim > 1 and given.dtype == np.float32:
            operand = operand.bfloat16()
        operands.append(operand.requires_grad_() if operand.is_floating_point() else operand)
    if case.operation == "attention":
        return _attention(operands, how)
    if "attention" in case.operation:
        return _flex(operands) if how == "flex_attention" else _masked(operands, how)
    if case.operation == "cross_entropy":
        return _cross_entropy(operands)
    return _adamw(operands, how) if case.operation == "adamw" else _norm(operands, case.operation)


def contestant(device: str) -> tuple[str, Run]:
    """PyTorch in a process of its own: of a case and a way, some results; of a number of calls, nothing."""
    current: list[Step] = []

    def run(asked: Any) -> Any:
        if isinstance(asked, int):
            for _ in range(asked):
                last = current[0]()
            float(last[0].reshape(-1)[0])
            return None
        current.clear()
        torch.cuda.empty_cache()
        step = made(*asked[:1], device, asked[1])
        results = step()
        current.append(step)
        return {place: x.detach().reshape(-1)[:KEPT].float().cpu().numpy() for place, x in enumerate(results)}

    return "PyTorch", run
