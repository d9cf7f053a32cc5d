"""Derivatives of products of tensors."""

from collections.abc import Sequence

from pcp.autodiff.rule import Cotangent, Expansion, Primal, register_rules
from pcp.autodiff.rules.movement import inverse
from pcp.ir import TensorSpec
from pcp.ir.toolkit.attributes import string_of
from pcp.ops.elementwise import convert
from pcp.ops.linear_algebra import einsum
from pcp.ops.movement import transpose
from pcp.ops.promotion import promote
from pcp.tensor import Tensor, emit

Axes = tuple[int, ...]


def _dot_general(primal: Primal, g: Tensor) -> list[Cotangent]:
    """Each side is the product of the cotangent with the other side, over the free axes of that other side."""
    numbers = primal.numbers("dot_dimension_numbers")
    sides = [
        (numbers.get(f"{side}_batching_dimensions", ()), numbers.get(f"{side}_contracting_dimensions", ()))
        for side in ("lhs", "rhs")
    ]
    return [
        _side(primal, g, index, sides[index], sides[1 - index]) if primal.active[index] else None
        for index in (0, 1)
    ]


def _side(primal: Primal, g: Tensor, index: int, own: tuple[Axes, Axes], other: tuple[Axes, Axes]) -> Tensor:
    """The cotangent of one operand.

    Arguments:
        index: which operand, 0 or 1.
        own: its batching and its contracting axes.
        other: those of the other operand.
    """
    x, y = primal.input(index), primal.input(1 - index)
    own_free, other_free = (
        tuple(axis for axis in range(t.ndim) if axis not in (*batch, *contract))
        for t, (batch, contract) in ((x, own), (y, other))
    )
    batch = len(own[0])
    free = range(batch, g.ndim)
    theirs = free[len(own_free) :] if index == 0 else free[: len(other_free)]
    # The axes of y that the product keeps come in their order in y; own[1][k] is paired with other[1][k].
    kept = tuple(own[1][k] for k in sorted(range(len(other[1])), key=other[1].__getitem__))
    dtype = promote(g.dtype, y.dtype)
    g, y = convert(g, dtype), convert(y, dtype)
    # Either order of the operands is right; the one whose result needs no transpose is taken.
    order = (*own[0], *kept, *own_free)
    if order == tuple(range(x.ndim)):
        product = _dot(primal, y, g, (other[0], tuple(range(batch))), (other_free, tuple(theirs)))
    else:
        order = (*own[0], *own_free, *kept)
        product = _dot(primal, g, y, (tuple(range(batch)), other[0]), (tuple(theirs), other_free))
    return convert(transpose(product, inverse(order)) if order else product, x.dtype)


def _dot(
    primal: Primal, left: Tensor, right: Tensor, batch: tuple[Axes, Axes], contract: tuple[Axes, Axes]
) -> Tensor:
    """A product at the precision that the forward one asks for."""
    shape = (
        *(left.shape[axis] for axis in batch[0]),
        *(left.shape[axis] for axis in range(left.ndim) if axis not in (*batch[0], *contract[0])),
        *(right.shape[axis] for axis in range(right.ndim) if axis not in (*batch[1], *contract[1])),
    )
    numbers = (
        f"#stablehlo.dot<lhs_batching_dimensions = {list(batch[0])}, rhs_batching_dimensions = {list(batch[1])}, "
        f"lhs_contracting_dimensions = {list(contract[0])}, rhs_contracting_dimensions = {list(contract[1])}>"
    )
    # An algorithm is one for certain element types.
    same = left.dtype is primal.input(0).dtype is primal.input(1).dtype
    names = ("precision_config", "algorithm") if same else ("precision_config",)
    kept = {name: primal.op.attributes[name] for name in names if name in primal.op.attributes}
    attributes = {"dot_dimension_numbers": numbers, **kept}
    return emit("dot_general", (left, right), (TensorSpec(shape, left.dtype),), attributes)


def _einsum(primal: Primal) -> Sequence[Tensor]:
    return [einsum(string_of(primal.op.attributes["einsum_config"]), *primal.inputs)]


register_rules({"dot_general": _dot_general, "einsum": Expansion(_einsum)})
