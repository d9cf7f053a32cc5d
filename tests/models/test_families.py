"""Settings of older and newer files of transformers say the same; what a row leaves open is refused in `importers`."""

from typing import Any

import pytest

import pcp
from pcp.ir import DType
from pcp.ir.tree import map_tree
from pcp.models import decoder
from pcp.models.config import Experts
from pcp.models.families import FAMILIES, config_of

SIZES = {
    "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32, "intermediate_size": 44,
    "max_position_embeddings": 96, "vocab_size": 67, "head_dim": 8,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 24}  # fmt: skip
LONG = {"short_factor": [1.0, 1.3, 1.5, 2.0], "long_factor": [1.0, 2.0, 4.0, 5.0]}
WINDOW = {"sliding_window": 7}


@pytest.mark.parametrize(
    ("kind", "older", "newer"),
    [
        (
            "llama",
            {"rope_theta": 5e5, "rope_scaling": LLAMA3},
            {"rope_parameters": LLAMA3 | {"rope_theta": 5e5}},
        ),
        (
            "llama",
            {"rope_scaling": {"type": "linear", "factor": 2.0}},
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}},
        ),
        (
            "phi3",
            {"rope_scaling": {"type": "su", **LONG}, "original_max_position_embeddings": 24},
            {
                "rope_parameters": {
                    "rope_type": "longrope",
                    "rope_theta": 10000.0,
                    "original_max_position_embeddings": 24,
                }
                | LONG
            },
        ),
        (
            "gpt_neox",
            {"rotary_pct": 0.25, "rotary_emb_base": 500},
            {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.25}},
        ),
        (
            "gemma3_text",
            WINDOW | {"rope_scaling": {"rope_type": "linear", "factor": 8.0}},
            WINDOW
            | {
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                },
                "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
            },
        ),
        (
            "gemma2",
            WINDOW,
            WINDOW | {"layer_types": ["sliding_attention", "full_attention"] * 3},
        ),
        (
            "qwen2",
            WINDOW | {"use_sliding_window": True, "max_window_layers": 4},
            WINDOW | {"layer_types": ["full_attention"] * 4 + ["sliding_attention"] * 2},
        ),
        ("mistral", WINDOW, WINDOW | {"layer_types": ["sliding_attention"] * 6}),
        ("qwen2", WINDOW | {"use_sliding_window": False}, {}),
    ],
)
def test_older_and_newer_settings_say_the_same(
    kind: str, older: dict[str, Any], newer: dict[str, Any]
) -> None:
    heads = {"num_key_value_heads": 4} if kind == "gpt_neox" else {}
    first, second = (
        config_of({**SIZES, **heads, **each, "model_type": kind}, "config.json") for each in (older, newer)
    )
    assert first == second


def test_what_a_file_leaves_out_and_where_experts_are() -> None:
    small = {"num_hidden_layers": 34, "hidden_size": 2560, "intermediate_size": 10240, "sliding_window": 1024}
    pictures = {"model_type": "gemma3", "text_config": {**small, "model_type": "gemma3_text"}}
    config = config_of(pictures, "config.json")
    assert (config.heads, config.key_value_heads, config.head_width, config.vocabulary) == (8, 4, 256, 262208)
    assert [layer for layer in range(34) if config.window_of(layer) is None] == [5, 11, 17, 23, 29]
    assert config.local_rotary is not None
    assert config.rotary is not None
    assert (config.rotary.base, config.local_rotary.base) == (1e6, 1e4)
    experts = {
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 12,
        "mlp_only_layers": [3],
    }
    settings = {**SIZES, **experts, "decoder_sparse_step": 2, "model_type": "qwen3_moe"}
    row = config_of(settings, "config.json").experts
    assert row == Experts(8, 2, 12, normalised=False, shared=0, layers=(1, 5))


@pytest.mark.parametrize("kind", list(FAMILIES))
def test_every_family_computes_in_the_type_of_its_parameters(kind: str) -> None:
    more = {"n_layer": 6, "n_head": 4, "n_embd": 32, "n_positions": 96, "num_local_experts": 4, "num_experts": 4,
            "num_experts_per_tok": 2, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 8}  # fmt: skip
    heads = {"num_key_value_heads": 4} if kind in ("gpt2", "gpt_neox") else {}
    config = config_of({**SIZES, **WINDOW, **more, **heads, "model_type": kind}, "config.json")
    parameters = map_tree(lambda each: pcp.spec(each.shape, "bf16"), decoder.parameter_shapes(config))
    tokens = pcp.spec((2, 9), "i32")
    scores = pcp.trace(lambda p, t: decoder.logits(p, t, config), parameters, tokens)
    assert [(entry.spec.shape, entry.spec.dtype) for entry in scores.results] == [((2, 9, 67), DType.bf16)]
    cache = pcp.specs_of(decoder.empty_cache(config, 5, 4, "bf16"), "state")
    rows, table = pcp.spec((2,), "i32"), pcp.spec((2, 3), "i32")
    program = pcp.trace(
        lambda p, c, t, s, n, b: decoder.read(p, c, t, s, n, b, config),
        parameters,
        cache,
        tokens,
        rows,
        rows,
        table,
    )
    assert {entry.spec.dtype for entry in program.results} == {DType.bf16}
