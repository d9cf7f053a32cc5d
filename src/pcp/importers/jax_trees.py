"""JAX's pytrees as nested dictionaries, lists and tuples of arrays, which is what a Program knows.

Containers stay what they are. Any other node (a dataclass, a module of equinox or flax, a FrozenDict) becomes an `OrderedDict`
by the names of its children, of which JAX takes the leaves in the order of the node, so that a weight is called
`layers.0.weight`; a node whose only child is called `value`, as a flax Variable is, is that child. What is no array is a
constant of the function and leaves None, or nothing in a dictionary made of such a node.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from pcp.errors import PCPError
from pcp.ir import TensorSpec
from pcp.tracing import ArgumentSpec, OpenArgument


class PrecisionMismatch(PCPError):
    """An argument of 64 bits where JAX computes in 32."""


@dataclass(frozen=True)
class Mark:
    """Stands in a container for the leaf at `index` of a pytree; `varies` unless it is a constant."""

    index: int
    varies: bool


def is_spec(value: Any) -> bool:
    """Whether a value is what `pcp.spec` makes."""
    return isinstance(value, ArgumentSpec | OpenArgument | TensorSpec)


def jax_arrays(tree: Any) -> Any:
    """The arrays of a JAX pytree, nested as `pcp.from_jax` nests arguments and results.

    Arguments:
        tree: any pytree: parameters of flax, a module of equinox, a tuple of arguments.

    Returns:
        Dictionaries, lists and tuples; typed PRNG keys are their key data.
    """
    leaves, treedef = jax_flatten(tree)

    def fill(mark: Mark) -> Any:
        leaf = leaves[mark.index]
        return jax.random.key_data(leaf) if is_key(leaf) else leaf

    return _substitute(containers(leaves, treedef), fill)


def jax_flatten(tree: Any) -> tuple[list[Any], Any]:
    """The leaves of a pytree, what `pcp.spec` makes among them, and its structure."""
    return jax.tree.flatten(tree, is_leaf=is_spec)


def containers(leaves: list[Any], treedef: Any) -> Any:
    """The structure of a pytree as containers of `Mark`s, only of leaves that vary."""
    return _nested(
        treedef.unflatten([Mark(i, _varies(leaf)) for i, leaf in enumerate(leaves)]), leaves, plain=True
    )


def is_key(leaf: Any) -> bool:
    """Whether a leaf is an array of typed PRNG keys."""
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jax.numpy.issubdtype(dtype, jax.dtypes.prng_key)


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


def _varies(leaf: Any) -> bool:
    return is_spec(leaf) or is_number(leaf) or (hasattr(leaf, "shape") and hasattr(leaf, "dtype"))


def _nested(value: Any, leaves: list[Any], plain: bool) -> Any:
    """`plain`: all nodes above are containers of Python's, where a number is an argument and no setting."""
    if value is None:
        return None
    if isinstance(value, Mark):
        return value if value.varies and (plain or not is_number(leaves[value.index])) else None
    if isinstance(value, dict):
        return type_of(value)(_keyed(list(value.items()), leaves, plain))
    if isinstance(value, list):
        return [_nested(item, leaves, plain) for item in value]
    if isinstance(value, tuple):
        items = [_nested(item, leaves, plain) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    children = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda node: node is not value)[0]
    named = [(_key(path[0]), child) for path, child in children]
    if [name for name, _ in named] == ["value"]:
        return _nested(named[0][1], leaves, plain=False)
    entries = _keyed(named, leaves, plain=False)
    # Ordered: JAX takes the leaves of a plain dictionary by sorted keys, and those of the node in its own order.
    return OrderedDict((name, child) for name, child in entries.items() if not _is_empty(child))


def _keyed(items: list[tuple[Any, Any]], leaves: list[Any], plain: bool) -> dict[str | int, Any]:
    return {
        key if isinstance(key, int | str) else str(key): _nested(child, leaves, plain) for key, child in items
    }


def type_of(dictionary: dict[Any, Any]) -> type[dict[Any, Any]]:
    """What a dictionary becomes: `OrderedDict` or `dict`."""
    return OrderedDict if isinstance(dictionary, OrderedDict) else dict


def _is_empty(node: Any) -> bool:
    return node is None or (isinstance(node, dict | list | tuple) and all(map(_is_empty, _children(node))))


def _children(node: Any) -> Any:
    return node.values() if isinstance(node, dict) else node


def _key(entry: Any) -> Any:
    for attribute in ("name", "key", "idx"):
        if hasattr(entry, attribute):
            return getattr(entry, attribute)
    return str(entry)


def _substitute(node: Any, fill: Any) -> Any:
    if isinstance(node, Mark):
        return fill(node)
    if isinstance(node, dict):
        return type_of(node)((key, _substitute(child, fill)) for key, child in node.items())
    if isinstance(node, list):
        return [_substitute(child, fill) for child in node]
    if isinstance(node, tuple):
        items = [_substitute(child, fill) for child in node]
        return type(node)(*items) if hasattr(node, "_fields") else tuple(items)
    return node
