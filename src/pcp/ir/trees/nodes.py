"""Nodes: objects other than Python's containers that hold children: dataclasses, and types that were registered.

What a node holds beside its children, `fixed`, is no part of a structure that is compared, written as JSON or sent; it stays in
this process, so that an object of the caller's type is made again.
"""

import dataclasses
import functools
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pcp.errors import PCPError

STATIC = "static"
"""The entry of a field's metadata that says that it holds no children; equinox and `jax.tree_util` have the same."""

Key = int | str


class InvalidNode(PCPError):
    """A type that is registered as a node and is a container already, or whose children are not named one by one."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A value that is compared: equal if it is the same object, or equal, or a function of the same code.

    Arguments:
        value: anything, hashable or not.
    """

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fixed) and _same(self.value, other.value)

    def __hash__(self) -> int:
        if isinstance(self.value, types.FunctionType):
            return hash(self.value.__code__)
        try:
            return hash(self.value)
        except TypeError:
            return hash(type(self.value))


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    try:
        if isinstance(one, types.FunctionType) and isinstance(other, types.FunctionType):
            cells = ([cell.cell_contents for cell in each.__closure__ or ()] for each in (one, other))
            held = [all(a is b for a, b in zip(*cells, strict=False)), one.__defaults__ == other.__defaults__]
            held += [one.__kwdefaults__ == other.__kwdefaults__, one.__globals__ is other.__globals__]
            return one.__code__ == other.__code__ and all(held)
        return type(one) is type(other) and bool(one == other)
    except Exception:  # whatever a comparison of unknown objects raises, as one of arrays does
        return False


@dataclass(frozen=True, slots=True)
class Node:
    """An object without its children.

    Arguments:
        type: its class.
        names: of its children, in its own order.
        fixed: what else it consists of.
        make: from the children, in that order, to such an object.
    """

    type: type[Any]
    names: tuple[Key, ...]
    fixed: Fixed
    make: Callable[[Sequence[Any]], Any] = dataclasses.field(compare=False)


@dataclass(frozen=True, slots=True)
class Constant:
    """Made instead of None: a value inside of a node that is no array."""

    value: Any

    @property
    def exact(self) -> Any:
        """What is equal for what makes the same."""
        return Fixed(self.value)


@dataclass(frozen=True, slots=True)
class Other:
    """A child in which no array stands; `exact` as of its structure."""

    value: Any = dataclasses.field(compare=False)
    exact: Any


@dataclass(frozen=True, slots=True)
class Assembled:
    """Made of a dictionary: a node with these children, and with others."""

    node: Node
    others: dict[Key, Other]

    @property
    def exact(self) -> Any:
        """What is equal for what makes the same."""
        return self.node, tuple((name, child.exact) for name, child in self.others.items())

    def of(self, keys: Sequence[Key], children: Sequence[Any]) -> Any:
        """The node, from the children of these names."""
        named = dict(zip(keys, children, strict=True))
        return self.node.make(
            [named[name] if name in named else self.others[name].value for name in self.node.names]
        )


@dataclass(frozen=True, slots=True)
class Wrapped:
    """Made of anything: a node whose only child is called `value`, as a Variable of flax is, and of structure `inner`."""

    node: Node
    inner: Any

    @property
    def exact(self) -> Any:
        """What is equal for what makes the same."""
        return self.node, self.inner.exact


@dataclass(frozen=True, slots=True)
class Named:
    """Made of a named tuple: one of the caller's class, instead of one with the same name and fields."""

    type: Any

    @property
    def exact(self) -> Any:
        """What is equal for what makes the same."""
        return self.type


Made = Constant | Assembled | Wrapped | Named

Opened = tuple[Node, list[Any]]
"""A node and its children."""

FINDERS: list[Callable[[Any], Opened | None]] = []
"""Registries of other libraries: each opens an object of a type that it knows, and returns None for any other."""

_LEAVES = {int, float, complex, bool, str, bytes}
_REGISTERED: dict[type[Any], Callable[[Any], Opened]] = {}


def opened(value: Any) -> Opened | None:
    """A node and its children, or None if the value is no node."""
    kind = type(value)
    if kind in _LEAVES or value is None or isinstance(value, dict | list | tuple):
        return None
    if kind in _REGISTERED:
        return _REGISTERED[kind](value)
    for find in FINDERS:
        node = find(value)
        if node is not None:
            return node
    if hasattr(kind, "__dataclass_fields__") and not is_array(value):
        return _open_dataclass(value)
    return None


def is_array(value: Any) -> bool:
    """Whether a value has a shape and an element type, or is a `spec` of such."""
    names = ("dtype", "shape") if hasattr(value, "dtype") else ("spec", "role")
    return all(hasattr(value, name) for name in names) and not isinstance(value, type)


def varies(value: Any) -> bool:
    """Whether a value is an array or a number."""
    return is_array(value) or isinstance(value, int | float | complex)


def register_pytree_node(
    kind: type[Any],
    flatten: Callable[[Any], tuple[Sequence[Any], Any]],
    unflatten: Callable[[Any, Sequence[Any]], Any],
    names: Sequence[Key] | None = None,
) -> None:
    """Make objects of a class containers: arguments and results of Programs may hold them, and come back in that class.

    Dataclasses are containers without this, and so is what is registered with `jax.tree_util`. Arrays among the children, also
    deeper inside, are what a Program takes; all else stands fixed in it.

    Arguments:
        kind: the class, of which no dictionary, list or tuple is an instance.
        flatten: from an object to its children, and anything else that it consists of.
        unflatten: from that and children to an object.
        names: of the children, whose number is then always the same; by default their numbers.

    Raises:
        InvalidNode: it is a container already, or two names are equal.
    """
    if not isinstance(kind, type) or issubclass(kind, dict | list | tuple) or kind in _REGISTERED:
        raise InvalidNode(
            f"{kind!r} was given; expected a class that is no dictionary, list or tuple and is not registered yet"
        )
    if names is not None and len(set(names)) != len(names):
        raise InvalidNode(f"the names {tuple(names)} were given for {kind.__name__}; expected distinct ones")

    def open_(value: Any) -> Opened:
        children, fixed = flatten(value)
        own = tuple(range(len(children))) if names is None else tuple(names)
        if len(own) != len(children):
            raise InvalidNode(
                f"{kind.__name__} has {len(children)} children, but was registered with {len(own)} names: {own}"
            )
        return Node(kind, own, Fixed(fixed), lambda new: unflatten(fixed, new)), list(children)

    _REGISTERED[kind] = open_


@functools.cache
def _fields(kind: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of a dataclass's fields: those that may hold children, and those that do not."""
    fixed = tuple(each.name for each in dataclasses.fields(kind) if each.metadata.get(STATIC))
    return tuple(each.name for each in dataclasses.fields(kind) if each.name not in fixed), fixed


def _open_dataclass(value: Any) -> Opened:
    kind = type(value)
    names, statics = _fields(cast(Any, kind))
    fixed = tuple(Fixed(getattr(value, name, None)) for name in statics)
    make = functools.partial(_make_dataclass, kind, names, fixed)
    return Node(kind, names, Fixed(fixed), make), [getattr(value, name, None) for name in names]


def _make_dataclass(
    kind: type[Any], names: Sequence[str], fixed: Sequence[Fixed], children: Sequence[Any]
) -> Any:
    """An object with these fields. Nothing is run that the class does when it is called: its fields are as they were."""
    instance = object.__new__(kind)
    statics = zip(_fields(cast(Any, kind))[1], (each.value for each in fixed), strict=True)
    for name, child in (*zip(names, children, strict=True), *statics):
        object.__setattr__(instance, name, child)
    return instance
