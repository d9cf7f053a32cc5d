"""Products of float32 tensors by way of bfloat16, in StableHLO.

A float32 number is, to 2^-24, the sum of three bfloat16 numbers, each the rounding of what those before it leave. Products of
bfloat16 numbers are exact in float32, so a product of tensors is a sum of products of such parts, accumulated in float32. The
product of the first parts alone has a relative error of about 2^-8; with the two mixed ones (x3) 2^-16; with the three of the
next order (x6) that of float32 itself.

Source: Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
Computations", 2019, sections 2 and 3.
"""

import functools
import operator
from collections.abc import Callable, Sequence

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.kernels.artifact import StableHLO
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import tensors
from pcp.kernels.products import centred, eight_bits
from pcp.kernels.products.product import Product
from pcp.kernels.registry import Family, register_family, register_kernel
from pcp.kernels.storage import BF16, BF16_CENTRED, BF16_RESULT, BF16_X3, BF16_X6, FP8, TF32, Storage, widened
from pcp.ops.elementwise import convert
from pcp.ops.linear.products import dot_general
from pcp.tensor import Tensor

_TERMS = {
    BF16: ((0, 0),),
    BF16_X3: ((1, 0), (0, 1), (0, 0)),
    BF16_X6: ((2, 0), (0, 2), (1, 1), (1, 0), (0, 1), (0, 0)),
}
"""Which part of the left operand is multiplied by which of the right, the smallest products first."""


def _parts(x: Tensor, count: int) -> list[Tensor]:
    """The bfloat16 numbers whose sum comes closest to each element, largest first."""
    parts = [convert(x, DType.bf16)]
    while len(parts) < count:
        x = x - convert(parts[-1], DType.f32)
        parts.append(convert(x, DType.bf16))
    return parts


def _by_parts(
    emit: Callable[[Tensor, Tensor], Tensor], operands: Sequence[Tensor], storage: Storage
) -> list[Tensor]:
    """Products of parts of the operands, added up."""
    left, right = (_parts(each, storage.terms) for each in operands)
    products = [emit(left[i], right[j]) for i, j in _TERMS[storage]]
    return [functools.reduce(operator.add, products)]


def _build(op: ir.Operation, storage: Storage) -> list[Tensor]:
    product, operands = Product.of(op), tensors(op)
    if storage is TF32:
        return [product.emit_tf32(*operands)]
    if storage is BF16_CENTRED:
        return [centred.multiplied(op, _rounded)]
    if storage is FP8:
        return [eight_bits.multiplied(product, *operands)]
    if storage is BF16_RESULT:  # what reads the result reads half as many bytes, and widens them itself
        left, right = (convert(each, DType.bf16) for each in operands)
        return [widened(dot_general(left, right, product.contract, product.batch, DType.bf16))]
    return _by_parts(product.emit, operands, storage)


def _rounded(product: Product, x: Tensor, y: Tensor) -> Tensor:
    return product.emit(convert(x, DType.bf16), convert(y, DType.bf16))


def _applies(op: ir.Operation) -> bool:
    return Product.of(op).is_f32


def _applies_in(op: ir.Operation, storage: Storage) -> bool:
    product = Product.of(op)
    if storage is BF16_CENTRED:
        return centred.applies(product)
    return storage is not FP8 or eight_bits.pays(product)


def _build_blocked(op: ir.Operation, storage: Storage) -> list[Tensor]:
    return _by_parts(Product.of(op).emit_blocked, tensors(op), storage)


def _applies_blocked(op: ir.Operation) -> bool:
    """XLA's CPU products of bfloat16 lose half their speed where the left operand is read down its columns."""
    product = Product.of(op)
    return product.is_f32 and product.reads_columns


register_family(
    Family("product", "sums of products over pairs of axes", lambda op: op.name == "stablehlo.dot_general")
)
register_kernel(
    Kernel(
        "product.xla",
        "by XLA, sums in float32",
        _applies,
        StableHLO(_build),
        storages=(BF16, BF16_X3, BF16_X6, TF32, BF16_RESULT, FP8, BF16_CENTRED),
        applies_in=_applies_in,
        together=lambda storage: 2 if storage.terms == 1 else None,
    )
)
register_kernel(
    Kernel(
        "product.blocked",
        "by XLA, sums in float32, the left operand transposed in blocks first",
        _applies_blocked,
        StableHLO(_build_blocked),
        requires=("cpu",),
        storages=(BF16, BF16_X3, BF16_X6),
        together=lambda storage: 1 if storage.terms == 1 else None,
    )
)
