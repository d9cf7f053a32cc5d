"""Native kernels for layer and RMS norms along the last axis, with a residual before them, and their gradients: a row is read
from memory once."""

from collections.abc import Sequence

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.composites.records import LAYER_NORM, RMS_NORM
from pcp.kernels.artifact import Native
from pcp.kernels.groups import attributes_of, parts_of
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, is_named, tensors
from pcp.kernels.native import LIBRARIES, native_call
from pcp.kernels.normalisation.rows import applies_to_rows, parameters_of, rows_of, vectors_of
from pcp.kernels.registry import Family, register_family, register_kernel, register_with_gradient
from pcp.ops.movement import reshape
from pcp.ops.reductions.primitives import sum_
from pcp.rewrite.terms import Pattern, apply, value
from pcp.tensor import Tensor

_LIBRARY = LIBRARIES["normalisation"]
_total = value("x") + value("residual")
RESIDUAL = Pattern(
    "pcp.residual_norm", {"residual": (_total, apply(f"{LAYER_NORM.name}|{RMS_NORM.name}", _total))}
)
register_family(
    Family(
        "residual_normalisation",
        "x plus a residual, and the layer or RMS normalisation of that sum",
        is_named(RESIDUAL.name),
        pattern=RESIDUAL,
    )
)


def _numbers(named: Named, name: str) -> dict[str, float]:
    """What the handlers are told, of a norm of this name."""
    return {"epsilon": float(named.attributes["epsilon"]), "centred": int(name.endswith("layer_norm"))}


def _forward(op: ir.Operation) -> list[Tensor]:
    named = Named.of(op)
    x, *parameters = tensors(op)
    rows, of_rows = rows_of(x), TensorSpec((x.size // x.shape[-1],), DType.f32)
    y, *statistics = native_call(
        _LIBRARY,
        "norm",
        (rows, *vectors_of(named, parameters, x.shape[-1])),
        (rows.spec, of_rows, of_rows),
        _numbers(named, named.name),
    )
    return [reshape(y, x.shape), *statistics]


def _residual(op: ir.Operation) -> list[Tensor]:
    named, (part,) = Named.of(op), parts_of(op)
    x = part.inputs["x"]
    rows, of_rows = rows_of(x), TensorSpec((x.size // x.shape[-1],), DType.f32)
    total, y, *statistics = native_call(
        _LIBRARY,
        "residual_norm",
        (rows, rows_of(part.inputs["residual"]), *vectors_of(named, parameters_of(part), x.shape[-1])),
        (rows.spec, rows.spec, of_rows, of_rows),
        _numbers(named, attributes_of(op)["computes"]),
    )
    return [reshape(total, x.shape), reshape(y, x.shape), *statistics]


def _gradient(op: ir.Operation, statistics: Sequence[Tensor]) -> list[Tensor]:
    named = Named.of(op)
    x, *parameters = tensors(op)[: len(named.operands)]
    rows, vector = rows_of(x), TensorSpec((x.shape[-1],), DType.f32)
    scale, _ = vectors_of(named, parameters, x.shape[-1])
    cotangent = rows_of(tensors(op)[len(named.operands)])
    of_x, of_scale, of_bias = native_call(
        _LIBRARY,
        "norm_gradient",
        (rows, scale, cotangent, *statistics),
        (rows.spec, vector, vector),
        _numbers(named, named.name),
    )
    cotangents = {0: reshape(of_x, x.shape)}
    for kind, sums in (("scale", of_scale), ("bias", of_bias)):
        if named.attributes[kind]:
            spec = named.operands[len(cotangents)]
            cotangents[len(cotangents)] = reshape(sums if spec.size == sums.size else sum_(sums), spec.shape)
    return named.cotangents(op, cotangents)


_STATISTICS = ("norm.mean", "norm.deviation")
register_with_gradient(
    Kernel(
        "normalisation.native",
        "mean, variance and result of a row while it is in the cache",
        applies_to_rows,
        Native(_LIBRARY, _forward),
        version=2,
        hands=_STATISTICS,
    ),
    Native(_LIBRARY, _gradient),
    about="the gradients of x, scale and bias while a row is in the cache",
)
register_kernel(
    Kernel(
        "residual_normalisation.native",
        "the sum, its mean, variance and result of a row while it is in the cache",
        applies_to_rows,
        Native(_LIBRARY, _residual),
        hands=_STATISTICS,
        hands_to=lambda op, results: (
            results[0].value,
            *(each.value for each in parameters_of(parts_of(op)[0])),
        ),
        together=lambda _: None,
    )
)
