"""Bodies, which say what an operation does to scalars: written for one, and applied to whole tensors."""

from collections.abc import Mapping, Sequence
from typing import Any

from pcp.ir import TensorSpec
from pcp.ir.bindings import Value
from pcp.ir.toolkit.regions import block_operations, returned_by
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.batched_axes import along_axes, behind_the_first
from pcp.ops.derivative import Expansion, Primal
from pcp.ops.record import Kind, declare, kind_of
from pcp.tensor import Tensor, checked, current_builder


def emit_joining(
    name: str,
    operands: Sequence[Tensor],
    spec: TensorSpec,
    attributes: Mapping[str, Any],
    combine: str | None,
) -> Tensor:
    """A StableHLO operation with one result and a body that joins two elements.

    Arguments:
        combine: the elementwise operation that joins them, as `add`; None takes the second.
    """
    builder, scalar = current_builder(), TensorSpec((), spec.dtype)
    values = [checked(t).value for t in operands]
    op = builder.emit(f"stablehlo.{name}", values, (spec,), attributes, regions=1)
    with builder.region(op, 0, (scalar, scalar)) as (first, second):
        joined = (
            second
            if combine is None
            else builder.emit(f"stablehlo.{combine}", [first, second], (scalar,)).results[0]
        )
        builder.emit("stablehlo.return", [joined], ())
    return Tensor(op.results[0], builder, spec)


def map_body(primal: Primal, arguments: Sequence[Tensor], region: int = 0) -> list[Tensor]:
    """A body that is written for scalars, applied to whole tensors of one shape.

    Raises:
        NoDerivative: the body is more than elementwise operations.
    """
    (block,) = primal.op.regions[region].blocks
    shape, builder = arguments[0].shape, current_builder()
    known = {value: tensor.value for value, tensor in zip(block.arguments, arguments, strict=True)}

    def whole(value: Value) -> Value:
        if value not in known:  # made outside of the body
            known[value] = Tensor(value, builder).broadcast_to(shape).value
        return known[value]

    for op in block_operations(block):
        kind = kind_of(op.name)
        scalars = all(spec_of(value.type).shape == () for value in (*op.operands, *op.results))
        moves = kind is Kind.movement and len(op.operands) == 1  # which does nothing to a scalar
        is_constant = op.name == "stablehlo.constant"
        if not scalars or not (moves or is_constant or kind in (Kind.elementwise, Kind.broadcasting)):
            primal.refuse(f"its body is more than elementwise operations on scalars: {op.name}")
        if is_constant:
            known[op.results[0]] = op.clone(ip=builder.insertion).results[0]
            known[op.results[0]] = Tensor(known[op.results[0]], builder).broadcast_to(shape).value
        elif moves:
            known[op.results[0]] = whole(op.operands[0])
        else:
            specs = [TensorSpec(shape, spec_of(result.type).dtype) for result in op.results]
            mapped = builder.emit(
                op.name, [whole(v) for v in op.operands], specs, dict(op.attributes.items())
            )
            known.update(zip(op.results, mapped.results, strict=True))
    return [Tensor(whole(value), builder) for value in returned_by(block)]


declare(
    "map",
    Kind.reduction,
    derivative=Expansion(lambda primal: map_body(primal, primal.inputs)),
    batching=along_axes(dimensions=behind_the_first),
)
