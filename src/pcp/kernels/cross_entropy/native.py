"""Native kernels for cross entropy and its gradient: each reads a row of logits once; the gradient is written over the row."""

from collections.abc import Sequence

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.kernels.artifact import Native
from pcp.kernels.cross_entropy.stablehlo import Rows
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, applies_to_f32, tensors
from pcp.kernels.native import LIBRARIES, native_call
from pcp.kernels.registry import register_with_gradient
from pcp.ops.movement import reshape
from pcp.tensor import Tensor

_LIBRARY = LIBRARIES["cross_entropy"]


def _loss(op: ir.Operation) -> list[Tensor]:
    rows = Rows.of(op)
    of_rows = TensorSpec((rows.targets.size,), DType.f32)
    normalisers, above = native_call(
        _LIBRARY, "cross_entropy", (rows.logits, rows.targets), (of_rows, of_rows), {}
    )
    return [reshape(rows.losses(normalisers, above), rows.named.results[0].shape), normalisers]


def _gradient(op: ir.Operation, normalisers: Sequence[Tensor]) -> list[Tensor]:
    rows = Rows.of(op)
    logits, _, cotangent = tensors(op)[:3]
    operands = (rows.logits, *rows.factors(cotangent), *normalisers)
    (gradient,) = native_call(
        _LIBRARY, "cross_entropy_gradient", operands, (rows.logits.spec,), {}, in_place={0: 0}
    )
    return rows.named.cotangents(op, {0: reshape(gradient, logits.shape)})


def _applies(op: ir.Operation) -> bool:
    return applies_to_f32(op) and Named.of(op).operands[0].shape[-1] > 0


register_with_gradient(
    Kernel(
        "cross_entropy.native",
        "maximum and sum of a row's exponentials in one pass over memory",
        _applies,
        Native(_LIBRARY, _loss),
        hands=("cross_entropy.normaliser",),
    ),
    Native(_LIBRARY, _gradient),
    about="softmax less 1 at the target, where the logits were",
    version=3,
)
