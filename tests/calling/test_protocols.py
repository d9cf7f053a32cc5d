"""Functions of NumPy on Tensors: they compute, or say what to write."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.refusals import TensorHasNoValue

X = np.random.default_rng().normal(size=(2, 3)).astype(np.float32)

FUNCTIONS: list[Callable[[Any], Any]] = [
    np.exp,
    np.tanh,
    np.abs,
    np.negative,
    np.isnan,
    np.sum,
    lambda x: np.mean(x, axis=0),
    lambda x: np.max(x, axis=1, keepdims=True),
    lambda x: np.add(x, X),
    lambda x: np.multiply(X, x),
    lambda x: np.where(x > 0, x, 0),
    lambda x: np.concatenate([x, X]),
    lambda x: np.stack([X, x], axis=1),
    lambda x: np.transpose(x),
    lambda x: np.reshape(x, (3, 2)),
    lambda x: np.maximum(x, 0),
    lambda x: np.argmax(x),
    lambda x: np.std(x),
    lambda x: np.matmul(X.T, x),
    lambda x: X.T @ x + np.float32(2) * x.sum(),
    lambda x: np.float32(0.5) < x,
    lambda x: x ** np.float64(2),
    lambda x: np.einsum("ij,kj->ik", x, X),
    lambda x: np.ones(np.shape(x), np.float32) * np.ndim(x) * np.size(x),
]


def test_functions_of_numpy_compute_in_a_trace_and_at_once() -> None:
    expected = [np.asarray(function(X)) for function in FUNCTIONS]
    program = pcp.trace(lambda x: [function(x) for function in FUNCTIONS], pcp.spec((2, 3), "f32"))
    planned = pcp.plan(program, "arena:cpu").run(X)
    at_once = [function(pcp.array(X)) for function in FUNCTIONS]
    for place, (wanted, by_plan, now) in enumerate(zip(expected, planned, at_once, strict=True)):
        for found in (by_plan, now):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6, err_msg=f"function {place}")
    assert isinstance(at_once[0], pcp.Array)


def test_a_number_of_numpy_takes_the_element_type_of_the_tensor() -> None:
    program = pcp.trace(lambda x: (np.float32(2) * x, np.float64(2) + x), pcp.spec((3,), "bf16"))
    assert [entry.spec.dtype for entry in program.results] == ["bf16", "bf16"]
    tenth = pcp.array(np.full((), 0.1, np.float32))  # more than 0.1 in float64
    assert not np.float64(0.1) < tenth
    assert np.float64(0.1) == tenth


def test_what_numpy_alone_has_computes_with_values() -> None:
    x = pcp.array([3, 1, 3])
    np.testing.assert_array_equal(np.unique(x), [1, 3])
    assert np.allclose(x, [3, 1, 3])
    assert np.add.reduce(x) == 7
    total = np.ones(3, np.float32)
    same = total
    total += x
    assert same is total
    np.testing.assert_array_equal(same, [4, 2, 4])


def test_adding_a_traced_tensor_in_place_binds_the_name_anew() -> None:
    def f(x: Any) -> Any:
        total = np.zeros(3, np.float32)
        total += x
        return total

    np.testing.assert_array_equal(pcp.plan(pcp.trace(f, pcp.spec((2, 3), "f32")), "arena:cpu").run(X), X)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (
            np.trim_zeros,
            r"np\.trim_zeros was given a Tensor, which has no value during tracing; compute with pcp's",
        ),
        (np.add.reduce, r"np\.add\.reduce was given a Tensor"),
        (lambda x: np.exp(x, out=np.zeros((2, 3))), r"np\.exp with out= .* y = pcp\.exp\(\.\.\.\)"),
        (np.asarray, "was given to NumPy, but it has no value during tracing"),
        (np.isnat, r"np\.isnat was given a Tensor"),
    ],
)
def test_what_cannot_compute_says_what_to_write(use: Any, message: str) -> None:
    with pytest.raises(TensorHasNoValue, match=message):
        pcp.trace(lambda x: use(x), pcp.spec((2, 3), "f32"))
