"""Families of decoders in the `transformers` library as rows: from their settings to a `DecoderConfig`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pcp.errors import PCPError
from pcp.models.config import DecoderConfig, Experts
from pcp.models.turning import KINDS, rotary_of, rotary_settings

Settings = Mapping[str, Any]
_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "relu": "relu",
}
_ACTIVATION_NAMES = ("hidden_activation", "hidden_act", "activation_function")
_SIZES = (
    "num_hidden_layers", "num_attention_heads", "hidden_size", "intermediate_size", "max_position_embeddings", "vocab_size",
)  # fmt: skip
_OF_GPT2 = {
    "num_hidden_layers": "n_layer", "num_attention_heads": "n_head", "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions", "vocab_size": "vocab_size",
}  # fmt: skip


class UnsupportedModel(PCPError):
    """A folder of `transformers` whose model PCP does not have, or has otherwise."""


@dataclass(frozen=True, slots=True)
class Family:
    """A family.

    Arguments:
        name: for people.
        differences: what a model of it has otherwise than a Llama, from its settings.
        supported: settings that change what it computes -> the values with which PCP's computes the same; absent is the first.
        names: its row of `pcp.models.names`.
        epsilon: the setting of norms, and its value where it is absent.
        sizes: settings that must be whole numbers.
        absent: settings that files leave out where they have these values.
    """

    name: str
    differences: Callable[[Settings], dict[str, Any]]
    supported: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    names: str = "llama"
    epsilon: tuple[str, float] = ("rms_norm_eps", 1e-6)
    sizes: tuple[str, ...] = _SIZES
    absent: Mapping[str, Any] = field(default_factory=dict)


def config_of(settings: Settings, where: str) -> DecoderConfig:
    """The configuration of a model from the settings in its config.json.

    Arguments:
        where: the file, for messages.

    Raises:
        UnsupportedModel: its family is unknown, or it has settings that change what it computes.
        InvalidConfiguration: its sizes do not belong together.
    """
    kind = str(settings.get("model_type"))
    if kind in _WITH_PICTURES and isinstance(settings.get("text_config"), Mapping):
        kind = _WITH_PICTURES[kind]
        settings = {**settings["text_config"], "model_type": kind}
    family = FAMILIES.get(kind)
    if family is None:
        raise UnsupportedModel(
            f"{where} is of a model of type {settings.get('model_type')!r}; `pcp generate` runs only "
            f"{', '.join(FAMILIES)}. To run another model with PCP, import it from PyTorch with pcp.from_torch "
            "(docs/importing.md)"
        )
    settings = {**family.absent, **settings}
    absent = [name for name in family.sizes if type(settings.get(name)) is not int]
    if absent:
        raise UnsupportedModel(
            f"{where} lacks {', '.join(absent)}; expected the config.json of a {family.name} that transformers wrote"
        )
    for name, accepted in family.supported.items():
        _check(where, family, name, settings.get(name, accepted[0]), accepted)
    try:
        return _configured(settings, family, where)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise UnsupportedModel(
            f"{where} does not hold what a {family.name} needs: {error!r}; expected the config.json that transformers wrote"
        ) from None


def _configured(settings: Settings, family: Family, where: str) -> DecoderConfig:
    if family.names == "gpt2":
        settings = {**settings, **{name: settings[theirs] for name, theirs in _OF_GPT2.items()}}
        settings["intermediate_size"] = settings.get("n_inner") or 4 * settings["hidden_size"]
    heads, width = settings["num_attention_heads"], settings["hidden_size"]
    each = settings.get("head_dim") or width // max(heads, 1)
    named = next((name for name in _ACTIVATION_NAMES if settings.get(name)), _ACTIVATION_NAMES[0])
    activation = settings.get(named) or "silu"
    _check(where, family, named, activation, tuple(_ACTIVATIONS))
    common = {
        "family": family.names,
        "layers": settings["num_hidden_layers"],
        "heads": heads,
        "key_value_heads": settings.get("num_key_value_heads") or heads,
        "width": width,
        "own_head_width": None if each * heads == width else each,
        "hidden": settings["intermediate_size"],
        "context": settings["max_position_embeddings"],
        "vocabulary": settings["vocab_size"],
        "epsilon": settings.get(*family.epsilon),
        "activation": _ACTIVATIONS[activation],
        "tied": settings.get("tie_word_embeddings", False),
    } | _windows(settings, where)
    differences = family.differences(settings)
    if differences.pop("learnt", False):
        return DecoderConfig(**common | differences)
    found = rotary_settings(settings, "full_attention")
    _check(where, family, "rope_type", found["rope_type"], tuple(KINDS))
    if found["rope_type"] == "dynamic":
        common["context"] = int(common["context"] * found["factor"])
    return DecoderConfig(**common | {"rotary": rotary_of(settings, found, each)} | differences)


def _check(where: str, family: Family, name: str, value: Any, accepted: tuple[Any, ...]) -> None:
    if value not in accepted:
        raise UnsupportedModel(
            f"{where} sets {name} to {value!r}; PCP's {family.name} supports only "
            f"{' or '.join(map(repr, accepted))}. Import the model from PyTorch with pcp.from_torch (docs/importing.md)"
        )


def _windows(settings: Settings, where: str) -> dict[str, Any]:
    """The window, and the blocks that have it: listed in newer files, by a rule in older ones."""
    window, layers = settings.get("sliding_window"), range(settings["num_hidden_layers"])
    if not window or settings.get("use_sliding_window") is False:
        return {}
    kinds, pattern = settings.get("layer_types"), settings.get("sliding_window_pattern")
    model = settings["model_type"]
    if kinds is not None:
        unknown = set(kinds) - {"full_attention", "sliding_attention"}
        if unknown:
            raise UnsupportedModel(
                f"{where} has layers of type {', '.join(sorted(unknown))}, which PCP's decoder lacks"
            )
        windowed = [layer for layer in layers if kinds[layer] == "sliding_attention"]
    elif pattern or model in _PATTERNS:
        windowed = [layer for layer in layers if (layer + 1) % (pattern or _PATTERNS[model])]
    elif "use_sliding_window" in settings:
        windowed = [layer for layer in layers if layer >= settings.get("max_window_layers", 0)]
    else:
        windowed = list(layers)
    return {"window": window, "windowed": tuple(windowed)} if windowed else {}


_PATTERNS = {"gemma2": 2, "gemma3_text": 6}
"""Every which block sees all keys, where settings do not say it."""


def _gpt2(_settings: Settings) -> dict[str, Any]:
    return {
        "learnt": True, "layer_norm": True, "joined": True, "gated": False, "tied": True,
        "biases": ("norm", "qkv", "out", "up", "down"),
    }  # fmt: skip


def _llama(settings: Settings) -> dict[str, Any]:
    attention = ("query", "key", "value", "out") if settings.get("attention_bias") else ()
    return {"biases": attention + (("gate", "up", "down") if settings.get("mlp_bias") else ())}


def _experts(settings: Settings) -> int:
    return int(settings.get("num_experts") or settings["num_local_experts"])


def _mixtral(settings: Settings) -> dict[str, Any]:
    chosen = settings["num_experts_per_tok"]
    return {"experts": Experts(_experts(settings), chosen, settings["intermediate_size"])}


def _olmoe(settings: Settings) -> dict[str, Any]:
    row = Experts(
        _experts(settings),
        settings["num_experts_per_tok"],
        settings["intermediate_size"],
        settings.get("norm_topk_prob", False),
    )
    return _llama(settings) | {"query_key_norm": "whole", "clip": settings.get("clip_qkv"), "experts": row}


def _qwen2(settings: Settings) -> dict[str, Any]:
    return {"biases": ("query", "key", "value") if settings.get("qkv_bias", True) else ()}


def _qwen_experts(settings: Settings) -> dict[str, Any]:
    step, without = settings.get("decoder_sparse_step", 1), settings.get("mlp_only_layers") or ()
    blocks = range(settings["num_hidden_layers"])
    return {
        "experts": Experts(
            _experts(settings),
            settings["num_experts_per_tok"],
            settings["moe_intermediate_size"],
            settings.get("norm_topk_prob", False),
            settings.get("shared_expert_intermediate_size", 0),
            tuple(layer for layer in blocks if layer not in without and (layer + 1) % step == 0),
        )
    }


def _qwen2_moe(settings: Settings) -> dict[str, Any]:
    return _qwen2(settings) | _qwen_experts(settings)


def _qwen3(settings: Settings) -> dict[str, Any]:
    return _llama(settings) | {"query_key_norm": "head"}


def _qwen3_moe(settings: Settings) -> dict[str, Any]:
    return _qwen3(settings) | _qwen_experts(settings)


def _gemma(settings: Settings) -> dict[str, Any]:
    return _llama(settings) | {
        "one_more": True,
        "embedding_scale": settings["hidden_size"] ** 0.5,
        "tied": settings.get("tie_word_embeddings", True),
    }


def _gemma2(settings: Settings) -> dict[str, Any]:
    return _gemma(settings) | {
        "norms_after": True,
        "query_scale": settings.get("query_pre_attn_scalar", 256),
        "attention_cap": settings.get("attn_logit_softcapping"),
        "score_cap": settings.get("final_logit_softcapping"),
    }


def _gemma3(settings: Settings) -> dict[str, Any]:
    local = rotary_settings(settings, "sliding_attention")
    if not settings.get("rope_parameters"):  # an older file, whose scaling is of full attention only
        base = settings.get("rope_local_base_freq", 10000.0)
        local = {"rope_type": "default", "rope_theta": base, "partial_rotary_factor": 1.0}
    return _gemma2(settings) | {
        "query_key_norm": "head",
        "local_rotary": rotary_of(settings, local, settings["head_dim"]),
    }


def _neox(settings: Settings) -> dict[str, Any]:
    biases = ("norm", "up", "down")
    return {
        "layer_norm": True,
        "parallel": settings.get("use_parallel_residual", True),
        "gated": False,
        "biases": biases + (("query", "key", "value", "out") if settings.get("attention_bias", True) else ()),
    }


def _nothing(_settings: Settings) -> dict[str, Any]:
    return {}


_WITH_PICTURES = {"gemma3": "gemma3_text"}
"""Models that see pictures, too -> the family of the decoder in them, which reads texts without."""

_GEMMA3_ABSENT = {
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208, "rope_theta": 1e6,
    "max_position_embeddings": 131072, "hidden_activation": "gelu_pytorch_tanh",
}  # fmt: skip
_CAUSAL = {"use_bidirectional_attention": (None, False)}
FAMILIES: dict[str, Family] = {
    "gpt2": Family(
        "GPT-2",
        _gpt2,
        {
            "scale_attn_weights": (True,),
            "scale_attn_by_inverse_layer_idx": (False,),
            "add_cross_attention": (False,),
            "tie_word_embeddings": (True,),
        },
        "gpt2",
        ("layer_norm_epsilon", 1e-5),
        tuple(_OF_GPT2.values()),
    ),
    "llama": Family("Llama", _llama),
    "mistral": Family("Mistral", _nothing),
    "mixtral": Family("Mixtral", _mixtral, names="mixtral", absent={"rope_theta": 1e6}),
    "olmoe": Family("OLMoE", _olmoe, epsilon=("rms_norm_eps", 1e-5)),
    "qwen2": Family("Qwen 2", _qwen2),
    "qwen2_moe": Family("Qwen 2 with experts", _qwen2_moe),
    "qwen3": Family("Qwen 3", _qwen3, absent={"head_dim": 128}),
    "qwen3_moe": Family("Qwen 3 with experts", _qwen3_moe),
    "gemma": Family("Gemma", _gemma, _CAUSAL, absent={"head_dim": 256}),
    "gemma2": Family("Gemma 2", _gemma2, _CAUSAL, names="gemma2", absent={"head_dim": 256}),
    "gemma3_text": Family("Gemma 3", _gemma3, _CAUSAL, names="gemma2", absent=_GEMMA3_ABSENT),
    "phi3": Family("Phi-3", _nothing, names="phi3", epsilon=("rms_norm_eps", 1e-5)),
    "gpt_neox": Family("GPT-NeoX", _neox, names="gpt_neox", epsilon=("layer_norm_eps", 1e-5)),
}
"""`model_type` of a config.json -> the family."""
