"""Written functions flatten and rebuild exactly as the careful walk does, and never run what a program names."""

from collections import namedtuple
from typing import Any

import pytest
from hypothesis import given
from tests.ir.nested_values import Pair, values

from pcp.ir import Tree
from pcp.ir.tree import flatten
from pcp.planning.nesting import OtherNesting, flattener, unflattener


@given(values)
def test_it_flattens_as_the_careful_walk_does(value: Any) -> None:
    leaves, tree = flatten(value)
    assert flattener(tree)(value) == leaves
    rebuilt = unflattener(tree)(leaves)
    assert rebuilt == value
    assert flatten(rebuilt) == (leaves, tree)


@given(values, values)
def test_another_nesting_is_noticed(first: Any, second: Any) -> None:
    (_, tree), (leaves, other) = flatten(first), flatten(second)
    if tree == other:
        assert flattener(tree)(second) == leaves
        return
    try:
        found = flattener(tree)(second)
    except OtherNesting:
        return
    # Only a container in the place of a leaf may pass: whoever takes leaves refuses it.
    assert any(isinstance(leaf, dict | list | tuple) or leaf is None for leaf in found)


def test_keys_are_literals_whatever_they_hold() -> None:
    value = {"'] or exit() or value['": 1, "a\\b\n\"'": 2, "ünï": 3}
    leaves, tree = flatten(value)
    assert flattener(tree)(value) == leaves
    assert unflattener(tree)(leaves) == value


def test_a_kind_that_is_no_container_is_never_written() -> None:
    with pytest.raises(KeyError):
        flattener(Tree("exit()", (), ()))


def test_deep_nesting_is_no_harder() -> None:
    value: Any = 1
    for _ in range(90):
        value = [value]
    leaves, tree = flatten(value)
    assert flattener(tree)(value) == leaves
    assert unflattener(tree)(leaves) == value


def test_a_named_tuple_of_another_name_is_another_nesting() -> None:
    other = namedtuple("Other", ["left", "right"])
    with pytest.raises(OtherNesting):
        flattener(flatten(Pair(1, 2))[1])(other(1, 2))
