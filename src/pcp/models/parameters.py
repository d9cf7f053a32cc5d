"""The parameters of models: drawn from a seed, described without memory, counted."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.ir import DType, TensorSpec
from pcp.ir.tree import flatten
from pcp.nn.quantised import quantise

Parameters = dict[str, Any]
Leaf = Callable[[tuple[int, ...], float, float], Any]
"""Makes a parameter from its shape, and the deviation and mean that it begins with."""

DEVIATION = 0.02
"""Of weights in the beginning; those that write to the residual stream have it divided by sqrt(2 layers)."""


TABLES = ("wte", "embedding", "head")
"""Names of the tables with a row for each token that scores are products with."""


class InvalidConfiguration(PCPError):
    """A model configuration that no model can have, or a name that no configuration has."""


def drawn(seed: int) -> Leaf:
    """Float32 arrays, normal or, where the deviation is 0, all the mean.

    Arguments:
        seed: of a counter-based generator; equal seeds give equal arrays on every machine.
    """
    generator = np.random.Generator(np.random.Philox(seed))

    def array(shape: tuple[int, ...], deviation: float, mean: float) -> np.ndarray[Any, Any]:
        if not deviation:
            return np.full(shape, mean, np.float32)
        return (generator.standard_normal(shape, np.float32) * np.float32(deviation)).astype(np.float32)

    return array


def described(shape: tuple[int, ...], _deviation: float, _mean: float) -> TensorSpec:
    """The `TensorSpec` of a float32 parameter; no memory is taken."""
    return TensorSpec(shape, DType.f32)


def quantised(parameters: Parameters, form: str) -> Parameters:
    """The same parameters with every matrix of a product, and tables of embeddings, stored in a form of `nn.quantise`.

    What is stored already stays as it is.

    Raises:
        NotQuantisable: there is no such form, or a matrix does not fit it.
    """

    def stored(name: str, value: Any) -> Any:
        if isinstance(value, dict) and "values" in value:  # as a file has it
            return value
        if isinstance(value, dict):
            return {inner: stored(inner, each) for inner, each in value.items()}
        if isinstance(value, list):
            return [stored(name, each) for each in value]
        if name == "weight":
            return quantise(np.asarray(value).T, form)
        return quantise(np.asarray(value), form) if name in TABLES else value

    in_form: Parameters = stored("", parameters)
    return in_form


def parameter_count(parameters: Parameters) -> int:
    """Number of trained values."""
    return sum(math.prod(leaf.shape) for leaf in flatten(parameters)[0])
