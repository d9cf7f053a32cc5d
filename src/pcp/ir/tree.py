"""Nested containers (pytrees) of arguments and results: flattened to leaves, rebuilt, and written as JSON.

Dictionaries, lists, tuples, named tuples and None are containers; anything else is a leaf. The structure must survive a trip to
another machine, which is why it is a plain value with a JSON form.

The leaves of a dictionary stand in the order of its sorted keys, so dictionaries are matched by their keys and never by the
order in which these were entered. One that is rebuilt has the caller's order nevertheless, so that `zip(params.values(),
grads.values())` pairs what belongs together. It is an `OrderedDict` where the caller's was: JAX takes the leaves of one in that
order.
"""

import functools
import json
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pcp.errors import PCPError
from pcp.ir.nesting import check_depth


class TreeMismatch(PCPError):
    """Arguments whose nesting is not that of the program."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The structure of a nested container.

    Arguments:
        kind: `leaf`, `none`, `dict`, `list`, `tuple`, or `namedtuple:NAME`.
        keys: keys of a dictionary, sorted, field names of a named tuple, else empty.
        children: structures of the values, in order.
        order: the places among `keys` in which a dictionary was entered; empty if they are sorted. Two structures that differ
            in nothing else are equal.
        ordered: whether a dictionary is an `OrderedDict`; as `order`.
    """

    kind: str
    keys: tuple[str | int, ...] = ()
    children: tuple["Tree", ...] = ()
    order: tuple[int, ...] = field(default=(), compare=False)
    ordered: bool = field(default=False, compare=False)

    @property
    def leaf_count(self) -> int:
        """Number of leaves."""
        return 1 if self.kind == "leaf" else sum(child.leaf_count for child in self.children)

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The nested container with `leaves` in place.

        Raises:
            TreeMismatch: there are more or fewer leaves than places.
        """
        values = list(leaves)
        if len(values) != self.leaf_count:
            raise TreeMismatch(f"{len(values)} leaves were given for a structure with {self.leaf_count}")
        return _build(self, iter(values))

    def names(self, prefix: str = "") -> list[str]:
        """A dotted name for every leaf: `params.blocks.0.w`."""
        if self.kind == "leaf":
            return [prefix]
        keys = self.keys or range(len(self.children))
        joined = [f"{prefix}.{key}" if prefix else str(key) for key in keys]
        return [name for key, child in zip(joined, self.children, strict=True) for name in child.names(key)]

    def to_json(self) -> str:
        """The structure as one line of JSON."""
        return json.dumps(_encode(self), separators=(",", ":"))

    def orders(self) -> str:
        """The orders in which dictionaries were entered, as one line of JSON: apart from the structure, which earlier versions
        read; empty if all are sorted."""
        orders = [
            [int(tree.ordered), *tree.order] if tree.ordered or tree.order else None
            for tree in self._dictionaries()
        ]
        return json.dumps(orders, separators=(",", ":")) if any(orders) else ""

    def with_orders(self, text: str) -> "Tree":
        """The structure with what `orders` wrote.

        Raises:
            ValueError: it did not write this of such a structure.
        """
        try:
            return self._ordered(iter(json.loads(text)))
        except (TypeError, AttributeError, StopIteration, RecursionError, RuntimeError) as error:
            raise ValueError(f"{text[:60]!r} is no order of {self}: {error}") from None

    def _dictionaries(self) -> Iterator["Tree"]:
        if self.kind == "dict":
            yield self
        for child in self.children:
            yield from child._dictionaries()

    def _ordered(self, orders: Iterator[Any]) -> "Tree":
        own = next(orders) if self.kind == "dict" else None
        children = tuple([child._ordered(orders) for child in self.children])
        if own is None:
            return replace(self, children=children)
        ordered, *order = own
        if ordered not in (0, 1) or (order and sorted(order) != list(range(len(self.keys)))):
            raise TypeError(f"{own} is no order of {len(self.keys)} keys")
        return replace(self, children=children, order=tuple(order), ordered=bool(ordered))

    @staticmethod
    def from_json(text: str) -> "Tree":
        """The structure that `to_json` wrote.

        Raises:
            ValueError: it did not write this.
        """
        try:
            return _decode(json.loads(text))
        except (TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{text[:60]!r} is not a structure: {error}") from None

    def __str__(self) -> str:
        if self.kind == "leaf":
            return "*"
        inner = [str(child) for child in self.children]
        if self.keys:
            inner = [f"{key}: {child}" for key, child in zip(self.keys, inner, strict=True)]
        left, right = {"dict": "{}", "list": "[]", "none": ("None", "")}.get(self.kind, "()")
        return left + ", ".join(inner) + right


LEAF = Tree("leaf")


def flatten(value: Any) -> tuple[list[Any], Tree]:
    """The leaves of a nested container in order, and its structure.

    Raises:
        NestedTooDeeply: containers hold one another more than 100 deep, or hold themselves.
    """
    leaves: list[Any] = []
    return leaves, _flatten(value, leaves)


def flatten_like(tree: Tree, value: Any, what: str = "argument") -> list[Any]:
    """The leaves of `value`, whose structure must be `tree`.

    Raises:
        TreeMismatch: the structures differ; the message names the first place where they do.
    """
    leaves, nesting = flatten(value)
    if nesting != tree:
        place, expected, actual = _difference(tree, nesting, what)
        raise TreeMismatch(f"{place} is {actual}, but the program expects {expected}")
    return leaves


def map_tree(function: Callable[..., Any], value: Any, *others: Any) -> Any:
    """A container nested like `value` whose leaves are `function` of the leaves at the same places.

    Raises:
        TreeMismatch: one of `others` is nested otherwise.
    """
    leaves, tree = flatten(value)
    columns = [leaves, *(flatten_like(tree, other) for other in others)]
    return tree.unflatten(function(*row) for row in zip(*columns, strict=True))


def _flatten(value: Any, leaves: list[Any], depth: int = 0) -> Tree:
    check_depth(depth, "containers", "make them flatter")
    if value is None:
        return Tree("none")
    if isinstance(value, dict):
        entered = tuple(value)
        keys = tuple(sorted(entered, key=lambda key: (isinstance(key, str), key)))
        children = tuple(_flatten(value[key], leaves, depth + 1) for key in keys)
        order = () if keys == entered else tuple(map(keys.index, entered))
        return Tree("dict", keys, children, order, isinstance(value, OrderedDict))
    if isinstance(value, list):
        return Tree("list", (), tuple(_flatten(item, leaves, depth + 1) for item in value))
    if isinstance(value, tuple):
        fields: Sequence[str] = getattr(value, "_fields", ())
        kind = f"namedtuple:{type(value).__name__}" if fields else "tuple"
        return Tree(kind, tuple(fields), tuple(_flatten(item, leaves, depth + 1) for item in value))
    leaves.append(value)
    return LEAF


def _build(tree: Tree, leaves: Iterator[Any]) -> Any:
    if tree.kind == "leaf":
        return next(leaves)
    if tree.kind == "none":
        return None
    children = [_build(child, leaves) for child in tree.children]
    if tree.kind == "dict":
        pairs = list(zip(tree.keys, children, strict=True))
        return (OrderedDict if tree.ordered else dict)([pairs[i] for i in tree.order] or pairs)
    if tree.kind == "list":
        return children
    if tree.kind == "tuple":
        return tuple(children)
    name = tree.kind.partition(":")[2]
    return named_tuple(name, tree.keys)(*children)


@functools.lru_cache(maxsize=512)
def named_tuple(name: str, fields: tuple[str | int, ...]) -> type[tuple[Any, ...]]:
    """The class of named tuples of that name and fields, one for all that are rebuilt.

    Raises:
        ValueError, TypeError: Python allows no such names.
    """
    return namedtuple(name, fields)  # type: ignore[arg-type]  # whose names are data here


def _difference(expected: Tree, actual: Tree, place: str) -> tuple[str, str, str]:
    """Where two structures first differ, and what stands there in each."""
    same_shape = (expected.kind, expected.keys, len(expected.children)) == (
        actual.kind,
        actual.keys,
        len(actual.children),
    )
    if not same_shape:
        return place, _describe(expected), _describe(actual)
    keys = expected.keys or range(len(expected.children))
    for key, left, right in zip(keys, expected.children, actual.children, strict=True):
        if left != right:
            return _difference(left, right, f"{place}.{key}")
    return place, _describe(expected), _describe(actual)


def _describe(tree: Tree) -> str:
    if tree.kind == "leaf":
        return "an array"
    if tree.kind == "none":
        return "None"
    if tree.keys:
        return f"a {tree.kind.partition(':')[0]} with keys {', '.join(map(str, tree.keys))}"
    return f"a {tree.kind} of {len(tree.children)}"


def _encode(tree: Tree) -> Any:
    if tree.kind == "leaf":
        return "*"
    return [tree.kind, list(tree.keys), [_encode(child) for child in tree.children]]


def _decode(value: Any) -> Tree:
    if value == "*":
        return LEAF
    kind, keys, children = value
    name = kind.removeprefix("namedtuple:")
    known = kind in ("none", "dict", "list", "tuple") or bool(name != kind and named_tuple(name, tuple(keys)))
    keyed = kind == "dict" or name != kind
    if not known or len(keys) != (len(children) if keyed else 0) or (kind == "none" and children):
        raise ValueError(f"{kind!r} with keys {keys} is not a container")
    if any(not isinstance(key, int | str) for key in keys) or len(set(keys)) != len(keys):
        raise ValueError(f"the keys {keys} are not distinct integers and strings")
    return Tree(kind, tuple(keys), tuple(_decode(child) for child in children))
