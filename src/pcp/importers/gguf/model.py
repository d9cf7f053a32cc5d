"""A model from a GGUF file: its sizes, its weights as they are stored there, its tokenizer, its template."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.importers.gguf.container import MAGIC, Container, opened
from pcp.importers.gguf.tokenizer import tokenizer_of
from pcp.inference.habits import Habits
from pcp.inference.text_model import TextModel
from pcp.models.config import DecoderConfig, Rotary
from pcp.models.families import config_of
from pcp.models.names import MisshapenWeights, from_transformers
from pcp.training.data.chat.template import Written

_END = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")
_PARTS = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
_LLAMA = {
    "token_embd": "model.embed_tokens", "output": "lm_head", "output_norm": "model.norm",
    **{f"blk.*.{there}": f"model.layers.*.{ours}" for there, ours in _PARTS.items()},
}  # fmt: skip
_GPT2 = {
    "token_embd": "transformer.wte", "position_embd": "transformer.wpe", "output": "lm_head", "output_norm": "transformer.ln_f",
    "blk.*.attn_norm": "transformer.h.*.ln_1", "blk.*.ffn_norm": "transformer.h.*.ln_2",
    "blk.*.attn_qkv": "transformer.h.*.attn.c_attn", "blk.*.attn_output": "transformer.h.*.attn.c_proj",
    "blk.*.ffn_up": "transformer.h.*.mlp.c_fc", "blk.*.ffn_down": "transformer.h.*.mlp.c_proj",
}  # fmt: skip
_BIASED = {
    "attn_q": "query", "attn_k": "key", "attn_v": "value", "attn_output": "out",
    "ffn_gate": "gate", "ffn_up": "up", "ffn_down": "down",
}  # fmt: skip
_NEEDED = ("block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count")
_WIDEST = 1 << 20
_ROPES = {"none": "default", "linear": "linear", "yarn": "yarn"}


class UnsupportedGguf(PCPError):
    """A model in a GGUF file that PCP does not have, or has otherwise."""


@dataclass(frozen=True, slots=True)
class _Family:
    """An architecture.

    Arguments:
        names: of its tensors, to those of transformers; `*` is the number of a block.
        turned: parts whose rows stand in another order: pairs of features that turn together are neighbours.
        settings: more of transformers' settings.
    """

    names: Mapping[str, str] = field(default_factory=lambda: _LLAMA)
    turned: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


_FAMILIES = {
    "gpt2": _Family(_GPT2),
    "llama": _Family(turned=("attn_q", "attn_k")),
    "qwen2": _Family(),
    "qwen3": _Family(),
}


def is_gguf(path: Path) -> bool:
    """Whether a path is a GGUF file, by its name or its first bytes."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return path.suffix == ".gguf" or file.read(4) == MAGIC


def read_gguf(path: Path) -> TextModel:
    """The model in a file. Matrices stay as they are stored, and become no float32: `nn.quantised_product` reads them so.

    Raises:
        UnsupportedGguf: it is of no family that is read here, or has settings that change what it computes.
        GgufForeign, GgufVersion, GgufTruncated, GgufCorrupt, UnknownQuantisation: the file is none, or damaged.
        WeightsMismatch: tensors are missing, or of another shape.
        UnsupportedModel, InvalidConfiguration: see `config_of`.
        TokenizerUnreadable, MissingExtra: of its tokenizer.
    """
    found = opened(path)
    family, config = _config(path, found)
    tensors = {
        _renamed(name, family): _read(found, name, family, config)
        for name in found.tensors
        if not name.startswith("rope_freqs")
    }
    parameters = from_transformers(tensors, config)
    tokenizer = tokenizer_of(path, found.settings)
    own = None if tokenizer is None else tokenizer.end_of_text
    named = [*(found.settings.get(name) for name in _END), own]
    ends = dict.fromkeys(each for each in named if type(each) is int and 0 <= each < config.vocabulary)
    return TextModel(parameters, config, tokenizer, Habits(tuple(ends)))


def template_of(path: Path) -> Written | None:
    """The chat template in a file."""
    settings = opened(path).settings
    source, tokens = settings.get("tokenizer.chat_template"), settings.get("tokenizer.ggml.tokens", [])
    if not isinstance(source, str):
        return None
    numbers = {f"{kind}_token": settings.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("bos", "eos")}
    said = {name: tokens[at] for name, at in numbers.items() if type(at) is int and 0 <= at < len(tokens)}
    return Written(source, said, str(path))


def _config(path: Path, found: Container) -> tuple[_Family, DecoderConfig]:
    said = found.settings
    architecture = said.get("general.architecture")
    family = _FAMILIES.get(str(architecture))
    if family is None:
        raise UnsupportedGguf(
            f"{path} holds a model of the architecture {architecture!r}; of GGUF files {', '.join(_FAMILIES)} are read. If its "
            "family is one of transformers that `pcp generate` runs, give the folder that it was converted from"
        )

    def get(name: str, otherwise: Any = None) -> Any:
        return said.get(f"{architecture}.{name}", otherwise)

    absent = [f"{architecture}.{name}" for name in _NEEDED if type(get(name)) is not int]
    absent += ["the tensor token_embd.weight"] * ("token_embd.weight" not in found.tensors)
    if absent:
        raise UnsupportedGguf(
            f"{path} lacks {', '.join(absent)}, or has a list there: convert the model again with convert_hf_to_gguf.py of "
            "llama.cpp"
        )
    if get("expert_count", 0):
        raise UnsupportedGguf(
            f"{path} has {get('expert_count')} experts, and those of GGUF files are not read; give the folder of transformers "
            "that it was converted from"
        )
    if get("block_count") > len(found.tensors):
        raise UnsupportedGguf(
            f"{path} has {get('block_count')} blocks, and {len(found.tensors)} tensors, too few: copy or download it again"
        )
    for name in ("embedding_length", "attention.key_length", "rope.dimension_count"):
        if isinstance(get(name), int | float) and not 0 <= get(name) <= _WIDEST:
            raise UnsupportedGguf(f"{path} sets {name} to {get(name)}; expected at most {_WIDEST}")
    heads, width = get("attention.head_count"), get("embedding_length")
    settings = {
        "model_type": architecture,
        "num_hidden_layers": get("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": get("attention.head_count_kv", heads),
        "hidden_size": width,
        "intermediate_size": get("feed_forward_length"),
        "n_inner": get("feed_forward_length"),
        "max_position_embeddings": get("context_length"),
        "vocab_size": found.tensors["token_embd.weight"].shape[0],
        "rms_norm_eps": get("attention.layer_norm_rms_epsilon", 1e-6),
        "layer_norm_epsilon": get("attention.layer_norm_epsilon", 1e-5),
        "head_dim": get("attention.key_length") or width // max(heads, 1),
        "rope_theta": get("rope.freq_base", 10000.0),
        "activation_function": "gelu_new" if architecture == "gpt2" else "silu",
    }
    if architecture == "gpt2":
        settings |= dict(n_layer=settings["num_hidden_layers"], n_head=heads, n_embd=width)
        settings |= dict(n_positions=settings["max_position_embeddings"])
    turning = get("rope.dimension_count")
    if type(turning) is int and architecture != "gpt2":
        if family.turned and turning != settings["head_dim"]:
            raise UnsupportedGguf(
                f"{path} turns {turning} of the {settings['head_dim']} features of a head; expected all, as llama.cpp does"
            )
        settings["partial_rotary_factor"] = turning / settings["head_dim"]
    settings |= _scaling(path, get)
    config = config_of(settings, str(path))
    if config.rotary is not None:
        biases = tuple(ours for there, ours in _BIASED.items() if f"blk.0.{there}.bias" in found.tensors)
        config = dataclasses.replace(config, biases=biases, rotary=_slowed(config.rotary, config, found))
    return family, dataclasses.replace(config, tied="output.weight" not in found.tensors)


def _scaling(path: Path, get: Callable[..., Any]) -> dict[str, Any]:
    kind, linear = get("rope.scaling.type", "none"), get("rope.scale_linear")
    if linear and kind == "none":
        kind = "linear"
    if not isinstance(kind, str) or kind not in _ROPES:
        raise UnsupportedGguf(f"{path} scales places by {kind!r}; expected one of {', '.join(_ROPES)}")
    if kind == "none":
        return {}
    found = {
        "rope_type": _ROPES[kind],
        "factor": get("rope.scaling.factor", linear),
        "original_max_position_embeddings": get("rope.scaling.original_context_length"),
    }
    more = get("rope.scaling.attn_factor")
    if more is not None and kind == "yarn":
        found["attention_factor"] = _attention_factor(path, more, found["factor"])
    return {"rope_scaling": {name: value for name, value in found.items() if value is not None}}


def _attention_factor(path: Path, more: Any, factor: Any) -> float:
    """What yarn multiplies by: of files a number on top of its own, of transformers one in its place."""
    if not all(isinstance(each, int | float) and each > 0 for each in (more, factor)):
        raise UnsupportedGguf(
            f"{path} sets rope.scaling.attn_factor to {more!r} and factor to {factor!r}; expected positive numbers"
        )
    return float(more * (1 + 0.1 * math.log(max(factor, 1))))


def _slowed(rotary: Rotary, config: DecoderConfig, found: Container) -> Rotary:
    """With the factors that a file gives for each pair of features, by which newer Llamas turn slower."""
    factors = found.tensors.get("rope_freqs.weight")
    if factors is None:
        return rotary
    width = rotary.width or config.head_width
    if factors.kind.parts is not None or factors.shape != (width // 2,):
        raise MisshapenWeights(
            f"rope_freqs.weight is {factors.kind.name}{list(factors.shape)}; expected floats of shape {[width // 2]}"
        )
    speeds = rotary.base ** (-np.arange(0, width, 2) / width) / factors.kind.read(
        factors.content, factors.shape
    )
    return dataclasses.replace(rotary, speeds=tuple(map(float, speeds)))


def _renamed(name: str, family: _Family) -> str:
    stem, _, kind = name.rpartition(".")
    words = stem.split(".")
    layer = words[1] if words[0] == "blk" and len(words) == 3 else ""
    known = family.names.get(f"blk.*.{words[-1]}" if layer else stem)
    return name if known is None else f"{known.replace('*', layer)}.{kind}"


def _read(found: Container, name: str, family: _Family, config: DecoderConfig) -> Any:
    """A tensor as that of transformers is."""
    stored = found.tensors[name]
    array = stored.kind.read(stored.content, stored.shape)
    part = name.rpartition(".")[0].rpartition(".")[2]
    if part in family.turned and stored.shape[0] % config.head_width == 0:
        pairs = np.arange(stored.shape[0]).reshape(-1, config.head_width // 2, 2)
        array = array[pairs.swapaxes(1, 2).reshape(-1)]
    is_matrix = len(stored.shape) == 2 and part not in ("token_embd", "position_embd", "output")
    return array.T if config.family == "gpt2" and is_matrix else array
