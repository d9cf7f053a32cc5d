"""Training steps of models of transformers name every activation, forward and backward, and have kernels for it."""

import re
from collections import Counter
from typing import Any

import pytest
import torch
from tests.peers.beside_transformers.families import Loss, built, tokens

import pcp
from pcp.kernels import features, sites_of
from pcp.planning.paths.preparation import prepared

OLD = {"vocab_size": 43, "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 2}
BIDIRECTIONAL = {
    **OLD, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 1, "num_attention_heads": 2,
    "max_position_embeddings": 32,
}  # fmt: skip
TEXT = {**BIDIRECTIONAL, "num_key_value_heads": 1}
T5 = {
    **OLD,
    "d_model": 128,
    "d_kv": 64,
    "d_ff": 256,
    "num_layers": 1,
    "num_heads": 2,
    "decoder_start_token_id": 1,
}
WHISPER = {
    **OLD, "d_model": 128, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256, "num_mel_bins": 8,
    "max_source_positions": 8, "max_target_positions": 16, "decoder_start_token_id": 1,
}  # fmt: skip
PICTURE = {
    "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 16,
    "patch_size": 8, "num_labels": 3,
}  # fmt: skip

# The head that computes the loss, the settings, the function, how many there are, and how many of them gate.
FAMILIES: dict[str, tuple[str, dict[str, Any], str, int, int]] = {
    "bert": ("BertForMaskedLM", BIDIRECTIONAL, "exact_gelu", 2, 0),  # the head has one, too
    "vit": ("ViTForImageClassification", PICTURE, "exact_gelu", 1, 0),
    "gpt2": ("GPT2LMHeadModel", {**OLD, "n_embd": 128, "n_layer": 1, "n_head": 2}, "tanh_gelu", 1, 0),
    "gated t5": ("T5ForConditionalGeneration", {**T5, "feed_forward_proj": "gated-gelu"}, "tanh_gelu", 2, 2),
    "clip": ("CLIPTextModel", BIDIRECTIONAL, "quick_gelu", 1, 0),
    "whisper": (
        "WhisperForConditionalGeneration",
        WHISPER,
        "exact_gelu",
        4,
        0,
    ),  # two of them after convolutions
    "llama": ("LlamaForCausalLM", TEXT, "silu", 1, 1),
    "nemotron": ("NemotronForCausalLM", TEXT, "squared_relu", 1, 0),
}


def step_of(head: str, settings: dict[str, Any]) -> pcp.Program:
    inputs = {"input_ids": tokens(2, 8), "labels": tokens(2, 8)}
    if head.startswith("ViT"):
        inputs = {"pixel_values": torch.randn(2, 3, 16, 16), "labels": torch.tensor([0, 1])}
    if head.startswith("Whisper"):
        inputs = {"input_features": torch.randn(2, 8, 16), "labels": tokens(2, 8)}
    if head.startswith("CLIP"):
        del inputs["labels"]
    imported = pcp.from_torch(Loss(built(head, settings), list(inputs)), *inputs.values())
    return prepared(pcp.training_step(imported.program, pcp.optimizers.adamw(1e-3)))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_activation_has_its_sites(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    head, settings, function, count, gates = FAMILIES[family]
    step = step_of(head, settings)
    main = step.text.partition("func.func private")[0]
    found = Counter(re.findall(r'composite "pcp\.activation(\S*)" .*function = "(\w+)"', main))
    assert found == {("", function): count, (".vjp", function): count}
    monkeypatch.setattr(features, "_found", lambda platform: frozenset({platform, "sm_80", "sm_90"}))
    for platform in ("cpu", "cuda"):
        of = Counter(site.family for site in sites_of(step, platform, builds=False))
        assert of["gelu"] == of["gelu_gradient"] == count, platform
        assert of["gated_silu_gradient"] == gates <= of["gated_silu"], platform
