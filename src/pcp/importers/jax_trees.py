"""JAX's pytrees as nested arrays, which is what a Program knows.

What is registered with JAX (a module of equinox or flax, a FrozenDict, a state of optax) is a node (`pcp.ir.trees`): by the
names of its children, so that a weight is called `layers.0.weight`; a node whose only child is called `value`, as a flax
Variable is, is that child. What is no array is a constant of the function.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from pcp.errors import PCPError
from pcp.ir import TensorSpec, Tree
from pcp.ir.tree import flatten
from pcp.ir.trees.nodes import FINDERS, Fixed, Node, Opened, Wrapped, varies
from pcp.tensor import Tensor
from pcp.tracing import ArgumentSpec, OpenArgument


class PrecisionMismatch(PCPError):
    """An argument of 64 bits where JAX computes in 32."""


def is_spec(value: Any) -> bool:
    """Whether a value is what `pcp.spec` makes."""
    return isinstance(value, ArgumentSpec | OpenArgument | TensorSpec)


def jax_arrays(tree: Any) -> Any:
    """The arrays of a JAX pytree, nested as `pcp.from_jax` nests arguments and results, in dictionaries, lists and tuples.

    Programs take pytrees themselves as well. This is for arrays that shall be written to a file or sent.

    Arguments:
        tree: any pytree: parameters of flax, a module of equinox, a tuple of arguments.

    Returns:
        Dictionaries, lists and tuples, with None for a constant, or nothing in a dictionary made of a node; typed PRNG keys are
        their key data. JAX takes its leaves in the order of those of `tree`.
    """
    leaves, structure = flatten(tree, varies)
    return structure.plain().unflatten(leaves)


@dataclass(frozen=True, slots=True)
class KeyData:
    """Typed PRNG keys in a program that is being written: their data, of shape (..., words), and the name of their kind."""

    data: Any
    kind: Any


def _opened_key(value: Any) -> Opened | None:
    """An array of typed PRNG keys, or what stands for one, which wraps its key data."""
    if isinstance(value, KeyData):
        return _key_node(value.kind), [value.data]
    if not is_key(value):
        return None
    kinds: list[Any] = []

    def data(key: Any) -> Any:
        kinds.append(jax.random.key_impl(key))
        return jax.random.key_data(key)

    inner = jax.eval_shape(data, value) if isinstance(value, jax.ShapeDtypeStruct) else data(value)
    return _key_node(kinds[0]), [inner]


def _key_node(kind: Any) -> Node:
    def wrapped(children: Sequence[Any]) -> Any:
        (child,) = children
        if hasattr(child, "__array__") and not isinstance(child, Tensor):
            return jax.random.wrap_key_data(jax.numpy.asarray(child), impl=kind)
        return KeyData(child, kind)

    return Node(jax.Array, ("value",), Fixed(kind), wrapped)


def are_keys(tree: Tree) -> list[bool]:
    """Of every leaf of a structure, whether it is the data of typed PRNG keys."""
    if isinstance(tree.made, Wrapped):
        return [True] if tree.made.node.type is jax.Array else are_keys(tree.made.inner)
    if tree.kind == "leaf":
        return [False]
    return [each for child in tree.children for each in are_keys(child)]


def _opened(value: Any) -> Opened | None:
    """An object of a type that is registered with JAX."""
    found = _opened_key(value)
    if found is not None:
        return found
    try:
        if jax.tree_util.default_registry.flatten_one_level(value) is None:
            return None
    except TypeError:  # a registration that does not take this object
        return None
    paths = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda node: node is not value)
    children: list[tuple[Any, Any]] = paths[0]
    structure: Any = paths[1]
    names = tuple(_name(path[0]) for path, _ in children)
    if len(set(names)) < len(names):
        names = tuple(range(len(names)))
    return Node(type(value), names, Fixed(structure), structure.unflatten), [child for _, child in children]


FINDERS.append(_opened)


def _name(entry: Any) -> int | str:
    for attribute in ("name", "key", "idx"):
        if hasattr(entry, attribute):
            found = getattr(entry, attribute)
            return found if isinstance(found, int | str) else str(found)
    return str(entry)


def is_key(leaf: Any) -> bool:
    """Whether a leaf is an array of typed PRNG keys, or describes one."""
    typed = isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) and not isinstance(leaf.dtype, np.dtype)
    return typed and bool(jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def check_precision(name: str, spec: TensorSpec) -> None:
    """Refuse an argument of 64 bits where JAX would silently make it one of 32.

    Raises:
        PrecisionMismatch: it would.
    """
    if jax.dtypes.canonicalize_dtype(spec.dtype.numpy) != spec.dtype.numpy:
        raise PrecisionMismatch(
            f"argument {name} is {spec}, but JAX computes in 32 bits; work inside of `with jax.enable_x64(True):`, "
            "or give it 32 bits"
        )


def is_number(leaf: Any) -> bool:
    """Whether a leaf is a number of Python's."""
    return isinstance(leaf, bool | int | float | complex) and not isinstance(leaf, np.generic)
