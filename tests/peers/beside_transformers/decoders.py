"""A tiny decoder of transformers for each row of PCP's: random weights, none of them 0 or 1, and settings that differ."""

from typing import Any

import torch
import transformers

ENDS = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
SIZES = {
    **ENDS, "vocab_size": 67, "hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 96,
}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
GEMMA = {"head_dim": 12, "sliding_window": 6, "query_pre_attn_scalar": 20}
CAPS = {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}


def turning(kind: str, **more: Any) -> dict[str, Any]:
    """Settings of rotary positions."""
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **more}}


LLAMA3 = turning(
    "llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=24
)
YARN = turning("yarn", factor=4.0, original_max_position_embeddings=24)
LONG = turning(
    "longrope", partial_rotary_factor=0.75, short_factor=[1.0, 1.3, 1.5], long_factor=[1.0, 2.0, 4.0]
)

# Each the class of its settings, and what is set.
DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2Config", {**ENDS, "vocab_size": 67, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 96}),
    "llama": ("LlamaConfig", {**SIZES, **LLAMA3}),
    "llama with biases": ("LlamaConfig", {**SIZES, "attention_bias": True, "mlp_bias": True, "head_dim": 12}),
    "llama, linear": ("LlamaConfig", {**SIZES, **turning("linear", factor=3.0), "tie_word_embeddings": True}),
    "llama, dynamic": ("LlamaConfig", {**SIZES, **turning("dynamic", factor=3.0), "max_position_embeddings": 32}),
    "mistral": ("MistralConfig", {**SIZES, "sliding_window": 7, "head_dim": 10}),
    "mixtral": ("MixtralConfig", {**SIZES, "num_local_experts": 5, "num_experts_per_tok": 2}),
    "olmoe": ("OlmoeConfig", {**SIZES, "num_experts": 6, "num_experts_per_tok": 3, "clip_qkv": 0.8}),
    "qwen2": ("Qwen2Config", {**SIZES, "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}),
    "qwen2 with experts": ("Qwen2MoeConfig", {**SIZES, **EXPERTS, "num_hidden_layers": 3,
                                               "shared_expert_intermediate_size": 28, "mlp_only_layers": [1]}),
    "qwen3": ("Qwen3Config", {**SIZES, "head_dim": 12}),
    "qwen3, yarn": ("Qwen3Config", {**SIZES, **YARN, "head_dim": 12}),
    "qwen3 with experts": ("Qwen3MoeConfig", {**SIZES, **EXPERTS, "head_dim": 12, "norm_topk_prob": True}),
    "gemma": ("GemmaConfig", {**SIZES, "head_dim": 12}),
    "gemma2": ("Gemma2Config", {**SIZES, **GEMMA, **CAPS}),
    "gemma3": ("Gemma3TextConfig", {**SIZES, **GEMMA, "num_hidden_layers": 6}),
    "gemma3 with pictures": ("Gemma3Config", {
        **ENDS, "image_token_index": 66, "mm_tokens_per_image": 4, "text_config": {**SIZES, **GEMMA},
        "vision_config": {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
                          "image_size": 8, "patch_size": 4},
    }),
    "phi3": ("Phi3Config", {**SIZES, **LONG, "original_max_position_embeddings": 90}),
    "phi3 with long texts": ("Phi3Config", {**SIZES, **LONG, "original_max_position_embeddings": 16}),
    "neox": ("GPTNeoXConfig", {**SIZES, "num_key_value_heads": 4, **turning("default", partial_rotary_factor=0.5)}),
    "neox in turn": ("GPTNeoXConfig", {**SIZES, "num_key_value_heads": 4, "use_parallel_residual": False}),
}  # fmt: skip


def made(name: str) -> Any:
    """The model, in evaluation mode."""
    kind, settings = DECODERS[name]
    torch.manual_seed(sum(map(ord, name)))
    auto = (
        transformers.AutoModelForImageTextToText if "pictures" in name else transformers.AutoModelForCausalLM
    )
    model = auto.from_config(getattr(transformers, kind)(**settings), attn_implementation="eager")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
        if "gemma" in name:  # a tied table as large as the others, scaled, would let each token follow itself
            model.get_input_embeddings().weight.mul_(0.1)
    return model.eval()
