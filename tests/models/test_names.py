"""Weights by the names of `transformers`: there and back in every family, from a file, and refusals."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from pcp.importers.weights import map_weights
from pcp.ir.tree import flatten, map_tree
from pcp.models import decoder
from pcp.models.config import DecoderConfig
from pcp.models.families import FAMILIES, config_of
from pcp.models.names import (
    MisshapenWeights,
    MissingWeights,
    UnexpectedWeights,
    from_transformers,
    to_transformers,
)
from pcp.models.published import gpt2_config, llama_config

CONFIG = gpt2_config(layers=2, heads=2, width=4, context=6, vocabulary=7)
LLAMA = llama_config(
    layers=2, heads=2, key_value_heads=1, width=4, hidden=6, context=8, vocabulary=7, tied=True
)
SETTINGS = {
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 8, "head_dim": 6,
    "intermediate_size": 10, "max_position_embeddings": 12, "vocab_size": 11, "n_layer": 2, "n_head": 4, "n_embd": 8,
    "n_positions": 12, "num_local_experts": 3, "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 6,
    "shared_expert_intermediate_size": 8, "attention_bias": True, "mlp_bias": True,
}  # fmt: skip


def random_parameters(config: DecoderConfig = CONFIG) -> Any:
    rng = np.random.default_rng(1)
    return map_tree(lambda s: rng.normal(size=s.shape).astype(np.float32), decoder.parameter_shapes(config))


def of_family(kind: str) -> DecoderConfig:
    heads = {"num_key_value_heads": 4} if kind in ("gpt2", "gpt_neox") else {}
    return config_of(SETTINGS | heads | {"model_type": kind}, "config.json")


def assert_equal(ours: Any, theirs: Any) -> None:
    assert flatten(ours)[1] == flatten(theirs)[1]
    for a, b in zip(flatten(ours)[0], flatten(theirs)[0], strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("kind", "theirs", "shape"),
    [
        ("gpt2", "transformer.h.1.attn.c_attn.weight", (8, 72)),
        ("gpt2", "transformer.ln_f.bias", (8,)),
        ("llama", "model.layers.1.self_attn.k_proj.weight", (12, 8)),
        ("llama", "lm_head.weight", (11, 8)),
        ("mixtral", "model.layers.0.block_sparse_moe.experts.2.w2.weight", (8, 10)),
        ("qwen2_moe", "model.layers.1.mlp.shared_expert_gate.weight", (1, 8)),
        ("gemma2", "model.layers.1.pre_feedforward_layernorm.weight", (8,)),
        ("phi3", "model.layers.0.self_attn.qkv_proj.weight", (48, 8)),
        ("phi3", "model.layers.0.mlp.gate_up_proj.weight", (20, 8)),
        ("gpt_neox", "gpt_neox.layers.0.attention.query_key_value.bias", (72,)),
    ],
)
def test_names(kind: str, theirs: str, shape: tuple[int, ...]) -> None:
    config = of_family(kind)
    assert to_transformers(random_parameters(config), config)[theirs].shape == shape


@pytest.mark.parametrize("kind", list(FAMILIES))
def test_there_and_back(kind: str) -> None:
    config = of_family(kind)
    parameters = random_parameters(config)
    assert_equal(from_transformers(to_transformers(parameters, config), config), parameters)


def test_weights_as_they_are_stored_are_views() -> None:
    config = of_family("phi3")
    tensors = to_transformers(random_parameters(config), config)
    stored = {name: array.astype(ml_dtypes.bfloat16) for name, array in tensors.items()}
    found = from_transformers(stored, config, dtype=None)
    key = found["blocks"][0]["attn"]["key"]["weight"]
    assert key.dtype == ml_dtypes.bfloat16
    assert np.shares_memory(key, stored["model.layers.0.self_attn.qkv_proj.weight"])


@pytest.mark.parametrize("tied", [True, False])
def test_a_head_is_its_own_or_the_embedding(tied: bool) -> None:
    config = dataclasses.replace(LLAMA, tied=tied)
    parameters = random_parameters(config)
    tensors = to_transformers(parameters, config)
    assert ("lm_head.weight" in tensors) is not tied
    tensors |= {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(1, np.float32)}
    if tied:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
    assert_equal(from_transformers(tensors, config), parameters)


def test_a_published_file_has_no_prefix_and_holds_masks_and_a_tied_head(tmp_path: Path) -> None:
    parameters = random_parameters()
    tensors = {
        name.removeprefix("transformer."): array
        for name, array in to_transformers(parameters, CONFIG).items()
    }
    tensors |= {f"h.{block}.attn.bias": np.ones((1, 1, 6, 6), np.uint8) for block in range(2)}
    tensors |= {"h.0.attn.masked_bias": np.float32([-1e4]), "lm_head.weight": parameters["wte"].copy()}
    save_file(tensors, tmp_path / "model.safetensors")
    assert_equal(from_transformers(map_weights(tmp_path / "model.safetensors"), CONFIG), parameters)


def test_half_precision_becomes_single() -> None:
    tensors = {
        name: array.astype(np.float16) for name, array in to_transformers(random_parameters(), CONFIG).items()
    }
    expected = map_tree(lambda p: p.astype(np.float16).astype(np.float32), random_parameters())
    assert_equal(from_transformers(tensors, CONFIG), expected)


def without(tensors: dict[str, Any]) -> None:
    del tensors["transformer.h.1.mlp.c_fc.bias"]
    del tensors["transformer.wpe.weight"]


def one_block_more(tensors: dict[str, Any]) -> None:
    tensors |= {n.replace("h.1", "h.2"): a for n, a in tensors.items() if "h.1." in n}


def transposed(tensors: dict[str, Any]) -> None:
    tensors["transformer.h.0.mlp.c_fc.weight"] = tensors["transformer.h.0.mlp.c_fc.weight"].T


def whole_numbers(tensors: dict[str, Any]) -> None:
    tensors["transformer.ln_f.bias"] = np.ones(4, np.int32)


def untied(tensors: dict[str, Any]) -> None:
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"] + 1


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (without, MissingWeights, r"2 tensors \(.*c_fc.bias, transformer.wpe.weight\) of 28 missing, and gpt2\(layers=2"),
        (one_block_more, UnexpectedWeights, r"12 tensors \(transformer.h.2.* and 6 more\) given, and gpt2"),
        (transposed, MisshapenWeights, r"h.0.mlp.c_fc.weight is float32\[16, 4\]; .* needs floats of shape \[4, 16\]"),
        (whole_numbers, MisshapenWeights, r"transformer.ln_f.bias is int32\[4\]; .* needs floats of shape \[4\]"),
        (untied, UnexpectedWeights, r"lm_head.weight differs from transformer.wte.weight; gpt2\(.* uses the token embedding"),
    ],
)  # fmt: skip
def test_weights_of_another_model_are_refused(
    change: Callable[[dict[str, Any]], None], error: type[Exception], message: str
) -> None:
    tensors = to_transformers(random_parameters(), CONFIG)
    change(tensors)
    with pytest.raises(error, match=message):
        from_transformers(tensors, CONFIG)
