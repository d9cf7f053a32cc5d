"""Nested arguments taken apart and made again by functions that are written for a nesting.

A general walk costs about 0.15 us a leaf, a function that consists of the very subscripts a third of that. Keys come from
programs, so they enter the source only as literals of integers and strings.
"""

import functools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from pcp.ir import Tree
from pcp.ir.tree import flatten_inside, tuple_class
from pcp.ir.trees.nodes import Assembled, Constant, Fixed, Named, Wrapped, opened


class OtherNesting(Exception):
    """The value is not nested as the function was written for; the careful walk decides what to do."""


def flattener(tree: Tree, *, exact: bool = False) -> Callable[[Any], list[Any]]:
    """A function from values nested as `tree` to their leaves.

    Arguments:
        exact: whether a value must be of the very class, and is not taken as what a file holds of it.

    It raises OtherNesting on a container of another type, size or keys. It does not look at leaves: a
    container in the place of a leaf is returned as one.
    """
    lines: list[str] = []
    leaves: list[str] = []
    openers: dict[str, Any] = {}

    def visit(node: Tree, value: str) -> None:
        name = f"c{len(lines)}"
        if node.made is not None and not isinstance(node.made, Named):
            openers[f"open{len(openers)}"] = functools.partial(_parts, node, exact)
            lines.append(f"{name} = open{len(openers) - 1}({value})")
            if isinstance(node.made, Wrapped):
                visit(node.made.inner, name)
            for place, child in enumerate(node.children if isinstance(node.made, Assembled) else ()):
                visit(child, f"{name}[{place}]")
            return
        if node.kind == "leaf":
            leaves.append(value)
            return
        lines.append(f"{name} = {value}")
        if node.kind == "none":
            lines.append(f"if {name} is not None: raise OtherNesting")
            return
        lines.append(
            f"if {_type_test(node, name)} or len({name}) != {len(node.children)}: raise OtherNesting"
        )
        if exact and isinstance(node.made, Named):
            openers[f"class{len(openers)}"] = node.made.type
            lines.append(f"if type({name}) is not class{len(openers) - 1}: raise OtherNesting")
        keys = node.keys if node.kind == "dict" else range(len(node.children))
        for key, child in zip(keys, node.children, strict=True):
            visit(child, f"{name}[{key!r}]")

    visit(tree, "value")
    body = [*lines, f"return [{', '.join(leaves)}]"]
    return _function(
        "value",
        ["try:", *(f" {line}" for line in body), "except KeyError: raise OtherNesting from None"],
        openers,
    )


def _parts(tree: Tree, exact: bool, value: Any) -> Any:
    """The children of a node, or of a dictionary in its place, in the order of the structure's; or what a node wraps.

    Raises:
        OtherNesting: the value is another node, or holds other fixed values, or it is none and has to be exact.
    """
    node, made = opened(value), tree.made
    if isinstance(made, Constant):
        if (value is not None or exact) and Fixed(value) != made.exact:
            raise OtherNesting
        return value
    if node is None and exact:
        raise OtherNesting
    if isinstance(made, Wrapped):
        if node is not None and node[0] != made.node:
            raise OtherNesting
        return value if node is None else node[1][0]
    assert isinstance(made, Assembled)
    if node is None:
        if not isinstance(value, dict) or len(value) != len(tree.keys):
            raise OtherNesting
        return [value[key] for key in tree.keys]
    named = dict(zip(node[0].names, node[1], strict=True))
    if node[0] != made.node or any(
        flatten_inside(named[name])[1].exact != other.exact for name, other in made.others.items()
    ):
        raise OtherNesting
    return [named[key] for key in tree.keys]


def unflattener(tree: Tree) -> Callable[[Sequence[Any]], Any]:
    """A function from a sequence of leaves to values nested as `tree`."""
    lines: list[str] = []
    classes: dict[str, Any] = {}
    count = 0

    def known(value: Any) -> str:
        classes[f"known{len(classes)}"] = value
        return f"known{len(classes) - 1}"

    def visit(node: Tree) -> str:
        nonlocal count
        if isinstance(node.made, Constant):
            return known(node.made.value)
        if isinstance(node.made, Wrapped):
            return f"{known(node.made.node.make)}([{visit(node.made.inner)}])"
        if node.kind == "leaf":
            count += 1
            return f"leaves[{count - 1}]"
        if node.kind == "none":
            return "None"
        children = [visit(child) for child in node.children]
        name = f"c{len(lines)}"
        if isinstance(node.made, Assembled):
            lines.append(f"{name} = {known(node.made.of)}({node.keys!r}, [{', '.join(children)}])")
            return name
        lines.append(f"{name} = {_display(node, children, classes)}")
        return name

    result = visit(tree)
    return _function("leaves", [*lines, f"return {result}"], classes)


_CONTAINERS = {"dict": "dict", "list": "list", "tuple": "tuple"}


def _type_test(node: Tree, name: str) -> str:
    if node.kind.startswith("namedtuple:"):
        actual = f"(type({name}).__name__, getattr({name}, '_fields', None))"
        return f"{actual} != {(node.kind.partition(':')[2], node.keys)!r}"
    if node.ordered:
        return f"not isinstance({name}, dict)"
    if isinstance(node.made, Named):  # one without fields
        return f"not isinstance({name}, tuple)"
    return f"type({name}) is not {_CONTAINERS[node.kind]}"


def _display(node: Tree, children: Sequence[str], classes: dict[str, Any]) -> str:
    if node.kind == "dict":
        entries = [f"{key!r}: {child}" for key, child in zip(node.keys, children, strict=True)]
        shown = "{" + ", ".join([entries[place] for place in node.order] or entries) + "}"
        if not node.ordered:
            return shown
        classes["OrderedDict"] = OrderedDict
        return f"OrderedDict({shown})"
    if node.kind == "list":
        return "[" + ", ".join(children) + "]"
    if node.kind == "tuple" and node.made is None:
        return "(" + "".join(f"{child}, " for child in children) + ")"
    name = f"class{len(classes)}"
    classes[name] = tuple_class(node)._make
    return f"{name}([{', '.join(children)}])"


def _function(
    parameter: str, lines: Sequence[str], names: dict[str, Any] | None = None
) -> Callable[[Any], Any]:
    source = f"def written({parameter}):\n" + "\n".join(f" {line}" for line in lines)
    scope: dict[str, Any] = {"OtherNesting": OtherNesting, **(names or {})}
    exec(compile(source, "<pcp nesting>", "exec"), scope)
    written: Callable[[Any], Any] = scope["written"]
    return written
