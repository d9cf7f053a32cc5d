"""Integers with one scale for each block: what int8 and int4 share.

A block whose element of largest magnitude is m has the scale s = m / lowest, its magnitude rounded up to bf16, and an element
x becomes q = round(x / s), from `lowest` to -lowest - 1: every number that the bits can tell apart is used, and m gets the one
that has no counterpart. For int4 that takes an eighth off the error of a scale by which both signs reach equally far.

q * s has at most 8 + 8 significant bits, so f32 holds it exactly: every device decodes to the same bits, also where it fuses
the product with an addition. And x - q * s is exact, too (Sterbenz: q = 0, or q * s lies between x / 2 and 2 * x), so an
element is exactly what is decoded plus the residual.
"""

import abc
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pcp.distributed.compression.brain_float import (
    INFINITY,
    LARGEST,
    NAN,
    SIGN,
    SMALLEST_NORMAL,
    UPPER,
    bf16_of_bits,
    from_bf16,
    magnitude_bits,
    sign_bits,
)
from pcp.distributed.compression.codec import Codec, InvalidCodec, Payload
from pcp.ir import DType, TensorSpec
from pcp.ops import (
    bitcast,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    clip,
    expand_dims,
    minimum,
    pad,
    reshape,
    shift_left,
    shift_right,
    where,
)
from pcp.ops.elementwise import round_
from pcp.ops.reductions.primitives import max_
from pcp.tensor import Tensor

BLOCK = 128


@dataclass(frozen=True)
class Blockwise(Codec):
    """Elements as integers, scaled by the largest magnitude of their block.

    Scales below the smallest normal number are 0; those of blocks that are not finite are NaN, and so are all their elements.

    Arguments:
        block: how many elements share a scale; even.
    """

    lowest: ClassVar[int]
    """The smallest integer, a negative power of two."""

    block: int = BLOCK

    def __post_init__(self) -> None:
        if isinstance(self.block, bool) or self.block < 2 or self.block % 2:
            raise InvalidCodec(
                f"codec {self.kind!r}: blocks of {self.block!r} elements were given; expected an even number, at least 2; "
                f"write '{self.kind}' for {BLOCK}"
            )

    @property
    def name(self) -> str:
        """The kind, and the block where it is not 128."""
        return self.kind if self.block == BLOCK else f"{self.kind}:{self.block}"

    def payload_specs(self, n: int) -> dict[str, TensorSpec]:
        """`scales`: bf16, one for each block; `values`: integers, packed."""
        blocks = -(-n // self.block)
        return {"scales": TensorSpec((blocks,), DType.bf16), "values": self._packed_spec(blocks)}

    @abc.abstractmethod
    def _packed_spec(self, blocks: int) -> TensorSpec: ...

    @abc.abstractmethod
    def _packed(self, integers: Tensor) -> Tensor:
        """Bytes of integral f32 of shape (blocks, block)."""

    @abc.abstractmethod
    def _unpacked(self, packed: Tensor) -> Tensor:
        """The inverse of `_packed`."""

    def _encoded(self, x: Tensor) -> Payload:
        blocks = reshape(pad(x, [(0, -x.size % self.block)]), (-1, self.block))
        bits = self._scale_bits(_largest(blocks))
        magnitude = bitwise_and(bits, ~SIGN)
        usable = expand_dims((magnitude > 0) & (magnitude < INFINITY), 1)
        scales = expand_dims(bitcast(bits, DType.f32), 1)
        quotients = where(usable, blocks, 0.0) / where(usable, scales, 1.0)
        integers = clip(round_(quotients), float(self.lowest), -self.lowest - 1.0)
        return {"scales": bf16_of_bits(bits), "values": self._packed(integers)}

    def _scale_bits(self, largest: Tensor) -> Tensor:
        """Bits of the f32 scales, with an empty lower half, for the elements of largest magnitude."""
        ratio = magnitude_bits(largest * np.float32(-1 / self.lowest))
        # The highest scale that cannot make the lowest integer infinite.
        limit = (LARGEST.view(np.float32) / np.float32(-self.lowest)).view(np.uint32)
        above = minimum(bitwise_and(ratio + np.uint32(0xFFFF), UPPER), limit)
        signed = bitwise_or(above, bitwise_xor(sign_bits(largest), SIGN))
        finite = where(ratio < SMALLEST_NORMAL, np.uint32(0), signed)
        return where(magnitude_bits(largest) < INFINITY, finite, NAN)

    def _decoded(self, payload: Payload) -> Tensor:
        scales = expand_dims(from_bf16(payload["scales"]), 1)
        return reshape(self._unpacked(payload["values"]) * scales, -1)


def _largest(blocks: Tensor) -> Tensor:
    """The element of largest magnitude of each row; NaN is larger than infinity, and a negative one than a positive."""
    bits, one = bitcast(blocks, DType.u32), np.uint32(1)
    # With the sign as the lowest digit, the order of the bits is that of the magnitudes.
    rotated = max_(bitwise_or(shift_left(bits, one), shift_right(bits, np.uint32(31))), 1)
    return bitcast(bitwise_or(shift_right(rotated, one), shift_left(rotated, np.uint32(31))), DType.f32)
