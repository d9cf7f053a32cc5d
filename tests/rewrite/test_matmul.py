"""Raising products of matrices: what must change, what must not, and that the numbers stay."""

from typing import Any

import numpy as np
import pytest

import pcp
from pcp import Program
from pcp.rewrite import ROWS, rewrite
from tests.execution import run

RNG = np.random.default_rng(0)

# name: function, shapes of its arguments
RAISED: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
    "matrices": (lambda a, b: (a[:, :, None] * b[None]).sum(1), ((3, 4), (4, 5))),
    "reshaped": (lambda a, b: (a.reshape(3, 4, 1) * b.reshape(1, 4, 5)).sum(1), ((3, 4), (4, 5))),
    "right first": (lambda a, b: (b[None] * a[:, :, None]).sum(1), ((3, 4), (4, 5))),
    "transposed": (lambda a, b: (a.T[:, None] * b[:, :, None]).sum(0), ((3, 4), (4, 5))),
    "last axis": (lambda a, b: (a[:, None] * b.T[None]).sum(-1), ((3, 4), (4, 5))),
    "kept": (lambda a, b: (a[:, :, None] * b[None]).sum(1, keepdims=True), ((3, 4), (4, 5))),
    "batched": (lambda a, b: (a[:, :, :, None] * b[:, None]).sum(2), ((2, 3, 4), (2, 4, 5))),
    "heads": (lambda q, k: (q[:, :, None] * k[:, None]).sum(-1), ((2, 3, 2, 4), (2, 5, 2, 4))),
    "two axes": (lambda a, b: (a[:, None] * b[None]).sum((2, 3)), ((3, 4, 2), (5, 4, 2))),
    "axes of one": (lambda a, b: (a[:, :, None, None] * b[None]).sum((1, 3)), ((3, 4), (4, 5, 1))),
    "explicit": (
        lambda a, b: (pcp.broadcast_to(a[:, :, None], (3, 4, 5)) * pcp.broadcast_to(b, (3, 4, 5))).sum(1),
        ((3, 4), (4, 5)),
    ),
}

LEFT_ALONE: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
    "a vector": (lambda a, b: (a * b).sum(-1), ((3, 4), (4,))),
    "a scale and a sum": (lambda x, scale: (x * x * scale).sum(-1), ((3, 4), (4,))),
    "of equal shapes": (lambda a, b: (a * b).sum(-1), ((3, 4), (3, 4))),
    "an outer product": (lambda a, b: (a[:, None] * b[None]).sum(), ((3,), (4,))),
    "a largest": (lambda a, b: (a[:, :, None] * b[None]).max(1), ((3, 4), (4, 5))),
    "a sum of sums": (lambda a, b: (a[:, :, None] + b[None]).sum(1), ((3, 4), (4, 5))),
    "used twice": (lambda a, b: [(p := a[:, :, None] * b[None]).sum(1), p], ((3, 4), (4, 5))),
}


def traced(function: Any, shapes: Any, dtype: str = "f64") -> Program:
    return pcp.trace(function, *(pcp.spec(shape, dtype) for shape in shapes))


def counts(program: Program) -> dict[str, int]:
    """How many operations of the kinds that matter a program has."""
    text = program.text
    return {name: text.count(f"stablehlo.{name}") for name in ("dot_general", "multiply", "reduce")}


@pytest.mark.parametrize("name", RAISED)
@pytest.mark.parametrize("dtype", ["f64", "i32"])
def test_a_written_out_product_becomes_one_operation(name: str, dtype: str) -> None:
    function, shapes = RAISED[name]
    program = traced(function, shapes, dtype)
    assert counts(program) == {"dot_general": 0, "multiply": 1, "reduce": 1}
    raised = rewrite(program)
    assert counts(raised) == {"dot_general": 1, "multiply": 0, "reduce": 0}
    assert raised.results == program.results
    kind = program.arguments[0].spec.dtype.numpy
    arrays = [(9 * RNG.normal(size=shape)).astype(kind) for shape in shapes]
    np.testing.assert_allclose(run(raised, *arrays), run(program, *arrays), rtol=1e-12)


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_is_no_product_of_matrices_is_left_alone(name: str) -> None:
    program = traced(*LEFT_ALONE[name])
    assert rewrite(program) is program


@pytest.mark.parametrize("name", RAISED)
def test_a_raised_program_is_raised_no_further(name: str) -> None:
    raised = rewrite(traced(*RAISED[name]))
    assert rewrite(raised) is raised


def test_a_sum_that_does_not_begin_with_zero_is_left_alone() -> None:
    text = traced(*RAISED["matrices"]).text
    assert text.count("dense<0.000000e+00>") == 1
    program = Program.parse(text.replace("dense<0.000000e+00>", "dense<1.000000e+00>"))
    assert rewrite(program) is program


def test_products_inside_of_loops_are_raised() -> None:
    def powers(a: pcp.Tensor) -> Any:
        return pcp.fori_loop(0, 3, lambda _, c: (c[:, :, None] * a[None]).sum(1), a)

    program = traced(powers, ((3, 3),))
    raised = rewrite(program)
    assert counts(raised)["dot_general"] == 1
    a = RNG.normal(size=(3, 3))
    np.testing.assert_allclose(run(raised, a), np.linalg.matrix_power(a, 4), rtol=1e-10)


def test_the_gradient_of_a_written_out_product_is_raised() -> None:
    def loss(a: pcp.Tensor, b: pcp.Tensor) -> Any:
        c = (a[:, :, None] * b[None]).sum(1)
        return (c * c).sum()

    program = pcp.value_and_grad(traced(loss, ((3, 4), (4, 5))), (0, 1))
    raised = rewrite(program)
    assert counts(raised)["dot_general"] == 3
    a, b = RNG.normal(size=(3, 4)), RNG.normal(size=(4, 5))
    value, (da, db) = run(raised, a, b)
    np.testing.assert_allclose(value, ((a @ b) ** 2).sum())
    np.testing.assert_allclose(da, 2 * a @ b @ b.T)
    np.testing.assert_allclose(db, 2 * a.T @ a @ b)


def test_idioms_stay_recognisable() -> None:
    def block(x: pcp.Tensor, scale: pcp.Tensor) -> Any:
        return pcp.softmax(pcp.nn.layer_norm(x, scale)), pcp.nn.rms_norm(x, scale)

    program = traced(block, ((3, 4), (4,)), "f32")
    assert rewrite(program) is program


def test_every_row_has_its_tests() -> None:
    assert [row.name for row in ROWS] == ["raise_matmul"]
