"""Two elements in a byte, and a scale for each block."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pcp.distributed.compression.blockwise import Blockwise
from pcp.ir import DType, TensorSpec
from pcp.ops import bitwise_and, concatenate, convert, shift_right, split
from pcp.tensor import Tensor

_OFFSET = 8.0
"""What is added so that a nibble is not negative."""


@dataclass(frozen=True)
class Int4(Blockwise):
    """Blocks of integers from -8 to 7: 4.125 bits for each element with blocks of 128.

    The lower nibbles of a block's bytes hold its first half, the upper ones its second half, so that neighbours stay neighbours
    and the work runs in vectors.
    """

    kind: ClassVar[str] = "int4"
    lowest: ClassVar[int] = -8

    def _packed_spec(self, blocks: int) -> TensorSpec:
        return TensorSpec((blocks, self.block // 2), DType.u8)

    def _packed(self, integers: Tensor) -> Tensor:
        low, high = split(integers + _OFFSET, 2, 1)
        return convert(low + high * 16.0, DType.u8)

    def _unpacked(self, packed: Tensor) -> Tensor:
        nibbles = bitwise_and(packed, np.uint8(15)), shift_right(packed, np.uint8(4))
        return concatenate([convert(nibble, DType.f32) for nibble in nibbles], 1) - _OFFSET
