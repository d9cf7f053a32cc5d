"""Reading elements: slices, gathers in every mode, dynamic slices."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.corpus.arguments import integers, normal, together
from tests.corpus.case import Case

_MATRIX = normal((5, 4))
_ROWS = np.array([3, 0, 0, 4, -1])
_FAR = np.array([1, 7, -9, 2])


def _gather_windows(x, i):
    numbers = lax.GatherDimensionNumbers(offset_dims=(1, 2), collapsed_slice_dims=(), start_index_map=(0, 1))
    return lax.gather(x, i, numbers, (2, 3), mode="clip")


def _gather_batched(x, i):
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(2,), collapsed_slice_dims=(1,), start_index_map=(1,), operand_batching_dims=(0,),
        start_indices_batching_dims=(0,),
    )  # fmt: skip
    return lax.gather(x, i, numbers, (1, 1, 2), mode="clip")


CASES = [
    Case("row", lambda x: x[2], _MATRIX),
    Case("last_column", lambda x: x[:, -1], _MATRIX),
    Case("strided", lambda x: x[1::2, ::3], _MATRIX, order=2),
    Case("reversed", lambda x: x[::-1, ::-2] * x[:, ::2], _MATRIX, order=2),
    Case("new_axes", lambda x: x[None, :, None, 1:3] * x[:, :1, None, None], _MATRIX),
    Case("rows_with_repeats", lambda x: x[_ROWS], _MATRIX, order=2),
    Case("rows_at_run_time", lambda x, i: x[i] ** 2, together(_MATRIX, integers(0, 5, (6,))), order=2),
    Case("negative_indices", lambda x, i: x[i], together(_MATRIX, integers(-5, 0, (6,)))),
    Case(
        "pairs_of_indices",
        lambda x, i, j: x[i, j],
        together(_MATRIX, integers(0, 5, (7,)), integers(0, 4, (7,))),
    ),
    Case(
        "broadcast_indices",
        lambda x, i, j: x[i, j],
        together(_MATRIX, integers(0, 5, (3, 1)), integers(0, 4, (2,))),
    ),
    Case("index_and_slice", lambda x, i: x[:, i, 1:], together(normal((2, 5, 4)), integers(0, 5, (3,)))),
    Case("separated_indices", lambda x, i: x[i, :, i], together(normal((4, 3, 4)), integers(0, 4, (2,)))),
    Case("boolean_mask", lambda x: x[np.array([True, False, True, True, False])], _MATRIX),
    Case("take_clip", lambda x: jnp.take(x, _FAR, axis=0, mode="clip"), _MATRIX, order=2),
    Case("take_wrap", lambda x: jnp.take(x, _FAR, axis=0, mode="wrap"), _MATRIX),
    Case("take_fill", lambda x: jnp.take(x, _FAR, axis=0, mode="fill", fill_value=3.0), _MATRIX, order=2),
    Case(
        "get_fill",
        lambda x, i: x.at[i].get(mode="fill", fill_value=0.0),
        together(_MATRIX, integers(-9, 9, (8,))),
    ),
    Case(
        "get_promised",
        lambda x, i: x.at[i].get(mode="promise_in_bounds"),
        together(_MATRIX, integers(0, 5, (4,))),
    ),
    Case(
        "get_unique_sorted",
        lambda x: x.at[np.array([0, 2, 3])].get(unique_indices=True, indices_are_sorted=True),
        _MATRIX,
    ),
    Case(
        "take_along_axis",
        lambda x, i: jnp.take_along_axis(x, i, 1),
        together(_MATRIX, integers(0, 4, (5, 3))),
        order=2,
    ),
    Case(
        "take_along_rows",
        lambda x, i: jnp.take_along_axis(x, i, 0),
        together(_MATRIX, integers(0, 5, (2, 4))),
    ),
    Case("take_flat", lambda x, i: jnp.take(x, i), together(_MATRIX, integers(0, 20, (3, 2)))),
    Case(
        "choose",
        lambda x, y, i: jnp.choose(i, [x, y], mode="clip"),
        together(normal((4,), (4,)), integers(0, 2, (4,))),
    ),
    Case("compress", lambda x: jnp.compress(np.array([0, 1, 1, 0, 1]), x, axis=0, size=3), _MATRIX),
    Case("extract_diagonal", lambda x: jnp.diagonal(x, 1), _MATRIX, order=2),
    Case("diagonal_matrix", lambda x: jnp.diag(x, -1) @ jnp.diag(x, 1), normal((4,)), order=2),
    Case("triangles", lambda x: jnp.tril(x) * 2 + jnp.triu(x, 1) ** 2, normal((4, 4)), order=2),
    Case("triangle_indices", lambda x: x[jnp.tril_indices(4)], normal((4, 4))),
    Case(
        "embedding",
        lambda t, i: t[i] * jnp.arange(1.0, 5),
        together(_MATRIX, integers(0, 5, (2, 3))),
        order=2,
    ),
    Case(
        "one_hot_lookup",
        lambda t, i: jax.nn.one_hot(i, 5, dtype=t.dtype) @ t,
        together(_MATRIX, integers(0, 5, (6,))),
    ),
    Case(
        "dynamic_slice",
        lambda x, i: lax.dynamic_slice(x, (i[0], i[1]), (2, 3)),
        together(_MATRIX, integers(0, 9, (2,))),
        order=2,
    ),
    Case(
        "dynamic_slice_below",
        lambda x, i: lax.dynamic_slice_in_dim(x, i - 4, 3),
        together(_MATRIX, integers(0, 3, ())),
    ),
    Case(
        "dynamic_index",
        lambda x, i: lax.dynamic_index_in_dim(x, i, 0, keepdims=False),
        together(_MATRIX, integers(0, 5, ())),
    ),
    Case("gather_windows", _gather_windows, together(_MATRIX, integers(-1, 6, (3, 2))), order=2),
    Case("gather_batched", _gather_batched, together(normal((3, 5, 2)), integers(0, 5, (3, 4, 1))), order=2),
    Case(
        "vmapped_dynamic_slice",
        jax.vmap(lambda x, i: lax.dynamic_slice(x, (i,), (2,))),
        together(_MATRIX, integers(0, 3, (5,))),
    ),
    Case("vmapped_lookup", jax.vmap(lambda x, i: x[i]), together(_MATRIX, integers(0, 4, (5, 2)))),
    Case("rolled", lambda x: jnp.roll(x, (1, -2), (0, 1)) * x, _MATRIX, order=2),
    Case("rolled_at_run_time", lambda x, i: jnp.roll(x, i, 0) * x, together(_MATRIX, integers(1, 4, ()))),
    Case("meshgrid", lambda x, y: jnp.multiply(*jnp.meshgrid(x, y)), normal((3,), (4,))),
    Case(
        "searched_and_read",
        lambda x, v: x[jnp.searchsorted(jnp.arange(5.0), v)],
        together(normal((5,)), lambda rng: (rng.uniform(0, 4, 6),)),
    ),
    Case("causal_shift", lambda x: jnp.concatenate([jnp.zeros((1, 4)), x[:-1]]) * x, _MATRIX),
    Case("sliding_windows", lambda x: x[np.arange(3)[:, None] + np.arange(3)].prod(1), _MATRIX, order=2),
    Case("nonzero_of_fixed_size", lambda x: x[jnp.nonzero(x[:, 0] > 0, size=3, fill_value=0)[0]], _MATRIX),
    Case("argmax_read", lambda x: jnp.take_along_axis(x, jnp.argmax(x, 1, keepdims=True), 1) * x, _MATRIX),
]
