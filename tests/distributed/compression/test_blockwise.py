"""int8 and int4 beside their definition."""

import numpy as np
import pytest

from tests.distributed.compression import oracle
from tests.distributed.compression.running import encoded, normal, round_trip


@pytest.mark.parametrize("n", [1, 300, 4101])
@pytest.mark.parametrize("block", [64, 128, 256])
def test_int8_is_what_its_definition_says(block: int, n: int) -> None:
    x = normal(n, block)
    scales, integers = oracle.blockwise(x, block, 127)
    payload = encoded(f"int8:{block}", x)
    np.testing.assert_array_equal(payload["scales"].astype(np.float64), scales)
    np.testing.assert_array_equal(payload["values"], integers)
    flat = (integers * scales[:, None]).ravel()[:n]
    np.testing.assert_array_equal(round_trip(f"int8:{block}", x), flat)  # float64 has room for every product


@pytest.mark.parametrize("n", [1, 300, 4101])
@pytest.mark.parametrize("block", [64, 128, 256])
def test_int4_is_what_its_definition_says(block: int, n: int) -> None:
    x = np.random.default_rng(block).laplace(size=n).astype(np.float32) * 1e-4
    scales, integers = oracle.blockwise(x, block, 7)
    payload = encoded(f"int4:{block}", x)
    np.testing.assert_array_equal(payload["scales"].astype(np.float64), scales)
    np.testing.assert_array_equal(payload["values"], oracle.nibbles(integers))
    np.testing.assert_array_equal(round_trip(f"int4:{block}", x), (integers * scales[:, None]).ravel()[:n])


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_an_element_is_off_by_half_a_step_at_most(name: str) -> None:
    x = normal(4101)
    scales = encoded(name, x)["scales"].astype(np.float64)
    steps = np.repeat(scales, 128)[: x.size]
    assert (abs(round_trip(name, x).astype(np.float64) - x) <= steps / 2).all()


@pytest.mark.parametrize(("name", "levels"), [("int8", 127), ("int4", 7)])
def test_the_largest_element_of_a_block_has_the_largest_integer(name: str, levels: int) -> None:
    x = normal(256)
    scales, values = encoded(name, x)["scales"].astype(np.float64), round_trip(name, x)
    for block in range(2):
        part = slice(128 * block, 128 * block + 128)
        place = abs(x[part]).argmax()
        assert abs(values[part][place]) / scales[block] >= levels - 1


def test_smaller_blocks_have_smaller_errors() -> None:
    x = normal(4101)
    errors = [np.linalg.norm(round_trip(f"int4:{block}", x) - x) for block in (64, 128, 256)]
    assert errors == sorted(errors)
