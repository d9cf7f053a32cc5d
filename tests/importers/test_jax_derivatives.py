"""What a function of JAX says about its own derivative holds in PCP: in every mode and order, saved, batched, and in loops."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tests.execution import run, run_in_jax

import pcp
from pcp.ir.bindings import ir
from pcp.ir.custom_derivatives import without_custom_derivatives
from pcp.ir.toolkit.inlining import has_custom_derivative, keeps_its_derivative
from pcp.ir.toolkit.walking import named_operations
from pcp.ops.derivative import InvalidRule, NoDerivative
from pcp.rewrite.raising import raised

Array = Any
COUNTER = iter(range(1000))


def composites_of(module: ir.Module) -> list[ir.Operation]:
    """Those that bring their own derivative."""
    found = named_operations(module.operation, "stablehlo.composite")
    return [op for op in found if has_custom_derivative(op)]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng([next(COUNTER), *shape]).normal(size=shape).astype(np.float32)


@jax.custom_vjp
def sine(x: Array, scale: Array) -> Array:
    return jnp.sin(x) * scale


# Deliberately not the derivative of what it computes.
sine.defvjp(
    lambda x, scale: (sine(x, scale), (x, scale)),
    lambda kept, g: (3 * g * jnp.cos(kept[0]) * kept[1], 5 * (g * kept[0]).sum()),
)


@jax.custom_jvp
def power(x: Array) -> Array:
    return jnp.exp(x)


@power.defjvp
def _power_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return power(x), 2 * power(x) * t  # calls itself


@jax.custom_vjp
def picked(x: Array, rows: Array) -> Array:
    return x[rows]


picked.defvjp(
    lambda x, rows: (x[rows], (x, rows)),
    lambda kept, g: (jnp.zeros_like(kept[0]).at[kept[1]].add(7 * g), None),
)


@jax.custom_jvp
def halves(x: Array) -> Array:
    return x * 0.5, jnp.argmax(x), x * 0.25


@halves.defjvp
def _halves_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return halves(x), (t * 9, np.zeros((), jax.dtypes.float0), t * x)


@jax.custom_vjp
def clipped(x: Array) -> Array:
    return x


clipped.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -0.5, 0.5),))


def solved(x: Array) -> Array:
    return jnp.linalg.solve(x @ x.T + 5 * jnp.eye(4), jnp.tanh(x))


ROWS = np.array([0, 2, 2], np.int32)


def scanned(x: Array) -> Array:
    def step(c: Array, r: Array) -> tuple[Array, Array]:
        return sine(c, 0.5) + jax.lax.stop_gradient(c) * r, c

    return jax.lax.scan(step, x[0], x)[1]


def scanned_in_turn(x: Array) -> Array:
    carried = [x[0]]
    for row in x[:-1]:
        carried.append(sine(carried[-1], 0.5) + jax.lax.stop_gradient(carried[-1]) * row)
    return jnp.stack(carried)


FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "stop_gradient": lambda x: x * jax.lax.stop_gradient(x),
    "custom_vjp": lambda x: sine(x, 1.5),
    "custom_jvp": power,
    "integers": lambda x: picked(x, ROWS),
    "several results": lambda x: halves(x)[0] + halves(x)[2],
    "relu": lambda x: jax.nn.relu(jnp.round(x)) * x,  # many zeros, where its derivative is 0 by definition
    "softplus": jax.nn.softplus,
    "logsumexp": lambda x: jax.scipy.special.logsumexp(x, -1),
    "linear solve": solved,
    "in jit": jax.jit(lambda x: jax.jit(power)(x) + power(2 * x)),
    "in vmap": jax.vmap(lambda row: sine(power(row), 0.5)),
    "in scan": scanned,
    "in a loop": lambda x: jax.lax.fori_loop(0, 3, lambda _, c: power(c) / 3, x),
    "in a branch": lambda x: jax.lax.cond(x[0, 0] > 9, jnp.cos, power, x),
    "in remat": lambda x: jax.checkpoint(lambda y: sine(power(y), y[0, 0]))(x),
}  # fmt: skip
WRITTEN_OUT: dict[str, Callable[[Array], Array]] = {
    "in scan": scanned_in_turn,
    "in a loop": lambda x: power(power(power(x) / 3) / 3) / 3,
}
"""The same trips without a loop: JAX's loops forget the rules in what the backward pass keeps."""


def loss_of(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A weighted sum of the results, so that no two of them stand for one another."""
    return lambda x: (y := function(x)).ravel() @ jnp.cos(jnp.arange(y.size, dtype=y.dtype))


def along(program: pcp.Program) -> pcp.Program:
    """The product of a program's gradient with a vector."""
    spec = pcp.spec(program.arguments[0].spec.shape, "f32")
    gradient = pcp.grad(program)
    return pcp.trace(lambda x, v: (pcp.call(gradient, x) * v).sum(), spec, spec)


NAMES = list(FUNCTIONS)


@pytest.mark.parametrize("names", [NAMES[:5], NAMES[5:10], NAMES[10:]], ids=lambda names: names[0])
def test_first_and_second_derivatives_are_those_of_jax(names: list[str]) -> None:
    """Of several functions by one program of each, which is compiled once."""
    x, v = normal(4, 5), normal(4, 5)
    specs = [pcp.spec(x.shape, "f32")] * 2
    programs = [pcp.from_jax(loss_of(FUNCTIONS[name]), specs[0]) for name in names]
    first = [pcp.value_and_grad(program) for program in programs]
    second = [pcp.grad(along(program)) for program in programs]

    def every(x: Any, v: Any) -> Any:
        return [(pcp.call(one, x), pcp.call(two, x, v)) for one, two in zip(first, second, strict=True)]

    found = run(pcp.trace(every, *specs), x, v)

    def each(name: str) -> Any:
        function, written_out = (loss_of(table[name]) for table in (FUNCTIONS, FUNCTIONS | WRITTEN_OUT))
        return jax.value_and_grad(function)(x), jax.grad(lambda x: (jax.grad(written_out)(x) * v).sum())(x)

    expected = run_in_jax(lambda: [each(name) for name in names])
    for name, mine, theirs in zip(names, found, expected, strict=True):
        for one, other in zip(mine[0], theirs[0], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5, err_msg=name)
        np.testing.assert_allclose(mine[1], theirs[1], rtol=1e-3, atol=1e-3, err_msg=name)


@pytest.mark.parametrize("name", ["stop_gradient", "custom_jvp", "several results", "relu", "in a branch"])
def test_tangents_are_those_of_jax(name: str) -> None:
    function = loss_of(FUNCTIONS[name])
    x, t = normal(4, 5), normal(4, 5)
    _, tangent = run(pcp.jvp(pcp.from_jax(function, pcp.spec(x.shape, "f32"))), x, t)
    np.testing.assert_allclose(
        tangent, run_in_jax(lambda: jax.jvp(function, (x,), (t,))[1]), rtol=1e-4, atol=1e-5
    )


def test_a_custom_vjp_is_transposed_in_forward_mode_if_it_is_linear() -> None:
    x, t = normal(4), normal(4)
    program = pcp.from_jax(lambda x: sine(x, 2.0), pcp.spec(4, "f32"))
    np.testing.assert_allclose(run(pcp.jvp(program), x, t)[1], 6 * np.cos(x) * t, rtol=1e-4)
    with pytest.raises(InvalidRule, match=r"composite.jax.clipped is not linear in the cotangent"):
        pcp.jvp(pcp.from_jax(clipped, pcp.spec(4, "f32")))


def both(x: Array, scale: Array) -> Array:
    return (power(sine(jax.nn.relu(x), scale)) * x).sum()


def test_samples_of_vmap_have_the_same_derivatives() -> None:
    x, scale = normal(3, 5), np.float32(1.3)
    program = pcp.from_jax(both, pcp.spec(5, "f32"), pcp.spec((), "f32"))
    batched = pcp.vmap(program, in_axes=(0, None), size=3)
    total = pcp.trace(
        lambda x, s: pcp.call(batched, x, s).sum(), pcp.spec((3, 5), "f32"), pcp.spec((), "f32")
    )
    expected = run_in_jax(jax.grad(lambda x, s: jax.vmap(both, (0, None))(x, s).sum(), (0, 1)), x, scale)
    for mine, theirs in zip(run(pcp.grad(total, wrt=(0, 1)), x, scale), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4)
    samples = run(pcp.vmap(pcp.grad(program), in_axes=(0, None), size=3), x, scale)
    np.testing.assert_allclose(samples, expected[0], rtol=1e-4)


@pytest.mark.parametrize("remat", ["dots_saveable", "nothing_saveable"])
def test_a_backward_pass_that_keeps_less_is_the_same(remat: str) -> None:
    x, scale = normal(5), np.float32(0.7)
    program = pcp.from_jax(both, pcp.spec(5, "f32"), pcp.spec((), "f32"))
    np.testing.assert_allclose(
        run(pcp.grad(program, remat=remat), x, scale), run_in_jax(jax.grad(both), x, scale), rtol=1e-4
    )


def test_a_training_step_takes_them_and_keeps_nothing_of_them() -> None:
    w, x = {"w": normal(5)}, normal(5)
    program = pcp.from_jax(lambda w, x: both(w["w"] * x, 0.5), w, pcp.spec(5, "f32"))
    step = pcp.training_step(program, pcp.optimizers.sgd(0.1))
    assert not composites_of(step.module())
    state, _ = run(step, step.initial_state(w), (x,))
    expected = w["w"] - 0.1 * run_in_jax(jax.grad(lambda w: both(w * x, 0.5)), w["w"])
    np.testing.assert_allclose(state["params"]["w"], expected, rtol=1e-4)


def test_files_of_every_form_hold_them(tmp_path: Path) -> None:
    program = pcp.from_jax(both, pcp.spec(5, "f32"), pcp.spec((), "f32"))
    program.save(tmp_path / "saved")
    (tmp_path / "text.mlir").write_text(program.text)
    (tmp_path / "artifact.mlirbc").write_bytes(program.artifact())
    x, scale = normal(5), np.float32(0.9)
    expected = run_in_jax(jax.grad(both), x, scale)
    found = [pcp.load(tmp_path / name) for name in ("saved", "text.mlir", "artifact.mlirbc")]
    for other in (*found, pickle.loads(pickle.dumps(program))):
        assert other.digest == program.digest
        np.testing.assert_allclose(run(pcp.grad(other), x, scale), expected, rtol=1e-4)
    assert "jax." not in program.to_stablehlo()


def with_rule(factor: float, inside: Callable[[Array], Array] = jnp.sin) -> pcp.Program:
    @jax.custom_vjp
    def ruled(x: Array) -> Array:
        return inside(x)

    ruled.defvjp(lambda x: (inside(x), x), lambda x, g: (g * factor * x,))
    return pcp.from_jax(ruled, pcp.spec(4, "f32"))


def test_programs_that_differ_in_a_derivative_alone_differ_in_their_digests() -> None:
    assert with_rule(2.0).digest == with_rule(2.0).digest
    assert with_rule(2.0).digest != with_rule(3.0).digest
    assert with_rule(2.0).digest != with_rule(2.0, jnp.cos).digest
    assert with_rule(2.0).digest != pcp.from_jax(jnp.sin, pcp.spec(4, "f32")).digest
    plain = without_custom_derivatives(with_rule(2.0))
    assert plain.digest == without_custom_derivatives(with_rule(3.0)).digest
    assert plain.digest == pcp.from_jax(jnp.sin, pcp.spec(4, "f32")).digest


def test_what_runs_holds_no_trace_of_them() -> None:
    """Kernels are found, and sums and products fused, as if there were no derivative."""
    program = pcp.from_jax(lambda x: jax.nn.softmax(jax.nn.relu(x)), pcp.spec((4, 5), "f32"))
    text = raised(without_custom_derivatives(program)).text
    assert "jvp" not in text
    assert "pcp.softmax" in text


def test_a_function_used_often_is_held_once() -> None:
    def deep(x: Array) -> Array:
        for _ in range(40):
            x = jax.nn.relu(x * 1.1 - 0.1)
        return x

    text = pcp.from_jax(deep, pcp.spec((4, 5), "f32")).text
    assert text.count("@jax.relu.jvp.") == 41  # forty uses, and the function


def test_beyond_the_third_order_the_function_is_named() -> None:
    program = pcp.from_jax(lambda x: power(x).sum(), pcp.spec(4, "f32"))
    x = normal(4)
    for order in range(1, 4):
        program = pcp.grad(program)
        np.testing.assert_allclose(run(program, x), 2**order * np.exp(x), rtol=1e-4)
        program = pcp.trace(lambda x, p=program: pcp.call(p, x).sum(), pcp.spec(4, "f32"))
    with pytest.raises(
        NoDerivative, match=r"the derivative that jax.power itself defines is carried along up to order 3"
    ):
        pcp.grad(program)


WIDTH = 3
FOLDS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "reduce": (
        lambda x: lax.reduce(x, np.float32(-np.inf), jnp.logaddexp, (1,)),
        lambda x: jax.nn.logsumexp(x, 1),
    ),
    "reduce_window": (
        lambda x: lax.reduce_window(x, np.float32(-np.inf), jnp.logaddexp, (1, WIDTH), (1, WIDTH), "VALID"),
        lambda x: jax.nn.logsumexp(x.reshape(len(x), -1, WIDTH), -1),
    ),
}
"""Folds whose body brings a derivative of its own, and the same without such a body."""


@pytest.mark.parametrize("name", FOLDS)
def test_the_body_of_a_fold_is_differentiated_as_it_is_written_out(name: str) -> None:
    fold, reference = FOLDS[name]
    x, t = normal(4, 6), normal(4, 6)
    program = pcp.from_jax(fold, pcp.spec((4, 6), "f32"))
    module = program.module()
    [inside] = [op for op in composites_of(module) if op.parent.name == f"stablehlo.{name}"]
    assert not keeps_its_derivative(inside)
    total = pcp.trace(lambda x: (pcp.call(program, x) ** 2).sum(), pcp.spec((4, 6), "f32"))
    gradient = jax.grad(lambda x: (reference(x) ** 2).sum())
    many = np.stack([x, t])
    expected, along = run_in_jax(
        lambda many: (jax.vmap(gradient)(many), jax.jvp(reference, (many[0],), (many[1],))[1]), many
    )
    np.testing.assert_allclose(run(pcp.grad(total), x), expected[0], rtol=1e-4, atol=1e-5)
    _, tangent = run(pcp.jvp(program), x, t)
    np.testing.assert_allclose(tangent, along, rtol=1e-4, atol=1e-5)
    batched = pcp.vmap(program, size=2)
    samples = pcp.trace(lambda x: (pcp.call(batched, x) ** 2).sum(), pcp.spec((2, 4, 6), "f32"))
    np.testing.assert_allclose(run(pcp.grad(samples), many), expected, rtol=1e-4, atol=1e-5)


def test_elsewhere_a_derivative_of_its_own_is_kept() -> None:
    module = pcp.from_jax(both, pcp.spec(5, "f32"), pcp.spec((), "f32")).module()
    assert len(composites_of(module)) >= 3
    assert all(keeps_its_derivative(op) for op in composites_of(module))


def test_operations_that_jax_lowers_to_loops_keep_its_rules() -> None:
    key, a = jax.random.key(0), np.array([0.5, 1.5, 3.0], np.float32)
    functions = [
        lambda a: jax.random.gamma(key, a),
        lambda a: jax.random.dirichlet(key, a) * jnp.arange(3.0),
        lambda a: jax.scipy.special.gammainc(a, 2 * a),
        lambda a: jax.scipy.special.betainc(2.0, 3.0, a / 4),
        lambda a: jax.scipy.special.i0e(a),
    ]

    def function(a: Array) -> Array:
        return jnp.stack([(f(a) ** 2).sum() for f in functions]) @ jnp.arange(1.0, 6)

    found = run(pcp.grad(pcp.from_jax(function, pcp.spec((3,), "f32"))), a)
    assert np.allclose(found, run_in_jax(jax.grad(function), a), 1e-4)


def test_what_jax_itself_cannot_differentiate_is_refused_by_name() -> None:
    def function(a: Array) -> Array:
        return lax.igamma_grad_a(a, a + 1).sum()

    program = pcp.from_jax(function, pcp.spec((3,), "f32"))
    with pytest.raises(NoDerivative, match=r"jax\.igamma_grad_a"):
        pcp.grad(program)
