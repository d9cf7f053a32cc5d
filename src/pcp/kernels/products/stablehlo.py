"""Products of float32 tensors by way of bfloat16, in StableHLO.

A float32 number is, to 2^-24, the sum of three bfloat16 numbers, each the rounding of what those before it leave. Products of
bfloat16 numbers are exact in float32, so a product of tensors is a sum of products of such parts, accumulated in float32. The
product of the first parts alone has a relative error of about 2^-8; with the two mixed ones (x3) 2^-16; with the three of the
next order (x6) that of float32 itself.

Source: Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
Computations", 2019, sections 2 and 3.
"""

from collections.abc import Callable, Sequence

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.kernels.artifact import StableHLO
from pcp.kernels.kernel import Kernel
from pcp.kernels.products.product import Product
from pcp.kernels.registry import Family, register_family, register_kernel
from pcp.ops.elementwise import convert
from pcp.ops.linear.products import dot_general
from pcp.rewrite.row import Effect
from pcp.tensor import Tensor, current_builder

Terms = Sequence[tuple[int, int]]
"""Which part of the left operand is multiplied by which of the right, the smallest products first."""

ONE: Terms = ((0, 0),)
THREE: Terms = ((1, 0), (0, 1), (0, 0))
SIX: Terms = ((2, 0), (0, 2), (1, 1), (1, 0), (0, 1), (0, 0))


def _parts(x: Tensor, count: int) -> list[Tensor]:
    """The bfloat16 numbers whose sum comes closest to each element, largest first."""
    parts = [convert(x, DType.bf16)]
    while len(parts) < count:
        x = x - convert(parts[-1], DType.f32)
        parts.append(convert(x, DType.bf16))
    return parts


def _by_parts(
    terms: Terms, emit: Callable[[Product, Tensor, Tensor], Tensor]
) -> Callable[[ir.Operation], list[Tensor]]:
    """A kernel that adds up products of parts of the operands."""

    def build(op: ir.Operation) -> list[Tensor]:
        product, count = Product.of(op), 1 + max(max(term) for term in terms)
        left, right = (_parts(Tensor(value, current_builder()), count) for value in op.operands)
        products = [emit(product, left[i], right[j]) for i, j in terms]
        total = products[0]
        for other in products[1:]:
            total = total + other
        return [total]

    return build


def _f32(op: ir.Operation) -> bool:
    return Product.of(op).is_f32


def _f32_columns(op: ir.Operation) -> bool:
    """XLA's CPU products of bfloat16 lose half their speed where the left operand is read down its columns."""
    product = Product.of(op)
    return product.is_f32 and product.reads_columns


def _tf32(op: ir.Operation) -> list[Tensor]:
    left, right = (Tensor(value, current_builder()) for value in op.operands)
    return [Product.of(op).emit_tf32(left, right)]


def _bf16_result(op: ir.Operation) -> list[Tensor]:
    """What reads the result reads half as many bytes, and widens them itself."""
    product = Product.of(op)
    left, right = (convert(Tensor(value, current_builder()), DType.bf16) for value in op.operands)
    return [convert(dot_general(left, right, product.contract, product.batch, DType.bf16), DType.f32)]


register_family(
    Family(
        "product",
        "sums of products over pairs of axes",
        lambda op: op.name == "stablehlo.dot_general",
        everywhere=(
            ("product.tf32", "product.native_bf16_x3", "product.native"),
            ("product.native_bf16", "product.bf16_blocked", "product.bf16"),
            (
                "product.native_int8",
                "product.native_bf16",
                "product.bf16_result",
                "product.bf16_blocked",
                "product.bf16",
            ),
            (
                "product.fp8",
                "product.native_int8",
                "product.native_bf16",
                "product.bf16_result",
                "product.bf16_blocked",
                "product.bf16",
            ),
        ),
    )
)
for _name, _bits, _terms, _about in (
    ("bf16", 8, ONE, "operands rounded to bfloat16, sums in float32"),
    ("bf16_x3", 16, THREE, "operands as sums of two bfloat16 numbers, three products"),
    ("bf16_x6", 24, SIX, "operands as sums of three bfloat16 numbers, six products"),
):
    register_kernel(
        Kernel(
            f"product.{_name}",
            Effect.lowers_precision,
            _about,
            _f32,
            StableHLO(_by_parts(_terms, Product.emit)),
            bits=_bits,
        )
    )
    register_kernel(
        Kernel(
            f"product.{_name}_blocked",
            Effect.lowers_precision,
            f"{_about}; the left operand is transposed in blocks first",
            _f32_columns,
            StableHLO(_by_parts(_terms, Product.emit_blocked)),
            requires=("cpu",),
            bits=_bits,
        )
    )
register_kernel(
    Kernel(
        "product.tf32",
        Effect.lowers_precision,
        "operands rounded to 11 bits by an NVIDIA GPU, sums in float32",
        _f32,
        StableHLO(_tf32),
        requires=("cuda",),
        bits=11,
    )
)
register_kernel(
    Kernel(
        "product.bf16_result",
        Effect.lowers_precision,
        "operands rounded to bfloat16, sums in float32, which are rounded to bfloat16",
        _f32,
        StableHLO(_bf16_result),
        requires=("cuda",),
    )
)
