"""Kernels for NVIDIA GPUs on a processor: Pallas interpreted, and cuDNN by a stand-in that spoils what it may."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from jax.experimental import pallas

from pcp import ops
from pcp.ir import Program, TensorSpec
from pcp.kernels import features, jax_lowering
from pcp.kernels.attention import cudnn
from tests.conftest import PLATFORM

HERE = PLATFORM == "cuda" and not features.lacking(("sm_80",), "cuda")
"""Whether there is a GPU, so that nothing needs to be emulated."""


_call = pallas.pallas_call


def _interpreted_call(*arguments: Any, **named: Any) -> Callable[..., Any]:
    return _call(*arguments, **{**named, "interpret": True, "compiler_params": None})


def interpreted(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A function of JAX arrays whose kernels in Pallas run without a GPU, slowly."""

    def run(*operands: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pallas, "pallas_call", _interpreted_call)
            return kernel(*operands)

    return run


@dataclass(frozen=True)
class _OnProcessor:
    """A function that JAX does not take for the same one that it has traced for a GPU."""

    function: Callable[..., Any]

    def __call__(self, *operands: Any) -> Any:
        return self.function(*operands)


def emulate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have programs with kernels for a GPU of compute capability 8.0 run on a processor."""
    real_lowered = jax_lowering.lowered_program

    def lowered(function: Callable[..., Any], specs: tuple[TensorSpec, ...], _: str) -> Program:
        return real_lowered(_OnProcessor(function), specs, "cpu")

    monkeypatch.setattr(features, "_found", lambda platform: frozenset({platform, "sm_80"}))
    monkeypatch.setattr(pallas, "pallas_call", _interpreted_call)
    monkeypatch.setattr(jax_lowering, "lowered_program", lowered)
    monkeypatch.setattr(cudnn, "called", cudnn_call)


def cudnn_call(target: str, operands: Sequence[Any], results: Sequence[Any], config: str) -> list[Any]:
    """What cuDNN computes; NaN in all that it need not write."""
    said = json.loads(config)["cudnn_fmha_backend_config"]
    q, k, v, *rest = (x.astype("f32") if x.dtype.is_float else x for x in operands)
    normaliser, g = (rest.pop(0), rest.pop(0)) if "Backward" in target else (None, None)
    bias = rest.pop(0) if "Bias" in target else 0.0
    if g is not None:
        rest.pop(0)
    (b, queries, heads, width), keys = q.shape, k.shape[1]
    k, v = (ops.repeat(x, heads // x.shape[2], 2) for x in (k, v))
    rows, columns = ops.iota((1, 1, queries, keys), 2), ops.iota((1, 1, queries, keys), 3)
    seen = ops.full((1, 1, queries, keys), True)
    counts = [ops.full((b, size, 1, 1), True) for size in (queries, keys)]
    if "PADDING" in said["mask_type"]:
        ends = [ops.reshape(each, (b, 1, 1, 1)) for each in rest]
        counts = [ops.iota(each.shape, 1) < end for each, end in zip(counts, ends, strict=True)]
        seen = (columns < ends[1]) & (rows < ends[0])
    if "CAUSAL" in said["mask_type"]:
        seen = seen & (columns <= rows)
        if said["sliding_window_length"]:
            seen = seen & (columns > rows - said["sliding_window_length"])
    scores = ops.where(seen, ops.einsum("bqhd,bkhd->bhqk", q, k) * said["fmha_scale"] + bias, -1e30)
    largest = scores.max(-1, keepdims=True)
    total = ops.exp(scores - largest).sum(-1, keepdims=True)
    if g is None:
        made = [ops.einsum("bhqk,bkhd->bqhd", ops.exp(scores - largest) / total, v)]
        numbers = [(largest + ops.log(total)).reshape((b, heads, queries))]
    else:
        weights = ops.where(seen, ops.exp(scores - normaliser.reshape((b, heads, queries, 1))), 0.0)
        change = ops.einsum("bqhd,bkhd->bhqk", g, v)
        of_scores = weights * (change - (weights * change).sum(-1, keepdims=True))
        change = of_scores * said["fmha_scale"]
        of_each = (ops.einsum("bhqk,bqhd->bkhd", x, y) for x, y in ((change, q), (weights, g)))
        sets = results[1].shape[1]
        shared = [x.reshape((b, keys, sets, heads // sets, width)).sum(3) for x in of_each]
        made = [ops.einsum("bhqk,bkhd->bqhd", change, k), *shared]
        of_bias = ops.where(
            seen[:1], of_scores.sum(0, keepdims=True), np.nan
        )  # of blocks that it does not visit
        numbers = [of_bias.astype("bf16") for _ in results[3:]]
    spoilt = [ops.where(counts[place > 0], x, np.nan) for place, x in enumerate(made)]
    return [*(ops.transpose(x.astype("bf16"), (0, 2, 1, 3)) for x in spoilt), *numbers]
