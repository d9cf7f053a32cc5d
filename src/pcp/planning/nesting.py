"""Flattening and rebuilding of a known nesting, as fast as Python can: by a function written for it.

A general walk costs about 0.15 us a leaf; a function that consists of the very subscripts costs a third of
that. Keys come from programs, so they enter the source only as literals of integers and strings.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from pcp.ir import Tree
from pcp.ir.tree import named_tuple


class OtherNesting(Exception):
    """The value is not nested as the function was written for; the careful walk decides what to do."""


def flattener(tree: Tree) -> Callable[[Any], list[Any]]:
    """A function from values nested as `tree` to their leaves.

    It raises OtherNesting on a container of another type, size or keys. It does not look at leaves: a
    container in the place of a leaf is returned as one.
    """
    lines: list[str] = []
    leaves: list[str] = []

    def visit(node: Tree, value: str) -> None:
        if node.kind == "leaf":
            leaves.append(value)
            return
        name = f"c{len(lines)}"
        lines.append(f"{name} = {value}")
        if node.kind == "none":
            lines.append(f"if {name} is not None: raise OtherNesting")
            return
        lines.append(
            f"if {_type_test(node, name)} or len({name}) != {len(node.children)}: raise OtherNesting"
        )
        keys = node.keys if node.kind == "dict" else range(len(node.children))
        for key, child in zip(keys, node.children, strict=True):
            visit(child, f"{name}[{key!r}]")

    visit(tree, "value")
    body = [*lines, f"return [{', '.join(leaves)}]"]
    return _function(
        "value", ["try:", *(f" {line}" for line in body), "except KeyError: raise OtherNesting from None"]
    )


def unflattener(tree: Tree) -> Callable[[Sequence[Any]], Any]:
    """A function from a sequence of leaves to values nested as `tree`."""
    lines: list[str] = []
    classes: dict[str, Any] = {}
    count = 0

    def visit(node: Tree) -> str:
        nonlocal count
        if node.kind == "leaf":
            count += 1
            return f"leaves[{count - 1}]"
        if node.kind == "none":
            return "None"
        children = [visit(child) for child in node.children]
        name = f"c{len(lines)}"
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
    if node.kind == "tuple":
        return "(" + "".join(f"{child}, " for child in children) + ")"
    name = f"class{len(classes)}"
    classes[name] = named_tuple(node.kind.partition(":")[2], node.keys)
    return f"{name}({', '.join(children)})"


def _function(
    parameter: str, lines: Sequence[str], names: dict[str, Any] | None = None
) -> Callable[[Any], Any]:
    source = f"def written({parameter}):\n" + "\n".join(f" {line}" for line in lines)
    scope: dict[str, Any] = {"OtherNesting": OtherNesting, **(names or {})}
    exec(compile(source, "<pcp nesting>", "exec"), scope)
    written: Callable[[Any], Any] = scope["written"]
    return written
