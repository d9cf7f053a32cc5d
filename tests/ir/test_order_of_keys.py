"""Dictionaries come back in the caller's order of keys and are matched by their keys, whatever way a program takes."""

import copy
import itertools
import pickle
import re
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pcp
from pcp.ir import InvalidProgram, Program
from pcp.ir.tree import Tree, flatten, map_tree
from pcp.planning.nesting import flattener, unflattener
from pcp.training.run_folder import RunFolder, load_state, save_state

Pair = namedtuple("Pair", ["z", "a"])
A = np.ones((2, 2), np.float32)
P: dict[str, Any] = {
    "w": A, "b": A * 2,
    "nest": {"z": A * 3, 7: A * 4, 3: A * 5, "a": OrderedDict(y=A * 6, x=A * 7)},
    "pair": Pair({"d": A, "c": A}, [A]),
}  # fmt: skip
nested = st.recursive(
    st.integers(0, 9) | st.none(),
    lambda inner: (
        st.dictionaries(st.text("abcz", max_size=2) | st.integers(0, 3), inner, max_size=4)
        | st.dictionaries(st.text("abcz", max_size=2), inner, max_size=3).map(OrderedDict)
        | st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.builds(Pair, inner, inner)
    ),
    max_leaves=12,
)


def shown(value: Any) -> str:
    return repr(value).replace("pcp.ir.tree.", "")


@given(nested)
def test_what_is_flattened_comes_back_as_it_was(value: Any) -> None:
    leaves, tree = flatten(value)
    text, orders = tree.to_json(), tree.orders()
    again = Tree.from_json(text).with_orders(orders) if orders else Tree.from_json(text)
    for each in (tree, again):
        assert shown(each.unflatten(leaves)) == shown(value)
        assert shown(unflattener(each)(leaves)) == shown(value)
    assert flattener(tree)(value) == leaves
    assert again == tree
    assert hash(again) == hash(tree)
    assert shown(map_tree(lambda leaf: leaf, value)) == shown(value)


@given(st.dictionaries(st.text("abcz", max_size=2), st.integers(), min_size=2, max_size=5), st.randoms())
def test_another_order_of_keys_is_the_same_structure(value: dict[str, int], chance: Any) -> None:
    mixed = list(value.items())
    chance.shuffle(mixed)
    assert flatten(dict(mixed)) == flatten(value)


def loss(p: Any, x: Any) -> Any:
    h = x @ p["w"] + p["b"]
    a, pair = p["nest"]["a"], p["pair"]
    return (
        (h * h).sum() + (p["nest"]["z"] * p["nest"][7] * p["nest"][3]).sum() + (a["x"] * a["x"] * a["y"]).sum()
        + (pair.z["d"] * pair.z["d"] * pair.z["c"]).sum() + pair.a[0].sum()
    )  # fmt: skip


def backwards(value: Any) -> Any:
    """The same with every dictionary entered the other way round."""
    if isinstance(value, dict):
        return type(value)((key, backwards(each)) for key, each in reversed(value.items()))
    if isinstance(value, list | tuple):
        made = [backwards(each) for each in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    return value


def order(value: Any) -> Any:
    """The keys of all dictionaries in their order."""
    if isinstance(value, dict):
        return [type(value).__name__, *((key, order(each)) for key, each in value.items())]
    return [order(each) for each in value] if isinstance(value, list | tuple) else None


def test_gradients_and_steps_have_the_order_of_the_parameters(tmp_path: Path) -> None:
    program = pcp.trace(loss, P, pcp.spec((2, 2), "f32"))
    gradient = pcp.grad(program)
    gradient.save(tmp_path / "gradient.pcp")
    forms = [
        gradient,
        pcp.load(tmp_path / "gradient.pcp"),
        pickle.loads(pickle.dumps(gradient)),
        copy.deepcopy(gradient),
    ]
    for form, argument in itertools.product(forms, (P, backwards(P))):
        found = pcp.plan(form, "arena:cpu").run(argument, A)
        assert order(found) == order(P)
        np.testing.assert_array_equal(np.asarray(found["nest"]["a"]["x"]), 2 * 6 * 7 * A)
        np.testing.assert_array_equal(np.asarray(found["nest"]["a"]["y"]), 49 * A)
        np.testing.assert_array_equal(np.asarray(found["pair"].z["d"]), 2 * A)
    step = pcp.training_step(program, pcp.optimizers.adamw(0.1))
    state = step.initial_state(P)
    new, metrics = pcp.plan(step, "arena:cpu").run(state, (A,))
    assert order(new) == order(state)
    assert order(new["optimizer"]["first"]) == order(P)
    assert list(metrics) == ["loss", "gradient_norm", "learning_rate"]


def test_the_order_is_no_part_of_what_a_program_computes() -> None:
    one, other = (pcp.trace(loss, p, pcp.spec((2, 2), "f32")) for p in (P, backwards(P)))
    assert one.digest == other.digest
    assert one.argument_tree == other.argument_tree
    assert [entry.name for entry in one.arguments] == [entry.name for entry in other.arguments]


def test_pairs_of_values_belong_together() -> None:
    function = lambda p, x: ((x @ p["w"] + p["b"]) ** 2).sum()  # noqa: E731
    params = {"w": A, "b": A * 0}
    grads = pcp.plan(pcp.grad(pcp.trace(function, params, A)), "arena:cpu").run(params, A)
    wanted = jax.grad(function)(params, A)
    for name, gradient in zip(params, grads.values(), strict=True):
        np.testing.assert_allclose(np.asarray(gradient), wanted[name])


@jax.tree_util.register_dataclass
@dataclass
class Layer:
    weight: Any
    bias: Any


def test_leaves_go_back_into_the_callers_own_module() -> None:
    module = {"b": Layer(A * 2, A), "a": [Layer(A, A * 3)]}

    def of_jax(m: Any, x: Any) -> Any:
        return ((x * m["b"].weight + m["b"].bias) ** 2).sum() + (
            (x @ m["a"][0].weight) * m["a"][0].bias
        ).sum()

    program = pcp.grad(pcp.from_jax(of_jax, module, A * 3))
    given_ = pcp.jax_arrays(module)
    assert [leaf.tobytes() for leaf in jax.tree.leaves(given_)] == [
        leaf.tobytes() for leaf in jax.tree.leaves(module)
    ]
    found = jax.tree.map(np.asarray, pcp.plan(program, "cpu:0").run(given_, A * 3))
    mine = jax.tree.unflatten(jax.tree.structure(module), jax.tree.leaves(found))
    jax.tree.map(np.testing.assert_allclose, mine, jax.grad(of_jax)(module, A * 3))
    inside = jax.jit(program.to_jax())(given_, A * 3)
    again = jax.tree.unflatten(jax.tree.structure(module), jax.tree.leaves(inside))
    jax.tree.map(np.testing.assert_allclose, again, mine)


def test_a_checkpoint_has_the_order_of_what_is_expected(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.checkpoints.mkdir(parents=True, exist_ok=True)
    save_state(folder, 3, {"w": A, "b": A}, {}, "0" * 64)
    assert list(load_state(folder, 3, {"w": A, "b": A})[1]) == ["w", "b"]


def test_programs_without_orders_are_read_and_wrong_orders_are_refused() -> None:
    program = pcp.trace(lambda p: {"z": p["b"], "a": p["a"]}, {"b": A, "a": A})
    text = program.text
    assert "pcp.results.order" in text
    older = Program.parse("\n".join(_without(line) for line in text.splitlines()))
    assert list(older.result_tree.unflatten([0, 1])) == ["a", "z"]
    assert older.digest == program.digest
    for wrong in ("[[0,1,1]]", "[[2,1,0]]", "[]", "7", "{", "[[0,0,1,2]]", "[3]"):
        with pytest.raises(InvalidProgram, match=r"pcp.results of the program is not a valid structure"):
            _ = Program.parse(
                text.replace('pcp.results.order = "[[0,1,0]]"', f'pcp.results.order = "{wrong}"')
            ).results


def _without(line: str) -> str:
    return re.sub(r', pcp\.(results|arguments)\.order = "[^"]*"', "", line)
