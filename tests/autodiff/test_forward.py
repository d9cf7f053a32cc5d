"""Forward mode through every derivative rule, and forward mode over reverse mode, against JAX."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import pcp
from pcp.autodiff import (
    RULES,
    Expanded,
    InvalidRule,
    NoDerivative,
    NotDifferentiable,
    Primal,
    UnknownArgument,
    register_rule,
)
from tests.autodiff.rows.chunks import CHUNKS
from tests.autodiff.rows.factorization import SORT
from tests.autodiff.rows.row import Row, from_text
from tests.autodiff.test_rules import double_precision, drawn, in_a_graph
from tests.execution import run, run_in_jax

__all__ = ["double_precision"]  # a fixture for every test here


def pushed(function: Any, at: Any, along: Any) -> Any:
    return pcp.jvp(function)(at, along)[1]


def jax_pushed(function: Any, at: Any, along: Any) -> Any:
    return jax.jvp(function, (at,), (along,))[1]


def checked_in(row: Row) -> tuple[Any, Any, tuple[Any, ...]]:
    """What is traced of a row, the same in JAX, and arguments for both.

    It is the tangent of the row in a graph and, where the row has second derivatives, that of the gradient.
    """
    arguments, scales = (tuple(part) for part in drawn(row))
    random = np.random.default_rng(3)
    directions = tuple(random.normal(size=s.shape) for s in scales)

    def differentiated(function: Any, value_and_grad: Any, push: Any) -> Any:
        loss = in_a_graph(function)
        chosen = value_and_grad(loss) if row.second_order else loss
        return lambda at, arguments, along: push(lambda s: chosen(s, arguments), at, along)

    mine = differentiated(row.function, pcp.value_and_grad, pushed)
    theirs = differentiated(row.reference or row.function, jax.value_and_grad, jax_pushed)
    return mine, theirs, (scales, arguments, directions)


@pytest.mark.share(3)
@pytest.mark.parametrize("rows", CHUNKS)
def test_tangents_and_hessian_products_are_those_of_jax(rows: dict[str, Row]) -> None:
    mine, theirs, arguments = zip(*map(checked_in, rows.values()), strict=True)

    def each(functions: Any) -> Any:
        return lambda *given: [function(*x) for function, x in zip(functions, given, strict=True)]

    found = run(pcp.trace(each(mine), *arguments), *arguments)
    expected = run_in_jax(each(theirs), *arguments)
    for name, ours, other in zip(rows, found, expected, strict=True):
        for got, reference in zip(jax.tree.leaves(ours), jax.tree.leaves(other), strict=True):
            assert got.dtype == np.float64
            bound = 1e-10 * (1 + np.abs(reference).max(initial=0))
            np.testing.assert_allclose(got, reference, rtol=1e-10, atol=bound, err_msg=name)


X = np.array([1.0, 2.0, 3.0])
SPEC = pcp.spec((3,), "f64")


def test_the_results_come_with_their_tangents() -> None:
    def function(p: Any, n: Any) -> Any:
        return {"a": p["x"] ** 2 * p["y"], "k": n + 1, "z": pcp.stop_gradient(p["x"])}

    program = pcp.trace(function, {"x": SPEC, "y": SPEC}, pcp.spec((), "i32"))
    pushed = pcp.jvp(program)
    assert [entry.name for entry in pushed.arguments] == ["p.x", "p.y", "n", "tangent.p.x", "tangent.p.y"]
    results, tangents = run(pushed, {"x": X, "y": 2 * X}, 4, {"x": X + 1, "y": X})
    assert int(results["k"]) == 5
    assert tangents["k"] is None
    np.testing.assert_allclose(tangents["a"], 2 * X * 2 * X * (X + 1) + X**2 * X)
    np.testing.assert_array_equal(tangents["z"], [0, 0, 0])


@pytest.mark.parametrize("wrt", [1, -1, (1,), None])
def test_wrt_says_which_tangents_are_given(wrt: Any) -> None:
    program = pcp.trace(lambda x, y: pcp.sin(x) * y, SPEC, SPEC)
    arguments = (X, X, 2 * X) if wrt is not None else (X, X, 0 * X, 2 * X)
    np.testing.assert_allclose(run(pcp.jvp(program, wrt), *arguments)[1], np.sin(X) * 2 * X)
    # The same of a function that uses a Tensor from around it.
    inside = pcp.trace(
        lambda s, *given: pcp.jvp(lambda x, y: s * pcp.sin(x) * y, wrt)(*given)[1],
        SPEC,
        *[SPEC] * len(arguments),
    )
    np.testing.assert_allclose(run(inside, X, *arguments), X * np.sin(X) * 2 * X)


def test_tangents_and_cotangents_are_dual() -> None:
    def function(w: Any, x: Any) -> Any:
        return pcp.softmax(pcp.tanh(x @ w)), pcp.sort(w, 0).max(1)

    random = np.random.default_rng(0)
    w, x, dw, dx = (random.normal(size=shape) for shape in [(3, 4), (2, 3), (3, 4), (2, 3)])
    program = pcp.trace(function, w, x)
    _, (first, second) = run(pcp.jvp(program), w, x, dw, dx)
    u, v = random.normal(size=first.shape), random.normal(size=second.shape)
    back_w, back_x = run(pcp.vjp(program), w, x, u, v)
    along = (first * u).sum() + (second * v).sum()
    np.testing.assert_allclose((back_w * dw).sum() + (back_x * dx).sum(), along, rtol=1e-12)


def test_a_loop_of_any_number_of_trips_has_tangents() -> None:
    def function(x: Any) -> Any:
        return pcp.while_loop(lambda s: s[0].sum() < 100.0, lambda s: (s[0] * s[0] + 1.0, s[1] + 1), (x, 0))

    program = pcp.trace(function, SPEC)
    (_, trips), (tangent, nothing) = run(pcp.jvp(program), X, X + 1)
    assert int(trips) == 2
    assert nothing is None
    np.testing.assert_allclose(tangent, 4 * X * (X**2 + 1) * (X + 1))
    np.testing.assert_allclose(run(pcp.vjp(program, 0), X, X + 1), 4 * X * (X**2 + 1) * (X + 1))


def test_forward_mode_leaves_no_pull_backs_behind() -> None:
    program = pcp.trace(lambda x: (x.max() + pcp.sin(x)).sum() + x[1], SPEC)
    text = pcp.jvp(program).text
    assert text.count("%arg") == text.replace("%arg2", "").count("%arg")
    assert text.count("stablehlo.scatter") == text.count("stablehlo.pad") == 0
    assert text.count("stablehlo.cosine") == text.count("stablehlo.sine") == 1


def test_linear_operations_are_applied_to_tangents_as_they_are() -> None:
    def function(x: Any, i: Any) -> Any:
        return pcp.ops.dynamic_update_slice(x, x[:1] * 2, [i])

    text = pcp.jvp(pcp.trace(function, SPEC, pcp.spec((), "i32"))).text
    assert text.count("stablehlo.dynamic_update_slice") == 2


def test_a_program_from_elsewhere_has_tangents_and_batches() -> None:
    program = pcp.Program.parse("""func.func @main(%x: tensor<3xf64>) -> tensor<3xf64> {
      %y = stablehlo.sine %x : tensor<3xf64>
      return %y : tensor<3xf64> }""")
    np.testing.assert_allclose(run(pcp.jvp(program), X, 2 * X)[1], 2 * X * np.cos(X))
    np.testing.assert_allclose(run(pcp.vmap(program, size=1), X[None]), np.sin(X)[None])


@pytest.fixture
def mine() -> Iterator[str]:
    yield "custom_call.mine"
    RULES.pop("custom_call.mine", None)


def custom(x: pcp.Tensor) -> pcp.Tensor:
    return pcp.tensor.emit("custom_call", (x,), (x.spec,), {"call_target_name": "mine"})


def test_a_new_rule_serves_both_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = (lambda g, y, x: pcp.concatenate([g[1:] * x[1:], g[:1]]),)
    monkeypatch.setitem(RULES, "stablehlo.reverse", rule)
    program = pcp.trace(lambda x: pcp.ops.movement.reverse(x), SPEC)
    # g -> (g1 x1, g2 x2, g0), and its transpose.
    np.testing.assert_array_equal(run(pcp.vjp(program, 0), X, X + 4), [6 * 2, 7 * 3, 5])
    np.testing.assert_array_equal(run(pcp.jvp(program), X, X + 4)[1], [7, 5 * 2, 6 * 3])


def test_tangents_go_through_what_a_rule_computes_anew(mine: str) -> None:
    def rule(primal: Primal, _: Any) -> Expanded:
        # The squared size counts as constant, and the loop is no pull-back.
        (x,) = primal.inputs
        size = x * x
        return Expanded([pcp.fori_loop(0, 2, lambda i, c: c * pcp.sin(c), x * size)], [size])

    register_rule(mine, rule)
    program = pcp.trace(
        lambda x, t: pcp.jvp(custom)(x, t)[1], SPEC, SPEC
    )  # without the value, which no CPU has
    c = X**3
    d = c * np.sin(c)
    expected = (np.sin(d) + d * np.cos(d)) * (np.sin(c) + c * np.cos(c)) * X**2
    np.testing.assert_allclose(run(program, X, X + 4), expected * (X + 4), rtol=1e-12)
    back = pcp.vjp(pcp.trace(custom, SPEC), 0)
    np.testing.assert_allclose(run(back, X, X + 4), expected * (X + 4), rtol=1e-12)


@pytest.mark.cpu
def test_a_rule_may_compute_its_operation_otherwise() -> None:
    matrix = np.diag([1.0, 2.0, 4.0]) + 0.1 * np.arange(9.0).reshape(3, 3)

    def function(x: Any) -> Any:
        return jax.numpy.linalg.eigvals(x).real ** 2

    # LAPACK is asked for eigenvectors, too: the call that gives them takes the place of the first.
    program = pcp.Program.parse(str(jax.jit(function).lower(matrix).compiler_ir("stablehlo")))
    values, tangent = run(pcp.jvp(program), matrix, np.eye(3))
    np.testing.assert_allclose(values, function(matrix), rtol=1e-12)
    np.testing.assert_allclose(tangent, 2 * np.sqrt(values), rtol=1e-12)


def test_deprecated_operations_have_tangents() -> None:
    program = pcp.Program.parse("""func.func public @main(%x: tensor<3xf64>) -> tensor<f64> {
      %y = "stablehlo.dot"(%x, %x) : (tensor<3xf64>, tensor<3xf64>) -> tensor<f64>
      return %y : tensor<f64> }""")
    np.testing.assert_allclose(run(pcp.jvp(program), X, X + 1)[1], 2 * X @ (X + 1))


def test_a_rule_that_is_not_linear_is_refused(mine: str) -> None:
    register_rule(mine, (lambda g, y, x: g * g,))
    with pytest.raises(InvalidRule, match=r"rule of custom_call\.mine is not linear in the cotangent"):
        pcp.jvp(pcp.trace(lambda x: custom(x) * 2.0, SPEC))


def test_what_has_no_tangents_is_refused() -> None:
    program = pcp.trace(lambda x, n: x * n.astype("f64"), SPEC, pcp.spec((), "i32"))
    with pytest.raises(NotDifferentiable, match=r"wrt=1 names argument 1, but n is i32\[\]"):
        pcp.jvp(program, 1)
    with pytest.raises(UnknownArgument, match="wrt=2 names argument 2; the program has 2"):
        pcp.jvp(program, 2)
    with pytest.raises(
        NoDerivative, match=r"custom_call\.mine cannot be differentiated: there is no rule for it"
    ):
        pcp.jvp(pcp.trace(custom, SPEC))
    with pytest.raises(
        pcp.PCPError, match=r"a gradient needs a loss that is one real number; the result is f64\[3\]"
    ):
        pcp.hvp(program)


def test_a_product_with_the_hessian() -> None:
    program = pcp.trace(lambda x, y: (x**3 * y).sum(), SPEC, SPEC)
    along_x, along_y = run(pcp.hvp(program, (0, 1)), X, X + 1, X, 2 * X)
    np.testing.assert_allclose(along_x, 6 * X * (X + 1) * X + 3 * X**2 * 2 * X)
    np.testing.assert_allclose(along_y, 3 * X**2 * X)


def test_collectives_are_linear_and_batch() -> None:
    def function(x: Any) -> Any:
        y = pcp.ops.all_reduce(pcp.ops.all_gather(x, [[0]], 1), [[0]])
        return pcp.ops.reduce_scatter(
            pcp.ops.all_to_all(pcp.ops.collective_permute(y * y, [(0, 0)]), [[0]]), [[0]]
        )

    x, t = np.random.default_rng(0).normal(size=(2, 5, 3, 2))
    program = pcp.trace(lambda x, t: pcp.vmap(lambda x, t: pcp.jvp(function)(x, t)[1])(x, t), x, t)
    assert "stablehlo.multiply" in program.text
    np.testing.assert_allclose(run(program, x, t), 2 * x * t, rtol=1e-12)


def test_tangents_of_sorted_elements_are_gathered() -> None:
    program = pcp.jvp(pcp.trace(lambda x: pcp.sort(-x), SPEC))
    assert "stablehlo.scatter" not in program.text
    np.testing.assert_array_equal(run(program, X, X + 4)[1], -(X + 4)[::-1])


def test_tangents_of_tensors_that_are_sorted_together_are_gathered() -> None:
    x, tangent = np.random.default_rng(0).normal(size=(2, 3, 5))
    program = pcp.jvp(pcp.trace(lambda x: from_text(SORT)(x, 2.0 * x), x))
    assert "stablehlo.scatter" not in program.text
    _, (first, second) = run(program, x, tangent)
    expected = np.take_along_axis(tangent, np.argsort(-x, 1), 1)
    np.testing.assert_array_equal(first, expected)
    np.testing.assert_array_equal(second, 2 * expected)
