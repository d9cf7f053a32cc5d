"""Jacobians and Hessians, by either mode, against JAX."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp.autodiff import NonScalarLoss, NotDifferentiable
from pcp.batching import NoJacobian
from tests.execution import run, run_in_jax

RANDOM = np.random.default_rng(0)
P = {"w": RANDOM.normal(size=(3, 4)), "b": RANDOM.normal(size=3)}
X = RANDOM.normal(size=4)


def function(tanh: Callable[..., Any]) -> Callable[..., Any]:
    return lambda p, x: {"y": tanh(p["w"] @ x) * p["b"], "s": (p["b"] ** 2).sum() * x}


PROGRAM = pcp.trace(function(pcp.tanh), P, X)


def assert_equal(mine: Any, theirs: Any) -> None:
    assert jax.tree.structure(mine) == jax.tree.structure(theirs)
    for got, expected in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("wrt", [0, (0, 1)])
def test_a_jacobian_is_that_of_jax_by_either_mode(wrt: Any) -> None:
    with jax.enable_x64(True):
        expected = run_in_jax(jax.jacobian(function(jnp.tanh), wrt), P, X)
    for mode in ("forward", "reverse"):
        made = pcp.jacobian(PROGRAM, wrt, mode)
        assert made.arguments == PROGRAM.arguments
        assert_equal(run(made, P, X), expected)


def test_the_mode_with_fewer_products_is_taken() -> None:
    tall = pcp.trace(lambda x: pcp.concatenate([pcp.sin(x), x, x]), X)
    wide = pcp.trace(lambda x: pcp.sin(x)[:2] * x[2:], X)
    for program, mode in ((tall, "forward"), (wide, "reverse")):
        chosen = pcp.jacobian(program).digest
        assert [m for m in ("forward", "reverse") if pcp.jacobian(program, 0, m).digest == chosen] == [mode]


def test_jacobians_nest_in_functions_with_tensors_from_around() -> None:
    def nested(s: Any, x: Any) -> Any:
        return pcp.jacobian(lambda y, x: pcp.jacobian(lambda x: s * x**3)(x).sum(0) * y.sum(), -1)(s, x)

    s, x = RANDOM.normal(size=3), RANDOM.normal(size=3)
    np.testing.assert_allclose(run(pcp.trace(nested, s, x), s, x), np.diag(6 * s * x) * s.sum(), rtol=1e-12)


def test_a_hessian_is_that_of_jax() -> None:
    def loss(p: Any, x: Any) -> Any:
        return (p["b"] * (p["w"] @ (x * x)) ** 2).sum()

    with jax.enable_x64(True):
        expected = run_in_jax(jax.hessian(loss, (0, 1)), P, X)
    assert_equal(run(pcp.hessian(pcp.trace(loss, P, X), (0, 1)), P, X), expected)
    inside = pcp.trace(lambda p, x: pcp.hessian(loss, 1)(p, x), P, X)
    assert_equal(run(inside, P, X), expected[1][1])


def test_all_transformations_of_a_scan_agree() -> None:
    def loss(w: Any, x: Any) -> Any:
        last, sums = pcp.scan(lambda c, row: (pcp.tanh(w @ c + row), c.sum()), x[0], x)
        return (last**2).sum() + sums.sum()

    w, v, xs = RANDOM.normal(size=(3, 3)), RANDOM.normal(size=(3, 3)), RANDOM.normal(size=(2, 4, 3))

    def everything(w: Any, v: Any, xs: Any) -> Any:
        def directional(w: Any) -> Any:
            return pcp.jvp(lambda w: loss(w, xs[0]))(w, v)[1]

        gradients = [
            pcp.grad(lambda w: pcp.vmap(lambda x: loss(w, x))(xs).sum())(w),
            pcp.vmap(pcp.grad(loss), (None, 0))(w, xs).sum(0),
            sum(pcp.grad(loss)(w, x) for x in xs),
        ]
        seconds = [
            pcp.hvp(loss)(w, xs[0], v),
            pcp.grad(directional)(w),
            pcp.grad(lambda w: (pcp.grad(loss)(w, xs[0]) * v).sum())(w),
            pcp.tensordot(pcp.hessian(loss)(w, xs[0]), v),
        ]
        return gradients, seconds

    for same in run(pcp.trace(everything, w, v, xs), w, v, xs):
        for other in same[1:]:
            np.testing.assert_allclose(other, same[0], rtol=1e-10)


def test_what_has_no_jacobian_is_refused() -> None:
    integers = pcp.trace(lambda x: (x, pcp.argsort(x)), X)
    with pytest.raises(
        NoJacobian, match=r"the result 1 is i32\[4\]; expected floating-point numbers: leave it out"
    ):
        pcp.jacobian(integers)
    with pytest.raises(NoJacobian, match="mode 'sideways' was given; expected 'forward', 'reverse' or None"):
        pcp.jacobian(PROGRAM, 0, "sideways")
    numbers = pcp.trace(lambda z: pcp.ops.elementwise.real(z), pcp.spec((2,), "c64"))
    with pytest.raises(NoJacobian, match=r"wrt names z, which is c64\[2\]; expected real numbers"):
        pcp.jacobian(numbers)
    with pytest.raises(NotDifferentiable, match=r"wrt=1 names argument 1, but n is i32\[\]"):
        pcp.jacobian(pcp.trace(lambda x, n: x * n.astype("f64"), X, pcp.spec((), "i32")), 1)
    with pytest.raises(NonScalarLoss, match="a gradient needs a loss that is one real number"):
        pcp.hessian(PROGRAM)
