"""LoRA beside the same by hand in PyTorch: twenty steps of GPT-2, whose matrices are (inputs, outputs), and of Llama."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.execution import run
from tests.peers.beside_transformers.families import CAUSAL, built

import pcp
from pcp.importers.lora import NotAdaptable
from pcp.training.data.safetensors_file import read_arrays

TARGETS = {"gpt2": ("c_attn", "mlp.c_proj"), "llama": ("q_proj", "v_proj", "down_proj")}
RANK, ALPHA, RATE = 3, 5.0, 1e-2


class ByHand(torch.nn.Module):
    """x W + (x A^T) B^T alpha / rank around a layer that stays."""

    def __init__(self, layer: torch.nn.Module, down: Any, up: Any) -> None:
        super().__init__()
        self.layer = layer
        self.down, self.up = (torch.nn.Parameter(torch.from_numpy(np.array(each))) for each in (down, up))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + F.linear(F.linear(x, self.down), self.up) * (ALPHA / RANK)


@pytest.mark.parametrize("family", TARGETS)
def test_twenty_steps_are_those_of_a_lora_by_hand(family: str) -> None:
    model = built(*CAUSAL[family])
    text = np.random.default_rng(1).integers(0, 43, (2, 9))
    imported = pcp.from_torch(model, input_ids=text, labels=text, output="loss")
    adapted = pcp.lora(imported, rank=RANK, alpha=ALPHA, targets=TARGETS[family], seed=4)
    held = (adapted.buffers,)
    before = run(
        imported.program, imported.weights, *([imported.buffers] * bool(imported.buffers)), text, text
    )
    assert run(adapted.program, adapted.weights, *held, text, text) == pytest.approx(before, rel=1e-6)

    model.requires_grad_(False)
    modules = {}
    for name in adapted.matrices:
        parent, _, child = name.rpartition(".")
        down, up = (adapted.weights[f"{name}.lora_{part}.weight"] for part in "AB")
        modules[name] = ByHand(model.get_submodule(name), down, up)
        setattr(model.get_submodule(parent), child, modules[name])
    trained = [p for p in model.parameters() if p.requires_grad]
    theirs = torch.optim.AdamW(trained, RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    step = pcp.training_step(adapted.program, pcp.optimizers.adamw(RATE, betas=(0.9, 0.95), weight_decay=0.1))
    plan, state = pcp.plan(step), step.initial_state(adapted.weights, adapted.buffers)
    assert set(state["optimizer"]["first"]) == set(adapted.weights)  # no moments of what stays
    tensor = torch.from_numpy(text)
    for _ in range(20):
        state, metrics = plan.run(state, (text, text))
        loss = model(input_ids=tensor, labels=tensor).loss
        theirs.zero_grad()
        loss.backward()
        theirs.step()
        assert float(metrics["loss"]) == pytest.approx(loss.item(), rel=2e-4)
    assert float(metrics["loss"]) < 0.95 * float(before)
    for name, module in modules.items():
        for part, wanted in (("A", module.down), ("B", module.up)):
            found = np.asarray(state["params"][f"{name}.lora_{part}.weight"])
            error = np.linalg.norm(found - wanted.detach().numpy())
            assert error <= 5e-3 * np.linalg.norm(wanted.detach().numpy()), name

    whole = adapted.merged(state["params"])
    plain = built(*CAUSAL[family])
    missing = plain.load_state_dict(
        {n: torch.from_numpy(np.array(a)) for n, a in whole.items()}, strict=False
    )
    assert not missing.unexpected_keys
    with torch.no_grad():
        expected, found = model(input_ids=tensor).logits, plain(input_ids=tensor).logits
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-3)


def test_products_are_of_the_factors_and_no_gradient_is_of_the_size_of_a_matrix() -> None:
    model = built(*CAUSAL["llama"])
    tokens = pcp.spec((2, 9), "i64")
    imported = pcp.from_torch(model, input_ids=tokens, labels=tokens, output="loss")
    adapted = pcp.lora(imported, rank=2, targets=["q_proj"])
    assert [*adapted.matrices] == [f"model.layers.{i}.self_attn.q_proj" for i in range(2)]
    gradient = pcp.value_and_grad(adapted.program).to_stablehlo()
    products = [line.rpartition("-> ")[2] for line in gradient.splitlines() if "dot_general" in line]
    assert "tensor<2x9x2xf32>" in products  # x A^T
    assert "tensor<16x16xf32>" not in products  # B A, and the gradient of W
    every = pcp.lora(imported, rank=2)
    assert {name.rpartition(".")[2] for name in every.matrices} == {
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    }  # fmt: skip


def test_files_of_an_adapter_are_those_of_peft(tmp_path: Path) -> None:
    imported = pcp.from_torch(built(*CAUSAL["gpt2"]), input_ids=pcp.spec((2, 9), "i64"), output="logits")
    adapted = pcp.lora(imported, rank=2, targets=["attn.c_attn"])
    folder = adapted.save(tmp_path / "adapter", base="my-gpt2")
    settings = json.loads((folder / "adapter_config.json").read_text())
    assert (settings["peft_type"], settings["r"], settings["lora_alpha"]) == ("LORA", 2, 4)
    assert settings["fan_in_fan_out"] is True  # matrices are (inputs, outputs)
    arrays = read_arrays(folder / "adapter_model.safetensors")[0]
    assert arrays["base_model.model.transformer.h.0.attn.c_attn.lora_A.weight"].shape == (2, 16)
    assert arrays["base_model.model.transformer.h.0.attn.c_attn.lora_B.weight"].shape == (48, 2)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_library_peft_reads_them(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    text = np.random.default_rng(1).integers(0, 43, (2, 9))
    for family in TARGETS:
        model = built(*CAUSAL[family])
        imported = pcp.from_torch(model, input_ids=text, output="logits")
        adapted = pcp.lora(imported, rank=RANK, alpha=ALPHA, targets=TARGETS[family])
        rng = np.random.default_rng(2)
        weights = {n: rng.normal(size=a.shape).astype(np.float32) for n, a in adapted.weights.items()}
        adapted.save(tmp_path / family, weights)
        loaded = peft.PeftModel.from_pretrained(model, tmp_path / family)
        with torch.no_grad():
            wanted = loaded(input_ids=torch.from_numpy(text)).logits.numpy()
        found = run(adapted.program, weights, adapted.buffers, text)
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


def test_what_cannot_be_adapted_is_told() -> None:
    imported = pcp.from_torch(built(*CAUSAL["gpt2"]), input_ids=pcp.spec((2, 9), "i64"), output="logits")
    with pytest.raises(NotAdaptable, match=r"rank is 0; expected an integer of at least 1"):
        pcp.lora(imported, rank=0)
    with pytest.raises(NotAdaptable, match=r"targets name q_proj, .* are c_attn, c_fc, c_proj, wte"):
        pcp.lora(imported, rank=2, targets=["c_attn", "q_proj"])
    with pytest.raises(NotAdaptable, match=r"a Program does not hold its weights"):
        pcp.lora(imported.program, rank=2)
