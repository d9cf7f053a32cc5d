"""Nested containers (pytrees) of arguments and results: flattened to leaves, rebuilt, and written as JSON.

Dictionaries, lists, tuples, named tuples and None are containers, and so are dataclasses and registered nodes (`trees.nodes`);
anything else is a leaf. The structure must survive a trip to another machine, so it is a plain value with a JSON form.

A node is in the structure what a dictionary of its children's names is, without those in which no array stands. How it is made
again is beside that, in `made`, which does not count in comparisons or JSON. So a value is taken in either form, and a
structure that was read from a file makes dictionaries. Inside of nodes, what is no array is no leaf but fixed.

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

from pcp.ir.nesting import check_depth
from pcp.ir.trees.differences import TreeMismatch as TreeMismatch
from pcp.ir.trees.differences import check_fixed, difference
from pcp.ir.trees.nodes import (
    Assembled,
    Constant,
    Key,
    Made,
    Named,
    Node,
    Other,
    Wrapped,
    is_array,
    opened,
    varies,
)


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
        made: how an object of the caller's type is made of it; as `order`.
    """

    kind: str
    keys: tuple[str | int, ...] = ()
    children: tuple["Tree", ...] = ()
    order: tuple[int, ...] = field(default=(), compare=False)
    ordered: bool = field(default=False, compare=False)
    made: Made | None = field(default=None, compare=False, repr=False)

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

    @property
    def makes_nodes(self) -> bool:
        """Whether some of it is made as an object of the caller's type."""
        return self.made is not None or any(child.makes_nodes for child in self.children)

    @property
    def exact(self) -> tuple[Any, ...]:
        """What is equal, and hashed alike, for structures that make the same of the same leaves."""
        children = tuple(child.exact for child in self.children)
        return self.kind, self.keys, self.order, self.ordered, self.made and self.made.exact, children

    def plain(self) -> "Tree":
        """The same structure, which makes dictionaries, lists and tuples only."""
        return replace(self, children=tuple(child.plain() for child in self.children), made=None)

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


Holds = Callable[[Any], bool]
"""Whether a value that is no container is a leaf, or else fixed."""


def _anything(_value: Any) -> bool:
    return True


def flatten(value: Any, holds: Holds = _anything) -> tuple[list[Any], Tree]:
    """The leaves of a nested container in order, and its structure.

    Arguments:
        holds: outside of nodes, whether a value is a leaf, or fixed as what is no array is inside of nodes.

    Raises:
        NestedTooDeeply: containers hold one another more than 100 deep, or hold themselves.
    """
    leaves: list[Any] = []
    return leaves, _flatten(value, leaves, holds)


def flatten_inside(value: Any) -> tuple[list[Any], Tree]:
    """As `flatten`, of what stands inside of a node."""
    return flatten(value, is_array)


def flatten_like(tree: Tree, value: Any, what: str = "argument") -> list[Any]:
    """The leaves of `value`, whose structure must be `tree`.

    Raises:
        TreeMismatch: the structures differ; the message names the first place where they do.
    """
    leaves, nesting = flatten(value)
    if nesting != tree and tree.makes_nodes:  # outside of nodes, too, there may be what is fixed
        leaves, nesting = flatten(value, varies)
    if nesting != tree:
        place, expected, actual = difference(tree, nesting, what)
        raise TreeMismatch(f"{place} is {actual}, but the program expects {expected}")
    if tree.makes_nodes:
        check_fixed(tree, nesting, what)
    return leaves


def map_tree(function: Callable[..., Any], value: Any, *others: Any) -> Any:
    """A container nested like `value` whose leaves are `function` of the leaves at the same places.

    Raises:
        TreeMismatch: one of `others` is nested otherwise.
    """
    leaves, tree = flatten(value)
    columns = [leaves, *(flatten_like(tree, other) for other in others)]
    return tree.unflatten(function(*row) for row in zip(*columns, strict=True))


def _flatten(value: Any, leaves: list[Any], holds: Holds, depth: int = 0) -> Tree:
    check_depth(depth, "containers", "make them flatter")
    if value is None:
        return Tree("none")
    if isinstance(value, dict):
        entered = tuple(value)
        keys = _sorted(entered)
        children = tuple(_flatten(value[key], leaves, holds, depth + 1) for key in keys)
        return Tree("dict", keys, children, _order(entered, keys), isinstance(value, OrderedDict))
    if isinstance(value, list):
        return Tree("list", (), tuple(_flatten(item, leaves, holds, depth + 1) for item in value))
    if isinstance(value, tuple):
        fields: Sequence[str] | None = getattr(value, "_fields", None)
        children = tuple(_flatten(item, leaves, holds, depth + 1) for item in value)
        if fields is None:
            return Tree("tuple", (), children)
        own = Named(type(value)) if type(value).__module__ != __name__ else None
        kind = f"namedtuple:{type(value).__name__}" if fields else "tuple"
        return Tree(kind, tuple(fields), children, made=own)
    node = opened(value)
    if node is not None:
        return _flatten_node(*node, leaves, depth)
    if not holds(value):
        return Tree("none", made=Constant(value))
    leaves.append(value)
    return LEAF


def _flatten_node(node: Node, children: Sequence[Any], leaves: list[Any], depth: int) -> Tree:
    if node.names == ("value",):
        inner = _flatten(children[0], leaves, is_array, depth + 1)
        return replace(inner, made=Wrapped(node, inner))
    named = dict(zip(node.names, children, strict=True))
    trees: dict[Key, Tree] = {}
    others: dict[Key, Other] = {}
    for name in _sorted(node.names):
        before = len(leaves)
        child = _flatten(named[name], leaves, is_array, depth + 1)
        if len(leaves) > before:
            trees[name] = child
        else:
            others[name] = Other(named[name], child.exact)
    keys, entered = tuple(trees), [name for name in node.names if name in trees]
    return Tree("dict", keys, tuple(trees.values()), _order(entered, keys), True, Assembled(node, others))


def _sorted(keys: Iterable[Key]) -> tuple[Key, ...]:
    return tuple(sorted(keys, key=lambda key: (isinstance(key, str), key)))


def _order(entered: Sequence[Key], keys: tuple[Key, ...]) -> tuple[int, ...]:
    return () if keys == tuple(entered) else tuple(map(keys.index, entered))


def _build(tree: Tree, leaves: Iterator[Any]) -> Any:
    if isinstance(tree.made, Wrapped):
        return tree.made.node.make([_build(tree.made.inner, leaves)])
    if isinstance(tree.made, Constant):
        return tree.made.value
    if tree.kind == "leaf":
        return next(leaves)
    if tree.kind == "none":
        return None
    children = [_build(child, leaves) for child in tree.children]
    if isinstance(tree.made, Assembled):
        return tree.made.of(tree.keys, children)
    if tree.kind == "dict":
        pairs = list(zip(tree.keys, children, strict=True))
        return (OrderedDict if tree.ordered else dict)([pairs[i] for i in tree.order] or pairs)
    if tree.kind == "list":
        return children
    if tree.kind == "tuple" and tree.made is None:
        return tuple(children)
    return tuple_class(tree)._make(children)


def tuple_class(tree: Tree) -> Any:
    """The class of the named tuples of a structure: the caller's, where it is known."""
    if isinstance(tree.made, Named):
        return tree.made.type
    return named_tuple(tree.kind.partition(":")[2], tree.keys)


@functools.lru_cache(maxsize=512)
def named_tuple(name: str, fields: tuple[str | int, ...]) -> type[tuple[Any, ...]]:
    """The class of named tuples of that name and fields, one for all that are rebuilt.

    Raises:
        ValueError, TypeError: Python allows no such names.
    """
    return namedtuple(name, fields, module=__name__)  # type: ignore[arg-type]  # whose names are data here


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
