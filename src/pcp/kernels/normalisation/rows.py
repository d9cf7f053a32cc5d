"""Norms along the last axis as kernels of rows take them: (rows, width), with a scale and a bias for each column."""

from collections.abc import Sequence

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.kernels.groups import Part
from pcp.kernels.named import Named
from pcp.ops.movement import broadcast_to, full, reshape
from pcp.tensor import Tensor


def applies_to_rows(op: ir.Operation) -> bool:
    """Whether a norm of float32 runs along the last axis."""
    named = Named.of(op)
    shape = named.operands[0].shape
    return named.is_f32 and named.attributes["axis"] == len(shape) - 1 and 0 not in shape


def rows_of(x: Tensor) -> Tensor:
    """A tensor as (rows, width)."""
    return reshape(x, (-1, x.shape[-1]))


def _vector(parameter: Tensor | None, width: int, value: float) -> Tensor:
    """A scale or bias as one number for each column; a constant where there is none."""
    if parameter is None:
        return full((width,), value, DType.f32)
    return broadcast_to(reshape(parameter, (-1,)), (width,))


def vectors_of(named: Named, parameters: Sequence[Tensor], width: int) -> tuple[Tensor, Tensor]:
    """Scale and bias, each (width,)."""
    more = iter(parameters)
    scale, bias = (next(more) if named.attributes[kind] else None for kind in ("scale", "bias"))
    return _vector(scale, width, 1.0), _vector(bias, width, 0.0)


def parameters_of(part: Part) -> list[Tensor]:
    """Scale and bias of the norm in a group, as far as it has them."""
    return [tensor for name, tensor in part.inputs.items() if name.startswith("operand")]
