"""Native products with weights in bfloat16, int8 or int4.

Of a few rows weights become float32 in registers. Of many, weights and rows are copied into panels: as float32, or rounded
to bfloat16 or to bytes.
"""

from collections.abc import Callable, Mapping

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.composites.records import QUANTISED_PRODUCT
from pcp.kernels.artifact import Native
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, is_named, tensors
from pcp.kernels.native import LIBRARIES, native_call
from pcp.kernels.registry import Family, register_family, register_kernel
from pcp.ops.movement import reshape
from pcp.rewrite.row import Effect
from pcp.tensor import Tensor

_LIBRARY = LIBRARIES["quantised"]
_HANDLERS = {DType.bf16: "quantised_bf16", DType.i8: "quantised_int8", DType.u8: "quantised_int4"}
_BY_BYTES = {DType.i8: "quantised_int8_int8", DType.u8: "quantised_int4_int8"}
MOST_ROWS = 8
"""With more, weights are better made wide once for all rows."""


def _is_stored(op: ir.Operation) -> bool:
    """Whether it multiplies float32 by weights in a form that handlers know."""
    x, values, *scales = Named.of(op).operands
    return (
        x.dtype is DType.f32
        and values.dtype in _HANDLERS
        and all(each.dtype is DType.f32 for each in scales)
        and 0 not in (*x.shape, *values.shape)
    )


def _has_few_rows(op: ir.Operation) -> bool:
    x = Named.of(op).operands[0]
    return _is_stored(op) and x.size <= MOST_ROWS * x.shape[-1]


def _has_many_rows(op: ir.Operation) -> bool:
    return _is_stored(op) and not _has_few_rows(op)


def _has_few_rows_of_integers(op: ir.Operation) -> bool:
    return _has_few_rows(op) and Named.of(op).operands[1].dtype in _BY_BYTES


def _is_made_of_integers(op: ir.Operation) -> bool:
    return _has_many_rows(op) and Named.of(op).operands[1].dtype is not DType.bf16


def _made(op: ir.Operation) -> tuple[list[Tensor], TensorSpec]:
    """The operands, x as rows, and what is made of them."""
    x, values, *scales = tensors(op)
    rows = reshape(x, (-1, x.shape[-1]))
    return [rows, values, *scales], TensorSpec((rows.shape[0], values.shape[0]), DType.f32)


def _by(handler: str | Mapping[DType, str]) -> Callable[[ir.Operation], list[Tensor]]:
    """A call of a handler; of several, of that of the form of its weights."""

    def build(op: ir.Operation) -> list[Tensor]:
        operands, made = _made(op)
        name = handler if isinstance(handler, str) else handler[operands[1].dtype]
        (found,) = native_call(_LIBRARY, name, operands, (made,), {})
        return [reshape(found, Named.of(op).results[0].shape)]

    return build


register_family(
    Family(
        "quantised_product",
        "x times weights stored in bfloat16, int8 or int4",
        is_named(QUANTISED_PRODUCT.name),
        everywhere=(
            ("quantised_product.native", "quantised_product.native_many"),
            ("quantised_product.native", "quantised_product.native_many_bf16"),
            (
                "quantised_product.native_int8",
                "quantised_product.native",
                "quantised_product.native_many_int8",
                "quantised_product.native_many_bf16",
            ),
        ),
    )
)
register_kernel(
    Kernel(
        "quantised_product.native",
        Effect.reassociating,
        f"up to {MOST_ROWS} rows; weights are read once and become float32 in registers",
        _has_few_rows,
        Native(_LIBRARY, _by(_HANDLERS)),
    )
)
register_kernel(
    Kernel(
        "quantised_product.native_int8",
        Effect.lowers_precision,
        "the same of weights of int8 and int4, rows rounded to bytes with a scale for 128 or 32 of them; sums of integers",
        _has_few_rows_of_integers,
        Native(_LIBRARY, _by(_BY_BYTES)),
        requires=("avx512_vnni",),
        bits=5,
        nonfinite="spreads",
    )
)
register_kernel(
    Kernel(
        "quantised_product.native_many",
        Effect.reassociating,
        f"more than {MOST_ROWS} rows; weights become float32 where they are copied for the innermost loop",
        _has_many_rows,
        Native(_LIBRARY, _by("quantised_many_f32")),
    )
)
register_kernel(
    Kernel(
        "quantised_product.native_many_bf16",
        Effect.lowers_precision,
        "the same, rows and weights of int4 rounded to bfloat16; sums in float32",
        _has_many_rows,
        Native(_LIBRARY, _by("quantised_many_bf16")),
    )
)
register_kernel(
    Kernel(
        "quantised_product.native_many_int8",
        Effect.lowers_precision,
        "the same, rows and weights of int4 rounded to bytes with a scale for 2048 of them; sums of integers",
        _is_made_of_integers,
        Native(_LIBRARY, _by("quantised_many_int8")),
        requires=("avx512_vnni",),
        bits=5,
        nonfinite="spreads",
    )
)
