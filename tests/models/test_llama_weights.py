"""Llama weights by the names of `transformers`: there and back, constants and heads, and refusals."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from pcp.ir.tree import flatten, map_tree
from pcp.models import llama
from pcp.models.llama_weights import from_transformers, to_transformers, transformers_name
from pcp.models.transformers_weights import MisshapenWeights, UnexpectedWeights

CONFIG = llama.LlamaConfig(
    layers=2, heads=2, key_value_heads=1, width=4, hidden=6, context=8, vocabulary=7, tied=True
)


def random_parameters(config: llama.LlamaConfig) -> Any:
    rng = np.random.default_rng(1)
    return map_tree(lambda s: rng.normal(size=s.shape).astype(np.float32), llama.parameter_shapes(config))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("embedding", "model.embed_tokens.weight"),
        ("head", "lm_head.weight"),
        ("norm.scale", "model.norm.weight"),
        ("blocks.11.norm_1.scale", "model.layers.11.input_layernorm.weight"),
        ("blocks.0.norm_2.scale", "model.layers.0.post_attention_layernorm.weight"),
        ("blocks.0.attn.key.weight", "model.layers.0.self_attn.k_proj.weight"),
        ("blocks.1.mlp.gate.weight", "model.layers.1.mlp.gate_proj.weight"),
    ],
)
def test_names(ours: str, theirs: str) -> None:
    assert transformers_name(ours) == theirs


@pytest.mark.parametrize("tied", [True, False])
def test_there_and_back(tied: bool) -> None:
    config = dataclasses.replace(CONFIG, tied=tied)
    parameters = random_parameters(config)
    tensors = to_transformers(parameters)
    assert ("lm_head.weight" in tensors) is not tied
    assert tensors["model.layers.0.mlp.down_proj.weight"].shape == (4, 6)
    tensors |= {"model.layers.1.self_attn.rotary_emb.inv_freq": np.ones(1, np.float32)}
    if tied:
        tensors["lm_head.weight"] = parameters["embedding"].copy()
    found = from_transformers(tensors, config)
    assert flatten(found)[1] == flatten(parameters)[1]
    for a, b in zip(flatten(found)[0], flatten(parameters)[0], strict=True):
        np.testing.assert_array_equal(a, b)


def test_weights_of_another_model_are_refused() -> None:
    tensors = to_transformers(random_parameters(CONFIG))
    message = r"lm_head.weight differs from model.embed_tokens.weight; this Llama uses the token embedding"
    with pytest.raises(UnexpectedWeights, match=message):
        from_transformers(tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"] + 1}, CONFIG)
    tensors["model.layers.0.mlp.down_proj.weight"] = tensors["model.layers.0.mlp.down_proj.weight"].T
    message = r"down_proj.weight is float32\[6, 4\]; LlamaConfig.* needs floats of shape \[4, 6\]"
    with pytest.raises(MisshapenWeights, match=message):
        from_transformers(tensors, CONFIG)
