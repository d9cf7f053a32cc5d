"""Models loaded in bfloat16 have the sites of the same models in float32, and kernels that are as exact as their plain path."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.execution import run
from tests.peers import imported_attention as models
from tests.replay.machine import machine

import pcp
from pcp import kernels
from pcp.ir.tree import flatten
from pcp.kernels.covering import cover
from pcp.planning.paths.preparation import prepared
from pcp.rewrite.canonical import canonical

MODELS: dict[str, Callable[[], models.Made]] = {
    "BERT": models.bert,
    "GPT-2": models.gpt2,
    "Qwen2": lambda: models.llama("Qwen2"),
    "by hand": lambda: models.by_hand(models.own_triangle),
    "an encoder": lambda: models.encoder(""),
}


def of_numbers(made: models.Made, dtype: torch.dtype) -> models.Made:
    model, inputs = made
    return model.to(dtype), tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)


def families(step: pcp.Program, device: str) -> Counter[str]:
    with machine():
        sites = kernels.sites_of(prepared(step), device, builds=False)
    return Counter(site.family for site in sites if not site.inside)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_in_bfloat16_has_the_sites_of_one_in_float32(name: str) -> None:
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        model, inputs = of_numbers(MODELS[name](), dtype)
        step = pcp.training_step(pcp.from_torch(model, *inputs).program, pcp.optimizers.adamw(1e-3))
        found.append({device: families(step, device) for device in ("cpu", "cuda")})
    for device, wide in found[0].items():
        narrow = found[1][device]
        wide.pop("product", None)  # which XLA computes of bfloat16 as it is
        assert {family: narrow[family] for family in wide} == dict(wide), device


@pytest.mark.parametrize("name", ["an encoder"])
@pytest.mark.parametrize("kind", [".native", ":bf16"])
def test_kernels_of_bfloat16_are_as_exact_as_the_plain_path(name: str, kind: str) -> None:
    torch.manual_seed(0)
    model, inputs = of_numbers(MODELS[name](), torch.bfloat16)
    imported = pcp.from_torch(model, *inputs)
    gradient = prepared(pcp.value_and_grad(canonical(imported.program)))
    held = (imported.weights, imported.buffers)[: 2 if imported.buffers else 1]
    given = [_array(x) for x in inputs]
    names = flatten(imported.weights)[1].names()
    wide, batch = of_numbers((model, inputs), torch.float64)
    wide(*batch).backward()
    by_name: dict[str, Any] = dict(wide.named_parameters())
    chosen = {
        site.key: kernels.kernel_named(fitting[0])
        for site in cover(kernels.sites_of(gradient, "cpu"))
        if (fitting := [each for each in site.kernels if each.endswith(kind)])
    }
    assert {"attention", "attention_gradient"} <= {each.family for each in chosen.values()}
    plain, computed = (
        flatten(run(each, *held, *given)[1])[0]
        for each in (gradient, kernels.apply_kernels(gradient, chosen))
    )
    for key, ours, theirs in zip(names, plain, computed, strict=True):
        exact = by_name[key].grad.numpy()
        if np.linalg.norm(exact) > 1e-6:
            errors = [
                np.linalg.norm(x.astype(np.float64) - exact) / np.linalg.norm(exact) for x in (ours, theirs)
            ]
            assert errors[1] < max(1.5 * errors[0], 8e-3), key


def _array(x: torch.Tensor) -> Any:
    return x.float().numpy().astype("bfloat16") if x.dtype == torch.bfloat16 else x.numpy()
