"""A decoder of transformers with symbolic sizes: its rotary positions are made anew for every size, by other names."""

from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import pcp


def test_a_small_llama_at_sizes_that_were_not_tried() -> None:
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=128,
    )
    model = LlamaForCausalLM(config).eval()
    imported: Any = pcp.from_torch(
        model,
        pcp.spec(("batch", "length"), "i64"),
        output=lambda output: output["logits"],
        constraints=["length <= 128"],
    )
    tokens = np.random.default_rng().integers(0, 50, (3, 11))
    buffers = [imported.buffers] if imported.buffers else []
    plan = pcp.plan(imported.program.at(batch=3, length=11), "arena:cpu")
    expected = model(torch.from_numpy(tokens)).logits.detach().numpy()
    got = np.asarray(plan.run(imported.weights, *buffers, tokens))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
