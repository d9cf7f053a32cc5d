"""Composites with their own derivative, beside `jax.custom_vjp` and `jax.custom_jvp`: both modes, loops, batches, files."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp import Program
from pcp.ops.derivative import InvalidRule, NoDerivative

RNG = np.random.default_rng()
F64 = pcp.spec((4,), "f64")


def pulled(scale: float = 3.0, name: str = "mine.wave") -> Any:
    """sin(x) y, whose derivative is another one, so that it is seen where it comes from."""

    @pcp.composite(name)
    def wave(x: Any, y: Any) -> Any:
        return pcp.sin(x) * y

    def forward(x: Any, y: Any) -> Any:
        return wave(x, y), {"cosine": pcp.cos(x), "y": y}

    def backward(kept: Any, g: Any) -> Any:
        return scale * g * kept["cosine"] * kept["y"], -g * kept["cosine"]

    wave.defvjp(forward, backward)
    return wave


@jax.custom_vjp
def jax_wave(x: Any, y: Any) -> Any:
    return jnp.sin(x) * y


jax_wave.defvjp(
    lambda x, y: (jax_wave(x, y), (jnp.cos(x), y)),
    lambda kept, g: (3.0 * g * kept[0] * kept[1], -g * kept[0]),
)


@pcp.composite("mine.cube")
def cube(x: Any) -> Any:
    return x * x * x


@cube.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return cube(x), 5 * x * x * t


@jax.custom_jvp
def jax_cube(x: Any) -> Any:
    return x * x * x


jax_cube.defjvp(lambda primals, tangents: (jax_cube(primals[0]), 5 * primals[0] ** 2 * tangents[0]))


def of_wave(wave: Any, total: Any) -> Any:
    return lambda x, y: total(wave(x * 2, y) * x + wave(y, x))


def numbers(*shape: int) -> Any:
    return RNG.normal(size=shape or (4,))


def close(found: Any, expected: Any) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_reverse_mode_is_that_of_jax() -> None:
    x, y = numbers(), numbers()
    program = pcp.trace(of_wave(pulled(), pcp.sum), F64, F64)
    with jax.enable_x64(True):
        expected = jax.value_and_grad(of_wave(jax_wave, jnp.sum), (0, 1))(x, y)
    close(run(pcp.value_and_grad(program, (0, 1)), x, y), expected)


def test_forward_mode_transposes_the_backward() -> None:
    program = pcp.trace(of_wave(pulled(), lambda z: z), F64, F64)
    x, y, direction, cotangent = (numbers() for _ in range(4))
    _, tangent = run(pcp.jvp(program, (0,)), x, y, direction)
    gradient = run(pcp.vjp(program, 0), x, y, cotangent)
    np.testing.assert_allclose(np.dot(tangent, cotangent), np.dot(gradient, direction), rtol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_jvp_is_that_of_jax_up_to_the_third_order(order: int) -> None:
    def derived(grad: Any, function: Any) -> Any:
        for _ in range(order):
            function = (lambda f: lambda x: grad(lambda x: f(x))(x))(function)
        return function

    x = numbers().flat[0]
    program = pcp.trace(derived(pcp.grad, lambda x: cube(x * 2)), pcp.spec((), "f64"))
    with jax.enable_x64(True):
        expected = derived(jax.grad, lambda x: jax_cube(x * 2))(x)
    close(run(program, x), expected)


def test_beyond_the_third_order_there_is_an_error_that_names_it() -> None:
    def derived(function: Any) -> Any:
        for _ in range(5):
            function = (lambda f: lambda x: pcp.grad(lambda x: f(x))(x))(function)
        return function

    @pcp.composite("mine.exp")
    def exponential(x: Any) -> Any:
        return pcp.exp(x)

    exponential.defjvp(lambda primals, tangents: (y := exponential(primals[0]), 2 * y * tangents[0]))
    with pytest.raises(NoDerivative, match=r"that mine\.exp itself defines is carried along up to order 3"):
        pcp.trace(derived(lambda x: exponential(x)), pcp.spec((), "f64"))


def test_forward_mode_of_a_cube() -> None:
    x, t = numbers(), numbers()
    close(run(pcp.jvp(pcp.trace(lambda x: cube(x), F64)), x, t), (x**3, 5 * x * x * t))


def test_loops_and_branches_take_the_derivative() -> None:
    def looped(cube: Any, loop: Any) -> Any:
        return lambda x: loop(0, 3, lambda _, c: cube(c) * 0.5, x).sum()

    x = numbers()
    with jax.enable_x64(True):
        expected = jax.grad(looped(jax_cube, jax.lax.fori_loop))(x)
    close(run(pcp.grad(pcp.trace(looped(cube, pcp.fori_loop), F64)), x), expected)
    wave, jax_step = pulled(), lambda c, y: (jax_wave(c, y), c)
    with jax.enable_x64(True):
        expected = jax.grad(lambda x, ys: jax.lax.scan(jax_step, x, ys)[0].sum(), (0, 1))(
            x, np.stack([x, x + 1])
        )
    program = pcp.trace(
        lambda x, ys: pcp.scan(lambda c, y: (wave(c, y), c), x, ys)[0].sum(), F64, pcp.spec((2, 4), "f64")
    )
    close(run(pcp.grad(program, (0, 1)), x, np.stack([x, x + 1])), expected)


@pytest.mark.parametrize("remat", [None, "nothing_saveable", "dots_saveable"])
def test_what_is_kept_changes_no_derivative(remat: str | None) -> None:
    x, y = numbers(), numbers()
    program = pcp.trace(of_wave(pulled(), pcp.sum), F64, F64)
    close(run(pcp.grad(program, remat=remat), x, y), run(pcp.grad(program), x, y))


def test_a_batch_takes_the_derivative() -> None:
    x, y = numbers(3, 4), numbers(4)
    wave = pulled()
    program = pcp.trace(
        lambda xs, y: pcp.vmap(lambda x, y: wave(x, y), (0, None))(xs, y).sum(), pcp.spec((3, 4), "f64"), F64
    )
    with jax.enable_x64(True):
        expected = jax.grad(lambda xs, y: jax.vmap(jax_wave, (0, None))(xs, y).sum(), (0, 1))(x, y)
    close(run(pcp.grad(program, (0, 1)), x, y), expected)


def test_a_gradient_inside_of_a_batch_takes_it() -> None:
    x = numbers(3, 4)
    program = pcp.trace(pcp.vmap(pcp.grad(lambda x: cube(x).sum())), pcp.spec((3, 4), "f64"))
    close(run(program, x), 5 * x * x)


def test_files_carry_attributes_and_the_derivative() -> None:
    @pcp.composite("mine.many")
    def many(
        x: Any, *, power: int, factor: float, axes: Any, mode: str, flag: bool = True, none: Any = None
    ) -> Any:
        assert (axes, mode, flag, none) == ((0, 1), "exact", True, None)
        return factor * x**power

    many.defvjp(lambda x, **_: (x, ()), lambda _, g, factor, **__: (g * factor,))
    x = numbers()
    program = pcp.trace(lambda x: many(x, power=2, factor=0.5, axes=(0, 1), mode="exact").sum(), F64)
    found = Program.from_artifact(program.artifact())
    assert found.digest == program.digest
    assert '"mine.many"' in found.text
    close(run(pcp.grad(found), x), np.full(4, 0.5))
    assert pcp.grad(found).digest == pcp.grad(program).digest
    plain = Program.parse(program.to_stablehlo())  # for others, it is what it computes
    close(run(pcp.grad(plain), x), x)


def test_integers_and_numbers_are_arguments_without_derivative() -> None:
    @pcp.composite("mine.scaled")
    def scaled(pair: Any, count: Any, factor: Any) -> Any:
        return {"y": pair["x"] * pair["z"] * factor, "count": count + 1}

    def backward(kept: Any, g: Any) -> Any:
        assert g["count"] is None
        return {"x": g["y"] * kept[0], "z": None}, None, None

    scaled.defvjp(lambda p, c, f: ({"y": p["x"] * p["z"] * f, "count": c + 1}, (p["z"],)), backward)

    def loss(x: Any, z: Any, count: Any) -> Any:
        found = scaled({"x": x, "z": z}, count, 2.0)
        return found["y"].sum() + found["count"].astype("f64")

    x, z = numbers(), numbers()
    program = pcp.trace(loss, F64, F64, pcp.spec((), "i32"))
    value, gradients = run(pcp.value_and_grad(program, (0, 1)), x, z, np.int32(4))
    close(value, (x * z * 2).sum() + 5)
    close(gradients, (z, np.zeros(4)))


def test_two_derivatives_are_two_programs_and_equal_ones_are_one() -> None:
    def digest(scale: float) -> str:
        return pcp.trace(of_wave(pulled(scale), pcp.sum), F64, F64).digest

    assert digest(3.0) == digest(3.0) != digest(4.0)


def test_a_training_step_uses_the_derivative_and_holds_no_trace_of_it() -> None:
    loss = pcp.trace(lambda w, x: cube(w * x).sum(), pcp.spec((4,), "f32", "weight"), pcp.spec((4,), "f32"))
    step = pcp.training_step(loss, pcp.optimizers.sgd(1.0))
    assert "jvp" not in step.text
    x, w = (numbers().astype(np.float32) for _ in range(2))
    state, _ = pcp.plan(step, cache=False).run(step.initial_state(w), (x,))
    np.testing.assert_allclose(np.asarray(state["params"]), w - 5 * (w * x) ** 2 * x, rtol=1e-4, atol=1e-5)


def test_forward_mode_refuses_a_backward_that_is_not_linear() -> None:
    @pcp.composite("mine.clipped")
    def clipped(x: Any) -> Any:
        return x * 1

    clipped.defvjp(lambda x: (x, ()), lambda _, g: (pcp.clip(g, -1, 1),))
    program = pcp.trace(lambda x: clipped(x), F64)
    close(run(pcp.vjp(program, 0), np.zeros(4), np.full(4, 7.0)), np.ones(4))
    with pytest.raises((InvalidRule, NoDerivative)):
        pcp.jvp(program)
