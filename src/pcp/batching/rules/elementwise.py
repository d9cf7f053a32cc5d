"""Batching of elementwise operations: the axis of samples is one more."""

from pcp.batching.rule import Batched, Mixed, register_batching
from pcp.ir.toolkit.elementwise import ELEMENTWISE
from pcp.ops.movement import broadcast_in_dim
from pcp.tensor import Tensor

_MAY_BE_SCALAR = {"stablehlo.select": (0,), "stablehlo.clamp": (0, 2)}


def _elementwise(batched: Batched) -> list[Tensor]:
    scalars = _MAY_BE_SCALAR.get(batched.op.name, ())
    (spec,) = batched.specs
    operands = []
    for index, flag in enumerate(batched.flags):
        if index not in scalars or batched.spec(index).shape != ():
            operands.append(batched.operand_with_samples(index))
        elif flag:
            operands.append(broadcast_in_dim(batched.operand(index), (batched.size, *spec.shape), (0,)))
        else:
            operands.append(batched.operand(index))
    return batched.clone_with(operands)


def _barrier(batched: Batched) -> Mixed:
    given = [batched.operand(index) for index in range(len(batched.flags))]
    return Mixed(batched.clone_with(given, specs=[t.spec for t in given]), batched.flags)


register_batching(dict.fromkeys(ELEMENTWISE, _elementwise))
register_batching({"optimization_barrier": _barrier})
