"""Indexing against NumPy: every key that is static gives what NumPy gives, and says where it cannot."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.execution import QUICK

import pcp
from pcp import ops
from pcp.ir.toolkit.walking import every_operation
from pcp.ops.indexing.gathering import ATTRIBUTES, WindowAxes, gather, scatter
from pcp.tensor import DTypeMismatch, IndexOutOfBounds, ShapeMismatch


def indexed(array: np.ndarray[Any, Any], keys: list[Any]) -> list[Any]:
    """`array[key]` for every key, computed by one program."""
    program = pcp.trace(lambda x: [x[key] for key in keys], pcp.spec(array.shape, array.dtype))
    return [np.asarray(part) for part in pcp.plan(program, cache=False, options=QUICK).run(array)]


@st.composite
def keys(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """A key that NumPy accepts for an array of this shape, of every static kind."""
    lead = draw(st.sampled_from([(), (2,), (2, 3), (1, 3), (0,)]))
    entries: list[Any] = []
    for size in shape[: draw(st.integers(0, len(shape)))]:
        kinds = ["slice", "array", "integer"] if size else ["slice"]
        kind = draw(st.sampled_from(kinds))
        if kind == "integer":
            entries.append(draw(st.integers(-size, size - 1)))
        elif kind == "array":
            entries.append(
                np.array(draw(_nested(lead, st.integers(-size, size - 1))), np.int64).reshape(lead)
            )
        else:
            step = draw(st.sampled_from([None, 1, 2, 3, -1, -2]))
            bound = st.none() | st.integers(-size - 2, size + 2)
            entries.append(slice(draw(bound), draw(bound), step))
    if draw(st.booleans()):
        entries.insert(draw(st.integers(0, len(entries))), None)
    if len([entry for entry in entries if entry is not None]) < len(shape) and draw(st.booleans()):
        entries.append(Ellipsis)
    return tuple(entries)


def _nested(lead: tuple[int, ...], element: st.SearchStrategy[int]) -> st.SearchStrategy[list[int]]:
    count = int(np.prod(lead))
    return st.lists(element, min_size=count, max_size=count)


@settings(max_examples=15)
@given(data=st.data(), shape=st.sampled_from([(), (5,), (4, 3), (3, 0), (2, 3, 4), (2, 1, 3, 2)]))
def test_it_indexes_as_numpy_does(data: st.DataObject, shape: tuple[int, ...]) -> None:
    drawn = data.draw(st.lists(keys(shape), min_size=1, max_size=6))
    array = np.random.default_rng(len(drawn)).standard_normal(shape).astype(np.float32)
    for key, result in zip(drawn, indexed(array, drawn), strict=True):
        expected = array[key]
        assert result.shape == expected.shape, key
        np.testing.assert_array_equal(result, expected, err_msg=str(key))


def test_an_integer_beside_arrays_counts_as_one() -> None:
    array = np.random.default_rng(2).standard_normal((2, 3, 4)).astype(np.float32)
    rows = np.array([[0, 1], [1, 0]])
    keys = [
        (0, None, rows),
        (1, slice(None), rows),
        (rows, 0),
        (slice(None), 1, rows),
        (rows, None, 2),
        (rows, 1, rows),
    ]
    for key, result in zip(keys, indexed(array, keys), strict=True):
        np.testing.assert_array_equal(result, array[key], err_msg=str(key))


@settings(max_examples=10)
@given(data=st.data(), sizes=st.tuples(st.integers(1, 5), st.integers(1, 4)))
def test_index_tensors_count_from_the_end_and_are_clamped(
    data: st.DataObject, sizes: tuple[int, int]
) -> None:
    rows = data.draw(st.lists(st.integers(-2 * sizes[0], 2 * sizes[0]), min_size=1, max_size=4))
    places = np.array(rows, np.int32)
    array = np.random.default_rng(0).standard_normal(sizes)
    program = pcp.trace(lambda x, i: x[i], pcp.spec(sizes, "f64"), pcp.spec(places.shape, "i32"))
    result = pcp.plan(program, cache=False, options=QUICK).run(array, places)
    wanted = np.clip(np.where(places < 0, places + sizes[0], places), 0, sizes[0] - 1)
    np.testing.assert_array_equal(result, array[wanted])


@pytest.mark.parametrize("dtype", ["i8", "u8", "i64", "u32"])
def test_indices_may_have_any_integer_type(dtype: str) -> None:
    places = np.array([2, 0, 1], pcp.spec((), dtype).spec.dtype.numpy)
    array = np.random.default_rng(1).standard_normal((3, 2)).astype(np.float32)
    program = pcp.trace(lambda x, i: x[i], pcp.spec((3, 2), "f32"), pcp.spec((3,), dtype))
    np.testing.assert_array_equal(
        pcp.plan(program, cache=False).run(array, places), array[places.astype(int)]
    )


def test_small_index_types_reach_the_end_of_a_long_axis() -> None:
    places = np.array([-1, 100, -128], np.int8)
    array = np.random.default_rng(1).standard_normal(300).astype(np.float32)
    program = pcp.trace(lambda x, i: x[i], pcp.spec((300,), "f32"), pcp.spec((3,), "i8"))
    np.testing.assert_array_equal(pcp.plan(program, cache=False).run(array, places), array[places])


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        (
            5,
            IndexOutOfBounds,
            r"index 5 is out of bounds for axis 0 of shape \(4, 3\); expected -4 <= index < 4",
        ),
        ((0, -4), IndexOutOfBounds, r"index -4 is out of bounds for axis 1 of shape \(4, 3\)"),
        (np.array([0, 4]), IndexOutOfBounds, r"index 4 is out of bounds for axis 0"),
        (np.array([0, -5]), IndexOutOfBounds, r"index -5 is out of bounds for axis 0"),
        ((0, 0, 0), ShapeMismatch, r"3 indices were given for shape \(4, 3\) of rank 2"),
        ((Ellipsis, Ellipsis), ShapeMismatch, "more than one ... was given"),
        ("rows", DTypeMismatch, "str was given; expected integers, slices"),
        (1.5, DTypeMismatch, "float was given; expected integers"),
        (np.array([1.5]), DTypeMismatch, "an array of float64 was given as an index"),
        (
            np.array([True, False, True]),
            ShapeMismatch,
            r"a mask has size 3 along axis 0 of shape \(4, 3\); expected 4",
        ),
        (
            (0, np.array([True, False])),
            ShapeMismatch,
            r"a mask has size 2 along axis 1 of shape \(4, 3\); expected 3",
        ),
        (np.True_, DTypeMismatch, "bool was given; expected integers, slices"),
    ],
)
def test_a_wrong_key_is_explained(key: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        pcp.trace(lambda x: x[key], pcp.spec((4, 3), "f32"))
    assert "test_indexing.py:" in str(caught.value)


def test_a_float_tensor_is_no_index() -> None:
    with pytest.raises(DTypeMismatch, match="a Tensor of f32 was given as an index; expected integers"):
        pcp.trace(lambda x, i: x[i], pcp.spec((4,), "f32"), pcp.spec((2,), "f32"))


def test_one_hot_counts_beyond_a_narrow_index_type() -> None:
    places = np.array([[3, 127], [-1, 0]], np.int8)
    program = pcp.trace(lambda i: ops.one_hot(i, 300), pcp.spec(places.shape, "i8"))
    expected = (places[..., None].astype(int) == np.arange(300)).astype(np.float32)
    np.testing.assert_array_equal(pcp.plan(program, cache=False).run(places), expected)


def test_one_hot_wants_integers() -> None:
    with pytest.raises(DTypeMismatch, match=r"one_hot: indices of f32 were given; expected integers"):
        pcp.trace(lambda i: ops.one_hot(i, 3), pcp.spec((2,), "f32"))


def test_scatter_adds_repeated_indices_and_drops_those_outside() -> None:
    rng = np.random.default_rng(5)
    base, updates = rng.standard_normal((4, 3)), rng.standard_normal((5, 3))
    places = np.array([[1], [3], [1], [7], [-1]], np.int32)
    axes = WindowAxes((1,), (0,), (0,), 1)
    program = pcp.trace(
        lambda x, i, u: (
            scatter(x, i, u, axes),
            scatter(x, i[:2], u[:2], axes, None),
            gather(x, i, axes, (1, 3)),
        ),
        pcp.spec(base.shape, "f64"),
        pcp.spec(places.shape, "i32"),
        pcp.spec(updates.shape, "f64"),
    )
    added, replaced, gathered = pcp.plan(program, cache=False).run(base, places, updates)
    expected = base.copy()
    np.add.at(expected, places[:3, 0], updates[:3])
    np.testing.assert_allclose(added, expected, rtol=1e-14)
    expected = base.copy()
    expected[[1, 3]] = updates[:2]
    np.testing.assert_array_equal(replaced, expected)
    np.testing.assert_array_equal(gathered, base[[1, 3, 1, 3, 0]])


@pytest.mark.parametrize(
    "axes",
    [
        WindowAxes((2,), (1,), (1,), 2, (0,), (0,)),
        WindowAxes((0, 2), (2,), (2, 0), 0, (), ()),
        WindowAxes((0,), (1,), (1,), 2, (0,), (1,)),
    ],
)
def test_the_axes_of_gathers_and_scatters_are_read_as_they_were_written(axes: WindowAxes) -> None:
    sizes = tuple(1 if axis in axes.absent else 2 for axis in range(3))
    places = (2, 3) if axes.vector == 0 else (3, 3, 1)

    def function(x: pcp.Tensor, i: pcp.Tensor) -> pcp.Tensor:
        read = gather(x, i, axes, sizes)
        assert axes.sizes(x.ndim, read.shape) == sizes
        return scatter(x, i, read, axes)

    module = pcp.trace(function, pcp.spec((3, 3, 3), "f32"), pcp.spec(places, "i32")).module()
    found = [
        (op.name, WindowAxes.of(op)) for op in every_operation(module.operation) if op.name in ATTRIBUTES
    ]
    assert found == [("stablehlo.gather", axes), ("stablehlo.scatter", axes)]


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda x: ops.dynamic_slice(x, (0,), (1, 1)), ShapeMismatch, "1 start indices were given"),
        (
            lambda x: ops.dynamic_slice(x, (0, 0), (5, 1)),
            ShapeMismatch,
            r"sizes \(5, 1\) do not fit",
        ),
        (
            lambda x: ops.dynamic_slice(x, (0.5, 0), (1, 1)),
            DTypeMismatch,
            "expected integer scalars",
        ),
        (
            lambda x: ops.dynamic_update_slice(x, np.ones((5, 1), np.float32), (0, 0)),
            ShapeMismatch,
            "does not fit shape",
        ),
        (lambda x: ops.take(x, [0], 2), ShapeMismatch, "axis 2 was given for a tensor of rank 2"),
    ],
)
def test_wrong_blocks_are_explained(wrong: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pcp.trace(wrong, pcp.spec((4, 3), "f32"))
