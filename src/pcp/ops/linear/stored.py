"""Matrices whose rows are kept in fewer bits than they are multiplied in: a record for each way, and what reads them.

From a record follow how rows are written and read, traced and by NumPy, the product with them, and how wrong they are. To add
a way, declare it here, and give it a row in `tests/ops/test_stored.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.composites import named
from pcp.ir import DType
from pcp.ir.composites.records import QUANTISED_PRODUCT
from pcp.ops.elementwise import abs_, convert, equal, round_, where
from pcp.ops.linear.products import dot_general
from pcp.ops.movement import concatenate, reshape
from pcp.ops.reductions.primitives import max_
from pcp.tensor import Tensor

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Format:
    """A way to keep the rows of a matrix.

    Arguments:
        name: `int8`.
        about: what it is, for people.
        dtype: the element type of what is kept.
        bits: of each number, as far as it is as exact as one that is rounded to so many, the leading one among them.
        largest: what the largest of the numbers that share a scale becomes; 0 where they have none.
        block: how many numbers of a row share a scale; 0 for all.
        halves: whether two numbers share a byte: the first half of a block lies in the lower halves of its bytes.
    """

    name: str
    about: str
    dtype: DType
    bits: int
    largest: int = 0
    block: int = 0
    halves: bool = False

    def fits(self, inputs: int) -> bool:
        """Whether rows of so many numbers can be kept in it."""
        return inputs > 0 and not (self.block and inputs % self.block)

    def row_bytes(self, inputs: int) -> int:
        """What a row of so many numbers takes."""
        scales = 0 if not self.largest else inputs // self.block if self.block else 1
        return inputs * self.dtype.itemsize // (2 if self.halves else 1) + 4 * scales

    def written(self, rows: Tensor) -> list[Tensor]:
        """Rows of float32 as they are kept: values, and scales if there are any, of shape (rows,) or (rows, blocks)."""
        count, inputs = rows.shape
        if not self.largest:
            return [convert(rows, self.dtype)]
        parts = reshape(rows, (count, -1, self.block) if self.block else (count, 1, inputs))
        scales = max_(abs_(parts), -1, keepdims=True) / np.float32(self.largest)
        scaled = parts / where(equal(scales, 0.0), 1.0, scales)
        values = round_(scaled) if self.dtype.is_integer else scaled
        if self.halves:
            bytes_ = convert(values + 8.0, self.dtype)
            values = bytes_[..., : self.block // 2] + bytes_[..., self.block // 2 :] * np.uint8(16)
        shape = (count, -1) if self.block else (count,)
        return [reshape(convert(values, self.dtype), (count, -1)), reshape(scales, shape)]

    def written_by_numpy(self, rows: Array) -> list[Array]:
        """The same of an array."""
        if not self.largest:
            return [rows.astype(self.dtype.numpy)]
        count, inputs = rows.shape
        parts = rows.reshape(count, -1, self.block or inputs)
        scales = np.abs(parts).max(-1, keepdims=True) / np.float32(self.largest)
        scaled = parts / np.where(scales, scales, 1)
        values = np.rint(scaled) if self.dtype.is_integer else scaled
        if self.halves:
            shifted = (values + 8).astype(np.uint8)
            values = shifted[..., : self.block // 2] | shifted[..., self.block // 2 :] << 4
        kept = values.astype(self.dtype.numpy).reshape(count, -1)
        return [kept, scales[..., 0] if self.block else scales[:, 0, 0]]

    def read(self, values: Tensor, *scales: Tensor) -> Tensor:
        """What is kept of rows, of any leading shape, in float32."""
        if not self.halves:
            wide = convert(values, DType.f32)
            if not self.block:
                return wide * scales[0][..., None] if scales else wide
            parts = reshape(wide, (*scales[0].shape, -1))
            return reshape(parts * scales[0][..., None], wide.shape)
        leading, blocks = values.shape[:-1], scales[0].shape[-1]
        packed = reshape(values, (*leading, blocks, self.block // 2))
        halves = concatenate([packed % np.uint8(16), packed // np.uint8(16)], axis=values.ndim)
        wide = (convert(halves, DType.f32) - 8.0) * scales[0][..., None]
        return reshape(wide, (*leading, blocks * self.block))


FORMATS = {
    each.name: each
    for each in (
        Format("bf16", "bfloat16", DType.bf16, 8),
        Format("int8", "bytes with a scale for each row", DType.i8, 5, 127),
        Format("int8_blocks", "bytes with a scale for each 32 of a row", DType.i8, 5, 127, 32),
        Format("fp8", "e4m3 with a scale for each row", DType.f8E4M3FN, 4, 448),
        Format("fp8_e5m2", "e5m2 with a scale for each row", DType.f8E5M2, 3, 57344),
        Format("int4", "half bytes with a scale for each 32 of a row", DType.u8, 2, 7, 32, halves=True),
    )
}
"""Every way by its name, the most exact first."""
_BY_DTYPE = {each.dtype: each for each in FORMATS.values() if each.name != "int8_blocks"}


def format_of(values: Tensor, *scales: Tensor) -> Format:
    """The way in which rows are kept, of any leading shape; values of other element types as bfloat16 is: converted."""
    if values.dtype is DType.i8 and scales and scales[0].ndim == values.ndim:
        return FORMATS["int8_blocks"]
    return _BY_DTYPE.get(values.dtype, FORMATS["bf16"])


def product_with(x: Tensor, kept: Sequence[Tensor]) -> Tensor:
    """x of shape (..., inputs) times the transpose of rows as they are kept, of shape (..., outputs)."""
    return named(QUANTISED_PRODUCT, _product_form, [x, *kept], {})


def _product_form(x: Tensor, values: Tensor, *scales: Tensor) -> Tensor:
    form = format_of(values, *scales)
    per_row = bool(scales) and not form.block
    wide = convert(values, x.dtype) if per_row else convert(form.read(values, *scales), x.dtype)
    product = dot_general(x, wide, ((x.ndim - 1,), (1,)))
    return product * scales[0] if per_row else product
