"""One byte for each element, and a scale for each block."""

from dataclasses import dataclass
from typing import ClassVar

from pcp.distributed.compression.blockwise import Blockwise
from pcp.ir import DType, TensorSpec
from pcp.ops import convert
from pcp.tensor import Tensor


@dataclass(frozen=True)
class Int8(Blockwise):
    """Blocks of integers from -128 to 127: 8.125 bits for each element with blocks of 128."""

    kind: ClassVar[str] = "int8"
    lowest: ClassVar[int] = -128

    def _packed_spec(self, blocks: int) -> TensorSpec:
        return TensorSpec((blocks, self.block), DType.i8)

    def _packed(self, integers: Tensor) -> Tensor:
        return convert(integers, DType.i8)

    def _unpacked(self, packed: Tensor) -> Tensor:
        return convert(packed, DType.f32)
