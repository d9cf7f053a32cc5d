"""Norms along the last axis as kernels of rows take them: (rows, width), with a scale and a bias for each column."""

from collections.abc import Sequence

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import integers_of
from pcp.ir.toolkit.dataflow import defining_op
from pcp.kernels.groups import Part
from pcp.kernels.named import Named
from pcp.ops.movement import broadcast_to, full, reshape
from pcp.tensor import Tensor, current_builder


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


def repeated(x: Tensor) -> Tensor | None:
    """The vector of which every row of a tensor is a copy; None where the program does not say so."""
    op = defining_op(x.value)
    if op is None or op.name != "stablehlo.broadcast_in_dim":
        return None
    vector = Tensor(op.operands[0], current_builder())
    dims = integers_of(op.attributes["broadcast_dimensions"])
    return vector if vector.shape == x.shape[-1:] and dims == (x.ndim - 1,) else None


def parameters_of(part: Part) -> list[Tensor]:
    """Scale and bias of the norm in a group, as far as it has them."""
    return [tensor for name, tensor in part.inputs.items() if name.startswith("operand")]
