"""Plans compose: one that is called inside a traced function becomes a part of the new program."""

import numpy as np
import pytest

import pcp
from pcp.tensor import ShapeMismatch

W = np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)
X = np.random.default_rng(1).standard_normal((2, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def linear() -> pcp.Plan:
    return pcp.plan(pcp.trace(lambda w, x: x @ w, W, pcp.spec(X.shape, "f32")))


def test_outside_of_a_trace_a_call_runs(linear: pcp.Plan) -> None:
    np.testing.assert_allclose(linear(W, X), X @ W, rtol=1e-5)


def test_inside_of_a_trace_a_call_composes(linear: pcp.Plan) -> None:
    program = pcp.trace(lambda w, x: linear(w, linear(w, x)) + 1, W, pcp.spec(X.shape, "f32"))
    np.testing.assert_allclose(pcp.plan(program).run(W, X), X @ W @ W + 1, rtol=1e-4)
    gradient = pcp.plan(pcp.grad(pcp.trace(lambda w, x: linear(w, x).sum(), W, pcp.spec(X.shape, "f32"))))
    np.testing.assert_allclose(gradient(W, X), np.repeat(X.sum(0)[:, None], 3, 1), rtol=1e-5)


def test_bound_weights_come_along(linear: pcp.Plan) -> None:
    bound = linear.bind(W)
    np.testing.assert_array_equal(bound.bound[0], W)
    program = pcp.trace(lambda x: bound(bound(x)), pcp.spec(X.shape, "f32"))
    np.testing.assert_allclose(pcp.plan(program).run(X), X @ W @ W, rtol=1e-4)


def test_the_shapes_of_parts_must_fit(linear: pcp.Plan) -> None:
    with pytest.raises(ShapeMismatch, match=r"argument x has shape \(3, 3\); the program expects f32\[2,3\]"):
        pcp.trace(lambda w: linear(w, w), W)


def test_placed_arguments_are_taken_as_they_are(linear: pcp.Plan) -> None:
    placed = linear.place(W, X)
    np.testing.assert_allclose(linear.run(*placed), X @ W, rtol=1e-5)
