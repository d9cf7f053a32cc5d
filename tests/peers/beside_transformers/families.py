"""Tiny models of the families of transformers, with random weights: each a configuration, and what it is called with."""

from typing import Any

import torch
import transformers

TEXT = {
    "vocab_size": 43, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 32, "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 2,
}  # fmt: skip
BIDIRECTIONAL = {key: value for key, value in TEXT.items() if key != "num_key_value_heads"}
HEADED = {**TEXT, "head_dim": 4}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "norm_topk_prob": True}
OLD = {"vocab_size": 43, "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 2}
ENCODER_DECODER = {
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 32, "decoder_start_token_id": 2,
}  # fmt: skip
PICTURE = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 8,
    "patch_size": 4,
}  # fmt: skip

# The name of the family's classes, of the head that computes the loss, and the settings.
CAUSAL: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", {**OLD, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 32}),
    "llama": ("LlamaForCausalLM", TEXT),
    "mistral": ("MistralForCausalLM", {**HEADED, "sliding_window": 5}),
    "qwen2": ("Qwen2ForCausalLM", TEXT),
    "qwen3": ("Qwen3ForCausalLM", HEADED),
    "gemma": ("GemmaForCausalLM", HEADED),
    "gemma2": ("Gemma2ForCausalLM", {**HEADED, "sliding_window": 5, "query_pre_attn_scalar": 4}),
    "gemma3": ("Gemma3ForCausalLM", {**HEADED, "sliding_window": 5, "query_pre_attn_scalar": 4}),
    "phi": ("PhiForCausalLM", TEXT),
    "phi3": ("Phi3ForCausalLM", TEXT),
    "opt": ("OPTForCausalLM", {**OLD, "hidden_size": 16, "ffn_dim": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
                               "max_position_embeddings": 32, "word_embed_proj_dim": 16}),
    "bloom": ("BloomForCausalLM", {**OLD, "hidden_size": 16, "n_layer": 2, "n_head": 4}),
    "gpt_neo": ("GPTNeoForCausalLM", {**OLD, "hidden_size": 16, "num_layers": 2, "num_heads": 4, "window_size": 5,
                                      "attention_types": [[["global", "local"], 1]], "max_position_embeddings": 32}),
    "gpt_neox": ("GPTNeoXForCausalLM", BIDIRECTIONAL),
    "gptj": ("GPTJForCausalLM", {**OLD, "n_embd": 16, "n_layer": 2, "n_head": 2, "rotary_dim": 4, "n_positions": 32}),
    "codegen": ("CodeGenForCausalLM", {**OLD, "n_embd": 16, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "n_positions": 32}),
    "falcon": ("FalconForCausalLM", {**OLD, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}),
    "mpt": ("MptForCausalLM", {**OLD, "d_model": 16, "n_layers": 2, "n_heads": 4, "max_seq_len": 32, "expansion_ratio": 2}),
    "starcoder2": ("Starcoder2ForCausalLM", TEXT),
    "olmo2": ("Olmo2ForCausalLM", TEXT),
    "stablelm": ("StableLmForCausalLM", TEXT),
    "cohere": ("CohereForCausalLM", TEXT),
    "granite": ("GraniteForCausalLM", TEXT),
    "smollm3": ("SmolLM3ForCausalLM", TEXT),
    "glm": ("GlmForCausalLM", HEADED),
    "mamba": ("MambaForCausalLM", {**OLD, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4, "time_step_rank": 4}),
    "mamba2": ("Mamba2ForCausalLM", {**OLD, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4, "num_heads": 8,
                                     "head_dim": 4, "n_groups": 1, "chunk_size": 4}),
    "mixtral": ("MixtralForCausalLM", {**TEXT, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2_moe": ("Qwen2MoeForCausalLM", {**TEXT, **EXPERTS, "shared_expert_intermediate_size": 12, "decoder_sparse_step": 1}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", {**HEADED, **EXPERTS, "decoder_sparse_step": 1}),
    "olmoe": ("OlmoeForCausalLM", {**TEXT, "num_experts": 4, "num_experts_per_tok": 2}),
    "gpt_oss": ("GptOssForCausalLM", {**HEADED, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5}),
    "deepseek_v3": ("DeepseekV3ForCausalLM", {
        **TEXT, "num_key_value_heads": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
        "n_group": 2, "topk_group": 1,
        "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 4,
        "first_k_dense_replace": 1, "n_shared_experts": 1}),
}  # fmt: skip
MASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertForMaskedLM", BIDIRECTIONAL),
    "roberta": ("RobertaForMaskedLM", BIDIRECTIONAL),
    "distilbert": ("DistilBertForMaskedLM", {**OLD, "dim": 16, "hidden_dim": 24, "n_layers": 2, "n_heads": 4,
                                             "max_position_embeddings": 32}),
    "electra": ("ElectraForMaskedLM", {**BIDIRECTIONAL, "embedding_size": 8}),
    "albert": ("AlbertForMaskedLM", {**BIDIRECTIONAL, "embedding_size": 8}),
    "deberta": ("DebertaV2ForMaskedLM", {**BIDIRECTIONAL, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    "modernbert": ("ModernBertForMaskedLM", {**BIDIRECTIONAL, "cls_token_id": 3, "sep_token_id": 4, "local_attention": 4}),
}  # fmt: skip
TRANSLATING: dict[str, tuple[str, dict[str, Any]]] = {
    "t5": ("T5ForConditionalGeneration", {**OLD, "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4,
                                          "decoder_start_token_id": 1}),
    "bart": ("BartForConditionalGeneration", {**OLD, **ENCODER_DECODER}),
}  # fmt: skip


def built(head: str, settings: dict[str, Any]) -> Any:
    """A model in float32 without dropout, whose weights are larger than those of a fresh one, so that gradients are as well."""
    model_class = getattr(transformers, head)
    configuration = model_class.config_class(**settings)
    torch.manual_seed(0)
    model = model_class(configuration).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


class Loss(torch.nn.Module):
    """The loss of a model as a function of tensors in order."""

    def __init__(self, model: Any, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        output = self.model(**dict(zip(self.names, tensors, strict=True)))
        return (
            output.loss
            if "labels" in self.names or "return_loss" in self.names
            else output[0].square().mean()
        )


def tokens(*shape: int) -> torch.Tensor:
    """Random tokens, one of which is that of padding."""
    found = torch.randint(0, 43, shape)
    found[..., 3] = 1
    return found


def made(family: str) -> tuple[Loss, tuple[torch.Tensor, ...]]:
    """The loss of a family and random inputs."""
    for table in (CAUSAL, MASKED, TRANSLATING):
        if family in table:
            model = built(*table[family])
            text = tokens(2, 9)
            return Loss(model, ["input_ids", "labels"]), (text, text if table is CAUSAL else tokens(2, 9))
    return OTHERS[family]()


def _vit() -> tuple[Loss, tuple[torch.Tensor, ...]]:
    model = built("ViTForImageClassification", {**PICTURE, "num_labels": 3})
    return Loss(model, ["pixel_values", "labels"]), (torch.randn(2, 3, 8, 8), torch.randint(0, 3, (2,)))


def _clip() -> tuple[Loss, tuple[torch.Tensor, ...]]:
    settings = {"text_config": BIDIRECTIONAL, "vision_config": PICTURE, "projection_dim": 8}
    torch.manual_seed(0)
    model = transformers.CLIPModel(transformers.CLIPConfig(**settings)).eval()
    return Loss(model, ["input_ids", "pixel_values"]), (tokens(2, 9), torch.randn(2, 3, 8, 8))


def _whisper() -> tuple[Loss, tuple[torch.Tensor, ...]]:
    sizes = {"num_mel_bins": 6, "max_source_positions": 10, "max_target_positions": 32}
    settings = {key: value for key, value in ENCODER_DECODER.items() if key != "max_position_embeddings"}
    model = built("WhisperForConditionalGeneration", {**OLD, **settings, **sizes})
    return Loss(model, ["input_features", "labels"]), (torch.randn(2, 6, 20), tokens(2, 9))


OTHERS = {"vit": _vit, "clip": _clip, "whisper": _whisper}
FAMILIES = [*CAUSAL, *MASKED, *TRANSLATING, *OTHERS]
