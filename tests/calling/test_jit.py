"""`pcp.jit`: functions that are called with arrays."""

import collections
import dataclasses
import logging
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp.calling import jit as jit_module
from pcp.calling import programs
from pcp.calling.jit import UnknownSetting
from pcp.calling.kept import Kept
from pcp.calling.signature import NoArrayGiven, StaticArgument
from pcp.ir.expecting import WrongArguments

GENERATOR = np.random.default_rng()
X = GENERATOR.normal(size=(3, 4)).astype(np.float32)
W = GENERATOR.normal(size=(4, 2)).astype(np.float32)


def test_results_are_arrays_of_jax_nested_as_the_function_returns_them() -> None:
    @pcp.jit
    def predict(x: Any, params: Any, *, scale: float = 1.0) -> Any:
        return {"y": pcp.tanh(x @ params["w"]) * scale, "first": (x[0], params["w"])}

    found = predict(X, {"w": W})
    assert isinstance(found["y"], jax.Array)
    np.testing.assert_allclose(found["y"], np.tanh(X @ W), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found["first"][0], X[0])
    for scale in (2.5, 3.5):
        np.testing.assert_allclose(
            predict(jnp.asarray(X), {"w": pcp.array(W)}, scale=scale)["y"],
            scale * np.tanh(X @ W),
            rtol=1e-5,
            atol=1e-6,
        )
    assert predict.explain().count("\n") == 1, predict.explain()


def test_it_says_why_it_plans_again(caplog: pytest.LogCaptureFixture) -> None:
    @pcp.jit(device="arena:cpu", static_argnames="power")
    def f(x: Any, power: int = 2, shift: Any = None) -> Any:
        return x**power if shift is None else x**power + shift

    with caplog.at_level(logging.INFO, "pcp.calling"):
        assert "not called yet" in f.explain()
        for _ in range(2):
            np.testing.assert_allclose(f(X), X**2, rtol=1e-6)
        f(X[:2])
        f(X[:2], power=3)
        f(X[:2], 3, X[:2].astype(np.float64))
    assert f.explain().splitlines() == [
        "f is traced and planned for x: f32[3,4]",
        "f is traced and planned again: x is f32[2,4] and was f32[3,4]",
        "f is traced and planned again: power was given, as 3 (static)",
        "f is traced and planned again: shift was given, as f64[2,4]",
    ]
    assert [record.message for record in caplog.records] == f.explain().splitlines()


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray, pcp.asarray])
def test_a_call_like_the_last_is_the_last_plan_and_any_other_is_not(kind: Any) -> None:
    f = pcp.jit(lambda x, y=None: x["a"] * 2 if y is None else x["a"] + y)
    given = {"a": kind(X)}
    for _ in range(2):
        np.testing.assert_array_equal(f(given), 2 * X)
    assert f._recent is not None
    assert f._recent.knows((given,))
    for other in (
        {"a": kind(X[:2])},
        {"b": kind(X)},
        {"a": kind(X.astype(np.int32))},
        kind(X),
        {"a": X.tolist()},
    ):
        assert not f._recent.knows((other,))
    np.testing.assert_array_equal(f(given, kind(X)), 2 * X)
    np.testing.assert_array_equal(f({"a": kind(X[:2])}), 2 * X[:2])
    np.testing.assert_array_equal(f(given), 2 * X)


def test_plans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit_module, "STORE", Kept(2))
    monkeypatch.setattr(programs, "STORE", Kept(2))
    f = pcp.jit(lambda x: x + 1, device="arena:cpu")
    for size in (1, 2, 3, 3, 1):
        assert f(np.zeros(size, np.float32)).shape == (size,)
    assert f.explain().count("planned") == 4
    assert repr(f) == "pcp.jit(<lambda>)"


def test_functions_that_compute_the_same_share_a_plan() -> None:
    """As those that are made anew in every call; other names, settings and containers are others."""
    x = np.ones((3, 7), np.float32)

    def made(scale: float, **settings: Any) -> Any:
        return pcp.jit(lambda x: {"y": pcp.tanh(x) * scale}, device="arena:cpu", **settings)

    plans = [made(2.5).plan(x) for _ in range(2)]
    assert plans[0] is plans[1]
    program = pcp.trace(lambda x: {"y": pcp.tanh(x) * 2.5}, pcp.spec((3, 7), "f32"))
    assert pcp.jit(program, device="arena:cpu").plan is plans[0]
    others = [
        made(2.0).plan(x),
        pcp.jit(lambda z: {"y": pcp.tanh(z) * 2.5}, device="arena:cpu").plan(x),
        pcp.jit(lambda x: {"z": pcp.tanh(x) * 2.5}, device="arena:cpu").plan(x),
        pcp.jit(lambda x: {"y": pcp.tanh(x) * 2.5}, device="cpu:0").plan(x),
        made(2.5, options={}, memory="1GiB").plan(x),
        made(2.5, donate_argnums=0).plan(x),
    ]
    assert len({id(each) for each in (*others, plans[0])}) == len(others) + 1


Pair = collections.namedtuple("Pair", ["left", "right"])
pair = collections.namedtuple("Pair", ["left", "right"])  # another of the same name


@dataclasses.dataclass
class Halves:
    left: Any
    right: Any
    name: str = ""


@dataclasses.dataclass
class Sides:
    left: Any
    right: Any
    name: str = ""


@pytest.mark.parametrize("kind", [Halves, Sides])
def test_what_computes_the_same_and_is_of_other_classes_has_other_plans(kind: Any) -> None:
    """A plan that was made for one class once served all with the same fields."""
    x = np.ones(3, np.float32)
    assert type(pcp.jit(lambda x: kind(x * 2, x), device="arena:cpu")(x)) is kind
    swapped = pcp.jit(lambda both: kind(both.right, both.left, both.name), device="arena:cpu")
    for other in (Halves, Sides):
        assert type(swapped(other(x, x))) is kind
    assert [swapped(kind(x, x, name)).name for name in ("one", "two")] == ["one", "two"]
    same = pcp.jit(lambda both: both, device="arena:cpu")
    for given in (kind(x, x), {"left": x, "right": x}, Pair(x, x), pair(x, x), kind(x, x)):
        assert type(same(given)) is type(given)
    named = pcp.jit(lambda x, name: kind(x, x * 3, name), static_argnames="name", device="arena:cpu")
    assert [named(x, name=name).name for name in ("one", "two")] == ["one", "two"]


def test_arguments_of_all_kinds_reach_the_function() -> None:
    def f(a: Any, /, b: Any = 2, *rest: Any, c: Any, d: Any = 5, **more: Any) -> Any:
        return a + 10 * b + 100 * sum(rest) + 1000 * c + 10000 * d + 100000 * more.get("e", 0)

    jitted = pcp.jit(f, device="arena:cpu")
    for arguments, named in (
        ((1,), {"c": 4}),
        ((1, 3, 4, 5), {"c": 6, "e": 7}),
        ((1,), {"c": 4, "b": 3, "d": 1}),
    ):
        assert int(jitted(*arguments, **named)) == f(*arguments, **named)
    with pytest.raises(TypeError, match="missing a required argument: 'c'"):
        jitted(1)


def test_a_donated_array_is_gone_and_others_are_not() -> None:
    f = pcp.jit(lambda x, y: (x + y, y.sum()), donate_argnums=0)
    x, y = jnp.asarray(X), jnp.asarray(X)
    np.testing.assert_array_equal(f(x, y)[0], X + X)
    assert x.is_deleted()
    assert not y.is_deleted()
    assert "x: f32[3,4] donated" in str(f.plan(X, X))


def test_inside_a_trace_it_is_the_function() -> None:
    inner = pcp.jit(lambda x, n: x**n, static_argnums=1)
    program = pcp.trace(lambda x: inner(x, 3) + 1, pcp.spec((3, 4), "f32"))
    np.testing.assert_allclose(pcp.plan(program, "arena:cpu").run(X), X**3 + 1, rtol=1e-5)
    assert "not called" in inner.explain()


def test_it_is_a_method_and_has_the_name_of_its_function() -> None:
    class Model:
        factor = 3

        @pcp.jit(static_argnums=0, device="arena:cpu")
        def scaled(self, x: Any) -> Any:
            """Scaled."""
            return self.factor * x

    np.testing.assert_allclose(Model().scaled(X), 3 * X, rtol=1e-6)
    assert (Model.scaled.__name__, Model.scaled.__doc__) == ("scaled", "Scaled.")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: pcp.jit(lambda x: x)("text"), NoArrayGiven, r"argument x is 'text', a str; .*static_argnames='x'"),
        (lambda: pcp.jit(lambda x: x)({"a": [object()]}), NoArrayGiven, r"argument x\.a\.0 is <object"),
        (lambda: pcp.jit(lambda x, n: x * n, static_argnames="m"), StaticArgument, "names 'm'; expected one .*: x, n"),
        (lambda: pcp.jit(lambda x: x, static_argnums=0)([1]), StaticArgument, "x is static and was given a list"),
        (lambda: pcp.jit(lambda x: x, static_argnums=0)(pcp.array(1)), StaticArgument, "expected no array"),
        (lambda: pcp.jit(lambda x: x, donate_argnums=2), StaticArgument, "donate_argnums names 2"),
        (lambda: pcp.jit(lambda x: x, tolerence=1), UnknownSetting, "tolerence=1, which neither .* takes; write tolerance"),
        (lambda: pcp.jit(lambda x: x, colour=1), UnknownSetting, "expected one of device, tolerance, memory"),
        (lambda: pcp.jit(lambda x, y: x * y)(1), WrongArguments, r"missing a required argument: 'y'; expected <lambda>"),
        (lambda: pcp.jit(lambda x: x)(1, z=2), WrongArguments, r"called with 1 arguments and z by name"),
        (lambda: pcp.spec(X, "f32"), pcp.tracing.InvalidArgument, r"shape \(3, 4\) in the place .* write pcp\.spec\(x\.shape"),
        (lambda: pcp.jit(3), pcp.ir.expecting.ProgramExpected, "pcp.jit takes"),
    ],
)  # fmt: skip
def test_mistakes_say_what_to_write(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_tolerance_searches_on_the_arguments_of_the_call(tmp_path: Any) -> None:
    f = pcp.jit(lambda x: pcp.nn.softmax(x @ x.T), tolerance=1e-3, budget=0, database=tmp_path / "profile.db")
    found = f(X)
    scores = np.exp(X @ X.T)
    np.testing.assert_allclose(found, scores / scores.sum(1, keepdims=True), rtol=1e-2)
    assert f.plan(X).tolerance == 1e-3
