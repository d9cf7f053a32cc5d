"""The largest elements of each chunk, their places in 12 bits and their values in two.

The values of a chunk are written as a sign and one of two magnitudes. The magnitudes are the best in the sense of least
squares: the means of the larger and of the smaller values, cut where the sum of squared errors is lowest.

Source: Sarfi et al., "Communication Efficient LLM Pre-training with SparseLoCo", 2025: chunks of 4096, 64 values of 2 bits.
There the four values are means of four equal bins, for a whole array.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pcp.distributed.compression.brain_float import (
    INFINITY,
    NAN,
    SMALLEST_NORMAL,
    from_bf16,
    magnitude_bits,
    sign_bits,
    to_bf16,
)
from pcp.distributed.compression.codec import Codec, InvalidCodec, Payload
from pcp.distributed.compression.packing import pack_2_bits, pack_12_bits, unpack_2_bits, unpack_12_bits
from pcp.ir import DType, TensorSpec
from pcp.ops import (
    argmax,
    bitcast,
    bitwise_and,
    bitwise_or,
    convert,
    cumsum,
    expand_dims,
    iota,
    less_equal,
    pad,
    put_along_axis,
    reshape,
    shift_left,
    shift_right,
    stack,
    take_along_axis,
    top_k,
    where,
    zeros,
)
from pcp.tensor import Tensor

CHUNK = 4096
"""Elements that 12 bits can count."""
K = 64


@dataclass(frozen=True)
class TopK(Codec):
    """The k elements of largest magnitude of each 4096: 116 bytes for a chunk with k = 64, 0.227 bits for each element.

    Elements that are 0 are never sent: what is left of k in a chunk with fewer others repeats the largest one. Magnitudes
    below the smallest normal number are sent as 0. A chunk that is not finite decodes to NaN where it is largest.

    Arguments:
        k: how many elements of a chunk are sent; a multiple of 4.
    """

    kind: ClassVar[str] = "top-k"

    k: int = K

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not 4 <= self.k <= CHUNK or self.k % 4:
            raise InvalidCodec(
                f"codec {self.kind!r}: k = {self.k!r} was given; expected a multiple of 4 from 4 to {CHUNK}; "
                f"write '{self.kind}' for {K}"
            )

    @property
    def name(self) -> str:
        """`top-k`, and k where it is not 64."""
        return self.kind if self.k == K else f"{self.kind}:{self.k}"

    def payload_specs(self, n: int) -> dict[str, TensorSpec]:
        """For each chunk `magnitudes`, the larger and the smaller; `places`; and `codes`: 2 for negative, 1 for smaller."""
        chunks = -(-n // CHUNK)
        return {
            "codes": TensorSpec((chunks, self.k // 4), DType.u8),
            "magnitudes": TensorSpec((chunks, 2), DType.bf16),
            "places": TensorSpec((chunks, self.k * 3 // 2), DType.u8),
        }

    def _encoded(self, x: Tensor) -> Payload:
        chunks = reshape(pad(x, [(0, -x.size % CHUNK)]), (-1, CHUNK))
        _, largest = top_k(bitcast(magnitude_bits(chunks), DType.f32), self.k, 1)
        # XLA must not see slices of slices here, or it sorts whole chunks: 20 times slower on a CPU.
        places = bitwise_and(largest, CHUNK - 1)
        values = take_along_axis(chunks, places, 1)
        size = magnitude_bits(values)
        sent = size >= SMALLEST_NORMAL
        magnitudes, larger = _two_means(where(sent, size, np.uint32(0)))
        negative = convert(shift_right(sign_bits(values), np.uint32(31)), DType.u8)
        in_order = iota(places.shape, 1)
        codes = bitwise_or(shift_left(negative, np.uint8(1)), convert(in_order >= larger, DType.u8))
        places, codes = (where(sent, entry, entry[:, :1]) for entry in (places, codes))
        return {"codes": pack_2_bits(codes), "magnitudes": magnitudes, "places": pack_12_bits(places)}

    def _decoded(self, payload: Payload) -> Tensor:
        codes, magnitudes = unpack_2_bits(payload["codes"]), from_bf16(payload["magnitudes"])
        smaller = bitwise_and(codes, np.uint8(1)) > 0
        signs = shift_left(convert(shift_right(codes, np.uint8(1)), DType.u32), np.uint32(31))
        size = bitcast(where(smaller, magnitudes[:, 1:], magnitudes[:, :1]), DType.u32)
        values = bitcast(bitwise_or(size, signs), DType.f32)
        chunks = zeros((codes.shape[0], CHUNK), DType.f32)
        return reshape(put_along_axis(chunks, unpack_12_bits(payload["places"]), values, 1), -1)


def _two_means(size: Tensor) -> tuple[Tensor, Tensor]:
    """The best two representatives of rows of magnitudes, given as bits in descending order; zeros do not count.

    With S(j) the sum of the j largest of m, the squared error is lowest where S(j)^2 / j + (S(m) - S(j))^2 / (m - j) is
    highest.

    Returns:
        bf16 (rows, 2), the larger first, NaN where a magnitude is not finite; and how many are the larger, i32 (rows, 1).
    """
    largest = bitcast(size[:, :1], DType.f32)
    ratios = bitcast(size, DType.f32) / where(largest > 0, largest, 1.0)
    count = convert(size > 0, DType.f32).sum(1, keepdims=True)
    sums = cumsum(ratios, 1)
    total = sums[:, -1:]
    j = iota(size.shape, 1, DType.f32) + 1.0
    rest, others = total - sums, count - j
    explained = sums * sums / j + where(others > 0, rest * rest / where(others > 0, others, 1.0), 0.0)
    cut = expand_dims(argmax(where(less_equal(j, count), explained, -1.0), 1), 1)
    above = take_along_axis(sums, cut, 1)
    larger = cut + 1
    below = count - convert(larger, DType.f32)
    smaller = where(below > 0, (total - above) / where(below > 0, below, 1.0), 0.0)
    means = stack([above / convert(larger, DType.f32), smaller], 1)
    means = bitcast(reshape(means, (-1, 2)) * largest, DType.u32)
    return to_bf16(bitcast(where(size[:, :1] < INFINITY, means, NAN), DType.f32)), larger
