"""Parameters from and to tensors by the names that the `transformers` library gives them, whatever the model is."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.ir.tree import flatten, map_tree
from pcp.models.parameters import Parameters

HEAD = "lm_head.weight"
_LISTED = 6

Rename = Callable[[str], tuple[str, bool]]
"""From a parameter's dotted name to its name in `transformers`, and whether that holds its transpose."""


class WeightsMismatch(PCPError):
    """Weights of another model than the configuration's."""


class MissingWeights(WeightsMismatch):
    """Tensors that the model needs are absent."""


class UnexpectedWeights(WeightsMismatch):
    """Tensors that the model has no place for."""


class MisshapenWeights(WeightsMismatch):
    """A tensor of another shape than the model's, or of no floating-point type."""


def read(tensors: Mapping[str, Any], shapes: Parameters, rename: Rename, config: object) -> Parameters:
    """Float32 parameters, nested like `shapes`.

    Arguments:
        tensors: name -> array; there must be no others.
        config: of the model, for messages.

    Raises:
        MissingWeights, UnexpectedWeights, MisshapenWeights: the tensors are of another model.
    """
    leaves, tree = flatten(shapes)
    wanted = [(*rename(name), leaf.shape) for name, leaf in zip(tree.names(), leaves, strict=True)]
    _check_names(tensors, [name for name, _, _ in wanted], config)
    arrays = []
    for name, transposed, shape in wanted:
        tensor, expected = tensors[name], shape[::-1] if transposed else shape
        if tuple(tensor.shape) != expected or not _is_float(tensor):
            raise MisshapenWeights(
                f"tensor {name} is {tensor.dtype}{list(tensor.shape)}; {config} needs floats of shape {list(expected)}"
            )
        array = np.asarray(tensor, np.float32)
        arrays.append(np.ascontiguousarray(array.T) if transposed else array)
    parameters: Parameters = tree.unflatten(arrays)
    return parameters


def written(parameters: Parameters, rename: Rename) -> dict[str, Any]:
    """The opposite: arrays by their names in `transformers`."""
    leaves, tree = flatten(map_tree(np.asarray, parameters))
    arrays = {}
    for ours, leaf in zip(tree.names(), leaves, strict=True):
        name, transposed = rename(ours)
        arrays[name] = np.ascontiguousarray(leaf.T) if transposed else leaf
    return arrays


def without_tied_head(tensors: Mapping[str, Any], embedding: str, model: str) -> dict[str, Any]:
    """The tensors without a head that is the token embedding once more.

    Raises:
        UnexpectedWeights: it is another one.
    """
    rest = {name: tensor for name, tensor in tensors.items() if name != HEAD}
    if HEAD in tensors and embedding in rest and not np.array_equal(tensors[HEAD], rest[embedding]):
        raise UnexpectedWeights(
            f"{HEAD} differs from {embedding}; {model} uses the token embedding as its head and cannot hold a separate one"
        )
    return rest


def _check_names(tensors: Mapping[str, Any], wanted: list[str], config: object) -> None:
    missing = [name for name in wanted if name not in tensors]
    if missing:
        raise MissingWeights(f"{_few(missing)} of {len(wanted)} missing, and {config} needs them")
    extra = [name for name in tensors if name not in wanted]
    if extra:
        raise UnexpectedWeights(f"{_few(extra)} given, and {config} does not have them")


def _few(names: list[str]) -> str:
    """At most six names, and how many tensors there are."""
    rest = f", and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{len(names)} tensors ({', '.join(names[:_LISTED])}{rest})"


def _is_float(tensor: Any) -> bool:
    return bool(np.can_cast(tensor.dtype, np.float64) and np.dtype(tensor.dtype).kind not in "biu")
