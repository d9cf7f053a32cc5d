"""int8 and int4 beside their definition."""

import numpy as np
import pytest

from tests.distributed.compression import oracle
from tests.distributed.compression.running import encoded, normal, round_trip


@pytest.mark.parametrize("n", [1, 300, 4101])
@pytest.mark.parametrize("block", [64, 128, 256])
def test_int8_is_what_its_definition_says(block: int, n: int) -> None:
    x = normal(n, block)
    scales, integers = oracle.blockwise(x, block, -128)
    payload = encoded(f"int8:{block}", x)
    np.testing.assert_array_equal(payload["scales"].astype(np.float64), scales)
    np.testing.assert_array_equal(payload["values"], integers)
    flat = (integers * scales[:, None]).ravel()[:n]
    np.testing.assert_array_equal(round_trip(f"int8:{block}", x), flat)  # float64 has room for every product


@pytest.mark.parametrize("n", [1, 300, 4101])
@pytest.mark.parametrize("block", [64, 128, 256])
def test_int4_is_what_its_definition_says(block: int, n: int) -> None:
    x = np.random.default_rng(block).laplace(size=n).astype(np.float32) * 1e-4
    scales, integers = oracle.blockwise(x, block, -8)
    payload = encoded(f"int4:{block}", x)
    np.testing.assert_array_equal(payload["scales"].astype(np.float64), scales)
    np.testing.assert_array_equal(payload["values"], oracle.nibbles(integers))
    np.testing.assert_array_equal(round_trip(f"int4:{block}", x), (integers * scales[:, None]).ravel()[:n])


@pytest.mark.parametrize(("name", "highest"), [("int8", 127), ("int4", 7)])
def test_an_element_is_off_by_half_a_step_or_at_the_end_by_one(name: str, highest: int) -> None:
    given = normal(4101)
    given[5:7] = 4.0, -3.999
    x = given.astype(np.float64)
    steps = np.repeat(encoded(name, given)["scales"].astype(np.float64), 128)[: x.size]
    error = abs(round_trip(name, given) - x) / abs(steps)
    beyond = x / steps > highest + 0.5
    assert (error[~beyond] <= 0.5).all()
    assert (error[beyond] <= 1).all()
    assert beyond.any()


@pytest.mark.parametrize(("name", "lowest"), [("int8", -128), ("int4", -8)])
@pytest.mark.parametrize("sign", [-1, 1])
def test_the_largest_element_of_a_block_has_the_lowest_integer(name: str, lowest: int, sign: int) -> None:
    x = normal(300)
    x[40], x[129] = 7.0 * sign, -7.0 * sign
    scales = encoded(name, x)["scales"].astype(np.float64)
    np.testing.assert_array_equal(np.sign(scales[:2]), [-sign, sign])
    np.testing.assert_array_equal(round_trip(name, x)[[40, 129]] / scales[:2], lowest)


def test_smaller_blocks_have_smaller_errors() -> None:
    x = normal(4101)
    errors = [np.linalg.norm(round_trip(f"int4:{block}", x) - x) for block in (64, 128, 256)]
    assert errors == sorted(errors)
