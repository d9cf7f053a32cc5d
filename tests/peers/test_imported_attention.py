"""Attention of models that people bring is a site with kernels for processors and GPUs, forward and back, with its mask."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.execution import exactly
from tests.peers import imported_attention as models
from tests.replay.machine import machine
from torch import nn

import pcp
from pcp import kernels
from pcp.ir.tree import flatten
from pcp.rewrite.canonical import canonical

CAUSAL, FULL = r"causal = true.*offset = 0", r"causal = false(?!.*(mask|bias) = )"
PADDED = r"mask = array<i64: 0, -3, -3, [34]>.*safe = true"
GROUPS = r"key = array<i64: 0, 1, 4, -1>|key = array<i64: 0, 1, -1, 4>"


@dataclass(frozen=True)
class Expected:
    """What must be found.

    Arguments:
        made: the model.
        says: what attributes of every attention match.
        cuda: a kernel for GPUs that each has.
        count: how many there are.
        back: how many of them have a kernel for their gradient.
    """

    made: Callable[[], models.Made]
    says: tuple[str, ...]
    cuda: str = "cudnn"
    count: int = 2
    back: int | None = None


MODELS: dict[str, Expected] = {
    "BERT": Expected(models.bert, (FULL,)),
    "BERT, padded": Expected(lambda: models.bert("right"), (r"mask = array<i64: 0, -3, (-3|2), 3>.*safe = true",)),
    "BERT, eager": Expected(lambda: models.bert(attn_implementation="eager"), (FULL,)),
    "ViT": Expected(models.vit, (FULL,), "triton"),
    "Llama": Expected(models.llama, (CAUSAL, GROUPS)),
    "Llama, eager": Expected(lambda: models.llama(attn_implementation="eager"), (CAUSAL, GROUPS)),
    "Llama, padded": Expected(lambda: models.llama(padding="left"), (CAUSAL, PADDED, GROUPS)),
    "Qwen2": Expected(lambda: models.llama("Qwen2"), (CAUSAL, GROUPS)),
    "Mistral": Expected(lambda: models.llama("Mistral", sliding_window=6), (CAUSAL, "window = 6", GROUPS)),
    "GPT-2": Expected(models.gpt2, (CAUSAL,)),
    "GPT-2, padded": Expected(lambda: models.gpt2("right"), (CAUSAL, PADDED)),
    "GPT-2, eager": Expected(lambda: models.gpt2(attn_implementation="eager"), (CAUSAL,)),
    "T5": Expected(models.t5, ("",), "cudnn", 6),
    "Whisper": Expected(models.whisper, ("",), "triton", 6),
    "causal": Expected(lambda: models.by_hand(models.causal), (CAUSAL,), count=1),
    "a buffer of nanoGPT": Expected(lambda: models.by_hand(models.masked_fill), (r"mask = array<i64: -3, -3, 2, 3>",), count=1),
    "a triangle": Expected(lambda: models.by_hand(models.own_triangle), (CAUSAL,), count=1),
    "einsum": Expected(lambda: models.by_hand(models.einsum), (CAUSAL,), count=1),
    "joined": Expected(lambda: models.by_hand(models.joined), (CAUSAL,), count=1),
    "channels first": Expected(lambda: models.by_hand(models.channels_first), (FULL,), count=1),
    "grouped": Expected(lambda: models.by_hand(models.grouped), (CAUSAL, GROUPS), count=1),
    "an encoder": Expected(lambda: models.encoder(""), (FULL,), count=1),
    "a causal encoder": Expected(lambda: models.encoder("causal"), (CAUSAL,), count=1),
    "a padded encoder": Expected(lambda: models.encoder("padding"), ("mask = array<i64: 0, 3>.*safe",), count=1),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_attention_of_an_imported_model_is_a_site(name: str) -> None:
    expected = MODELS[name]
    model, inputs = expected.made()
    program = canonical(pcp.from_torch(model.eval(), *inputs).program)
    said = re.findall(r'composite "pcp.attention" .*?composite_attributes = (\{[^}]*\})', program.text)
    assert len(said) == expected.count
    for pattern in expected.says:
        assert all(re.search(pattern, each) for each in said), said
    gradient = pcp.value_and_grad(program)
    back = expected.count if expected.back is None else expected.back
    with machine():
        for device, kernel in (("cpu", "native"), ("cuda", expected.cuda)):
            found = Counter(
                site.family
                for site in kernels.sites_of(gradient, device)
                if not site.inside and any(f".{kernel}" in each for each in site.kernels)
            )
            assert found["attention"] == expected.count, device
            assert found["attention_gradient"] == back, device


class Masked(nn.Module):
    """Attention whose mask hides all keys from some queries."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        triangle = torch.ones(6, 6, dtype=torch.bool)
        if self.kind == "causal":
            mask = mask & torch.tril(triangle)
        if self.kind == "before":
            mask = torch.tril(triangle, -1)
        return (F.scaled_dot_product_attention(q, k, v, attn_mask=mask) ** 2).sum()


def hiding(kind: str) -> torch.Tensor:
    mask = torch.rand(2, 1, 6, 6) > 0.4
    mask[0, :, 2], mask[1, :, 0] = False, False
    if kind == "padding":
        return (torch.rand(2, 1, 1, 6) > 0.5) & torch.tensor([True, False]).view(2, 1, 1, 1)
    return torch.where(mask, torch.randn(2, 1, 6, 6), -torch.inf) if kind == "numbers" else mask


@pytest.mark.parametrize("kind", ["booleans", "causal", "numbers", "padding", "before"])
def test_a_query_that_sees_no_key_gives_what_pytorch_gives(kind: str) -> None:
    mask, model = hiding(kind), Masked(kind)
    operands = [torch.randn(2, 4, 6, 8) for _ in range(3)]
    wide = [x.double().requires_grad_() for x in operands]
    loss = model(*wide, mask if mask.dtype == torch.bool else mask.double())
    loss.backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in wide)
    program = canonical(pcp.from_torch(model, *operands, mask).program)
    assert "safe = true" in program.text
    plain = pcp.value_and_grad(program, wrt=(1, 2, 3))
    sites = [
        site for site in kernels.sites_of(plain, "cpu", builds=False) if site.family.startswith("attention")
    ]
    assert len(sites) == 2
    kernel = {site.key: kernels.kernel_named(f"{site.family}.whole") for site in sites}
    for each in (plain, kernels.apply_kernels(plain, kernel)):
        found = flatten(exactly(each, {}, *[x.numpy() for x in operands], mask.numpy()))[0]
        for ours, theirs in zip(found, [loss, *(x.grad for x in wide)], strict=True):
            np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-5, atol=1e-6)
