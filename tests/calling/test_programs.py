"""Programs, symbolic programs and what holds a program: called with arrays, planned, traced, differentiated."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

import pcp
from pcp.calling.signature import StaticArgument
from pcp.ir.expecting import HoldsProgram, ProgramExpected

GENERATOR = np.random.default_rng()
X = GENERATOR.normal(size=(4, 3)).astype(np.float32)
W = GENERATOR.normal(size=3).astype(np.float32)


def product(weights: Any, x: Any) -> Any:
    return x @ weights["w"]


@dataclasses.dataclass(frozen=True)
class Held(HoldsProgram):
    """As `pcp.from_torch` makes."""

    program: Any
    weights: Any

    def held(self) -> dict[str, Any]:
        return {"weights": self.weights}


HELD = Held(pcp.trace(product, {"w": W}, pcp.spec((4, 3), "f32")), {"w": W})


def test_a_program_is_called_with_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCP_DEVICE", "arena:cpu")
    program = pcp.trace(lambda x: pcp.tanh(x), pcp.spec((4, 3), "f32"))
    for given in (X, pcp.array(X)):
        np.testing.assert_allclose(program(given), np.tanh(X), rtol=1e-6)
    np.testing.assert_allclose(program(x=X), np.tanh(X), rtol=1e-6)
    with pytest.raises(
        pcp.PCPError, match=r"argument 'y' was given by its name; the plan takes x, by place or by name"
    ):
        program(X, y=X)
    monkeypatch.setenv("PCP_DEVICE", "cpu:0")
    assert isinstance(program(X), jax.Array)
    doubled = pcp.trace(lambda x: program(x) * 2, pcp.spec((4, 3), "f32"))
    np.testing.assert_allclose(doubled(X), 2 * np.tanh(X), rtol=1e-6)


def test_a_symbolic_program_is_called_with_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCP_DEVICE", "arena:cpu")
    program = pcp.trace(lambda x: x * 2, pcp.spec(("n", 3), "f32"))
    for count in (2, 4):
        np.testing.assert_allclose(program(X[:count]), 2 * X[:count])
        np.testing.assert_allclose(pcp.jit(program)(X[:count]), 2 * X[:count])


def test_what_holds_a_program_is_taken_everywhere() -> None:
    expected = X @ W
    for found in (
        pcp.plan(HELD, device="arena:cpu").run(X),
        pcp.jit(HELD, device="arena:cpu")(X),
        pcp.plan(pcp.trace(HELD), "arena:cpu").run({"w": W}, X),
        pcp.plan(lambda x: HELD(x), "arena:cpu", example=(X,)).run(X),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert pcp.vmap(HELD, size=2).results[0].spec.shape == (2, 4)
    scalar = Held(pcp.trace(lambda w, x: product(w, x).sum(), {"w": W}, pcp.spec((4, 3), "f32")), {"w": W})
    np.testing.assert_allclose(
        pcp.plan(pcp.grad(scalar), "arena:cpu").run({"w": W}, X)["w"], X.sum(0), rtol=1e-5, atol=1e-6
    )
    step = pcp.training_step(scalar, pcp.optimizers.sgd(0.1))
    assert step.initial_state({"w": W})["params"].keys() == {"w"}


def test_a_function_is_planned_with_an_example() -> None:
    def f(x: Any, y: Any) -> Any:
        return x + y

    np.testing.assert_array_equal(pcp.plan(f, "arena:cpu", example=(X, X)).run(X, X), 2 * X)
    spec = pcp.spec((4, 3), "f32")
    np.testing.assert_array_equal(pcp.plan(f, "arena:cpu", example=(spec, X)).run(X, X), 2 * X)
    with pytest.raises(ProgramExpected, match=r"pcp\.plan\(f, example=\(x, y\)\), or call pcp\.jit\(f\)"):
        pcp.plan(f)


def test_a_program_is_traced_already_and_composes() -> None:
    program = pcp.trace(lambda x: x + 1, pcp.spec((4, 3), "f32"))
    assert pcp.trace(program) is program
    np.testing.assert_array_equal(pcp.plan(pcp.trace(program, X), "arena:cpu").run(X), X + 1)


def test_a_jitted_program_donates_by_number_and_has_nothing_static() -> None:
    import jax.numpy as jnp

    program = pcp.trace(lambda x, y: x + y, *[pcp.spec((4, 3), "f32")] * 2)
    x, y = jnp.asarray(X), jnp.asarray(X)
    np.testing.assert_array_equal(pcp.jit(program, donate_argnums=1)(x, y), 2 * X)
    assert [x.is_deleted(), y.is_deleted()] == [False, True]
    with pytest.raises(StaticArgument, match="a program has no static arguments, and donates by numbers of"):
        pcp.jit(program, static_argnums=0)


@pytest.mark.parametrize("wrong", [3, "text", None])
def test_what_is_no_program_is_refused(wrong: Any) -> None:
    for taker in (pcp.plan, pcp.jit, pcp.trace, pcp.grad):
        if wrong is not None or taker is not pcp.jit:
            with pytest.raises(ProgramExpected, match="was given"):
                taker(wrong)
