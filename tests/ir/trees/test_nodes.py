"""Dataclasses and registered objects as arguments and results: structures, messages, and the way through whole programs."""

import copy
import dataclasses
import pickle
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pcp
from pcp.ir import TreeMismatch
from pcp.ir.tree import flatten, flatten_like, map_tree
from pcp.ir.trees.nodes import Fixed, InvalidNode
from pcp.planning.nesting import OtherNesting, flattener, unflattener

RANDOM = np.random.default_rng()


def normal(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


@dataclass
class Layer:
    weight: Any
    bias: Any = None
    activation: Any = pcp.tanh
    width: int = 3

    def __call__(self, x: Any) -> Any:
        y = x @ self.weight
        return self.activation(y if self.bias is None else y + self.bias)


@dataclass(frozen=True)
class Network:
    name: str
    layers: list[Any]
    scale: Any
    kind: str = field(default="plain", metadata={"static": True})

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x * self.scale


class Pair:
    def __init__(self, left: Any, right: Any, word: str) -> None:
        self.left, self.right, self.word = left, right, word

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pair) and vars(self) == vars(other)


pcp.register_pytree_node(
    Pair, lambda p: ((p.right, p.left), p.word), lambda word, c: Pair(c[1], c[0], word), ("right", "left")
)


def network() -> Network:
    first, second = Layer(normal(3, 4), normal(4)), Layer(normal(4, 2), activation=pcp.exp)
    return Network("n", [first, pcp.sin, second], normal(2))


def loss(model: Any, x: Any) -> Any:
    return (model(x) ** 2).mean()


def as_dictionaries(model: Network) -> dict[str, Any]:
    first, _, second = model.layers
    return {
        "layers": [{"weight": first.weight, "bias": first.bias}, None, {"weight": second.weight}],
        "scale": model.scale,
    }


leaves = st.builds(lambda seed: np.full(2, seed), st.integers(0, 9))
nested = st.recursive(
    leaves,
    lambda inner: (
        st.builds(Layer, inner, st.none() | inner, st.just(pcp.tanh), st.integers(0, 3))
        | st.builds(Pair, inner, inner, st.sampled_from("ab"))
        | st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from("xyz"), inner, max_size=2)
    ),
    max_leaves=8,
)


@given(nested)
def test_an_object_is_made_again_and_is_nested_as_its_dictionaries(value: Any) -> None:
    found, tree = flatten(value)
    numbers = list(range(len(found)))
    again, structure = flatten(tree.unflatten(found))
    assert structure.exact == tree.exact
    assert all(a is b for a, b in zip(found, again, strict=True))
    plain = tree.plain().unflatten(found)
    assert flatten(plain)[1] == tree
    assert not flatten(plain)[1].makes_nodes
    assert pcp.ir.Tree.from_json(tree.to_json()) == tree
    for form in (value, plain):
        assert all(a is b for a, b in zip(flatten_like(tree, form), found, strict=True))
        assert all(a is b for a, b in zip(flattener(tree)(form), found, strict=True))
    written, walked = unflattener(tree)(numbers), tree.unflatten(numbers)
    assert repr(tree.plain().unflatten(numbers)) == repr(unflattener(tree.plain())(numbers))
    assert type(written) is type(walked)


def test_names_are_paths_and_what_is_no_array_is_no_argument() -> None:
    program = pcp.trace(loss, network(), pcp.spec((5, 3), "f32"))
    assert [entry.name for entry in program.arguments] == [
        "model.layers.0.bias", "model.layers.0.weight", "model.layers.2.weight", "model.scale", "x",
    ]  # fmt: skip


def test_gradients_and_steps_come_back_in_the_callers_types(tmp_path: Path) -> None:
    model, x = network(), normal(5, 3)
    program = pcp.trace(loss, model, pcp.spec(x.shape, "f32"))
    gradient = pcp.grad(program)

    def of_jax(given_: Any, x: Any) -> Any:
        first, _, last = given_["layers"]
        hidden = jax.numpy.sin(jax.numpy.tanh(x @ first["weight"] + first["bias"]))
        return ((jax.numpy.exp(hidden @ last["weight"]) * given_["scale"]) ** 2).mean()

    wanted = jax.grad(of_jax)(as_dictionaries(model), x)
    plan = pcp.plan(gradient, "arena:cpu")
    for form in (model, as_dictionaries(model)):
        found = plan.run(form, x)
        assert isinstance(found, Network)
        assert (found.name, found.layers[1], found.layers[2].activation) == ("n", pcp.sin, pcp.exp)
        map_tree(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), wanted, found)
    for here in (copy.deepcopy(gradient), pcp.Program.parse(gradient.text)):
        assert isinstance(pcp.plan(here, "arena:cpu").run(model, x), Network)
    gradient.save(tmp_path / "gradient.pcp")
    for elsewhere in (pcp.load(tmp_path / "gradient.pcp"), pickle.loads(pickle.dumps(gradient))):
        assert elsewhere.digest == gradient.digest
        assert isinstance(pcp.plan(elsewhere, "arena:cpu").run(model, x), OrderedDict)
    assert b".nodes" not in gradient.artifact()
    step = pcp.training_step(program, pcp.optimizers.adamw(0.1))
    state, metrics = pcp.plan(step, "arena:cpu").run(step.initial_state(model), (x,))
    assert isinstance(state["params"], Network)
    assert isinstance(state["optimizer"]["second"].layers[0], Layer)
    assert float(metrics["loss"]) == pytest.approx(float(of_jax(as_dictionaries(model), x)), rel=1e-5)


class Moments(NamedTuple):
    mean: Any
    count: Any = 0


class Nothing(NamedTuple):
    pass


def test_named_tuples_are_of_the_callers_class(tmp_path: Path) -> None:
    program = pcp.trace(lambda m: (m._replace(mean=m.mean * 2), Nothing()), Moments(normal(2), normal()))
    given_ = Moments(normal(2), normal())
    found, nothing = pcp.plan(program, "arena:cpu").run(given_)
    assert (type(found), type(nothing)) == (Moments, Nothing)
    np.testing.assert_array_equal(found.mean, given_.mean * 2)
    program.save(tmp_path / "p.pcp")
    read, empty = pcp.plan(pcp.load(tmp_path / "p.pcp"), "arena:cpu").run(given_)
    assert (type(read).__name__, read._fields, type(empty)) == ("Moments", ("mean", "count"), tuple)
    assert not flatten(read)[1].makes_nodes
    assert flatten(read)[1] == flatten(given_)[1]
    other = namedtuple("Moments", ["mean", "count"])(*given_)  # type: ignore[misc]  # of the same name
    assert type(pcp.plan(program, "arena:cpu").run(other)[0]) is Moments


def test_sizes_may_be_symbols() -> None:
    model = network()
    program = pcp.grad(pcp.trace(loss, model, pcp.spec(("batch", 3), "f32")))
    for rows in (2, 7):
        found = pcp.plan(program.at(batch=rows), "arena:cpu").run(model, normal(rows, 3))
        assert isinstance(found.layers[2], Layer)


def test_a_registered_object_is_an_argument_and_a_result_and_a_carry() -> None:
    def function(pair: Pair) -> tuple[Pair, Pair]:
        def body(carry: Pair, x: Any) -> tuple[Pair, Any]:
            return Pair(carry.right, carry.left + x, carry.word), x

        return Pair(pair.right, pair.left, "new"), pcp.scan(body, pair, np.ones(3, np.float32))[0]

    program = pcp.trace(function, Pair(normal(2), normal(2), "old"))
    given_ = Pair(normal(2), normal(2), "old")
    swapped, carried = pcp.plan(program, "arena:cpu").run(given_)
    assert (swapped.word, carried.word) == ("new", "old")
    np.testing.assert_array_equal(swapped.left, given_.right)
    np.testing.assert_allclose(carried.left, given_.right + 1, rtol=1e-6)
    np.testing.assert_allclose(carried.right, given_.left + 2, rtol=1e-6)


def with_layer(model: Network, **changes: Any) -> Network:
    first, *others = model.layers
    return dataclasses.replace(model, layers=[dataclasses.replace(first, **changes), *others])


FIRST = r"which is fixed in it; trace the function again"
OTHERWISE = {
    rf"argument model\.layers\.0\.width is 4, but the program was made with 3, {FIRST}": lambda m: with_layer(
        m, width=4
    ),
    r"argument model\.layers\.0\.activation is <function exp.*made with <function tanh": lambda m: with_layer(
        m, activation=pcp.exp
    ),
    r"argument model\.layers\.1 is <function cos .* made with <function sin ": lambda m: dataclasses.replace(
        m, layers=[m.layers[0], pcp.cos, m.layers[2]]
    ),
    r"argument model is Network with 'fancy', but the program was made with Network with 'plain'": lambda m: (
        dataclasses.replace(m, kind="fancy")
    ),
    r"argument model\.layers\.2 is a Layer with keys bias, weight, but .* expects a Layer with keys weight": (
        lambda m: dataclasses.replace(m, layers=[*m.layers[:2], with_layer(m).layers[0]])
    ),
    r"argument model\.layers\.0 is Pair, but the program was made with Layer": lambda m: dataclasses.replace(
        m, layers=[Other(m.layers[0].bias, m.layers[0].weight), *m.layers[1:]]
    ),
}


@dataclass
class Other:
    bias: Any
    weight: Any


@pytest.mark.parametrize("message", OTHERWISE)
def test_another_object_is_refused_and_the_place_named(message: str) -> None:
    model = network()
    plan = pcp.plan(pcp.trace(loss, model, pcp.spec((5, 3), "f32")), "arena:cpu")
    other = OTHERWISE[message](model)
    with pytest.raises(TreeMismatch, match=message.replace("Pair", "Other")):
        plan.run(other, normal(5, 3))
    with pytest.raises(OtherNesting):
        flattener(plan.program.argument_tree)((other, normal(5, 3)))


def test_functions_of_the_same_code_are_the_same() -> None:
    def made(times: int) -> Layer:
        scaled = lambda y: y * times  # noqa: E731
        return Layer(normal(3, 3), activation=scaled)

    program = pcp.trace(loss, made(2), pcp.spec((5, 3), "f32"))
    assert flatten_like(program.argument_tree, (made(2), normal(5, 3)))
    with pytest.raises(TreeMismatch, match="fixed in it"):
        flatten_like(program.argument_tree, (made(3), normal(5, 3)))


def test_functions_with_other_defaults_or_names_around_them_are_others() -> None:
    def made(scale: Any, keyword: Any) -> Any:
        def scaled(x: Any, by: Any = scale, *, more: Any = keyword) -> Any:
            return x * by * more

        return scaled

    def of_module(scale: float) -> Any:
        names: dict[str, Any] = {"scale": scale}
        exec(compile("def scaled(x): return x * scale", "<a module>", "exec"), names)
        return names["scaled"]

    assert Fixed(made(2, 1)) == Fixed(made(2, 1))
    assert Fixed(made(2, 1)) != Fixed(made(3, 1))
    assert Fixed(made(2, 1)) != Fixed(made(2, 4))
    assert Fixed(made(np.ones(2), 1)) != Fixed(made(np.zeros(2), 1))
    assert Fixed(of_module(2)) != Fixed(of_module(3))


def test_what_cannot_be_registered_is_refused() -> None:
    for kind in (dict, Pair, 3):
        with pytest.raises(InvalidNode, match=r"expected a class that is no dictionary, list or tuple"):
            pcp.register_pytree_node(kind, lambda v: ((), v), lambda v, _: v)  # type: ignore[arg-type]  # of 3
    with pytest.raises(InvalidNode, match=r"the names \('a', 'a'\) were given for Other; expected distinct"):
        pcp.register_pytree_node(Other, lambda v: ((1, 2), v), lambda v, _: v, ("a", "a"))


def test_a_function_called_with_objects_has_a_program_for_each_that_differs() -> None:
    model, x = network(), normal(5, 3)
    function = pcp.jit(lambda model, x: dataclasses.replace(model, scale=model(x).sum(0)))
    other = dataclasses.replace(model, layers=[model.layers[0], pcp.cos, model.layers[2]])
    first, last = model.layers[0], model.layers[2]
    hidden = np.tanh(x @ first.weight + first.bias)
    for given_, middle in ((model, np.sin), (other, np.cos), (model, np.sin)):
        found = function(given_, x)
        assert isinstance(found, Network)
        wanted = np.exp(middle(hidden) @ last.weight) * model.scale
        np.testing.assert_allclose(found.scale, wanted.sum(0), rtol=1e-4)
