"""Sketches say how far results are apart, without the results."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pcp
from pcp.planning.judging.sketch import WIDTH, Sketch, digest_of_bits

RNG = np.random.default_rng()


def sketch(array: Any, **more: Any) -> Sketch:
    program = pcp.trace(lambda x: x + x, pcp.spec(array.shape, array.dtype))
    return Sketch.of(program, [array], [array], **more)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16, np.complex64])
@pytest.mark.parametrize("shape", [(1,), (63,), (65, 3), (1500, 999)])
@pytest.mark.parametrize("apart", [1e-1, 1.0])
def test_the_distance_is_about_that_of_the_results(dtype: Any, shape: tuple[int, ...], apart: float) -> None:
    right = RNG.standard_normal(shape).astype(dtype)
    # A distance near 0 could be lost to rounding.
    distance = apart * RNG.choice([-1, 1], shape) * RNG.uniform(0.5, 1.5, shape)
    other = (right + distance.astype(dtype)).astype(dtype)
    wide = np.complex128 if np.dtype(dtype).kind == "c" else np.float64
    before, after = (array.astype(wide).ravel() for array in (right, other))
    true = float(np.linalg.norm(after - before) / np.linalg.norm(before))
    assert sketch(other).distance(sketch(right)) <= 3 * true
    assert sketch(other).distance(sketch(right)) > true / 3
    assert sketch(right).distance(sketch(right)) == 0.0


def test_a_row_of_a_thousand_counts() -> None:
    right = RNG.standard_normal((1000, 300)).astype(np.float32)
    other = right.copy()
    other[617] = 0
    assert sketch(other).distance(sketch(right)) > 0.01
    assert sketch(right[::-1]).distance(sketch(right)) > 0.5


def test_of_state_what_is_new_counts() -> None:
    matrix = pcp.spec((40, 50), "f32")
    program = pcp.training_step(lambda w, x: (w * x).sum(), pcp.optimizers.sgd(1e-3), matrix, matrix)
    weights, x = (RNG.standard_normal((40, 50)).astype(np.float32) for _ in range(2))
    arguments = [
        weights if entry.spec.shape else np.zeros((), entry.spec.dtype.numpy) for entry in program.arguments
    ]
    place = next(entry.alias for entry in program.arguments if entry.alias is not None and entry.spec.shape)
    assert place is not None

    def after(step: float) -> Sketch:
        results = [np.zeros(entry.spec.shape, entry.spec.dtype.numpy) for entry in program.results]
        results[place] = weights - step * x
        return Sketch.of(program, arguments, results)

    assert after(1e-3).distance(after(1.001e-3)) < 0.01
    assert after(1e-3).distance(after(1.2e-3)) > 0.01  # though the weights differ by 2e-4 of their norm


def test_bits_count_where_no_norm_does() -> None:
    numbers = RNG.integers(0, 9, (70, 3), np.int32)
    other = numbers.copy()
    other[69, 2] += 1
    assert sketch(numbers).distance(sketch(numbers.copy())) == 0.0
    assert sketch(other).distance(sketch(numbers)) > 0.9
    assert sketch(other, ignored=(0,)).distance(sketch(numbers, ignored=(0,))) == 0.0
    floats = RNG.standard_normal(90).astype(np.float32)
    near = floats * np.float32(1 + 1e-6)
    assert sketch(near).distance(sketch(floats)) <= 1e-4
    assert sketch(near, exact=True).distance(sketch(floats, exact=True)) > 1e-4


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 3e38])
def test_what_is_no_number_is_near_nothing(wrong: float) -> None:
    array = np.full(3 * WIDTH, wrong, np.float32)
    for one, other in ((array, np.ones_like(array)), (np.ones_like(array), array)):
        assert sketch(one).distance(sketch(other)) > 0.9
    assert wrong == 3e38 or sketch(array).distance(sketch(array)) > 0.9


def test_bytes() -> None:
    made = sketch(RNG.standard_normal((5, 99)).astype(np.float32))
    again = Sketch.from_bytes(made.to_bytes())
    assert again.distance(made) == 0.0
    for damaged in (b"", made.to_bytes()[:-1], made.to_bytes()[:31], made.to_bytes() + bytes(4 * WIDTH)):
        assert made.distance(Sketch.from_bytes(damaged)) > 0.9


def test_arrays_have_one_digest_only_if_their_bits_types_shapes_and_order_are_the_same() -> None:
    x, y = (RNG.standard_normal((6, 4)).astype(np.float32) for _ in range(2))
    last_bit = x.copy()
    last_bit.view(np.uint32)[5, 3] ^= 1
    others = [
        [last_bit, y],
        [y, x],
        [x],
        [x, y, y[:0]],
        [x.reshape(4, 6), y],
        [x.view(np.int32), y],
        [x.T, y],
        [],
    ]
    digests = [digest_of_bits(arrays) for arrays in ([x, y], *others)]
    assert len(set(digests)) == len(digests)
    assert digest_of_bits([x.copy(), np.asfortranarray(y)]) == digests[0]
    assert digest_of_bits([np.float32(2.0).reshape(())]) != digest_of_bits([np.float32(2.0).reshape(1)])
