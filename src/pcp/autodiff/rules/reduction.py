"""Derivatives of reductions and of map: sum, maximum and minimum have rules; other bodies become elementwise operations."""

import math
from collections.abc import Sequence

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import Value
from pcp.ir.toolkit.regions import block_operations, combiner, returned_by
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.derivative import Cotangent, Expanded, Expansion, Outgoing, Primal
from pcp.ops.elementwise import bitwise_or, convert, equal, maximum, not_equal, where
from pcp.ops.movement import concatenate, reshape, slice_, transpose
from pcp.ops.record import supply_derivatives
from pcp.ops.reductions.primitives import broadcast_reduced, reduce_with, sum_
from pcp.tensor import Tensor, current_builder, emit


def _reduce(primal: Primal, *cotangents: Cotangent) -> Outgoing:
    name = combiner(primal.op.regions[0])
    if name == "add":
        return _sum(primal, *cotangents)
    if name in ("maximum", "minimum") and not primal.active[1] and primal.input(0).dtype.is_float:
        return _extreme(primal, *cotangents)
    return Expanded(_by_pairs(primal))


def _sum(primal: Primal, g: Cotangent) -> Sequence[Cotangent]:
    assert g is not None
    x = primal.input(0)
    return [
        broadcast_reduced(g, x.shape, primal.integers("dimensions")),
        sum_(g) if primal.active[1] else None,
    ]


def _extreme(primal: Primal, g: Cotangent) -> Sequence[Cotangent]:
    """Elements that are equal to the largest share the cotangent evenly; NaN for all where the largest is NaN. As in JAX.

    A compiler may compute an element anew and round it otherwise than the one that became the largest. Behind a barrier there
    is one set of elements, of which the largest is found again.
    """
    assert g is not None
    name, axes = str(combiner(primal.op.regions[0])), primal.integers("dimensions")
    x = emit("optimization_barrier", (primal.input(0),))
    extreme = reduce_with(name, x, primal.input(1), axes)
    lost = not_equal(extreme, extreme)
    chosen = bitwise_or(
        equal(x, broadcast_reduced(extreme, x.shape, axes)), broadcast_reduced(lost, x.shape, axes)
    )
    count = sum_(convert(chosen, DType.i32), axes)
    share = where(lost, math.nan, g / convert(maximum(count, 1), g.dtype))
    return [where(chosen, broadcast_reduced(share, x.shape, axes), 0), None]


def _by_pairs(primal: Primal) -> list[Tensor]:
    """The reduction as elementwise operations on neighbours: one round for each binary digit of the size, and no division.

    A body is associative, so neighbours may be combined first; their order is kept, since it need not be commutative.
    """
    count = len(primal.op.operands) // 2
    tensors, initial = primal.inputs[:count], primal.inputs[count:]
    axes = primal.integers("dimensions")
    kept = [axis for axis in range(tensors[0].ndim) if axis not in axes]
    shape = tuple(tensors[0].shape[axis] for axis in kept)
    length = math.prod(tensors[0].shape[axis] for axis in axes)
    rows = [reshape(transpose(t, [*axes, *kept]), (length, *shape)) for t in tensors]
    start = [t.broadcast_to(shape) for t in initial]
    if not length:
        return start
    while (length := rows[0].shape[0]) > 1:
        even = length - length % 2
        left, right, last = (
            [_rows(t, *bounds) for t in rows] for bounds in ((0, even, 2), (1, even, 2), (even, length, 1))
        )
        rows = map_body(primal, [*left, *right])
        if length % 2:
            rows = [concatenate(pair) for pair in zip(rows, last, strict=True)]
    return map_body(primal, [*start, *(reshape(t, shape) for t in rows)])


def _rows(tensor: Tensor, start: int, stop: int, step: int) -> Tensor:
    rest = tensor.shape[1:]
    return slice_(tensor, (start, *[0] * len(rest)), (stop, *rest), (step, *[1] * len(rest)))


IDENTITIES = ("broadcast_in_dim", "reshape", "reverse", "transpose")
"""Operations that do nothing to a scalar."""

NOT_ELEMENTWISE = ("custom_call", "dot_general", "iota", "rng", "rng_bit_generator")


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
        name = op.name.removeprefix("stablehlo.")
        scalars = all(spec_of(value.type).shape == () for value in (*op.operands, *op.results))
        if len(op.regions) or not scalars or name in NOT_ELEMENTWISE:
            primal.refuse(f"its body is more than elementwise operations on scalars: {op.name}")
        if name == "constant":
            known[op.results[0]] = op.clone(ip=builder.insertion).results[0]
            known[op.results[0]] = Tensor(known[op.results[0]], builder).broadcast_to(shape).value
        elif name in IDENTITIES:
            known[op.results[0]] = whole(op.operands[0])
        else:
            specs = [TensorSpec(shape, spec_of(result.type).dtype) for result in op.results]
            made = builder.emit(op.name, [whole(v) for v in op.operands], specs, dict(op.attributes.items()))
            known.update(zip(op.results, made.results, strict=True))
    return [Tensor(whole(value), builder) for value in returned_by(block)]


def _map(primal: Primal) -> Sequence[Tensor]:
    return map_body(primal, primal.inputs)


supply_derivatives({"reduce": _reduce, "map": Expansion(_map)})
