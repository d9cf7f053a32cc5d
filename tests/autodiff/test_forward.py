"""Forward mode through every derivative rule, and forward mode over reverse mode, against JAX."""

from typing import Any

import jax
import numpy as np
import pytest

import pcp
from tests.autodiff.rows import ROWS
from tests.autodiff.rows.row import Row
from tests.autodiff.test_rules import NAMES, double_precision, drawn, in_a_graph
from tests.execution import run

__all__ = ["double_precision"]  # a fixture for every test here


def both(function: Any, loss: Any, forward: Any, gradient: Any) -> Any:
    """A function of scales, arguments and directions: the tangents of `function`, and those of the gradient of `loss`."""

    def differentiated(scales: Any, arguments: Any, directions: Any) -> Any:
        tangents = forward(
            lambda s: function(*(a * b for a, b in zip(arguments, s, strict=True))), scales, directions
        )
        return tangents, forward(lambda s: gradient(loss)(s, arguments), scales, directions)

    return differentiated


def pushed(function: Any, at: Any, along: Any) -> Any:
    return pcp.jvp(function)(at, along)[1]


def jax_pushed(function: Any, at: Any, along: Any) -> Any:
    return jax.jvp(function, (at,), (along,))[1]


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_tangents_and_hessian_products_are_those_of_jax(row: Row) -> None:
    arguments, scales = (tuple(part) for part in drawn(row))
    random = np.random.default_rng(3)
    directions = tuple(random.normal(size=s.shape) for s in scales)
    reference = row.reference or row.function
    mine = both(row.function, in_a_graph(row.function), pushed, pcp.grad)
    theirs = both(reference, in_a_graph(reference), jax_pushed, jax.grad)
    if not row.second_order:
        mine, theirs = (lambda *x, f=f: f(*x)[0] for f in (mine, theirs))
    found = jax.tree.leaves(
        run(pcp.trace(mine, scales, arguments, directions), scales, arguments, directions)
    )
    expected = jax.tree.leaves(jax.jit(theirs)(scales, arguments, directions))
    for got, other in zip(found, expected, strict=True):
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, other, rtol=1e-10, atol=1e-10 * (1 + np.abs(other).max(initial=0)))
