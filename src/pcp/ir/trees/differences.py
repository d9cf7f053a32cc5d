"""Where two structures differ, in words."""

from typing import TYPE_CHECKING

from pcp.errors import PCPError
from pcp.ir.trees.nodes import Assembled, Constant, Fixed, Wrapped

if TYPE_CHECKING:
    from pcp.ir.tree import Tree


class TreeMismatch(PCPError):
    """Arguments whose nesting is not that of the program."""


def difference(expected: "Tree", actual: "Tree", place: str) -> tuple[str, str, str]:
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
            return difference(left, right, f"{place}.{key}")
    return place, _describe(expected), _describe(actual)


def _describe(tree: "Tree") -> str:
    if isinstance(tree.made, Constant):
        return repr(tree.made.value)[:80]
    if tree.kind == "leaf":
        return "an array"
    if tree.kind == "none":
        return "None"
    name = tree.made.node.type.__name__ if isinstance(tree.made, Assembled) else tree.kind.partition(":")[0]
    if tree.keys or isinstance(tree.made, Assembled):
        return f"a {name} with keys {', '.join(map(str, tree.keys)) or 'of no arrays'}"
    return f"a {tree.kind} of {len(tree.children)}"


def check_fixed(expected: "Tree", actual: "Tree", place: str) -> None:
    """Refuse a node of another type, or with other fixed values, than that with which a program was made.

    Raises:
        TreeMismatch: there is one. Dictionaries in the places of nodes are none.
    """
    mine, theirs = expected.made, actual.made
    if isinstance(mine, Wrapped) and isinstance(theirs, Wrapped) and mine.node == theirs.node:
        return check_fixed(mine.inner, theirs.inner, place)
    if isinstance(mine, Constant) and theirs is not None and theirs.exact != mine.exact:
        raise TreeMismatch(_otherwise(place, _describe(actual), _describe(expected)))
    if isinstance(mine, Assembled | Wrapped) and isinstance(theirs, Assembled | Wrapped):
        if theirs.node != mine.node:
            named = [
                each.type.__name__
                if theirs.node.type is not mine.node.type
                else f"{each.type.__name__} with {_shown(each.fixed)}"
                for each in (theirs.node, mine.node)
            ]
            raise TreeMismatch(_otherwise(place, *named))
        if isinstance(mine, Assembled) and isinstance(theirs, Assembled):
            _check_others(mine, theirs, place)
    keys = expected.keys or range(len(expected.children))
    for key, left, right in zip(keys, expected.children, actual.children, strict=False):
        check_fixed(left, right, f"{place}.{key}")
    return None


def _check_others(mine: Assembled, given: Assembled, place: str) -> None:
    for name, child in mine.others.items():
        other = given.others.get(name)
        if other is None or other.exact != child.exact:
            shown = "an array" if other is None else repr(other.value)[:80]
            raise TreeMismatch(_otherwise(f"{place}.{name}", shown, repr(child.value)[:80]))


def _otherwise(place: str, given: str, made: str) -> str:
    return f"{place} is {given}, but the program was made with {made}, which is fixed in it; trace the function again"


def _shown(fixed: Fixed) -> str:
    value = fixed.value
    parts = value if isinstance(value, tuple) else (value,)
    return ", ".join(repr(each.value if isinstance(each, Fixed) else each) for each in parts)[:80]
