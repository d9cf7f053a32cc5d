"""Nesting: flattened, rebuilt, written as JSON, compared."""

from typing import Any

import pytest
from hypothesis import given
from tests.ir.nested_values import Pair, values

from pcp.ir import Tree, TreeMismatch
from pcp.ir.tree import flatten, flatten_like, map_tree


@given(values)
def test_flattened_and_rebuilt_it_is_the_same(value: Any) -> None:
    leaves, tree = flatten(value)
    assert tree.unflatten(leaves) == value
    assert tree.leaf_count == len(leaves) == len(tree.names())


@given(values)
def test_the_structure_survives_json(value: Any) -> None:
    _, tree = flatten(value)
    assert Tree.from_json(tree.to_json()) == tree


@given(values)
def test_every_leaf_has_a_name_of_its_own(value: Any) -> None:
    def keys(tree: Tree) -> list[Any]:
        return [key for child in tree.children for key in keys(child)] + list(tree.keys)

    _, tree = flatten(value)
    found = keys(tree)
    if not any("." in str(key) or not str(key) or isinstance(key, int) for key in found):
        assert len(set(tree.names("x"))) == tree.leaf_count


@given(values, values)
def test_another_structure_is_refused_and_the_place_named(first: Any, second: Any) -> None:
    (leaves, tree), (_, other) = flatten(first), flatten(second)
    assert flatten_like(tree, first) == leaves
    if tree != other:
        with pytest.raises(TreeMismatch, match=r"(?s)^argument[^ ]* .*is .*, but the program expects "):
            flatten_like(tree, second)


def test_dictionaries_are_in_the_order_of_their_keys() -> None:
    assert flatten({"b": 2, "a": 1})[0] == flatten({"a": 1, "b": 2})[0] == [1, 2]
    assert flatten({"x": 3, 10: 2, 9: 1})[0] == [1, 2, 3]


@pytest.mark.parametrize(
    ("expected", "given", "message"),
    [
        ({"a": 1}, {"b": 1}, "argument is a dict with keys b, but the program expects a dict with keys a"),
        ([1, {"w": 1}], [1, {"w": [1]}], "argument.1.w is a list of 1, but the program expects an array"),
        ((1, 2), [1, 2], "argument is a list of 2, but the program expects a tuple of 2"),
        ((1, 2), (1, None), "argument.1 is None, but the program expects an array"),
        (
            Pair(1, 2),
            (1, 2),
            "argument is a tuple of 2, but the program expects a namedtuple with keys left, right",
        ),
    ],
)
def test_the_first_difference_is_described(expected: Any, given: Any, message: str) -> None:
    with pytest.raises(TreeMismatch, match=f"^{message}$"):
        flatten_like(flatten(expected)[1], given)


def test_as_many_leaves_as_places() -> None:
    with pytest.raises(TreeMismatch, match="3 leaves were given for a structure with 2"):
        flatten((1, 2))[1].unflatten([1, 2, 3])


def test_map_runs_over_several_containers() -> None:
    assert map_tree(lambda a, b: a + b, {"x": [1, 2]}, {"x": [10, 20]}) == {"x": [11, 22]}
    with pytest.raises(TreeMismatch, match=r"argument\.x is a tuple of 2"):
        map_tree(lambda a, b: a + b, {"x": [1, 2]}, {"x": (10, 20)})


def test_it_reads_well() -> None:
    assert str(flatten({"a": [1, None], "b": (2,)})[1]) == "{a: [*, None], b: (*)}"
    assert flatten({"a": [1, {"b": 2}]})[1].names("params") == ["params.a.0", "params.a.1.b"]


@pytest.mark.parametrize(
    "text",
    [
        '["exit()",[],[]]',
        '["dict",["a"],[]]',
        '["dict",[["a"]],["*"]]',
        '["dict",["a","a"],["*","*"]]',
        '["list",["a"],["*"]]',
        '["none",[],["*"]]',
        '["namedtuple:P",["class x"],["*"]]',
        '["namedtuple:1",["x"],["*"]]',
        '["namedtuple:class",["x"],["*"]]',
        '["namedtuple:P",["def"],["*"]]',
        '["namedtuple:P",["_x"],["*"]]',
        '["list",[]]',
        "[]",
        "3",
        "null",
        '"list"',
        "{}",
        "[",
    ],
)
def test_a_structure_that_nothing_wrote_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (each has another reason)
        Tree.from_json(text)
