"""Rows for movement operations."""

import jax.numpy as jnp
from jax import lax

from pcp.ops import movement
from pcp.ops.movement.shape import broadcast_in_dim
from tests.autodiff.rows.row import Row, normal

MOVEMENT = [
    Row("transpose", lambda x: x.transpose(2, 0, 1), lambda x: x.transpose(2, 0, 1), [normal(2, 3, 4)]),
    Row("reshape", lambda x: x.reshape(4, 6), None, [normal(2, 3, 4)]),
    Row(
        "broadcast_in_dim",
        lambda x: x.broadcast_to((2, 3, 4)),
        lambda x: jnp.broadcast_to(x, (2, 3, 4)),
        [normal(3, 1)],
    ),
    Row(
        "broadcast_in_dim",
        lambda x: x.broadcast_to((5, 1, 3)),
        lambda x: jnp.broadcast_to(x, (5, 1, 3)),
        [normal(1, 3)],
    ),
    Row(
        "broadcast_in_dim",
        lambda x: broadcast_in_dim(x, (4, 1, 2, 3), (3, 1, 0)),
        lambda x: jnp.broadcast_to(x.transpose(2, 1, 0)[:, :, None], (4, 1, 2, 3)),
        [normal(3, 1, 4)],
    ),
    Row(
        "concatenate",
        lambda x, y: movement.concatenate([x, y, x], 1),
        lambda x, y: jnp.concatenate([x, y, x], 1),
        [normal(2, 3), normal(2, 2)],
    ),
    Row("slice", lambda x: x[1:, 1:7:3], None, [normal(3, 8)]),
    Row("slice", lambda x: x[2:2], None, [normal(3, 2)]),
    Row(
        "pad",
        lambda x, v: movement.pad(x, [(1, 2, 1), (-1, 3, 0)], constant_values=v),
        lambda x, v: lax.pad(x, v, [(1, 2, 1), (-1, 3, 0)]),
        [normal(3, 4), normal()],
    ),
    Row(
        "pad",
        lambda x, v: movement.pad(x, [(-2, -1, 2)], constant_values=v),
        lambda x, v: lax.pad(x, v, [(-2, -1, 2)]),
        [normal(4), normal()],
    ),
    Row("reverse", lambda x: x[::-1, :, ::-2], None, [normal(2, 3, 4)]),
]
