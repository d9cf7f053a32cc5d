"""top-k beside its definition."""

from collections.abc import Callable

import jax
import numpy as np
import pytest

import pcp
from pcp.distributed.compression import Codec, TopK
from tests.distributed.compression import oracle
from tests.distributed.compression.running import encoded, encoder, feedback, normal, round_trip


@pytest.mark.parametrize("k", [8, 32])
@pytest.mark.parametrize("n", [300, 4101, 12000])
def test_top_k_is_what_its_definition_says(n: int, k: int) -> None:
    x = np.random.default_rng(n).laplace(size=n).astype(np.float32)
    name = f"top-k:{k}"
    back, (expected, best) = round_trip(name, x), oracle.top_k(x, k)
    np.testing.assert_array_equal(np.sign(back), np.sign(expected))
    sent = expected != 0
    error = ((back[sent].astype(np.float64) - x[sent]) ** 2).sum()
    rounding = (expected**2).sum() * 2.0**-16  # magnitudes are rounded to bf16
    assert best * 0.99999 <= error <= best * 1.00001 + rounding
    np.testing.assert_allclose(back, expected, rtol=2**-8)


def test_a_value_is_one_of_four_of_its_chunk() -> None:
    back = round_trip("top-k", normal(12000))
    for start in range(0, 12000, 4096):
        chunk = back[start : start + 4096]
        assert np.count_nonzero(chunk) == 64
        assert len(np.unique(chunk[chunk != 0])) == 4
        assert len(np.unique(abs(chunk[chunk != 0]))) == 2


def test_a_chunk_with_few_elements_sends_no_zeros() -> None:
    x = np.zeros(4101, np.float32)
    x[[7, 100, 4000]] = 3.0, -5.0, 3.0
    np.testing.assert_array_equal(round_trip("top-k", x), x)
    x[9] = 3.5
    back = round_trip("top-k", x)
    assert set(np.flatnonzero(back)) == {7, 9, 100, 4000}


@pytest.mark.parametrize("n", [1, 300])
def test_a_vector_shorter_than_k_or_a_chunk_is_sent(n: int) -> None:
    x = normal(n)
    back = round_trip("top-k", x)
    places = np.flatnonzero(back)
    assert len(places) == min(n, 64)
    assert abs(x[places]).min() >= np.sort(abs(x))[-len(places)]
    np.testing.assert_array_equal(np.sign(back[places]), np.sign(x[places]))


def test_of_equal_elements_the_first_are_sent() -> None:
    back = round_trip("top-k", np.full(4101, -2.5, np.float32))
    np.testing.assert_array_equal(np.flatnonzero(back), [*range(64), *range(4096, 4101)])
    np.testing.assert_array_equal(back[:64], -2.5)


def test_a_chunk_takes_116_bytes() -> None:
    payload = encoded("top-k", normal(4096))
    assert {key: array.nbytes for key, array in payload.items()} == {
        "places": 96,
        "codes": 16,
        "magnitudes": 4,
    }


@pytest.mark.parametrize("build", [encoder, feedback])
def test_xla_selects_and_does_not_sort(build: Callable[[Codec, int], pcp.Program]) -> None:
    program = build(TopK(), 8192)
    text = jax.jit(program.to_jax()).lower(normal(8192)).compile().as_text()
    assert "TopK" in text
    assert " sort(" not in text
