"""Fragments: balanced, the same everywhere, and nothing lost between arrays and vectors."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.distributed.tiny_run import assert_equal_arrays

from pcp.distributed.round_arithmetic.fragments import TooManyFragments, partition
from pcp.ir.tree import flatten
from pcp.planning import plan
from pcp.tracing import spec, specs_of, trace


def arrays(sizes: list[int]) -> list[Any]:
    generator = np.random.default_rng(len(sizes))
    return [generator.standard_normal(size).astype(np.float32) for size in sizes]


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=12), st.data())
def test_every_array_is_in_one_fragment_and_none_is_much_larger(
    sizes: list[int], data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, len(sizes)))
    parts = partition(arrays(sizes), count)
    assert sorted(part.leaf for each in parts.fragments for part in each) == list(range(len(sizes)))
    held = [parts.size(fragment) for fragment in range(count)]
    assert sum(held) == sum(sizes)
    assert max(held) <= sum(sizes) / count + max(sizes)
    for each in parts.fragments:
        assert [part.stop for part in each[:-1]] == [part.start for part in each[1:]]


def test_the_largest_comes_first_to_the_smallest_fragment() -> None:
    parts = partition(arrays([3, 9, 5, 4]), 2)
    assert [[part.name for part in each] for each in parts.fragments] == [["0", "1"], ["2", "3"]]
    named = partition({"b": np.ones(2), "a": np.ones(9)}, 2)
    assert [[part.name for part in each] for each in named.fragments] == [["a"], ["b"]]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_vectors_are_the_arrays_in_their_order(count: int) -> None:
    generator = np.random.default_rng(0)
    given = {
        "wte": generator.standard_normal((5, 4)).astype(np.float32),
        "blocks": [{"w": generator.standard_normal((4, 3)).astype(ml_dtypes.bfloat16)} for _ in range(2)],
        "scale": generator.standard_normal(()).astype(np.float32),
    }
    parts = partition(given, count)
    vectors = parts.vectors(given)
    leaves = flatten(given)[0]
    for each, vector in zip(parts.fragments, vectors, strict=True):
        expected = np.concatenate([leaves[part.leaf].astype(np.float32).ravel() for part in each])
        assert vector.dtype == np.float32
        assert np.array_equal(vector, expected)
    assert_equal_arrays(parts.parameters(vectors), given)
    assert [leaf.dtype for leaf in flatten(parts.parameters(vectors))[0]] == [leaf.dtype for leaf in leaves]
    inputs = tuple(spec(vector.shape, "f32") for vector in vectors)
    assert_equal_arrays(plan(trace(parts.assembled, inputs)).run(vectors), given)
    for fragment, vector in enumerate(vectors):
        flat = plan(trace(lambda p, f=fragment: parts.flat(f, p), specs_of(given, "input"))).run(given)
        assert np.array_equal(np.asarray(flat), vector)


def test_more_fragments_than_arrays_are_refused() -> None:
    message = "4 fragments were asked for; the parameters are 3 arrays, and a fragment holds at least one: choose from 1 to 3"
    with pytest.raises(TooManyFragments, match=message):
        partition(arrays([1, 2, 3]), 4)
    with pytest.raises(TooManyFragments, match="0 fragments were asked for"):
        partition(arrays([1, 2, 3]), 0)
