"""The axes of a product: written, read, and moved behind another axis, against NumPy's einsum."""

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.ir.toolkit.walking import every_operation
from pcp.ops.linear.dot_axes import DotAxes, led_by_first

CASES = [
    ("ij,jk->ik", DotAxes(((1,), (0,)))),
    ("aib,bja->ij", DotAxes(((2, 0), (0, 2)))),
    ("iab,bja->bij", DotAxes(((1,), (2,)), ((2,), (0,)))),
    ("ia,jb->iajb", DotAxes(((), ()))),
]
SIZES = {"a": 2, "b": 3, "i": 4, "j": 5, "k": 2}


@pytest.mark.parametrize(("formula", "axes"), CASES)
def test_a_product_is_that_of_einsum_and_its_axes_are_read_as_they_were_written(
    formula: str, axes: DotAxes
) -> None:
    random = np.random.default_rng(0)
    terms = formula.partition("->")[0].split(",")
    x, y = (random.normal(size=[SIZES[letter] for letter in term]) for term in terms)
    program = pcp.trace(lambda x, y: axes.multiply(x, y, x.dtype), x, y)
    np.testing.assert_allclose(run(program, x, y), np.einsum(formula, x, y), rtol=1e-12)
    products = [op for op in every_operation(program.module().operation) if op.name.endswith("dot_general")]
    assert [DotAxes.of(op) for op in products] == [axes]


@pytest.mark.parametrize(("formula", "axes"), CASES)
def test_behind_another_axis_are_the_same_axes(formula: str, axes: DotAxes) -> None:
    random = np.random.default_rng(0)
    terms, _, result = formula.partition("->")
    left, right = terms.split(",")
    x, y = (random.normal(size=[6, *(SIZES[letter] for letter in term)]) for term in (left, right))
    moved = axes.behind_another(True, True)
    together = DotAxes(moved.contract, led_by_first(moved.batch))
    program = pcp.trace(lambda x, y: together.multiply(x, y, x.dtype), x, y)
    expected = np.einsum(f"z{left},z{right}->z{result}", x, y)
    np.testing.assert_allclose(run(program, x, y), expected, rtol=1e-12)
    one_side = axes.behind_another(True, False)
    program = pcp.trace(lambda x, y: one_side.multiply(x, y, x.dtype), x, y[0])
    batches = len(axes.batch[0])
    expected = np.einsum(f"z{left},{right}->{result[:batches]}z{result[batches:]}", x, y[0])
    np.testing.assert_allclose(run(program, x, y[0]), expected, rtol=1e-12)
