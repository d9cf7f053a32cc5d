"""The published names of GPT-2's weights, and ours: `transformer.h.0.attn.c_attn.weight` is `blocks.0.attn.qkv.weight`.

Published weights are stored as (inputs, outputs), as ours are, so nothing is transposed. The output projection is the
token embedding; files may repeat it as `lm_head.weight`. Older ones also hold the causal mask, which is no weight.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.ir import DTypeLike
from pcp.ir.tree import flatten
from pcp.ir.types import dtype_of
from pcp.models.gpt2 import GPT2Config, Parameters, parameter_specs

Array = np.ndarray[Any, Any]

PREFIX = "transformer."
HEAD = "lm_head.weight"

# our name -> the published one; {} is the number of the block
_NAMES = {
    "wte": "wte.weight",
    "wpe": "wpe.weight",
    "blocks.{}.ln_1.scale": "h.{}.ln_1.weight",
    "blocks.{}.ln_1.bias": "h.{}.ln_1.bias",
    "blocks.{}.attn.qkv.weight": "h.{}.attn.c_attn.weight",
    "blocks.{}.attn.qkv.bias": "h.{}.attn.c_attn.bias",
    "blocks.{}.attn.out.weight": "h.{}.attn.c_proj.weight",
    "blocks.{}.attn.out.bias": "h.{}.attn.c_proj.bias",
    "blocks.{}.ln_2.scale": "h.{}.ln_2.weight",
    "blocks.{}.ln_2.bias": "h.{}.ln_2.bias",
    "blocks.{}.mlp.up.weight": "h.{}.mlp.c_fc.weight",
    "blocks.{}.mlp.up.bias": "h.{}.mlp.c_fc.bias",
    "blocks.{}.mlp.down.weight": "h.{}.mlp.c_proj.weight",
    "blocks.{}.mlp.down.bias": "h.{}.mlp.c_proj.bias",
    "ln_f.scale": "ln_f.weight",
    "ln_f.bias": "ln_f.bias",
}

_MASK = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")


class WeightsMismatch(PCPError):
    """Weights that are not those of the model: names are missing or too many, or a shape or type is another."""


def published_name(name: str) -> str:
    """The published name, without prefix, of a parameter's dotted name."""
    pattern = re.sub(r"^blocks\.\d+", "blocks.{}", name)
    number = name.split(".")[1] if pattern != name else ""
    return _NAMES[pattern].format(number)


def named_weights(parameters: Parameters) -> dict[str, Any]:
    """The leaves of our nested parameters by their published names, with the prefix `transformer.`."""
    leaves, tree = flatten(parameters)
    return {PREFIX + published_name(name): leaf for name, leaf in zip(tree.names(), leaves, strict=True)}


def parameters_from(arrays: Mapping[str, Array], config: GPT2Config, dtype: DTypeLike = "f32") -> Parameters:
    """Our nested parameters from arrays by their published names.

    Arguments:
        arrays: with or without the prefix `transformer.`; floating-point, of the shapes that `config` says.
        config: the sizes.
        dtype: what the arrays are converted to.

    Raises:
        WeightsMismatch: a name is missing or too many, a shape or type is another, or the output projection is not the
            token embedding.
    """
    given = {name.removeprefix(PREFIX): array for name, array in arrays.items()}
    specs, tree = flatten(parameter_specs(config, dtype))
    wanted = {published_name(name): entry for name, entry in zip(tree.names(), specs, strict=True)}
    extra = [name for name in given if name not in wanted and name != HEAD and not _MASK.fullmatch(name)]
    missing = [name for name in wanted if name not in given]
    if missing or extra:
        parts = [f"{_listed(missing)} missing"] * bool(missing) + [f"{_listed(extra)} too many"] * bool(extra)
        raise WeightsMismatch(f"these are not the weights of {config}: {'; '.join(parts)}")
    for name, entry in wanted.items():
        array = given[name]
        if tuple(array.shape) != entry.shape:
            raise WeightsMismatch(
                f"weight {name} has shape {tuple(array.shape)}; {config} expects {entry.shape}"
            )
        if not dtype_of(array.dtype).is_float:
            raise WeightsMismatch(
                f"weight {name} has element type {array.dtype}; expected floating-point numbers"
            )
    if HEAD in given and not np.array_equal(given[HEAD], given["wte.weight"]):
        raise WeightsMismatch(
            f"{HEAD} differs from wte.weight; in this model the output projection is the embedding"
        )
    typed = dtype_of(dtype).numpy
    made: Parameters = tree.unflatten(np.asarray(given[name], typed) for name in wanted)
    return made


def _listed(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:4])
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"{shown}{more} {'is' if len(names) == 1 else 'are'}"
