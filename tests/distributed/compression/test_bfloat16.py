"""bf16 beside ml_dtypes."""

import numpy as np

from tests.distributed.compression import oracle
from tests.distributed.compression.running import encoded, normal, round_trip


def test_bf16_rounds_as_ml_dtypes_does() -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, 4101, np.uint32)
    x = bits.view(np.float32)
    x = np.where(abs(x) < 3.38e38, x, np.float32(1.5))  # above, ml_dtypes rounds to infinity
    np.testing.assert_array_equal(
        encoded("bf16", x)["values"].view(np.uint16), oracle.bf16(x).view(np.uint16)
    )


def test_ties_go_to_even() -> None:
    x = np.ones(300, np.float32)
    x[:4] = 1 + 2.0**-8, 1 + 3 * 2.0**-8, -1 - 2.0**-8, 1 + 2.0**-8 + 2.0**-20
    np.testing.assert_array_equal(round_trip("bf16", x)[:4], [1, 1 + 2.0**-6, -1, 1 + 2.0**-7])


def test_nothing_is_more_than_half_a_unit_off() -> None:
    x = normal(4101)
    assert (abs(round_trip("bf16", x) - x) <= abs(x) * 2.0**-8).all()
