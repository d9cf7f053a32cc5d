"""GPT-2's parameters under the names that the `transformers` library gives them, from and to its files.

Both lay a linear layer out as (inputs, outputs), so only names differ: `transformer.h.0.attn.c_attn.weight` is
`blocks.0.attn.qkv.weight` here. The head is tied to the token embedding in both.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.ir.tree import flatten, map_tree
from pcp.models.gpt2 import GPT2Config, Parameters, parameter_shapes

_PREFIX = "transformer."
_HEAD = "lm_head.weight"
# Constants that older files hold beside the weights: the causal mask of each block.
_CONSTANT = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")
_PARTS = {
    "attn.qkv": "attn.c_attn",
    "attn.out": "attn.c_proj",
    "mlp.up": "mlp.c_fc",
    "mlp.down": "mlp.c_proj",
}
_LISTED = 6


class WeightsMismatch(PCPError):
    """Weights of another model than the configuration's."""


class MissingWeights(WeightsMismatch):
    """Tensors that the model needs are absent."""


class UnexpectedWeights(WeightsMismatch):
    """Tensors that the model has no place for."""


class MisshapenWeights(WeightsMismatch):
    """A tensor of another shape than the model's, or of no floating-point type."""


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
    given = {
        name if name.startswith(_PREFIX) or name == _HEAD else _PREFIX + name: tensor
        for name, tensor in tensors.items()
        if not _CONSTANT.fullmatch(name.removeprefix(_PREFIX))
    }
    head = given.pop(_HEAD, None)
    shapes, tree = flatten(parameter_shapes(config))
    wanted = {transformers_name(name): leaf.shape for name, leaf in zip(tree.names(), shapes, strict=True)}
    _check_names(given, wanted, config)
    for name, shape in wanted.items():
        found = given[name]
        if tuple(found.shape) != shape or not _is_float(found):
            raise MisshapenWeights(
                f"tensor {name} is {found.dtype}{list(found.shape)}; {config} needs floats of shape {list(shape)}"
            )
    if head is not None and not np.array_equal(head, given[f"{_PREFIX}wte.weight"]):
        raise UnexpectedWeights(
            f"{_HEAD} differs from {_PREFIX}wte.weight; PCP's GPT-2 uses the token embedding as its head "
            "and cannot hold a separate one"
        )
    parameters: Parameters = tree.unflatten(np.asarray(given[name], np.float32) for name in wanted)
    return parameters


def to_transformers(parameters: Parameters) -> dict[str, Any]:
    """Parameters by their names in `transformers`, without the head, which is the token embedding."""
    leaves, tree = flatten(map_tree(np.asarray, parameters))
    return dict(zip(map(transformers_name, tree.names()), leaves, strict=True))


def _check_names(given: Mapping[str, Any], wanted: Mapping[str, Any], config: GPT2Config) -> None:
    missing = [name for name in wanted if name not in given]
    if missing:
        raise MissingWeights(f"{_few(missing)} of {len(wanted)} missing, and {config} needs them")
    extra = [name for name in given if name not in wanted]
    if extra:
        raise UnexpectedWeights(f"{_few(extra)} given, and {config} does not have them")


def _few(names: list[str]) -> str:
    """At most six names, and how many tensors there are."""
    rest = f", and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{len(names)} tensors ({', '.join(names[:_LISTED])}{rest})"


def _is_float(tensor: Any) -> bool:
    return bool(np.can_cast(tensor.dtype, np.float64) and np.dtype(tensor.dtype).kind not in "biu")
