"""Functional updates against NumPy's assignments, for every kind of key."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.execution import run
from tests.ops.test_indexing import keys

import pcp
from pcp.tensor import DTypeMismatch, IndexOutOfBounds, ShapeMismatch

MODES = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}


def assigned(array: Any, key: Any, value: Any, mode: str) -> Any:
    """NumPy's result of an update in place, places that are named twice in turn."""
    result = array.copy()
    if mode == "set":
        result[key] = value
    else:
        # As large as their places: NumPy 2.4 reads beyond values of fewer dimensions.
        MODES[mode].at(result, key, np.broadcast_to(value, array[key].shape).copy())
    return result


@settings(max_examples=25)
@given(
    data=st.data(),
    shape=st.sampled_from([(), (5,), (4, 3), (3, 0), (2, 3, 4)]),
    mode=st.sampled_from(["set", *MODES]),
)
def test_it_updates_as_numpy_does(data: st.DataObject, shape: tuple[int, ...], mode: str) -> None:
    key = data.draw(keys(shape))
    random = np.random.default_rng(0)
    array = random.integers(-5, 6, shape)
    wanted = array[key].shape
    # Of several values that are set at one place any may win, so all are equal then.
    value = (
        np.int64(9)
        if mode == "set"
        else random.integers(-3, 4, wanted[1:] if data.draw(st.booleans()) else wanted)
    )
    found = run(
        pcp.trace(lambda x, v: pcp.index_update(x, key, v, mode), array, np.asarray(value)), array, value
    )
    np.testing.assert_array_equal(found, assigned(array, key, value, mode), err_msg=str(key))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "i8", "u64", "bool", "c64"])
@pytest.mark.parametrize("key", [(slice(1, 3), 0), (slice(None), np.array([2, 0])), np.array([3, 1])])
def test_every_type_is_set(dtype: str, key: Any) -> None:
    kind = pcp.spec((), dtype).spec.dtype.numpy
    array, value = np.arange(12).reshape(4, 3).astype(kind), (np.arange(8) % 2).astype(kind)
    new = value[: array[key].size].reshape(array[key].shape)
    found = run(pcp.trace(lambda x, v: pcp.index_update(x, key, v), array, new), array, new)
    np.testing.assert_array_equal(found, assigned(array, key, new, "set"))


def test_index_tensors_count_from_the_end_and_those_beyond_it_are_dropped() -> None:
    array, places = np.arange(4.0), np.array([-1, 1, 7, -9], np.int32)
    program = pcp.trace(lambda x, i: pcp.index_update(x, i, 10.0, "add"), array, places)
    np.testing.assert_array_equal(run(program, array, places), [0, 11, 2, 13])


def test_gradients_of_updates_are_those_of_jax() -> None:
    random = np.random.default_rng(1)
    x, v, places = random.normal(size=(5, 3)), random.normal(size=(2, 3)), np.array([4, 1])
    w = random.normal(size=(5, 3))
    mine = {
        "set": lambda x, v: (pcp.index_update(x, places, v) * w).sum(),
        "add": lambda x, v: (pcp.index_update(x, (places, slice(None, None, -1)), v, "add") * w).sum(),
        "block": lambda x, v: (pcp.index_update(x, slice(1, 4, 2), v * v) * w).sum(),
    }
    theirs = {
        "set": lambda x, v: (x.at[places].set(v) * w).sum(),
        "add": lambda x, v: (x.at[places, ::-1].add(v) * w).sum(),
        "block": lambda x, v: (x.at[1:4:2].set(v * v) * w).sum(),
    }
    for name in mine:
        with jax.enable_x64(True):
            expected = jax.grad(theirs[name], (0, 1))(jnp.asarray(x), jnp.asarray(v))
        for got, other in zip(
            run(pcp.trace(pcp.grad(mine[name], (0, 1)), x, v), x, v), expected, strict=True
        ):
            np.testing.assert_allclose(got, other, rtol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda x: pcp.index_update(x, 5, 0.0), IndexOutOfBounds, "index 5 is out of bounds for axis 0"),
        (
            lambda x: pcp.index_update(x, 0, np.ones(2)),
            DTypeMismatch,
            "values that meet f32 in f64 were given; expected f32",
        ),
        (
            lambda x: pcp.index_update(x, 0, np.ones(2, "f")),
            ShapeMismatch,
            r"shape \(2,\) does not broadcast to \(3,\)",
        ),
        (
            lambda x: pcp.index_update(x, 0, 0.0, "append"),
            DTypeMismatch,
            "mode 'append' was given; expected one of set, add",
        ),
        (
            lambda x: pcp.index_update(x, (x > 0, 0), 0.0),
            DTypeMismatch,
            "expected integers .use pcp.where for masks",
        ),
        (
            lambda x: pcp.index_update(x, x > 0, x),
            ShapeMismatch,
            r"a mask of shape .* and a value of shape .*choose others by pcp.where",
        ),
        (
            lambda x: pcp.ops.scatter_add(x, 0, 1.0, 2),
            ShapeMismatch,
            "scatter: axis 2 was given for a tensor of rank 2",
        ),
        (
            lambda x: pcp.ops.take_along_axis(x, np.array([0]), 0),
            ShapeMismatch,
            "expected as many axes, at least one",
        ),
        (
            lambda x: pcp.ops.take_along_axis(x, x, 0),
            DTypeMismatch,
            "indices of f32 were given; expected integers",
        ),
        (
            lambda x: pcp.ops.put_along_axis(x, np.zeros((9, 3), int), 0.0, 1),
            ShapeMismatch,
            r"put_along_axis: shapes \(4, 1\) and \(9, 1\) do not broadcast",
        ),
    ],
)
def test_a_wrong_update_is_explained(function: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pcp.trace(function, pcp.spec((4, 3), "f32"))
