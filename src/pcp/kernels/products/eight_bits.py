"""Products whose operands are rounded to eight bits, e4m3: four bits of each number, with one scale for each operand.

The largest number of an operand comes to lie between 224 and 448, the largest that e4m3 has. Scales are powers of two, so
that they round nothing. The product is written as one of bfloat16 numbers, which hold the rounded ones exactly; XLA makes a
product of cuBLASLt in eight bits of it, whose result is scaled before it is rounded. Scaling an operand reads it twice, which
is worth it where each number is used often.

Source: Micikevicius et al., "FP8 Formats for Deep Learning", 2022, sections 3 and 4.
"""

from pcp.ir import DType
from pcp.kernels.products.product import Product
from pcp.ops.elementwise import abs_, bitcast, convert, maximum
from pcp.ops.linear.products import dot_general
from pcp.ops.movement import reshape, transpose
from pcp.ops.reductions.primitives import max_
from pcp.tensor import Tensor

LARGEST = 448.0
"""That e4m3 has."""
LEAST = 2.0**-100
"""What stands for the largest number of an operand that has none larger: zeros need a scale, too."""
MULTIPLE = 16
"""Of which cuBLASLt wants every size of matrices in eight bits."""
USES = 4096
"""How often a number of the operands is used, in the mean: on an H200 scaling takes half of what is gained then."""


def pays(product: Product) -> bool:
    """Whether cuBLASLt takes it in eight bits, and so much is computed of each number that scaling it pays."""
    rows, columns, inner = product.sizes
    return (
        product.batch == ((), ())
        and min(rows, columns, inner) > 0
        and all(size % MULTIPLE == 0 for size in (rows, columns, inner))
        and rows * columns >= USES * (rows + columns)
    )


def _matrix(x: Tensor, contracted: tuple[int, ...], inner: int) -> Tensor:
    """An operand as a matrix whose rows are summed over."""
    kept = [axis for axis in range(x.ndim) if axis not in contracted]
    return reshape(transpose(x, (*kept, *contracted)), (-1, inner))


def _rounded(x: Tensor) -> Tensor:
    """Its numbers with four bits each, in bfloat16; NaN everywhere if one of them is not finite."""
    largest = maximum(max_(abs_(x)), LEAST)
    exponent = bitcast(LARGEST / largest, DType.i32) & 0x7F800000
    scale = bitcast(exponent, DType.f32)  # the power of two below
    return convert(convert(x * scale, DType.f8E4M3FN), DType.bf16) * convert(1.0 / scale, DType.bf16)


def multiplied(product: Product, x: Tensor, y: Tensor) -> Tensor:
    """The product of rounded operands, in float32."""
    *_, inner = product.sizes
    left, right = (
        _rounded(_matrix(each, axes, inner)) for each, axes in zip((x, y), product.contract, strict=True)
    )
    matrix = dot_general(left, right, ((1,), (1,)), dtype=DType.bf16)
    return convert(reshape(matrix, product.result.shape), DType.f32)
