"""GPT-2's parameters under the names that the `transformers` library gives them, from and to its files.

Both lay a linear layer out as (inputs, outputs), so only names differ: `transformer.h.0.attn.c_attn.weight` is
`blocks.0.attn.qkv.weight` here. The head is tied to the token embedding in both.
"""

import re
from collections.abc import Mapping
from typing import Any

from pcp.models.gpt2 import GPT2Config, parameter_shapes
from pcp.models.parameters import Parameters
from pcp.models.transformers_weights import HEAD, read, without_tied_head, written

_PREFIX = "transformer."
# Constants that older files hold beside the weights: the causal mask of each block.
_CONSTANT = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")
_PARTS = {
    "attn.qkv": "attn.c_attn",
    "attn.out": "attn.c_proj",
    "mlp.up": "mlp.c_fc",
    "mlp.down": "mlp.c_proj",
}


def transformers_name(name: str) -> str:
    """The name in `transformers` of a parameter's dotted name here: `transformer.ln_f.weight` for `ln_f.scale`."""
    name = re.sub(r"^blocks\.", "h.", name)
    for ours, theirs in _PARTS.items():
        name = name.replace(ours, theirs)
    name = re.sub(r"\.scale$", ".weight", name)
    return _PREFIX + (name if "." in name else f"{name}.weight")


def from_transformers(tensors: Mapping[str, Any], config: GPT2Config) -> Parameters:
    """Parameters from tensors by their names in `transformers`, with or without the prefix `transformer.`.

    Arguments:
        tensors: name -> array.
        config: the sizes of the model.

    Returns:
        float32 arrays, nested as `gpt2.initial_parameters` makes them.

    Raises:
        MissingWeights, UnexpectedWeights, MisshapenWeights: the tensors are of another model.
    """
    weights = {
        name if name.startswith(_PREFIX) or name == HEAD else _PREFIX + name: tensor
        for name, tensor in tensors.items()
        if not _CONSTANT.fullmatch(name.removeprefix(_PREFIX))
    }
    own = without_tied_head(weights, f"{_PREFIX}wte.weight", "PCP's GPT-2")
    return read(own, parameter_shapes(config), _renamed, config)


def to_transformers(parameters: Parameters) -> dict[str, Any]:
    """Parameters by their names in `transformers`, without the head, which is the token embedding."""
    return written(parameters, _renamed)


def _renamed(name: str) -> tuple[str, bool]:
    return transformers_name(name), False
