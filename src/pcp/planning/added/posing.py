"""How kernels from outside fit the sites of a program: as problems, whose operands they take, and the result back.

A family's problems have fixed orders of axes and forms; an operation of a program has any. Where the two compute the same, the
operands are turned and reshaped around the kernel; elsewhere the kernel does not apply. A region is posed as it is.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.ir.composites.records import ATTENTION
from pcp.ir.toolkit.regions import values_from_outside
from pcp.ir.toolkit.tensor_types import spec_if_tensor, spec_of
from pcp.kernels.attention.heads import Heads
from pcp.kernels.candidate import Candidate
from pcp.kernels.cross_entropy.stablehlo import Rows
from pcp.kernels.embedding.stablehlo import Scattered
from pcp.kernels.named import Named, tensors
from pcp.kernels.normalisation.stablehlo import Operands
from pcp.kernels.problems import Problem, problem
from pcp.kernels.products.product import Product
from pcp.kernels.regions import region_of
from pcp.ops.elementwise import greater_equal, less, where
from pcp.ops.indexing.along_axis import take_along_axis
from pcp.ops.movement import broadcast_to, expand_dims, ones, reshape, transpose, zeros
from pcp.tensor import Tensor, current_builder


@dataclass(frozen=True, slots=True)
class Posed:
    """A site as a problem.

    Arguments:
        problem: what the kernel has to compute there.
        operands: of the kernel, emitted where it stands; called once, before `result`.
        result: from what the kernel returns to what the operation does.
    """

    problem: Problem
    operands: Callable[[], Sequence[Tensor]]
    result: Callable[..., Tensor | Sequence[Tensor]]


def posed_at(candidate: Candidate, op: ir.Operation) -> Posed | None:
    """How a kernel fits an operation of its family; None where it does not."""
    ways = _POSED[candidate.family](op) if candidate.region is None else _as_it_is(op, candidate.problems[0])
    return next((posed for posed in ways if candidate.is_for(posed.problem)), None)


def _as_it_is(op: ir.Operation, posed: Problem) -> Iterator[Posed]:
    """A region stands where the same operation does, of the same shapes and attributes."""
    assert posed.region is not None
    if tuple(spec_if_tensor(each.type) for each in op.results) == posed.results and (
        region_of(op).digest == posed.region.digest
    ):
        taken = dict.fromkeys((*op.operands, *values_from_outside(op)))
        yield Posed(posed, lambda: [Tensor(each, current_builder()) for each in taken], lambda *y: y)


def _dtype_of(named: Named) -> DType | None:
    """The one element type of all floating-point numbers."""
    dtypes = {spec.dtype for spec in (*named.operands, *named.results) if spec.dtype.is_differentiable}
    return dtypes.pop() if len(dtypes) == 1 else None


def _product(op: ir.Operation) -> Iterator[Posed]:
    product = Product.of(op)
    dtypes = {product.x.dtype, product.y.dtype, product.result.dtype}
    if len(dtypes) != 1 or product.constrained or not product.x.dtype.is_float or not product.result.size:
        return
    batch = product.batch
    free = [
        [axis for axis in range(len(spec.shape)) if axis not in (*summed, *together)]
        for spec, summed, together in zip((product.x, product.y), product.contract, batch, strict=True)
    ]

    def size(which: int, axes: Any) -> int:
        return math.prod((product.x, product.y)[which].shape[axis] for axis in axes)

    b, m = size(0, batch[0]), size(0, free[0])
    k, n = size(0, product.contract[0]), size(1, free[1])
    left, right = ([batch[0], free[0], product.contract[0]], [batch[1], product.contract[1], free[1]])
    forms = {"batched" if batch[0] else "plain": (left, right)}
    if not batch[0]:
        forms["left_transposed"] = [batch[0], *left[:0:-1]], right
        forms["right_transposed"] = left, [batch[1], *right[:0:-1]]
    ready = [form for form, orders in forms.items() if all(map(_is_sorted, orders))]
    for form, orders in forms.items():
        if form not in ready and (ready or form not in ("batched", "plain")):
            continue  # another takes the operands as they are

        def operands(orders: Any = orders) -> list[Tensor]:
            return [
                reshape(
                    transpose(tensor, [axis for group in order for axis in group]),
                    [size(which, axes) for place, axes in enumerate(order) if place or batch[0]],
                )
                for which, (order, tensor) in enumerate(zip(orders, tensors(op), strict=True))
            ]

        sizes = {"b": b, "m": m, "k": k, "n": n}
        yield Posed(
            problem("product", form, product.x.dtype, sizes),
            operands,
            lambda result: reshape(result, product.result.shape),
        )


def _is_sorted(order: Sequence[Sequence[int]]) -> bool:
    axes = [axis for group in order for axis in group]
    return axes == sorted(axes)


class _Rows:
    """An array as rows along one axis, and back."""

    def __init__(self, shape: tuple[int, ...], axis: int) -> None:
        self._order = [each for each in range(len(shape)) if each != axis] + [axis]
        self._turned = [shape[each] for each in self._order]
        self.width = shape[axis]
        self.count = math.prod(shape) // max(1, self.width)

    def of(self, x: Tensor) -> Tensor:
        """The rows of an array."""
        return reshape(transpose(x, self._order), (self.count, self.width))

    def back(self, rows: Tensor) -> Tensor:
        """The array whose rows these are."""
        return transpose(reshape(rows, self._turned), [self._order.index(n) for n in range(len(self._order))])


def _softmax(op: ir.Operation) -> Iterator[Posed]:
    named = Named.of(op)
    dtype, rows = _dtype_of(named), _Rows(named.operands[0].shape, int(named.attributes["axis"]))
    if named.name != "softmax" or dtype is None:
        return
    posed = problem("softmax", "last_axis", dtype, {"rows": rows.count, "columns": rows.width})
    yield Posed(posed, lambda: [rows.of(tensors(op)[0])], rows.back)


def _normalisation(op: ir.Operation) -> Iterator[Posed]:
    named = Named.of(op)
    dtype, attributes = _dtype_of(named), named.attributes
    rows = _Rows(named.operands[0].shape, int(attributes["axis"]))
    form = "layer" if named.name == "layer_norm" else "rms"
    if dtype is None or (form == "rms" and attributes["bias"]):
        return

    def operands() -> list[Tensor]:
        more = iter(tensors(op)[1:])
        values = [rows.of(Operands.of(op).x)]
        for kind, empty in (("scale", ones), ("bias", zeros)):
            if attributes[kind]:
                parameter = next(more)
                values.append(broadcast_to(reshape(parameter, (parameter.size,)), (rows.width,)))
            elif kind == "scale" or form == "layer":
                values.append(empty((rows.width,), dtype))
        return values

    sizes = {"rows": rows.count, "width": rows.width}
    posed = problem("normalisation", form, dtype, sizes, epsilon=float(attributes["epsilon"]))
    yield Posed(posed, operands, rows.back)


def _attention(op: ir.Operation) -> Iterator[Posed]:
    named, heads = Named.of(op), Heads.of(op)
    dtype, attributes = _dtype_of(named), named.attributes
    if heads is None or dtype is None or heads.groups or attributes.keys() & {*ATTENTION.further, "cap"}:
        return
    queries, keys = heads.lengths
    width, free = heads.sizes[-1], heads.sizes[-2]
    sight = heads.sight
    is_causal = sight.offset is not None
    if free != width or not math.isclose(attributes["scale"], 1 / math.sqrt(width), rel_tol=1e-6):
        return
    if is_causal and (not sight.skips or sight.window is not None or sight.offset != keys - queries):
        return
    sets = math.prod(heads.sizes[axis] for axis in heads.batch)

    def operands() -> list[Tensor]:
        return [
            reshape(heads.turned(tensor, kind), (sets, length, 1, width))
            for tensor, kind, length in zip(
                tensors(op), ATTENTION.operands, (queries, keys, keys), strict=False
            )
        ]

    sizes = {"batch": sets, "queries": queries, "keys": keys, "heads": 1, "width": width}
    yield Posed(
        problem("attention", "causal" if is_causal else "full", dtype, sizes),
        operands,
        lambda result: heads.returned(result, "result"),
    )


def _cross_entropy(op: ir.Operation) -> Iterator[Posed]:
    named = Named.of(op)
    dtype, shape = _dtype_of(named), named.operands[0].shape
    if dtype is None:
        return
    count, classes = math.prod(shape[:-1]), shape[-1]
    made_rows: list[Rows] = []

    def operands() -> list[Tensor]:
        rows = Rows.of(op)
        made_rows.append(rows)
        return [rows.logits, rows.targets]

    def result(losses: Tensor) -> Tensor:
        rows = made_rows[-1]
        per_row = -losses if named.attributes["negated"] else losses
        if rows.known is not None:
            picked = reshape(take_along_axis(rows.logits, expand_dims(rows.targets, 1), 1), (count,))
            outside = named.attributes["outside"]
            other = losses + picked - outside
            per_row = where(rows.known, per_row, outside if named.attributes["negated"] else other)
        return reshape(per_row, named.results[0].shape)

    yield Posed(
        problem("cross_entropy", "plain", dtype, {"rows": count, "classes": classes}), operands, result
    )


def _embedding_gradient(op: ir.Operation) -> Iterator[Posed]:
    table, indices, updates = (spec_of(value.type) for value in op.operands)
    if table.dtype is not updates.dtype or not table.dtype.is_float:
        return
    count, width = indices.size, table.size // table.shape[0]
    rows = table.shape[0] + 1  # one for what lies in none

    def operands() -> list[Tensor]:
        again = Scattered.of(op)
        numbers = again.numbers.astype(DType.i32)
        inside = greater_equal(numbers, 0) & less(numbers, rows - 1)
        return [where(inside, numbers, rows - 1), again.updates]

    yield Posed(
        problem("embedding_gradient", "plain", table.dtype, {"count": count, "rows": rows, "width": width}),
        operands,
        lambda sums: Scattered.of(op).table + reshape(sums[: rows - 1], table.shape),
    )


_POSED: dict[str, Callable[[ir.Operation], Iterator[Posed]]] = {
    "product": _product,
    "softmax": _softmax,
    "normalisation": _normalisation,
    "attention": _attention,
    "cross_entropy": _cross_entropy,
    "embedding_gradient": _embedding_gradient,
}
"""For each family, the problems that an operation can be taken for."""
