"""Llama's parameters under the names that the `transformers` library gives them, from and to its files.

There a linear layer is (outputs, inputs), here (inputs, outputs): `model.layers.0.self_attn.q_proj.weight` is the transpose of
`blocks.0.attn.query.weight`. Both turn features i and i + width / 2 of a head together.
"""

import re
from collections.abc import Mapping
from typing import Any

from pcp.models.llama import LlamaConfig, parameter_shapes
from pcp.models.parameters import Parameters
from pcp.models.transformers_weights import HEAD, read, without_tied_head, written

_EMBEDDING = "model.embed_tokens.weight"
# Constants that older files hold beside the weights: the speeds of rotary positions.
_CONSTANT = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
_WHOLE = {"embedding": _EMBEDDING, "head": HEAD, "norm.scale": "model.norm.weight"}
_PARTS = {
    "norm_1.scale": "input_layernorm.weight",
    "norm_2.scale": "post_attention_layernorm.weight",
    "attn.query": "self_attn.q_proj",
    "attn.key": "self_attn.k_proj",
    "attn.value": "self_attn.v_proj",
    "attn.out": "self_attn.o_proj",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
}


def transformers_name(name: str) -> str:
    """The name in `transformers` of a parameter's dotted name here: `model.norm.weight` for `norm.scale`."""
    if name in _WHOLE:
        return _WHOLE[name]
    for ours, theirs in _PARTS.items():
        name = name.replace(ours, theirs)
    return re.sub(r"^blocks\.", "model.layers.", name)


def from_transformers(tensors: Mapping[str, Any], config: LlamaConfig) -> Parameters:
    """Parameters from tensors by their names in `transformers`.

    Arguments:
        tensors: name -> array; a tied model may repeat its embedding as its head.
        config: the sizes of the model.

    Returns:
        float32 arrays, nested as `llama.initial_parameters` makes them.

    Raises:
        MissingWeights, UnexpectedWeights, MisshapenWeights: the tensors are of another model.
    """
    weights = {name: tensor for name, tensor in tensors.items() if not _CONSTANT.fullmatch(name)}
    if config.tied:
        weights = without_tied_head(weights, _EMBEDDING, "this Llama")
    return read(weights, parameter_shapes(config), _renamed, config)


def to_transformers(parameters: Parameters) -> dict[str, Any]:
    """Parameters by their names in `transformers`, without a head that is the token embedding."""
    return written(parameters, _renamed)


def _renamed(name: str) -> tuple[str, bool]:
    return transformers_name(name), name.startswith("blocks.") and name.endswith(".weight")
