"""Loops, scans and branches: values against Python's own, gradients against JAX, and what they say about wrong bodies."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.ops.control.branches import BranchMismatch
from pcp.ops.control.loops import CarryMismatch
from pcp.tensor import DTypeMismatch, LeakedTensor, ShapeMismatch

RNG = np.random.default_rng(0)


def result_of(function: Any, *arguments: Any) -> Any:
    """What a function of Tensors makes of arrays."""
    arrays = [np.asarray(a) for a in arguments]
    return run(pcp.trace(function, *(pcp.spec(a.shape, a.dtype) for a in arrays)), *arrays)


def test_a_while_loop_runs_as_long_as_its_condition_holds() -> None:
    def collatz(n: pcp.Tensor) -> Any:
        return pcp.while_loop(
            lambda c: c["n"] > 1,
            lambda c: {"n": pcp.where(c["n"] % 2 == 0, c["n"] // 2, 3 * c["n"] + 1), "steps": c["steps"] + 1},
            {"n": n, "steps": 0},
        )

    found = result_of(collatz, np.int64(27))
    assert (found["n"], found["steps"], found["n"].dtype) == (1, 111, np.int64)


def test_a_while_loop_whose_condition_fails_returns_its_carry() -> None:
    found = result_of(
        lambda x: pcp.while_loop(lambda c: (c > 9).any(), lambda c: c - 1, x), np.float32([1, 2])
    )
    np.testing.assert_array_equal(found, [1, 2])


@pytest.mark.parametrize(("lower", "upper"), [(0, 5), (3, 7), (-2, 2), (4, 4), (5, 2)])
def test_a_counted_loop_counts(lower: int, upper: int) -> None:
    found = result_of(
        lambda x, n: (
            pcp.fori_loop(lower, upper, lambda i, c: c * 2 + i, x),
            pcp.fori_loop(n, upper, lambda i, c: c * 2 + i, x),
        ),
        np.int32(1),
        np.int16(lower),
    )
    expected = 1
    for i in range(lower, upper):
        expected = expected * 2 + i
    assert [int(part) for part in found] == [expected, expected]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_stacks_what_its_body_returns(reverse: bool) -> None:
    xs = {"a": RNG.normal(size=(5, 3)), "b": RNG.normal(size=5)}

    def body(carry: Any, x: Any) -> Any:
        total, count = carry
        return (total + x["a"] * x["b"], count + 1), (total, [count, 7])

    program = pcp.trace(lambda xs: pcp.scan(body, (np.zeros(3), 0), xs, reverse=reverse), xs)
    (total, count), (totals, (counts, sevens)) = run(program, xs)
    expected = jax.tree.map(np.asarray, _scan_in_python(xs, reverse))
    np.testing.assert_allclose(total, expected[0])
    np.testing.assert_allclose(totals, expected[1])
    np.testing.assert_array_equal(counts, expected[2])
    np.testing.assert_array_equal(sevens, [7] * 5)
    assert (count, count.dtype) == (5, np.int32)


def _scan_in_python(xs: Any, reverse: bool) -> Any:
    total, totals, counts = np.zeros(3), np.zeros((5, 3)), np.zeros(5)
    for count, i in enumerate(reversed(range(5)) if reverse else range(5)):
        totals[i], counts[i] = total, count
        total = total + xs["a"][i] * xs["b"][i]
    return total, totals, counts


def test_a_scan_without_inputs_takes_a_length() -> None:
    _, ys = result_of(lambda x: pcp.scan(lambda c, _: (c * 2, c), x, length=4), np.float32(1))
    np.testing.assert_array_equal(ys, [1, 2, 4, 8])


def test_a_scan_of_nothing_returns_its_carry_and_empty_stacks() -> None:
    carry, ys = result_of(
        lambda c, x: pcp.scan(lambda c, r: (c + r, r[:2]), c, x), np.ones(3), np.ones((0, 3))
    )
    np.testing.assert_array_equal(carry, np.ones(3))
    assert (ys.shape, ys.dtype) == ((0, 2), np.float64)


def test_weak_numbers_take_the_type_of_the_carry() -> None:
    def loops(x: pcp.Tensor) -> Any:
        first = pcp.fori_loop(
            0, 3, lambda i, c: (c[1] * x, 2.0), (0.0, x)
        )  # 0.0 becomes f64 as x is; 2.0 too
        second, _ = pcp.scan(lambda c, _: (c + x, None), 0, length=2)
        return first, second

    (a, b), c = result_of(loops, np.float64(1.5))
    assert (a, b, c) == (3, 2, 3)
    assert [part.dtype for part in (a, b, c)] == [np.float64] * 3


def test_a_weak_carry_becomes_a_float_where_the_body_returns_one() -> None:
    found = result_of(lambda x: pcp.fori_loop(0, 2, lambda i, c: 2.5, 0), np.float64(1))
    assert (float(found), found.dtype) == (2.5, np.float32)


def test_a_weak_number_deep_in_a_chain_of_carries_is_widened() -> None:
    def body(_: Any, c: Any) -> Any:
        return c[1], c[2], c[2]

    found = result_of(lambda x: pcp.fori_loop(0, 2, body, (0, 0, x)), np.float64(2.5))
    assert [part.dtype for part in found] == [np.float64] * 3
    assert [float(part) for part in found] == [2.5, 2.5, 2.5]


def test_a_branch_is_chosen() -> None:
    def choose(p: pcp.Tensor, i: pcp.Tensor, x: pcp.Tensor) -> Any:
        one = pcp.cond(p, lambda y: (y + x, 1), lambda y: (y - x, 2), 2 * x)
        other = pcp.switch(
            i, [lambda: {"v": x, "w": 0}, lambda: {"v": -x, "w": 1.5}, lambda: {"v": x * x, "w": 2}]
        )
        return one, other

    for index, place in ((-4, 0), (0, 0), (1, 1), (2, 2), (9, 2)):
        (one, number), other = result_of(choose, np.bool_(index > 0), np.int8(index), np.float64(3))
        assert (float(one), int(number)) == ((9.0, 1) if index > 0 else (3.0, 2))
        assert float(other["v"]) == [3, -3, 9][place]
        assert (float(other["w"]), other["w"].dtype) == ([0, 1.5, 2][place], np.float32)


def test_loops_and_branches_nest() -> None:
    def triangle(x: pcp.Tensor) -> Any:
        def outer(i: Any, total: Any) -> Any:
            inner, _ = pcp.scan(lambda c, _: (c + i, None), 0, length=3)
            return total + pcp.cond(i % 2 == 0, lambda: inner, lambda: 0)

        return pcp.fori_loop(0, 6, outer, x)

    assert result_of(triangle, np.int32(0)) == 3 * (0 + 2 + 4)


def test_gradients_pass_through_loops_and_branches() -> None:
    w, x = RNG.normal(size=(3, 3)) / 2, RNG.normal(size=(4, 3))

    def make(scan: Any, cond: Any, tanh: Any, zeros: Any) -> Any:
        def loss(w: Any, x: Any) -> Any:
            def body(c: Any, row: Any) -> Any:
                c = tanh(c @ w + row)
                return c, cond((c[0] > 0), lambda: (c * c).sum(), lambda: c[1])

            last, ys = scan(body, zeros, x)
            return (last * ys[:3]).sum()

        return loss

    mine = pcp.trace(pcp.grad(make(pcp.scan, pcp.cond, pcp.tanh, np.zeros(3)), (0, 1)), w, x)
    with jax.enable_x64(True):
        theirs = jax.grad(make(jax.lax.scan, jax.lax.cond, jnp.tanh, jnp.zeros(3)), (0, 1))(w, x)
    for got, other in zip(run(mine, w, x), theirs, strict=True):
        np.testing.assert_allclose(got, other, rtol=1e-10, atol=1e-12)


def wrong(function: Any) -> Any:
    """Trace a function of x: f32[3] and n: i32[]."""
    return pcp.trace(function, pcp.spec((3,), "f32"), pcp.spec((), "i32"))


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (
            lambda x, n: pcp.while_loop(
                lambda c: n > 0, lambda c: {"a": c["a"], "b": c["b"][:2]}, {"a": n, "b": x}
            ),
            CarryMismatch,
            r"while_loop: carry.b was given as f32\[3\] but the body returned f32\[2\]; its shape must not change",
        ),
        (
            lambda x, n: pcp.fori_loop(0, 2, lambda i, c: (c[0].astype("f64"), c[1]), (x, n)),
            CarryMismatch,
            r"fori_loop: carry.0 was given as f32\[3\] but the body returned f64\[3\]; convert one",
        ),
        (
            lambda x, n: pcp.scan(lambda c, r: ((c, c), r), x, x),
            CarryMismatch,
            r"scan: the body returned a carry nested as \(\*, \*\); expected \*, as it was given",
        ),
        (
            lambda x, n: pcp.scan(lambda c, r: c, x, x),
            CarryMismatch,
            "scan: the body returned Tensor; expected a pair",
        ),
        (
            lambda x, n: pcp.scan(lambda c, r: (c, r), x),
            ShapeMismatch,
            "scan: neither xs nor length was given",
        ),
        (lambda x, n: pcp.scan(lambda c, r: (c, r), x, n), ShapeMismatch, "scan: xs is a scalar"),
        (
            lambda x, n: pcp.scan(lambda c, r: (c, r), n, {"p": x, "q": x[:2]}),
            ShapeMismatch,
            "scan: the first axes differ in size: xs.p 3, xs.q 2",
        ),
        (
            lambda x, n: pcp.while_loop(lambda c: c, lambda c: c, n),
            DTypeMismatch,
            r"while_loop: the condition is i32\[\]; expected one boolean, bool\[\]",
        ),
        (
            lambda x, n: pcp.while_loop(lambda c: c > 0, lambda c: c, x),
            DTypeMismatch,
            r"while_loop: the condition is bool\[3\]",
        ),
        (lambda x, n: pcp.fori_loop(0, x, lambda i, c: c, n), DTypeMismatch, r"fori_loop: upper is f32\[3\]"),
        (lambda x, n: pcp.cond(n, lambda: x, lambda: x), DTypeMismatch, r"cond: the condition is i32\[\]"),
        (
            lambda x, n: pcp.cond(n > 0, lambda: {"a": x}, lambda: {"a": x[:1]}),
            BranchMismatch,
            r"cond: result.a is f32\[3\] in branch 0 and f32\[1\] in branch 1",
        ),
        (
            lambda x, n: pcp.cond(n > 0, lambda: x, lambda: 0.0),
            BranchMismatch,
            r"cond: result is f32\[3\] in branch 0 and f32\[\] in branch 1",
        ),
        (
            lambda x, n: pcp.switch(n, [lambda: x, lambda: x, lambda: (x, x)]),
            BranchMismatch,
            r"switch: branch 0 returns a result nested as \*, branch 2 as \(\*, \*\)",
        ),
        (
            lambda x, n: pcp.fori_loop(0, 2, lambda i, c: 2.5, n),
            CarryMismatch,
            r"fori_loop: carry was given as i32\[\] but the body returned f32\[\]; convert one",
        ),
        (
            lambda x, n: pcp.fori_loop(0, 2, lambda i, c: n, 2.5),
            CarryMismatch,
            r"fori_loop: carry was given as f32\[\] but the body returned i32\[\]; convert one",
        ),
        (
            lambda x, n: pcp.cond(n > 0, lambda: n, lambda: 2.5),
            BranchMismatch,
            r"cond: result is i32\[\] in branch 0 and f32\[\] in branch 1",
        ),
        (lambda x, n: pcp.switch(n, []), BranchMismatch, "switch: no branches were given"),
        (lambda x, n: pcp.switch(x, [lambda: x]), DTypeMismatch, r"switch: the index is f32\[3\]"),
    ],
)
def test_a_wrong_body_is_explained(function: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        wrong(function)
    assert "test_control_flow.py:" in str(caught.value)


@pytest.mark.parametrize(
    "loop",
    [
        lambda keep, x: pcp.fori_loop(0, 2, lambda i, c: keep(c * i), x),
        lambda keep, x: pcp.scan(lambda c, r: (keep(c * r), r), x, x),
        lambda keep, x: pcp.while_loop(lambda c: keep(c)[0] > 0, lambda c: c, x),
        lambda keep, x: pcp.cond(x[0] > 0, lambda: keep(x * 2), lambda: x),
    ],
)
def test_a_tensor_cannot_leave_a_body(loop: Any) -> None:
    kept: list[Any] = []

    def keep(tensor: Any) -> Any:
        kept.append(tensor)
        return tensor

    def function(x: pcp.Tensor) -> Any:
        loop(keep, x)
        return kept[0] + x

    with pytest.raises(LeakedTensor, match="was made in a function or block whose trace has ended"):
        pcp.trace(function, pcp.spec((3,), "f32"))


def test_a_failing_body_leaves_the_program_sound() -> None:
    def function(x: pcp.Tensor) -> Any:
        with pytest.raises(CarryMismatch):
            pcp.fori_loop(0, 2, lambda i, c: c[:1], x)
        with pytest.raises(CarryMismatch):
            pcp.scan(lambda c, r: (c[:1], r), x, x)
        with pytest.raises(BranchMismatch):
            pcp.cond(x[0] > 0, lambda: x, lambda: x[:1])
        return pcp.fori_loop(0, 2, lambda i, c: c * 2, x)

    np.testing.assert_array_equal(result_of(function, np.float32([1, 2])), [4, 8])
