"""How numbers are written in GGUF files, and the same as PCP keeps them: exactly, but for the order of bits.

A number is an integer times the scale of its block, plus, in some kinds, an offset of its block. Integers of four bits stay
so, where a block has 32 of them; others become bytes.

Source: ggml-quants.c of the repository ggml.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from pcp.models.kept import HALF_BLOCK, Kept, halves

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to write numbers.

    Arguments:
        name: as llama.cpp has it.
        numbers: of a block.
        size: bytes of a block.
        dtype: of numbers that are written one by one; None: they are in blocks.
        parts: from bytes (blocks, size) to integers (blocks, any shape), scales (blocks, scales of a block), and offsets
            alike or None. Integers of four bits are `halves`, in bytes without a sign.
    """

    name: str
    numbers: int
    size: int
    dtype: Any = None
    parts: Callable[[Array], tuple[Array, Array, Array | None]] | None = None

    def read(self, content: Array, shape: tuple[int, ...]) -> Any:
        """An array of floats, or, of blocks, a matrix as it is kept."""
        if self.parts is None:
            array: Array = content.view(self.dtype).reshape(shape)
            return array
        values, scales, offsets = self.parts(content.reshape(-1, self.size))
        rows = shape[0]
        more = {} if offsets is None else {"offsets": offsets.reshape(rows, -1)}
        return Kept({"values": values.reshape(rows, -1), "scales": scales.reshape(rows, -1), **more})


def _f16(blocks: Array, place: int) -> Array:
    """Numbers of two bytes, one of each block, (blocks, 1)."""
    found: Array = np.ascontiguousarray(blocks[:, place : place + 2]).view(np.float16).astype(np.float32)
    return found


def _q4_0(blocks: Array) -> tuple[Array, Array, None]:
    return blocks[:, 2:], _f16(blocks, 0), None


def _q4_1(blocks: Array) -> tuple[Array, Array, Array]:
    scale = _f16(blocks, 0)
    return blocks[:, 4:], scale, _f16(blocks, 2) + HALF_BLOCK * scale


def _fifth_bits(blocks: Array, place: int) -> Array:
    """Integers from 0 to 31: four bits of each behind a bit of each."""
    high = np.unpackbits(blocks[:, place : place + 4], axis=1, bitorder="little")
    low = blocks[:, place + 4 :]
    found: Array = np.concatenate([low & 15, low >> 4], 1) | high << 4
    return found


def _q5_0(blocks: Array) -> tuple[Array, Array, None]:
    return _fifth_bits(blocks, 2).astype(np.int8) - np.int8(16), _f16(blocks, 0), None


def _q5_1(blocks: Array) -> tuple[Array, Array, Array]:
    return _fifth_bits(blocks, 4).astype(np.int8), _f16(blocks, 0), _f16(blocks, 2)


def _q8_0(blocks: Array) -> tuple[Array, Array, None]:
    return np.ascontiguousarray(blocks[:, 2:]).view(np.int8), _f16(blocks, 0), None


def _six_bits(blocks: Array) -> tuple[Array, Array]:
    """The scales and the offsets of eight blocks of 32, those below the numbers."""
    of_scales, of_offsets, both = (blocks[:, 4 + 4 * part : 8 + 4 * part] for part in range(3))
    scales = np.concatenate([of_scales & 63, both & 15 | of_scales >> 2 & 48], 1)
    offsets = np.concatenate([of_offsets & 63, both >> 4 | of_offsets >> 2 & 48], 1)
    return _f16(blocks, 0) * scales, _f16(blocks, 2) * offsets


def _low_bits(packed: Array) -> Array:
    """Integers of four bits, (blocks, blocks of 32, 32), of which 32 bytes hold two blocks."""
    parts = packed.reshape(len(packed), -1, 1, 32)
    return np.concatenate([parts & 15, parts >> 4], 2).reshape(len(packed), -1, 32)


def _q4_k(blocks: Array) -> tuple[Array, Array, Array]:
    scales, below = _six_bits(blocks)
    return halves(_low_bits(blocks[:, 16:])), scales, HALF_BLOCK * scales - below


def _q5_k(blocks: Array) -> tuple[Array, Array, Array]:
    scales, below = _six_bits(blocks)
    high = blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1
    return (_low_bits(blocks[:, 48:]) | high << 4).astype(np.int8), scales, -below


def _q6_k(blocks: Array) -> tuple[Array, Array, None]:
    count = len(blocks)
    low = blocks[:, :128].reshape(count, 2, 1, 64) >> np.array([[0], [4]], np.uint8) & 15
    high = blocks[:, 128:192].reshape(count, 2, 1, 32) >> np.array([[0], [2], [4], [6]], np.uint8) & 3
    integers = (low.reshape(count, -1) | high.reshape(count, -1) << 4).astype(np.int8) - np.int8(32)
    scales = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8)
    return integers, _f16(blocks, 208) * scales, None


KINDS = {
    0: Kind("F32", 1, 4, np.dtype("<f4")),
    1: Kind("F16", 1, 2, np.dtype("<f2")),
    2: Kind("Q4_0", 32, 18, parts=_q4_0),
    3: Kind("Q4_1", 32, 20, parts=_q4_1),
    6: Kind("Q5_0", 32, 22, parts=_q5_0),
    7: Kind("Q5_1", 32, 24, parts=_q5_1),
    8: Kind("Q8_0", 32, 34, parts=_q8_0),
    12: Kind("Q4_K", 256, 144, parts=_q4_k),
    13: Kind("Q5_K", 256, 176, parts=_q5_k),
    14: Kind("Q6_K", 256, 210, parts=_q6_k),
    30: Kind("BF16", 1, 2, np.dtype(ml_dtypes.bfloat16)),
}
"""By their numbers in files."""
