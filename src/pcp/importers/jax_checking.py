"""An imported function beside JAX's own: results and gradients on random inputs."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from pcp.importers.checking import (
    by_argument,
    by_name,
    compare,
    cotangents_of,
    differentiable_arguments,
    random_like,
    values_and_gradients,
)
from pcp.importers.jax_trees import are_keys, is_spec, jax_arrays
from pcp.ir import Program
from pcp.ir.tree import flatten
from pcp.ir.trees.nodes import varies
from pcp.tracing import leaf_spec

_LOG = logging.getLogger("pcp.importers.jax")


def check_beside_jax(function: Callable[..., Any], program: Program, arguments: Sequence[Any]) -> None:
    """Compare a program with the function that it was imported from; where JAX has no gradient, values alone.

    Arguments:
        arguments: as `from_jax` takes them.

    Raises:
        ImportDiffers: a result or a gradient differs.
    """
    leaves, structure = flatten(tuple(arguments), varies)
    rows = zip(leaves, are_keys(structure), strict=True)
    values = [_filled(leaf, is_key, place) for place, (leaf, is_key) in enumerate(rows)]
    filled = structure.unflatten(values)
    nested = jax_arrays(filled)
    wrt = differentiable_arguments(program)
    moving = by_argument(program, wrt, [nested[i] for i in wrt])
    numbered = structure.plain().unflatten(range(len(leaves)))
    places = flatten([numbered[i] for i in wrt])[0]

    def of_moving(arrays: dict[str, Any]) -> list[Any]:
        """The results that have cotangents, of what is differentiated for."""
        whole = list(values)
        for place, array in zip(places, arrays.values(), strict=True):
            whole[place] = array
        return [y for y in flatten(jax_arrays(function(*structure.unflatten(whole))))[0] if _moves(y)]

    cotangents = cotangents_of(program)
    theirs = by_name(jax_arrays(jax.jit(lambda: function(*filled))()), "result")
    expected: dict[str, Any] = {}
    if wrt and cotangents:
        try:
            _, pullback = jax.vjp(
                lambda *arrays: of_moving(dict(zip(moving, arrays, strict=True))), *moving.values()
            )
            gradients = pullback([jax.numpy.asarray(c) for c in cotangents])
            expected = dict(zip(moving, gradients, strict=True))
        except (TypeError, ValueError, NotImplementedError) as error:
            _LOG.warning("JAX has no gradient of this function, so only values are compared: %s", error)
            wrt = []
    results, pulled = values_and_gradients(program, nested, wrt, cotangents)
    compare(function, by_name(results, "result"), theirs)
    if pulled:
        compare(function, by_argument(program, wrt, pulled), expected)


def _filled(leaf: Any, is_key: bool, place: int) -> Any:
    described = is_spec(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)
    if described and is_key:
        return np.random.default_rng(place).integers(0, 1 << 32, leaf.shape, np.uint32)
    return jax.numpy.asarray(random_like(leaf_spec(leaf).spec, place)) if described else leaf


def _moves(value: Any) -> bool:
    return bool(jax.numpy.issubdtype(jax.numpy.result_type(value), jax.numpy.inexact))
