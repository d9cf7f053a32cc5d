"""Native products of float32 or bfloat16 tensors: operands are converted and transposed where they are copied for the innermost
loop.
"""

import functools
import itertools
from collections.abc import Sequence

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.kernels.artifact import Native
from pcp.kernels.features import features_of
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import tensors
from pcp.kernels.native import LIBRARIES, native_call
from pcp.kernels.products import centred
from pcp.kernels.products.product import Product
from pcp.kernels.registry import register_kernel
from pcp.kernels.storage import BF16, BF16_CENTRED, BF16_X3, F32, INT8, Storage
from pcp.kernels.views import dense_strides
from pcp.ops.elementwise import bitcast
from pcp.ops.linear.dot_axes import Axes, DotAxes
from pcp.ops.movement import transpose
from pcp.tensor import Tensor

LIBRARY = LIBRARIES["products"]
FEWEST, LONGEST = 64, 16384
"""Rows and columns of a product in bytes at least, and what it sums over at most."""
ALONE = {"bias": 0, "residual": 0, "activation": 0}
"""Attributes of a product that nothing follows."""


def _as_one(spec: TensorSpec, axes: Axes) -> int | None:
    """The stride of several axes that can be read as one; None if they cannot."""
    strides = dense_strides(spec.shape)
    places = [(spec.shape[axis], strides[axis]) for axis in axes if spec.shape[axis] != 1]
    for (_, outer), (size, inner) in itertools.pairwise(places):
        if outer != size * inner:
            return None
    return places[-1][1] if places else 1


def _read(x: Tensor, batch: Axes, down: Axes, right: Axes) -> tuple[Tensor, list[int]]:
    """An operand that can be read as matrices, and its strides: down, right, and of the batch."""
    steps = [_as_one(x.spec, down), _as_one(x.spec, right)]
    if None in steps:
        x = transpose(x, (*batch, *down, *right))
        batch, down, right = _in_order(len(batch), len(down), len(right))
        steps = [_as_one(x.spec, down), _as_one(x.spec, right)]
    strides = dense_strides(x.shape)
    return x, [*(stride for stride in steps if stride is not None), *(strides[axis] for axis in batch)]


def _in_order(*counts: int) -> list[Axes]:
    starts = [sum(counts[:i]) for i in range(len(counts))]
    return [tuple(range(start, start + count)) for start, count in zip(starts, counts, strict=True)]


def read(product: Product, x: Tensor, y: Tensor) -> tuple[list[Tensor], dict[str, Sequence[int]]]:
    """The operands of a product as the handlers read them, and the attributes that say how."""
    pairs = sorted(zip(*product.contract, strict=True))
    inner = tuple(axis for axis, _ in pairs), tuple(axis for _, axis in pairs)
    axes = DotAxes(inner, product.batch)
    rows, columns = axes.free(0, len(product.x.shape)), axes.free(1, len(product.y.shape))
    sizes = [*product.sizes, *(product.x.shape[axis] for axis in product.batch[0])]
    x, of_x = _read(x, product.batch[0], rows, inner[0])
    y, of_y = _read(y, product.batch[1], inner[1], columns)
    return [x, y], {"sizes": sizes, "left_strides": of_x, "right_strides": of_y}


def _build(op: ir.Operation, storage: Storage) -> list[Tensor]:
    product = Product.of(op)
    if storage is BF16_CENTRED:
        return [centred.multiplied(op, functools.partial(_multiplied, BF16))]
    if product.is_f32:
        return [_multiplied(storage, product, *tensors(op))]
    operands, attributes = read(product, *tensors(op))
    # Products of bfloat16 numbers are exact, and added up in float32. XLA has custom calls return float32 instead of bfloat16,
    # and converts that; bits it leaves alone.
    as_bits = product.result.dtype == DType.bf16
    spec = TensorSpec(product.result.shape, DType.u16 if as_bits else DType.f32)
    results = native_call(LIBRARY, "product_of_bf16", operands, (spec,), {**attributes, **ALONE})
    return [bitcast(each, DType.bf16) for each in results] if as_bits else results


def _multiplied(storage: Storage, product: Product, x: Tensor, y: Tensor) -> Tensor:
    """A product of float32 tensors."""
    operands, attributes = read(product, x, y)
    (result,) = native_call(
        LIBRARY, f"product_{storage}", operands, (product.result,), {**attributes, **ALONE}
    )
    return result


def _applies(op: ir.Operation) -> bool:
    product = Product.of(op)
    return (product.is_f32 or product.is_of_bf16) and 0 not in (*product.x.shape, *product.y.shape)


def applies_in(product: Product, storage: Storage) -> bool:
    """Whether operands can be kept so, and that pays."""
    if storage is BF16_CENTRED:
        return centred.applies(product)
    return storage is F32 or (product.is_f32 and (storage is not INT8 or _pays_in_bytes(product)))


def _pays_in_bytes(product: Product) -> bool:
    """Whether so much is computed of each number that rounding it to a byte pays, and not too much is lost.

    Of sums over very many numbers, as over a vocabulary in the gradient of the last product, few count, and nothing evens out
    how these are rounded: that product alone in bytes takes the error of GPT-2's gradients from 9.3e-3 to 1.4e-2.
    """
    rows, columns, inner = product.sizes
    # Tiles do bfloat16 faster than that.
    return min(rows, columns) >= FEWEST and inner <= LONGEST and "amx_bf16" not in features_of("cpu")


STORED = (F32, BF16, BF16_X3, INT8)
"""Storages that there are handlers for."""
register_kernel(
    Kernel(
        "product.native",
        "operands copied into the order of the innermost loop, sums in float32",
        _applies,
        Native(LIBRARY, _build),
        storages=(*STORED, BF16_CENTRED),
        applies_in=lambda op, storage: applies_in(Product.of(op), storage),
    )
)
