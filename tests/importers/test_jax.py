"""Functions of JAX become Programs that compute the same, under names that a reader knows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.importers import jax as importer
from pcp.importers.imported_module import NotImportable
from pcp.importers.jax_trees import PrecisionMismatch
from pcp.ir import TreeMismatch
from pcp.ir.tree import map_tree
from pcp.planning.measuring.random_inputs import Recipe, random_arguments
from pcp.tracing import InvalidArgument

Array = Any


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def same_as_jax(function: Callable[..., Any], *arguments: Any) -> pcp.Program:
    """Import a function, compare its results with JAX's, return the Program."""
    program = pcp.from_jax(function, *arguments)
    mine = run(program, *pcp.jax_arrays(arguments))
    theirs = pcp.jax_arrays(function(*arguments))
    map_tree(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), mine, theirs)
    return program


class Moments(NamedTuple):
    mean: Array
    count: Array


@jax.tree_util.register_dataclass
@dataclass
class Layer:
    weight: Array
    bias: Array
    activation: Any
    rate: float

    def __call__(self, x: Array) -> Array:
        return self.activation(x @ self.weight + self.bias) * self.rate


def test_names_roles_and_nesting_are_those_of_a_trace() -> None:
    params = {"blocks": [{"w": normal(3, 3)}], "out": (normal(3),)}

    def loss(params: Any, x: Array) -> Any:
        return {"loss": ((x @ params["blocks"][0]["w"]) * params["out"][0]).sum(), "x": [x]}

    imported, traced = (
        make(loss, params, pcp.spec((2, 3), "f32", "state"), roles=["weight", "input"])
        for make in (pcp.from_jax, pcp.trace)
    )
    assert imported.arguments == traced.arguments
    assert imported.results == traced.results
    assert (imported.argument_tree, imported.result_tree) == (traced.argument_tree, traced.result_tree)
    x = normal(2, 3)
    expected = loss(params, x)
    np.testing.assert_allclose(run(imported, params, x)["loss"], expected["loss"], rtol=1e-5)


def test_leaves_say_their_role() -> None:
    program = pcp.from_jax(
        lambda a, b, c, d, e: (a + b + c + d, jax.random.normal(e)),
        normal(2),
        pcp.spec((2,), "f32"),
        jax.ShapeDtypeStruct((2,), "float32"),
        1.5,
        jax.random.key(0),
    )
    assert [(entry.name, str(entry.spec), entry.role.value) for entry in program.arguments] == [
        ("a", "f32[2]", "weight"),
        ("b", "f32[2]", "input"),
        ("c", "f32[2]", "input"),
        ("d", "f32[]", "input"),
        ("e", "u32[2]", "input"),
    ]


def test_a_node_of_another_kind_is_a_dictionary_and_what_is_no_array_is_constant() -> None:
    layers = [Layer(normal(3, 3, seed=i), normal(3), jnp.tanh, 0.5) for i in range(2)]

    def network(layers: list[Layer], x: Array) -> Any:
        for layer in layers:
            x = layer(x)
        return Moments(x, layers[0]), "a word"

    program = same_as_jax(lambda layers, x: network(layers, x)[0].mean, layers, normal(4, 3))
    assert [entry.name for entry in program.arguments] == [
        "layers.0.bias", "layers.0.weight", "layers.1.bias", "layers.1.weight", "x",
    ]  # fmt: skip
    whole = pcp.from_jax(network, layers, normal(4, 3))
    assert [entry.name for entry in whole.results] == ["0.mean", "0.count.bias", "0.count.weight"]
    moments, word = whole.unflatten_results([1, 2, 3])
    assert moments == Moments(1, Layer(3, 2, jnp.tanh, 0.5))
    assert word == "a word"
    assert whole.result_tree.plain().unflatten([1, 2, 3]) == ((1, {"bias": 2, "weight": 3}), None)


def test_a_static_argument_leaves_its_place() -> None:
    def scaled(x: Array, how: str, y: Array) -> Array:
        return x + y if how == "plus" else x - y

    program = pcp.from_jax(scaled, normal(2), "plus", normal(2))
    for how in ("plus", None):
        np.testing.assert_allclose(run(program, normal(2), how, normal(2)), 2 * normal(2), rtol=1e-6)
    with pytest.raises(
        TreeMismatch, match=r"'minus', but the program was made with 'plus', which is fixed in it"
    ):
        run(program, normal(2), "minus", normal(2))


def test_unused_arguments_stay() -> None:
    program = same_as_jax(jax.jit(lambda x, _: x * 2), normal(3), normal(5))
    assert [str(entry.spec) for entry in program.arguments] == ["f32[3]", "f32[5]"]


def test_typed_keys_travel_as_their_data() -> None:
    keys = jax.random.split(jax.random.key(7, impl="rbg"), 2)
    program = same_as_jax(lambda keys: (jax.random.uniform(keys[0]), keys[1]), keys)
    assert [str(entry.spec) for entry in program.arguments] == ["u32[2,4]"]
    assert [str(entry.spec) for entry in program.results] == ["f32[]", "u32[4]"]
    drawn, returned = run(program, keys)
    assert drawn == pytest.approx(float(jax.random.uniform(keys[0])))
    assert jax.random.key_impl(returned) == jax.random.key_impl(keys)
    np.testing.assert_array_equal(jax.random.key_data(returned), jax.random.key_data(keys[1]))
    with pytest.raises(TreeMismatch, match=r"but the program was made with .*rbg"):
        run(program, jax.random.split(jax.random.key(7), 2))


def test_a_state_is_donated_to_its_successor() -> None:
    def step(state: Any, x: Array) -> Any:
        return {"w": state["w"] - x, "n": state["n"] + 1}, x.sum()

    state = {"w": normal(3), "n": np.int32(0)}
    program = pcp.from_jax(step, state, normal(3), roles=["state", "input"])
    assert [entry.alias for entry in program.arguments] == [0, 1, None]
    with pytest.raises(InvalidArgument, match="must return its successor"):
        pcp.from_jax(lambda state: state["w"], state, roles=["state"])


def looped(x: Array) -> Array:
    return jax.lax.scan(lambda c, v: (c * 0.5 + v, c), x[0], x)[1].sum()


@pytest.mark.parametrize(
    "function",
    [
        looped,
        lambda x: jax.checkpoint(jnp.tanh)(x).sum(),
        lambda x: jax.scipy.special.erf(x).sum() + jax.lax.lgamma(jnp.abs(x) + 1).sum(),
        lambda x: jax.lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x).sum(),
        lambda x: jax.jit(lambda y: y * 2, donate_argnums=0)(x).sum(),
        jax.vmap(lambda x: jnp.convolve(x, x).sum()),
    ],
)
def test_transformations_of_jax(function: Any) -> None:
    x = normal(4, 5)
    program = same_as_jax(function, x)
    if program.results[0].spec.shape == ():
        np.testing.assert_allclose(run(pcp.grad(program), x), jax.grad(function)(x), rtol=1e-4, atol=1e-5)


def test_float64_is_imported_where_jax_has_it() -> None:
    with jax.enable_x64(True):
        x = np.random.default_rng(0).normal(size=3)
        program = pcp.from_jax(lambda x: jnp.sin(x) * 2, x)
        assert [str(entry.spec) for entry in (*program.arguments, *program.results)] == ["f64[3]", "f64[3]"]
        np.testing.assert_allclose(run(program, x), np.sin(x) * 2, rtol=1e-15)
    with pytest.raises(PrecisionMismatch, match=r"argument x is f64\[3\], but JAX computes in 32 bits"):
        pcp.from_jax(lambda x: x, x)


def test_annotations_of_sharding_are_left_out() -> None:
    mesh = jax.make_mesh((1,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("a"))

    @jax.jit
    def inner(x: Array) -> Array:
        return jax.lax.with_sharding_constraint(x * 2, sharding) + 1

    program = same_as_jax(lambda x: inner(jax.lax.with_sharding_constraint(x, sharding)), normal(2, 2))
    assert "shard" not in program.text
    assert "mesh" not in program.text
    pcp.Program.from_artifact(program.artifact())


def test_linear_algebra_of_a_library_passes_through() -> None:
    program = same_as_jax(lambda x: jnp.linalg.eigh(x @ x.T)[0], normal(3, 3))
    assert "custom_call" in program.text


POSITIVE = np.eye(3, dtype=np.float32) * 3 + 0.3 * normal(2, 3, 3)


@jax.jit
def decomposed(x: Array) -> Array:
    """Every way of factoring and solving that LAPACK is asked for, one term each."""
    terms = [jnp.linalg.cholesky(x) ** 2, jnp.linalg.cholesky(x, upper=True) * x]
    for lower, trans, unit in [(True, 0, False), (False, 1, False), (False, 2, True)]:
        solved = jax.scipy.linalg.solve_triangular(x, x @ x, lower=lower, trans=trans, unit_diagonal=unit)
        terms.append(jnp.sin(solved))
    terms.append(jax.scipy.linalg.cho_solve((x[0], True), x[1]))
    return jnp.stack([term.sum() for term in terms])


def test_linear_algebra_that_stablehlo_has_is_differentiated() -> None:
    program = same_as_jax(decomposed, POSITIVE)
    assert "custom_call" not in program.text
    gradient = run(pcp.grad(pcp.from_jax(lambda x: decomposed(x).sum(), POSITIVE)), POSITIVE)
    expected = jax.jit(jax.grad(lambda x: decomposed(x).sum()))(POSITIVE)
    np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-4)


def test_a_matrix_without_a_factor_gives_nan() -> None:
    assert np.isnan(run(pcp.from_jax(jnp.linalg.cholesky, POSITIVE), -POSITIVE)).any()


def printed(x: Array) -> Array:
    jax.debug.print("{}", x)
    return x


def ordered(x: Array) -> Array:
    return jax.experimental.io_callback(lambda x: x, x, x, ordered=True)


@pytest.mark.parametrize("function", [printed, ordered, lambda x: jax.pure_callback(lambda x: x, x, x)])
def test_a_call_back_into_python_is_refused_where_it_stands(function: Any) -> None:
    with pytest.raises(
        NotImportable,
        match=r"custom_call @\w+callback at .*test_jax\.py:\d+, in .*"
        r" cannot be imported: it calls back into Python",
    ):
        pcp.from_jax(function, normal(2))


def test_what_jax_cannot_lower_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotImportable, match=r"JAX has no platform 'nowhere'; choose one of cpu, cuda"):
        pcp.from_jax(lambda x: x, normal(2), platform="nowhere")
    strange = jax.extend.core.Primitive("strange")
    strange.def_abstract_eval(lambda x: x)
    with pytest.raises(
        NotImportable, match=r"JAX has no form of the function for cpu: .*strange.* not found"
    ):
        pcp.from_jax(strange.bind, normal(2))
    monkeypatch.setattr(importer, "LARGEST_MODULE_BYTES", 10_000)
    large = normal(100, 100)
    with pytest.raises(
        NotImportable,
        match=r"closes over large arrays \(the largest f32\[100,100\], used at .*test_jax\.py:\d+, in .*\); give them",
    ):
        pcp.from_jax(lambda x: x @ large, normal(100))


def test_plans_are_measured_on_arrays_like_those_that_were_given() -> None:
    """So a whole step with an optimizer of JAX needs no example: its second moments are not negative, its count is whole."""
    random = np.random.default_rng()
    state = {
        "count": np.int32(3),
        "nu": np.zeros((90, 90), np.float32),
        "w": random.normal(3, 0.5, (90, 90)).astype("f4"),
    }
    given = state | {
        "ids": random.integers(0, 9, 5000).astype("i4"),
        "few": random.normal(size=4).astype("f4"),
    }
    given |= {"key": jax.random.key(0), "shape": jax.ShapeDtypeStruct((3,), "f4"), "number": 2.5}
    program = pcp.from_jax(lambda tree: jnp.sum(tree["w"] / jnp.sqrt(tree["nu"] + tree["count"])), given)
    assert {name.removeprefix("tree.") for name in program.begins} == {"count", "nu", "w", "few", "key"}
    made = random_arguments(program.arguments, Recipe(begins=tuple(program.begins.items())), 0)
    arrays = {
        entry.name.removeprefix("tree."): array for entry, array in zip(program.arguments, made, strict=True)
    }
    assert arrays["count"] == 3
    assert not arrays["nu"].any()
    np.testing.assert_array_equal(arrays["few"], given["few"])
    assert abs(arrays["w"].mean() - 3) < 0.1
    assert 0.4 < arrays["w"].std() < 0.6
