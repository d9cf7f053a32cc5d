"""A product of matrices that is written with broadcasts becomes one operation."""

from dataclasses import dataclass

from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import integers_of
from pcp.ir.toolkit.constants import splat_number
from pcp.ir.toolkit.regions import combiner
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.linear_algebra import dot_general
from pcp.ops.movement import reshape, transpose
from pcp.rewrite.pattern import defined_by
from pcp.rewrite.row import Effect, Row
from pcp.tensor import Tensor, current_builder


@dataclass(frozen=True, slots=True)
class Factor:
    """One factor of a product: a value from before its broadcasts.

    Arguments:
        value: the smaller value.
        axes: for each of its axes that of the product where it stands; None for axes of size 1.
    """

    value: Value
    axes: tuple[int | None, ...]


def raise_matmul(op: ir.Operation) -> list[Tensor] | None:
    """sum_k a[i, k] b[k, j], written as broadcast, multiply and sum, as `dot_general`.

    sum over R of (broadcast(a) * broadcast(b))  =  dot_general(a, b): axes that both factors have are summed over if they are
    in R, else batch axes; axes that one of them has are free. Each factor must have a free axis: otherwise the product is no
    larger than a factor, nothing is saved, and the pattern may belong to a normalisation.
    """
    product = _summed_product(op)
    if product is None:
        return None
    shape = spec_of(product.results[0].type).shape
    reduced = integers_of(op.attributes["dimensions"])
    left, right = (_factor(operand) for operand in product.operands)
    ours, theirs = ({axis for axis in side.axes if axis is not None} for side in (left, right))
    wide = {axis for axis, size in enumerate(shape) if size != 1}
    contract = sorted((ours & theirs) & set(reduced))
    free_left, free_right = sorted(ours - theirs), sorted(theirs - ours)
    alone = (set(free_left) | set(free_right)) & set(reduced)
    if not contract or not free_left or not free_right or alone or ours | theirs != wide:
        return None
    batch = sorted((ours & theirs) - set(reduced))
    a, b = _without_ones(left), _without_ones(right)
    found = dot_general(
        a[0],
        b[0],
        ([a[1].index(axis) for axis in contract], [b[1].index(axis) for axis in contract]),
        ([a[1].index(axis) for axis in batch], [b[1].index(axis) for axis in batch]),
    )
    order = [
        *batch,
        *(axis for axis in a[1] if axis in free_left),
        *(axis for axis in b[1] if axis in free_right),
    ]
    turned = transpose(found, [order.index(axis) for axis in sorted(order)])
    return [reshape(turned, spec_of(op.results[0].type).shape)]


def _summed_product(op: ir.Operation) -> ir.Operation | None:
    """The multiplication that a sum is taken of, if nothing else uses it."""
    if len(op.results) != 1 or combiner(op.regions[0]) != "add" or splat_number(op.operands[1]) != 0:
        return None
    product = defined_by(op.operands[0])
    if product is None or product.name != "stablehlo.multiply" or len(list(product.results[0].uses)) != 1:
        return None
    return product if spec_of(product.results[0].type).dtype.kind != "bool" else None


def _factor(value: Value) -> Factor:
    """Go back through broadcasts, transposes and reshapes that only add or drop axes of size 1."""
    shape = spec_of(value.type).shape
    axes: tuple[int | None, ...] = tuple(axis if size != 1 else None for axis, size in enumerate(shape))
    while (op := defined_by(value)) is not None:
        before = _axes_before(op, axes)
        if before is None:
            break
        value, axes = op.operands[0], before
    return Factor(value, axes)


def _axes_before(op: ir.Operation, axes: tuple[int | None, ...]) -> tuple[int | None, ...] | None:
    """The axes of an operation's operand, from those of its result; None for another kind of operation."""
    if op.name == "stablehlo.broadcast_in_dim":
        sizes = spec_of(op.operands[0].type).shape
        places = integers_of(op.attributes["broadcast_dimensions"])
        return tuple(axes[place] if size != 1 else None for place, size in zip(places, sizes, strict=True))
    if op.name == "stablehlo.transpose":
        turned: list[int | None] = [None] * len(axes)
        for place, source in enumerate(integers_of(op.attributes["permutation"])):
            turned[source] = axes[place]
        return tuple(turned)
    if op.name == "stablehlo.reshape":
        old, new = spec_of(op.operands[0].type).shape, spec_of(op.results[0].type).shape
        if [size for size in old if size != 1] == [size for size in new if size != 1]:
            wide = iter([axis for axis, size in zip(axes, new, strict=True) if size != 1])
            return tuple(next(wide) if size != 1 else None for size in old)
    return None


def _without_ones(factor: Factor) -> tuple[Tensor, list[int]]:
    """A factor without its axes of size 1, and which axes of the product the others are."""
    tensor = Tensor(factor.value, current_builder())
    kept = [axis for axis in factor.axes if axis is not None]
    sizes = [size for size, axis in zip(tensor.shape, factor.axes, strict=True) if axis is not None]
    return reshape(tensor, sizes), kept


# sum_k a[i,k] b[k,j] written out = dot_general(a, b); sums are taken in another order
RAISE_MATMUL = Row("raise_matmul", "stablehlo.reduce", Effect.reassociating, raise_matmul)
