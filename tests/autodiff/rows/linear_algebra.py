"""Rows for products of tensors."""

import jax.numpy as jnp
from jax import lax

from pcp.ops.linear import products as linear_algebra
from tests.autodiff.rows.row import Domain, Row, normal


def _einsum_row(formula: str, *domains: Domain) -> Row:
    return Row(
        "dot_general",
        lambda *x: linear_algebra.einsum(formula, *x),
        lambda *x: jnp.einsum(formula, *x),
        domains,
    )


LINEAR_ALGEBRA = [
    Row("dot_general", lambda x, y: x @ y, None, [normal(3, 4), normal(4, 2)]),
    Row("dot_general", lambda x, y: x @ y, None, [normal(2, 3, 4), normal(4, 5)]),
    Row("dot_general", lambda x, y: x @ y, None, [normal(4), normal(4)]),
    Row("dot_general", lambda x: x @ x.T, None, [normal(3, 4)]),
    _einsum_row("bqhd,bkhd->bhqk", normal(2, 3, 2, 4), normal(2, 5, 2, 4)),
    _einsum_row("i,j->ij", normal(3), normal(4)),
    _einsum_row("abc,cdab->d", normal(2, 3, 4), normal(4, 5, 2, 3)),
    Row(
        "dot_general",
        lambda x, y: linear_algebra.dot_general(x, y, ((2, 0), (0, 3)), ((3,), (1,))),
        lambda x, y: lax.dot_general(x, y, (((2, 0), (0, 3)), ((3,), (1,)))),
        [normal(2, 3, 4, 5), normal(4, 5, 3, 2)],
    ),
]
