"""Derivatives of reductions. Sum, maximum and minimum have rules; any other body is expanded into elementwise operations."""

import math
from collections.abc import Sequence

from pcp.autodiff.regions import combiner, operations_of, returned_by
from pcp.autodiff.rule import Cotangent, Primal, register_rules
from pcp.ir import TensorSpec
from pcp.ir.program import spec_of
from pcp.ops.elementwise import convert, equal, where
from pcp.ops.movement import concatenate, reshape, slice_, transpose
from pcp.ops.reduction import spread, sum_
from pcp.tensor import Tensor, current_builder


def _reduce(primal: Primal, *cotangents: Cotangent) -> Sequence[Cotangent]:
    name = combiner(primal.op.regions[0])
    if name == "add":
        return _sum(primal, *cotangents)
    if name in ("maximum", "minimum") and not primal.active[1]:
        return _extreme(primal, *cotangents)
    return primal.engine.through(primal, _by_pairs(primal), cotangents)


def _sum(primal: Primal, g: Cotangent) -> Sequence[Cotangent]:
    assert g is not None
    x = primal.input(0)
    return [spread(g, x.shape, primal.integers("dimensions")), sum_(g) if primal.active[1] else None]


def _extreme(primal: Primal, g: Cotangent) -> Sequence[Cotangent]:
    """Elements that are equal to the largest share the cotangent evenly, as in JAX."""
    assert g is not None
    x, axes = primal.input(0), primal.integers("dimensions")
    chosen = equal(x, spread(primal.output(), x.shape, axes))
    count = sum_(convert(chosen, g.dtype), axes)
    return [where(chosen, spread(g / count, x.shape, axes), 0), None]


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


def map_body(primal: Primal, arguments: Sequence[Tensor]) -> list[Tensor]:
    """The body of a reduction, which is written for scalars, applied to whole tensors of one shape."""
    (block,) = primal.op.regions[0].blocks
    shape, builder = arguments[0].shape, current_builder()
    known = {value: tensor.value for value, tensor in zip(block.arguments, arguments, strict=True)}
    for op in operations_of(block):
        if op.name == "stablehlo.constant":
            copy = op.clone(ip=builder.insertion)
            known[op.results[0]] = Tensor(copy.results[0], builder).broadcast_to(shape).value
            continue
        outside = [value for value in op.operands if value not in known]
        if len(op.regions) or any(value in primal.captured for value in outside):
            primal.refuse(f"its body is more than elementwise operations on its arguments: {op.name}")
        known.update((v, Tensor(v, builder).broadcast_to(shape).value) for v in outside)
        specs = [TensorSpec(shape, spec_of(result.type).dtype) for result in op.results]
        made = builder.emit(op.name, [known[v] for v in op.operands], specs, dict(op.attributes.items()))
        known.update(zip(op.results, made.results, strict=True))
    return [Tensor(known[value], builder) for value in returned_by(block)]


register_rules({"reduce": _reduce})
