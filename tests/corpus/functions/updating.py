"""Writing elements: scatters of every kind and mode, dynamic updates, segments."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.corpus.arguments import distinct, integers, normal, positive, together
from tests.corpus.case import Case

_MATRIX = (5, 4)
_UNIQUE = np.array([3, 0, 4])
_REPEATED = np.array([3, 0, 3, 4, 0, 0])
_FAR = np.array([1, 7, -9, 2])
_SEGMENTS = np.array([0, 0, 2, 1, 2, 2])


def _scatter_windows(x, i, u):
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=(1, 2), inserted_window_dims=(), scatter_dims_to_operand_dims=(0, 1)
    )
    return lax.scatter_add(x, i, u, numbers, mode="drop")


def _scatter_batched(x, i, u):
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=(2,), inserted_window_dims=(1,), scatter_dims_to_operand_dims=(1,),
        operand_batching_dims=(0,), scatter_indices_batching_dims=(0,),
    )  # fmt: skip
    return lax.scatter_add(x, i, u, numbers, mode="clip")


CASES = [
    Case("set_row", lambda x, u: x.at[2].set(u) * x, normal(_MATRIX, (4,)), order=2),
    Case("set_slice", lambda x, u: x.at[1:3, ::2].set(u), normal(_MATRIX, (2, 2))),
    Case("set_constant", lambda x: x.at[:, 1].set(3.0) * x, normal(_MATRIX)),
    Case("set_unique", lambda x, u: x.at[_UNIQUE].set(u), normal(_MATRIX, (3, 4)), order=2),
    Case("set_unique_said", lambda x, u: x.at[_UNIQUE].set(u, unique_indices=True), normal(_MATRIX, (3, 4))),
    Case("set_dropped", lambda x, u: x.at[_FAR].set(u, mode="drop"), normal(_MATRIX, (4, 4)), order=2),
    Case("set_clipped", lambda x, u: x.at[np.array([1, 7, 2])].set(u, mode="clip"), normal(_MATRIX, (3, 4))),
    Case("set_mask", lambda x: x.at[np.eye(5, 4, dtype=bool)].set(0.5) * x, normal(_MATRIX)),
    Case("set_where", lambda x: jnp.where(x > 0, x, x.at[0].set(x[1])), normal(_MATRIX)),
    Case(
        "set_pairs",
        lambda x, u, i: x.at[i, jnp.arange(4)].set(u),
        together(normal(_MATRIX, (4,)), integers(0, 5, (4,))),
    ),
    Case("add_repeated", lambda x, u: x.at[_REPEATED].add(u) ** 2, normal(_MATRIX, (6, 4)), order=2),
    Case(
        "add_at_run_time",
        lambda x, u, i: x.at[i].add(u),
        together(normal(_MATRIX, (7, 4)), integers(-5, 5, (7,))),
        order=2,
    ),
    Case("add_dropped", lambda x, u: x.at[_FAR].add(u, mode="drop"), normal(_MATRIX, (4, 4))),
    Case(
        "add_pairs",
        lambda x, u, i, j: x.at[i, j].add(u),
        together(normal(_MATRIX, (8,)), integers(0, 5, (8,)), integers(0, 4, (8,))),
    ),
    Case("subtract", lambda x, u: x.at[_REPEATED].subtract(u), normal(_MATRIX, (6, 4))),
    Case(
        "multiply_unique",
        lambda x, u: x.at[_UNIQUE].multiply(u, unique_indices=True),
        normal(_MATRIX, (3, 4)),
        order=2,
    ),
    Case(
        "divide_unique",
        lambda x, u: x.at[_UNIQUE].divide(u, unique_indices=True),
        together(normal(_MATRIX), positive((3, 4))),
    ),
    Case("multiply_by_slice", lambda x: x.at[1:3].multiply(x[:2]), normal(_MATRIX)),
    Case("power", lambda x: x.at[_UNIQUE].power(3.0), positive(_MATRIX)),
    Case(
        "apply",
        lambda x: x.at[_UNIQUE].apply(jnp.sin),
        normal(_MATRIX),
        reference=lambda x: x.at[_UNIQUE].set(jnp.sin(x[_UNIQUE])),
    ),
    Case("minimum", lambda x, u: x.at[_UNIQUE].min(u), distinct(_MATRIX, (3, 4))),
    Case(
        "maximum_repeated",
        lambda x, u: x.at[_REPEATED].max(u),
        lambda rng: np.split(distinct((44,))(rng)[0].reshape(11, 4), [5]),
    ),
    Case(
        "scatter_windows",
        _scatter_windows,
        together(normal(_MATRIX), integers(-1, 5, (3, 2)), normal((3, 2, 3))),
        order=2,
    ),
    Case(
        "scatter_batched",
        _scatter_batched,
        together(normal((3, 5, 2)), integers(0, 5, (3, 4, 1)), normal((3, 4, 2))),
        order=2,
    ),
    Case(
        "dynamic_update_slice",
        lambda x, u, i: lax.dynamic_update_slice(x, u, (i[0], i[1])) * x,
        together(normal(_MATRIX, (2, 3)), integers(0, 9, (2,))),
        order=2,
    ),
    Case(
        "dynamic_update_of_itself",
        lambda x, i: lax.dynamic_update_slice_in_dim(x, x[:2] ** 2, i, 0),
        together(normal(_MATRIX), integers(0, 5, ())),
    ),
    Case(
        "key_value_cache",
        lambda c, k, i: jnp.einsum("td,sd->ts", lax.dynamic_update_index_in_dim(c, k, i, 0), c),
        together(normal(_MATRIX, (4,)), integers(0, 5, ())),
    ),
    Case("segment_sum", lambda x: jax.ops.segment_sum(x, _SEGMENTS, 4), normal((6, 3)), order=2),
    Case(
        "segment_sum_at_run_time",
        lambda x, s: jax.ops.segment_sum(x**2, s, 4),
        together(normal((6, 3)), integers(0, 4, (6,))),
    ),
    Case("segment_max", lambda x: jax.ops.segment_max(x, _SEGMENTS, 3), distinct((6, 3))),
    Case("segment_min", lambda x: jax.ops.segment_min(x, _SEGMENTS, 3), distinct((6, 3))),
    Case(
        "segment_mean",
        lambda x: jax.ops.segment_sum(x, _SEGMENTS, 3) / jax.ops.segment_sum(jnp.ones((6, 1)), _SEGMENTS, 3),
        normal((6, 3)),
    ),
    Case("segment_softmax", lambda x: _segment_softmax(x), normal((6,)), order=2),
    Case(
        "bincount_of_weights",
        lambda w, i: jnp.bincount(i, w, length=5),
        together(normal((8,)), integers(0, 5, (8,))),
    ),
    Case(
        "vmapped_add",
        jax.vmap(lambda x, u, i: x.at[i].add(u)),
        together(normal((3, 5), (3, 4)), integers(0, 5, (3, 4))),
        order=2,
    ),
    Case(
        "vmapped_set",
        jax.vmap(lambda x, u, i: x.at[i].set(u)),
        together(normal((3, 5), (3,)), integers(0, 5, (3,))),
    ),
    Case(
        "vmapped_update_slice",
        jax.vmap(lambda x, u, i: lax.dynamic_update_slice(x, u, (i,))),
        together(normal((3, 5), (3, 2)), integers(0, 5, (3,))),
    ),
    Case("fill_diagonal", lambda x: jnp.fill_diagonal(x, 0.5, inplace=False) * x, normal((4, 4))),
    Case(
        "put_along_axis",
        lambda x, u, i: jnp.put_along_axis(x, i, u, 1, inplace=False),
        together(normal(_MATRIX, (5, 1)), integers(0, 4, (5, 1))),
    ),
    Case("insert", lambda x, u: jnp.insert(x, 2, u, axis=0), normal(_MATRIX, (4,))),
    Case("delete", lambda x: jnp.delete(x, 2, axis=0), normal(_MATRIX)),
    Case(
        "set_repeated_equal",
        lambda x, u: x.at[np.array([1, 1])].set(jnp.stack([u, u])),
        normal(_MATRIX, (4,)),
    ),
    Case(
        "graph_convolution",
        lambda x, w: jax.nn.tanh(jnp.zeros((5, 3)).at[_REPEATED].add(x[np.array([0, 1, 2, 3, 4, 1])] @ w)),
        normal(_MATRIX, (4, 3)),
        order=2,
    ),
]


def _segment_softmax(x):
    shifted = jnp.exp(x - jax.ops.segment_max(x, _SEGMENTS, 3)[_SEGMENTS])
    return shifted / jax.ops.segment_sum(shifted, _SEGMENTS, 3)[_SEGMENTS]
