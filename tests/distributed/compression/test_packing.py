"""Numbers of 2 and of 12 bits in bytes."""

import numpy as np

import pcp
from pcp.distributed.compression.packing import pack_2_bits, pack_12_bits, unpack_2_bits, unpack_12_bits
from tests.execution import run


def test_four_numbers_of_two_bits_share_a_byte() -> None:
    codes = np.random.default_rng(0).integers(0, 4, (3, 16), np.uint8)
    packed = np.asarray(run(pcp.trace(pack_2_bits, codes), codes))
    quarters = codes.reshape(3, 4, 4)
    expected = [[sum(int(row[i, j]) << 2 * i for i in range(4)) for j in range(4)] for row in quarters]
    np.testing.assert_array_equal(packed, np.array(expected, np.uint8))
    np.testing.assert_array_equal(run(pcp.trace(unpack_2_bits, packed), packed), codes)


def test_two_numbers_of_twelve_bits_share_three_bytes() -> None:
    numbers = np.random.default_rng(1).integers(0, 4096, (5, 8), np.int32)
    numbers[0, :4] = 0, 4095, 255, 256
    packed = np.asarray(run(pcp.trace(pack_12_bits, numbers), numbers))
    first, second = numbers[:, :4], numbers[:, 4:]
    np.testing.assert_array_equal(
        packed, np.concatenate([first % 256, first // 256 + second // 256 * 16, second % 256], 1)
    )
    assert packed.dtype == np.uint8
    np.testing.assert_array_equal(run(pcp.trace(unpack_12_bits, packed), packed), numbers)
