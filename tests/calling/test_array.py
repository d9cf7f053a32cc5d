"""`pcp.Array`: a Tensor that has a value."""

import copy
import pickle
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import pcp
from pcp.calling.array import NotNumbers
from pcp.calling.kept import STORE, Kept

X = np.random.default_rng().normal(size=(2, 3)).astype(np.float32)


def test_it_reads_as_a_number_a_list_and_an_array() -> None:
    x = pcp.array(X)
    assert (x.shape, x.dtype, x.ndim, len(x), x.tolist()) == ((2, 3), "f32", 2, 2, X.tolist())
    total = x.sum()
    assert float(total) == total.item() == float(np.asarray(total))
    assert f"{total:.3f}" == f"{float(total):.3f}"
    assert int(pcp.array(3)) == 3
    assert [10, 20, 30][pcp.array(1)] == 20
    assert complex(pcp.array(1j)) == 1j
    assert bool(pcp.array(True))
    assert not pcp.array(0)
    assert [row.tolist() for row in x] == X.tolist()
    np.testing.assert_array_equal(np.from_dlpack(x), X)
    np.testing.assert_array_equal(jnp.asarray(x), X)
    for same in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        np.testing.assert_array_equal(same, X)


def test_it_prints_its_numbers() -> None:
    assert repr(pcp.array([[1, 2], [3, 4]])) == "Array([[1, 2],\n       [3, 4]], i32)"
    assert str(pcp.array([1.5, 2.0])) == "[1.5 2. ]"
    assert repr(pcp.array(2.5)) == "Array(2.5, f32)"


def test_it_does_not_change() -> None:
    source = X.copy()
    x = pcp.array(source)
    source[0, 0] = 100
    np.testing.assert_array_equal(x, X)
    with pytest.raises(ValueError, match="read-only"):
        x.numpy()[0, 0] = 1
    with pytest.raises(
        TypeError, match=r"an Array does not change; make a new one: y = x.at\[index\].set\(value\)"
    ):
        x[0] = 1


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1.5, "f32"), ([1, 2], "i32"), ([[1.0], [2.0]], "f32"), (True, "bool"), (1j, "c64"), (np.float64(2), "f64"),
        (np.ones(2, ">f4"), "f32"), (np.ones(2), "f64"), (jnp.ones(2, jnp.bfloat16), "bf16"), ([np.float64(1)], "f64"),
    ],
)  # fmt: skip
def test_element_types_are_kept_and_those_of_python_numbers_are_of_32_bits(value: Any, dtype: str) -> None:
    assert pcp.array(value).dtype == dtype
    assert pcp.asarray(value, "c128").dtype == "c128"


@pytest.mark.parametrize("value", ["text", None, [[1], [1, 2]], object(), np.array(["a"])])
def test_what_holds_no_numbers_is_refused(value: Any) -> None:
    with pytest.raises(NotNumbers, match="expected numbers"):
        pcp.array(value)


def test_inside_a_trace_it_is_a_constant() -> None:
    x = pcp.array(X)
    program = pcp.trace(
        lambda y: (x * y, pcp.cond(y.sum() > 0, lambda: x, lambda: -x)), pcp.spec((3,), "f32")
    )
    assert len(program.arguments) == 1
    y = X[0]
    for found, expected in zip(
        pcp.plan(program, "arena:cpu").run(y), (X * y, X if y.sum() > 0 else -X), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_it_is_an_argument_of_traces_and_plans() -> None:
    x = pcp.array(X)
    program = pcp.trace(lambda x: x * 2, x)
    np.testing.assert_array_equal(pcp.plan(program, "arena:cpu").run(x), X * 2)


def test_numbers_of_a_loop_make_one_program() -> None:
    x, before = pcp.array(X), len(STORE)
    for number in range(20):
        np.testing.assert_array_equal(
            x * number + 0.5 * number, X * np.float32(number) + np.float32(0.5 * number)
        )
    assert len(STORE) <= before + 6


def test_a_number_keeps_the_precision_of_wide_arrays() -> None:
    wide = np.random.default_rng().normal(size=3)
    np.testing.assert_array_equal(pcp.array(wide) * 0.1, wide * 0.1)
    np.testing.assert_array_equal(pcp.jit(lambda x, s: x * s)(wide, 0.1), wide * 0.1)
    narrow = wide.astype(ml_dtypes.bfloat16)
    assert (pcp.array(narrow) * 0.1).dtype == "bf16"


def test_errors_name_the_line_of_the_caller() -> None:
    with pytest.raises(
        pcp.tensor.ShapeMismatch, match=r"(?s)matmul: shapes.*test_array.py:\d+, in test_errors"
    ):
        pcp.array(X) @ pcp.array(X)
    with pytest.raises(pcp.tensor.IndexOutOfBounds, match="index 5 is out of bounds for axis 0"):
        pcp.array(X)[5]
    with pytest.raises(pcp.tensor.WrongArgument, match="keepdims = 2 was given; expected True or False"):
        pcp.array(X).sum(0, 2)


def test_masks_and_containment_look_at_values() -> None:
    x = pcp.array(X)
    np.testing.assert_array_equal(x[x > 0], X[X > 0])
    np.testing.assert_array_equal(x.at[x > 0].set(9.0), np.where(X > 0, 9, X))
    np.testing.assert_array_equal(
        x.at[0, pcp.array([2, 0])].add(1.0), X + np.array([[1, 0, 1], [0, 0, 0]], np.float32)
    )
    assert float(X[0, 0]) in x
    assert 99 not in x
    np.testing.assert_array_equal(round(x, 1), np.round(X, 1))


def test_an_operation_that_looks_at_arrays_is_given_their_values() -> None:
    @pcp.tensor.explained
    def longest(x: pcp.tensor.TensorLike, lengths: pcp.tensor.TensorLike) -> pcp.Tensor:
        return pcp.array(np.asarray(x)[: int(np.max(np.asarray(lengths)))]) + 0

    for count in (1, 2):
        np.testing.assert_array_equal(longest(pcp.array(X), pcp.array([count, 1])), X[:count])


def test_functions_for_traces_compute_outside_of_them() -> None:
    x = pcp.array(X)
    np.testing.assert_array_equal(pcp.checkpoint(lambda x: x * 2)(x), X * 2)
    program = pcp.trace(lambda x: x * 3, pcp.spec((2, 3), "f32"))
    np.testing.assert_array_equal(pcp.call(program, x), X * np.float32(3))


def test_what_is_kept_is_bounded() -> None:
    kept = Kept(2)
    for key in "abc":
        kept.put(key, key)
    assert (len(kept), kept.get("a"), kept.get("c")) == (2, None, "c")


def test_a_body_reads_what_is_around_it_in_every_call() -> None:
    scale = 1.0

    def body(carry: Any, row: Any) -> Any:
        return carry + scale * row.sum(), None

    first = float(pcp.scan(body, 0.0, X)[0])
    scale = 2.0
    assert float(pcp.scan(body, 0.0, X)[0]) == pytest.approx(2 * first, rel=1e-5)


def test_large_arrays_are_not_kept() -> None:
    import weakref

    large = np.ones((300, 300), np.float32)
    watched = weakref.ref(large)
    total = (pcp.asarray(large) * 2).sum()
    del large
    assert float(total) == 180000
    assert watched() is None
