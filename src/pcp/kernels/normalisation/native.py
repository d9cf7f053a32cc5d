"""Native kernels for `pcp.layer_norm` along the last axis and its gradient: a row is read from memory once."""

from collections.abc import Sequence

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.kernels.artifact import Native
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, tensors
from pcp.kernels.native import LIBRARIES, native_call
from pcp.kernels.registry import register_kernel
from pcp.ops.movement import broadcast_to, full, reshape
from pcp.ops.reductions.primitives import sum_
from pcp.rewrite.row import Effect
from pcp.tensor import Tensor

_LIBRARY = LIBRARIES["normalisation"]


def _applies(op: ir.Operation) -> bool:
    named = Named.of(op)
    shape = named.operands[0].shape
    is_last = named.attributes["axis"] == len(shape) - 1
    return named.name == "layer_norm" and named.is_f32 and is_last and 0 not in shape


def _rows(x: Tensor) -> Tensor:
    return reshape(x, (-1, x.shape[-1]))


def _vector(parameter: Tensor | None, width: int, value: float) -> Tensor:
    """A scale or bias as one number for each column; a constant where there is none."""
    if parameter is None:
        return full((width,), value, DType.f32)
    return broadcast_to(reshape(parameter, (-1,)), (width,))


def _operands(op: ir.Operation) -> tuple[Named, Tensor, Tensor, Tensor]:
    """The composite, and x as rows, scale and bias."""
    named = Named.of(op)
    x, *rest = tensors(op)[: len(named.operands)]
    more = iter(rest)
    scale, bias = (next(more) if named.attributes[kind] else None for kind in ("scale", "bias"))
    width = x.shape[-1]
    return named, _rows(x), _vector(scale, width, 1.0), _vector(bias, width, 0.0)


def _forward(op: ir.Operation) -> list[Tensor]:
    named, x, scale, bias = _operands(op)
    epsilon = {"epsilon": float(named.attributes["epsilon"])}
    of_rows = TensorSpec((x.shape[0],), DType.f32)
    y, *statistics = native_call(
        _LIBRARY, "layer_norm", (x, scale, bias), (x.spec, of_rows, of_rows), epsilon
    )
    return [reshape(y, named.operands[0].shape), *statistics]


def _gradient(op: ir.Operation, statistics: Sequence[Tensor]) -> list[Tensor]:
    named, x, scale, _ = _operands(op)
    cotangent = _rows(tensors(op)[len(named.operands)])
    vector = TensorSpec((x.shape[1],), DType.f32)
    epsilon = {"epsilon": float(named.attributes["epsilon"])}
    of_x, of_scale, of_bias = native_call(
        _LIBRARY, "layer_norm_gradient", (x, scale, cotangent, *statistics), (x.spec, vector, vector), epsilon
    )
    found = {0: reshape(of_x, named.operands[0].shape)}
    for kind, sums in (("scale", of_scale), ("bias", of_bias)):
        if named.attributes[kind]:
            spec = named.operands[len(found)]
            found[len(found)] = reshape(sums if spec.size == sums.size else sum_(sums), spec.shape)
    return named.cotangents(op, found)


_STATISTICS = ("mean", "deviation")
register_kernel(
    Kernel(
        "normalisation.native",
        Effect.reassociating,
        "mean, variance and result of a row while it is in the cache",
        _applies,
        Native(_LIBRARY, _forward),
        hands=_STATISTICS,
    )
)
register_kernel(
    Kernel(
        "normalisation_gradient.native",
        Effect.reassociating,
        "the gradients of x, scale and bias while a row is in the cache",
        _applies,
        Native(_LIBRARY, _gradient),
        takes=("normalisation.native", *_STATISTICS),
    )
)
