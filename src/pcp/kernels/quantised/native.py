"""Native products with weights in bfloat16, int8 or int4.

Of a few rows weights become float32 in registers. Of many, weights and rows are copied into panels: as float32, or rounded
to bfloat16 or to bytes.
"""

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.composites.records import QUANTISED_PRODUCT
from pcp.kernels.artifact import Native
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, is_named, tensors
from pcp.kernels.native import LIBRARIES, native_call
from pcp.kernels.registry import Family, register_family, register_kernel
from pcp.kernels.storage import BF16, F32, INT8, Storage
from pcp.ops.movement import reshape
from pcp.tensor import Tensor

_LIBRARY = LIBRARIES["quantised"]
_HANDLERS = {DType.bf16: "quantised_bf16", DType.i8: "quantised_int8", DType.u8: "quantised_int4"}
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
        and all(_is_known_block(values, each) for each in scales)
    )


def _is_known_block(values: TensorSpec, scales: TensorSpec) -> bool:
    """Whether scales are of whole rows, or of as many numbers as handlers know."""
    return len(scales.shape) == 1 or values.dtype is not DType.i8 or values.size // scales.size in (16, 32)


def _has_few_rows(op: ir.Operation) -> bool:
    x = Named.of(op).operands[0]
    return x.size <= MOST_ROWS * x.shape[-1]


def _applies_in(op: ir.Operation, storage: Storage) -> bool:
    """Rows in bytes are multiplied by integers; a few only where bytes of weights have a scale for each row."""
    _, values, *scales = Named.of(op).operands
    in_blocks = values.dtype is DType.i8 and len(scales[0].shape) > 1 and _has_few_rows(op)
    return storage is not INT8 or not (values.dtype is DType.bf16 or in_blocks)


def _few(op: ir.Operation, storage: Storage) -> list[Tensor]:
    handler = _HANDLERS[Named.of(op).operands[1].dtype]
    return _by(handler if storage is F32 else f"{handler}_{storage}", op)


def _many(op: ir.Operation, storage: Storage) -> list[Tensor]:
    return _by(f"quantised_many_{storage}", op)


def _by(handler: str, op: ir.Operation) -> list[Tensor]:
    x, values, *scales = tensors(op)
    rows = reshape(x, (-1, x.shape[-1]))
    spec = TensorSpec((rows.shape[0], values.shape[0]), DType.f32)
    (y,) = native_call(_LIBRARY, handler, [rows, values, *scales], (spec,), {})
    return [reshape(y, Named.of(op).results[0].shape)]


register_family(
    Family(
        "quantised_product",
        "x times weights stored in bfloat16, int8 or int4",
        is_named(QUANTISED_PRODUCT.name),
    )
)
register_kernel(
    Kernel(
        "quantised_product.native",
        f"up to {MOST_ROWS} rows; weights are read once and become float32 in registers",
        lambda op: _is_stored(op) and _has_few_rows(op),
        Native(_LIBRARY, _few),
        storages=(F32, INT8),
        applies_in=_applies_in,
        keeps="rows",
    )
)
register_kernel(
    Kernel(
        "quantised_product.native_many",
        f"more than {MOST_ROWS} rows; weights become float32 where they are copied for the innermost loop",
        lambda op: _is_stored(op) and not _has_few_rows(op),
        Native(_LIBRARY, _many),
        storages=(F32, BF16, INT8),
        applies_in=_applies_in,
        keeps="rows, and weights of int4,",
    )
)
