"""Native products of a few rows with weights in bfloat16, int8 or int4, which become float32 in registers."""

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
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
MOST_ROWS = 8
"""With more, weights are better made wide once for all rows."""


def _applies(op: ir.Operation) -> bool:
    x, values, *scales = Named.of(op).operands
    return (
        x.dtype is DType.f32
        and values.dtype in _HANDLERS
        and all(each.dtype is DType.f32 for each in scales)
        and 0 < x.size <= MOST_ROWS * x.shape[-1]
    )


def _build(op: ir.Operation) -> list[Tensor]:
    x, values, *scales = tensors(op)
    (result,) = Named.of(op).results
    rows = reshape(x, (-1, x.shape[-1]))
    made = TensorSpec((rows.shape[0], values.shape[0]), DType.f32)
    (found,) = native_call(_LIBRARY, _HANDLERS[values.dtype], (rows, values, *scales), (made,), {})
    return [reshape(found, result.shape)]


register_family(
    Family(
        "quantised_product",
        "x times weights stored in bfloat16, int8 or int4",
        is_named("pcp.quantised_product"),
        everywhere=(("quantised_product.native",),),
    )
)
register_kernel(
    Kernel(
        "quantised_product.native",
        Effect.reassociating,
        f"up to {MOST_ROWS} rows; weights are read once and become float32 in registers",
        _applies,
        Native(_LIBRARY, _build),
    )
)
