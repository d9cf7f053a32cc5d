"""Parameters from and to tensors by the names that the `transformers` library gives them: a table a family.

There a linear layer is (outputs, inputs), here (inputs, outputs), but in GPT-2, where both are alike. What is one tensor there
and several here is cut along its outputs; what is a tensor for each expert there is one for all here.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.ir import DTypeLike
from pcp.ir.tree import flatten, map_tree
from pcp.ir.types import dtype_of
from pcp.models.config import DecoderConfig
from pcp.models.decoder import parameter_shapes
from pcp.models.kept import Kept
from pcp.models.parameters import TABLES, Parameters

_LISTED = 6
_LLAMA = {
    "embedding": "model.embed_tokens",
    "head": "lm_head",
    "norm": "model.norm",
    "blocks": "model.layers",
    "norm_1": "input_layernorm",
    "norm_2": "post_attention_layernorm",
    "attn.query": "self_attn.q_proj",
    "attn.key": "self_attn.k_proj",
    "attn.value": "self_attn.v_proj",
    "attn.out": "self_attn.o_proj",
    "attn.query_norm": "self_attn.q_norm",
    "attn.key_norm": "self_attn.k_norm",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
    "mlp.router": "mlp.gate",
    "mlp.experts.gate": "mlp.experts.*.gate_proj",
    "mlp.experts.up": "mlp.experts.*.up_proj",
    "mlp.experts.down": "mlp.experts.*.down_proj",
    "mlp.shared.gate": "mlp.shared_expert.gate_proj",
    "mlp.shared.up": "mlp.shared_expert.up_proj",
    "mlp.shared.down": "mlp.shared_expert.down_proj",
    "mlp.shared_gate": "mlp.shared_expert_gate",
}
_GEMMA2 = _LLAMA | {
    "norm_1_after": "post_attention_layernorm",
    "norm_2": "pre_feedforward_layernorm",
    "norm_2_after": "post_feedforward_layernorm",
}
NAMES: dict[str, dict[str, str]] = {
    "gpt2": {
        "wte": "transformer.wte",
        "wpe": "transformer.wpe",
        "head": "lm_head",
        "ln_f": "transformer.ln_f",
        "blocks": "transformer.h",
        "attn.qkv": "attn.c_attn",
        "attn.out": "attn.c_proj",
        "mlp.up": "mlp.c_fc",
        "mlp.down": "mlp.c_proj",
    },
    "llama": _LLAMA,
    "mixtral": _LLAMA
    | {
        "mlp.router": "block_sparse_moe.gate",
        "mlp.experts.gate": "block_sparse_moe.experts.*.w1",
        "mlp.experts.up": "block_sparse_moe.experts.*.w3",
        "mlp.experts.down": "block_sparse_moe.experts.*.w2",
    },
    "gemma2": _GEMMA2,
    "phi3": _LLAMA
    | {
        "attn.query": "self_attn.qkv_proj|blocks 0",
        "attn.key": "self_attn.qkv_proj|blocks 1",
        "attn.value": "self_attn.qkv_proj|blocks 2",
        "mlp.gate": "mlp.gate_up_proj|halves 0",
        "mlp.up": "mlp.gate_up_proj|halves 1",
    },
    "gpt_neox": {
        "embedding": "gpt_neox.embed_in",
        "head": "embed_out",
        "norm": "gpt_neox.final_layer_norm",
        "blocks": "gpt_neox.layers",
        "norm_1": "input_layernorm",
        "norm_2": "post_attention_layernorm",
        "attn.query": "attention.query_key_value|heads 0",
        "attn.key": "attention.query_key_value|heads 1",
        "attn.value": "attention.query_key_value|heads 2",
        "attn.out": "attention.dense",
        "mlp.up": "mlp.dense_h_to_4h",
        "mlp.down": "mlp.dense_4h_to_h",
    },
}
"""Family -> the name of a part here -> its name there. `*` counts experts; after `|` stands which part of the tensor it is:
of query, key and value one after the other (`blocks`) or for each head (`heads`), or of two equal parts (`halves`)."""

_CONSTANT = re.compile(
    r".*(\.rotary_emb\.inv_freq|\.(attn|attention)\.(bias|masked_bias)|\.attention\.rotary_emb\..*)"
)
"""What older files hold beside the weights: causal masks, speeds of rotary positions."""

_OF_TEXT = re.compile(r"(model\.)?language_model\.")
"""What the names of the decoder begin with in a model that sees pictures, too."""

_TABLES = ("embedding", "head", "wte", "wpe")


class WeightsMismatch(PCPError):
    """Weights of another model than the configuration's."""


class MissingWeights(WeightsMismatch):
    """Tensors that the model needs are absent."""


class UnexpectedWeights(WeightsMismatch):
    """Tensors that the model has no place for."""


class MisshapenWeights(WeightsMismatch):
    """A tensor of another shape than the model's, or of no floating-point type."""


class _Source:
    """Where a parameter stands in the files.

    Arguments:
        ours: its dotted name here.
        config: of the model.

    Attributes:
        name: the tensor's name there; with `*` where there is one for each expert.
        part: which of its parts it is, with how it is cut; empty: all of it.
        transposed: whether it is (outputs, inputs) there.
        is_multiplied: whether what reads it can read it in fewer bits.
    """

    def __init__(self, ours: str, config: DecoderConfig) -> None:
        table = NAMES[config.family]
        within = re.fullmatch(r"blocks\.(\d+)\.(.*?)(?:\.(weight|scale|bias))?", ours)
        if within:
            layer, piece, kind = within.groups()
            there, _, cut = table.get(piece, piece).partition("|")
            stem = f"{table['blocks']}.{layer}.{there}"
        else:
            piece, _, kind = ours.partition(".")
            stem, cut = table[piece], ""
        self.name = f"{stem}.{'bias' if kind == 'bias' else 'weight'}"
        self.form, _, index = cut.partition(" ")
        self.index = int(index or 0)
        matrix = kind == "weight" or ((kind is None or kind == "") and piece not in _TABLES)
        self.transposed = bool(matrix) and config.family != "gpt2"
        self.is_multiplied = kind == "weight" or "*" in self.name or piece in TABLES
        self._config = config

    def names(self) -> list[str]:
        """The tensors that it is made of."""
        experts = self._config.experts
        if "*" not in self.name or experts is None:
            return [self.name]
        return [self.name.replace("*", str(expert)) for expert in range(experts.count)]

    def rows(self) -> int:
        """How many parts there are."""
        return {"blocks": 3, "heads": 3, "halves": 2}.get(self.form, 1)

    def shape(self, ours: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of each of its tensors, from that of the parameter."""
        own = ours[1:] if "*" in self.name else ours
        own = own[::-1] if self.transposed else own
        if self.form == "blocks":
            return (sum(self._sizes()), *own[1:])
        return (own[0] * self.rows(), *own[1:])

    def cut(self, tensor: Any) -> Any:
        """The part of a tensor, a view."""
        if self.form == "heads":
            rest = tensor.shape[1:]
            if isinstance(tensor, Kept):
                places = np.arange(tensor.shape[0]).reshape(self._config.heads, 3, self._config.head_width)
                return tensor[places[:, self.index].reshape(-1)]
            parted = tensor.reshape(self._config.heads, 3, self._config.head_width, *rest)
            return parted[:, self.index].reshape(-1, *rest)
        if self.form == "blocks":
            ends = np.cumsum((0, *self._sizes()))
            return tensor[ends[self.index] : ends[self.index + 1]]
        size = tensor.shape[0] // self.rows()
        return tensor[self.index * size : (self.index + 1) * size] if self.form else tensor

    def joined(self, parts: list[Any]) -> Any:
        """The opposite: a tensor from its parts in order."""
        if self.form == "heads":
            cut = [
                part.reshape(self._config.heads, 1, self._config.head_width, *part.shape[1:])
                for part in parts
            ]
            return np.concatenate(cut, 1).reshape(-1, *parts[0].shape[1:])
        return np.concatenate(parts, 0) if self.form else parts[0]

    def _sizes(self) -> tuple[int, int, int]:
        shared = self._config.key_value_heads * self._config.head_width
        return self._config.heads * self._config.head_width, shared, shared


def _kept(array: Any) -> Any:
    return array


def from_transformers(
    tensors: Mapping[str, Any],
    config: DecoderConfig,
    dtype: DTypeLike | None = "f32",
    place: Callable[[Any], Any] = _kept,
) -> Parameters:
    """Parameters from tensors by their names in `transformers`.

    Arguments:
        tensors: name -> array, or `Kept`, which becomes its parts; a tied model may repeat its embedding as its head.
        config: of the model.
        dtype: element type of the parameters; None: that of the tensors, of which the parameters are views where they can be.
        place: what is done with each parameter at once, so that no more than one is held twice: brings it to a device, say.

    Returns:
        What `place` makes, nested as `initial_parameters` makes them.

    Raises:
        MissingWeights, UnexpectedWeights, MisshapenWeights: the tensors are of another model.
    """
    leaves, tree = flatten(parameter_shapes(config))
    sources = [_Source(name, config) for name in tree.names()]
    given = _own(tensors, config)
    _check_names(given, {name for source in sources for name in source.names()}, config)
    numpy_type = None if dtype is None else dtype_of(dtype).numpy
    arrays = []
    for source, leaf in zip(sources, leaves, strict=True):
        parts = [_checked(name, given[name], source.shape(leaf.shape), config) for name in source.names()]
        turned = [cut.T if source.transposed else cut for cut in map(source.cut, parts)]
        if isinstance(turned[0], Kept) and source.is_multiplied:
            arrays.append({name: place(part) for name, part in _parts_of(turned, source).items()})
            continue
        turned = [each.wide() if isinstance(each, Kept) else each for each in turned]
        array = np.stack(turned) if "*" in source.name else turned[0]
        arrays.append(place(array if numpy_type is None else np.ascontiguousarray(array, numpy_type)))
    parameters: Parameters = tree.unflatten(arrays)
    return parameters


def _parts_of(turned: list[Any], source: _Source) -> Mapping[str, Any]:
    """How a matrix is kept that products read, or rows of it are looked up in.

    Raises:
        MisshapenWeights: it is one of several experts.
    """
    if len(turned) > 1:
        raise MisshapenWeights(
            f"{source.name} is stored in fewer bits, and experts are multiplied in float32, bfloat16 or float16 only: use the "
            "model as it was before it was quantised"
        )
    parts: Mapping[str, Any] = turned[0].parts
    return parts


def to_transformers(parameters: Parameters, config: DecoderConfig) -> dict[str, Any]:
    """The opposite: arrays by their names in `transformers`, without a head that is the token embedding."""
    leaves, tree = flatten(map_tree(np.asarray, parameters))
    parts: dict[str, list[tuple[int, Any, _Source]]] = {}
    for ours, leaf in zip(tree.names(), leaves, strict=True):
        source = _Source(ours, config)
        for name, array in zip(source.names(), leaf if "*" in source.name else [leaf], strict=True):
            own = np.ascontiguousarray(array.T) if source.transposed else array
            parts.setdefault(name, []).append((source.index, own, source))
    return {
        name: found[0][2].joined([array for _, array, _ in sorted(found, key=lambda each: each[0])])
        for name, found in parts.items()
    }


def _own(tensors: Mapping[str, Any], config: DecoderConfig) -> dict[str, Any]:
    """The tensors under the names of the table, without constants, and without a head that is the token embedding once more.

    Raises:
        UnexpectedWeights: a tied model's head is another one.
    """
    table = NAMES[config.family]
    named = {name: tensor for name, tensor in tensors.items() if not _CONSTANT.fullmatch(f".{name}")}
    if any(_OF_TEXT.match(name) for name in named):  # a model that sees pictures, too
        named = {_OF_TEXT.sub("", name): tensor for name, tensor in named.items() if _OF_TEXT.match(name)}
    first = table["blocks"].partition(".")[0] + "."
    if not any(name.startswith(first) for name in named):  # the inner model was saved alone
        named = {
            name if name.startswith("lm_head") else first + name: tensor for name, tensor in named.items()
        }
    head, embedding = (
        f"{table.get('head', 'lm_head')}.weight",
        f"{table.get('embedding', table.get('wte'))}.weight",
    )
    if not config.tied or head not in named:
        return named
    if embedding in named and not np.array_equal(named[head], named[embedding]):
        raise UnexpectedWeights(
            f"{head} differs from {embedding}; {config} uses the token embedding as its head and cannot hold a separate one"
        )
    return {name: tensor for name, tensor in named.items() if name != head}


def _checked(name: str, tensor: Any, shape: tuple[int, ...], config: DecoderConfig) -> Any:
    if tuple(tensor.shape) != shape or not _is_float(tensor):
        raise MisshapenWeights(
            f"tensor {name} is {tensor.dtype}{list(tensor.shape)}; {config} needs floats of shape {list(shape)}"
        )
    return tensor


def _check_names(tensors: Mapping[str, Any], wanted: Iterable[str], config: object) -> None:
    needed = dict.fromkeys(wanted)
    missing = [name for name in needed if name not in tensors]
    if missing:
        raise MissingWeights(f"{_few(sorted(missing))} of {len(needed)} missing, and {config} needs them")
    extra = [name for name in tensors if name not in needed]
    if extra:
        raise UnexpectedWeights(f"{_few(extra)} given, and {config} does not have them")


def _few(names: list[str]) -> str:
    """At most six names, and how many tensors there are."""
    rest = f", and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{len(names)} tensors ({', '.join(names[:_LISTED])}{rest})"


def _is_float(tensor: Any) -> bool:
    return bool(np.can_cast(tensor.dtype, np.float64) and np.dtype(tensor.dtype).kind not in "biu")
