"""Native kernels for layer and RMS norms along the last axis, with a residual before them, and their gradients: a row is read
from memory once."""

from collections.abc import Sequence

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.kernels.artifact import Native
from pcp.kernels.groups import Part, attributes_of, parts_of
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, is_named, tensors
from pcp.kernels.native import LIBRARIES, native_call
from pcp.kernels.registry import Family, register_family, register_kernel
from pcp.ops.movement import broadcast_to, full, reshape
from pcp.ops.reductions.primitives import sum_
from pcp.rewrite.row import Effect
from pcp.rewrite.terms import Pattern, apply, value
from pcp.tensor import Tensor

_LIBRARY = LIBRARIES["normalisation"]
_total = value("x") + value("residual")
RESIDUAL = Pattern("pcp.residual_norm", {"residual": (_total, apply("pcp.layer_norm|pcp.rms_norm", _total))})
register_family(
    Family(
        "residual_normalisation",
        "x plus a residual, and the layer or RMS normalisation of that sum",
        is_named(RESIDUAL.name),
        pattern=RESIDUAL,
    )
)


def _applies(op: ir.Operation) -> bool:
    named = Named.of(op)
    shape = named.operands[0].shape
    return named.is_f32 and named.attributes["axis"] == len(shape) - 1 and 0 not in shape


def _rows(x: Tensor) -> Tensor:
    return reshape(x, (-1, x.shape[-1]))


def _vector(parameter: Tensor | None, width: int, value: float) -> Tensor:
    """A scale or bias as one number for each column; a constant where there is none."""
    if parameter is None:
        return full((width,), value, DType.f32)
    return broadcast_to(reshape(parameter, (-1,)), (width,))


def _vectors(named: Named, parameters: Sequence[Tensor], width: int) -> tuple[Tensor, Tensor]:
    """Scale and bias."""
    more = iter(parameters)
    scale, bias = (next(more) if named.attributes[kind] else None for kind in ("scale", "bias"))
    return _vector(scale, width, 1.0), _vector(bias, width, 0.0)


def _numbers(named: Named, name: str) -> dict[str, float]:
    """What the handlers are told, of a norm of this name."""
    return {"epsilon": float(named.attributes["epsilon"]), "centred": int(name.endswith("layer_norm"))}


def _forward(op: ir.Operation) -> list[Tensor]:
    named = Named.of(op)
    x, *parameters = tensors(op)
    rows, of_rows = _rows(x), TensorSpec((x.size // x.shape[-1],), DType.f32)
    y, *statistics = native_call(
        _LIBRARY,
        "norm",
        (rows, *_vectors(named, parameters, x.shape[-1])),
        (rows.spec, of_rows, of_rows),
        _numbers(named, named.name),
    )
    return [reshape(y, x.shape), *statistics]


def _residual(op: ir.Operation) -> list[Tensor]:
    named, (part,) = Named.of(op), parts_of(op)
    x = part.inputs["x"]
    rows, of_rows = _rows(x), TensorSpec((x.size // x.shape[-1],), DType.f32)
    total, y, *statistics = native_call(
        _LIBRARY,
        "residual_norm",
        (rows, _rows(part.inputs["residual"]), *_vectors(named, _parameters(part), x.shape[-1])),
        (rows.spec, rows.spec, of_rows, of_rows),
        _numbers(named, attributes_of(op)["computes"]),
    )
    return [reshape(total, x.shape), reshape(y, x.shape), *statistics]


def _parameters(part: Part) -> list[Tensor]:
    return [tensor for name, tensor in part.inputs.items() if name.startswith("operand")]


def _gradient(op: ir.Operation, statistics: Sequence[Tensor]) -> list[Tensor]:
    named = Named.of(op)
    x, *parameters = tensors(op)[: len(named.operands)]
    rows, vector = _rows(x), TensorSpec((x.shape[-1],), DType.f32)
    scale, _ = _vectors(named, parameters, x.shape[-1])
    cotangent = _rows(tensors(op)[len(named.operands)])
    of_x, of_scale, of_bias = native_call(
        _LIBRARY,
        "norm_gradient",
        (rows, scale, cotangent, *statistics),
        (rows.spec, vector, vector),
        _numbers(named, named.name),
    )
    found = {0: reshape(of_x, x.shape)}
    for kind, sums in (("scale", of_scale), ("bias", of_bias)):
        if named.attributes[kind]:
            spec = named.operands[len(found)]
            found[len(found)] = reshape(sums if spec.size == sums.size else sum_(sums), spec.shape)
    return named.cotangents(op, found)


_STATISTICS = ("norm.mean", "norm.deviation")
register_kernel(
    Kernel(
        "normalisation.native",
        Effect.reassociating,
        "mean, variance and result of a row while it is in the cache",
        _applies,
        Native(_LIBRARY, _forward),
        version=2,
        hands=_STATISTICS,
    )
)
register_kernel(
    Kernel(
        "residual_normalisation.native",
        Effect.reassociating,
        "the sum, its mean, variance and result of a row while it is in the cache",
        _applies,
        Native(_LIBRARY, _residual),
        hands=_STATISTICS,
        hands_to=lambda op, results: (
            results[0].value,
            *(each.value for each in _parameters(parts_of(op)[0])),
        ),
    )
)
register_kernel(
    Kernel(
        "normalisation_gradient.native",
        Effect.reassociating,
        "the gradients of x, scale and bias while a row is in the cache",
        _applies,
        Native(_LIBRARY, _gradient),
        version=2,
        takes=_STATISTICS,
    )
)
