"""Native kernels for batch normalisation along the last axis, with a ReLU after it, and for its gradient."""

from collections.abc import Sequence

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.composites.records import BATCH_NORM
from pcp.kernels.artifact import Native
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, is_named, tensors
from pcp.kernels.native import LIBRARIES, native_call
from pcp.kernels.normalisation.rows import applies_to_rows, rows_of
from pcp.kernels.registry import Family, register_family, register_with_gradient
from pcp.ops.movement import reshape
from pcp.rewrite.raising.normalisation import WHERE_ABOVE, WHERE_NOT_BELOW
from pcp.tensor import Tensor

_LIBRARY = LIBRARIES["batch_normalisation"]
_RELU = ("", WHERE_ABOVE, WHERE_NOT_BELOW)
"""Where a cotangent passes, by the numbers that the handlers are told."""


def _numbers(named: Named) -> dict[str, float]:
    """What the handlers are told."""
    return {"epsilon": float(named.attributes["epsilon"]), "relu": _RELU.index(named.attributes["relu"])}


def _forward(op: ir.Operation) -> list[Tensor]:
    x, scale, bias = tensors(op)
    rows = rows_of(x)
    y, *statistics = native_call(
        _LIBRARY,
        "batch_norm",
        (rows, scale, bias),
        (rows.spec, scale.spec, scale.spec),
        _numbers(Named.of(op)),
    )
    return [reshape(y, x.shape), *statistics]


def _gradient(op: ir.Operation, statistics: Sequence[Tensor]) -> list[Tensor]:
    named = Named.of(op)
    x, scale, bias, cotangent, *_ = tensors(op)
    rows, vector = rows_of(x), TensorSpec(scale.shape, DType.f32)
    of_x, *others = native_call(
        _LIBRARY,
        "batch_norm_gradient",
        (rows, scale, bias, rows_of(cotangent), *statistics),
        (rows.spec, vector, vector),
        _numbers(named),
    )
    return named.cotangents(op, {0: reshape(of_x, x.shape), **dict(enumerate(others, start=1))})


def _applies(op: ir.Operation) -> bool:
    return applies_to_rows(op) and Named.of(op).attributes["relu"] in _RELU


register_family(
    Family(
        "batch_normalisation",
        "each feature of a batch shifted to mean 0 and scaled to mean square 1, times scale plus bias; perhaps a ReLU of it",
        is_named(BATCH_NORM.name),
        gradient="batch_normalisation_gradient",
    )
)
register_family(
    Family(
        "batch_normalisation_gradient",
        "the gradient of batch normalisation, and of a ReLU after it",
        is_named(BATCH_NORM.gradient_name),
    )
)
register_with_gradient(
    Kernel(
        "batch_normalisation.native",
        "means and variances of all features in one pass over memory, the result in another",
        _applies,
        Native(_LIBRARY, _forward),
        hands=("batch_norm.mean", "batch_norm.deviation"),
    ),
    Native(_LIBRARY, _gradient),
    about="the gradients of scale and bias in one pass over memory, that of x in another",
)
