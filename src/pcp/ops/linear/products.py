"""Products of tensors: `dot_general`, which everything else is, and matmul and einsum on top of it."""

import math
from collections.abc import Sequence

from pcp.ir import DTypeLike, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import dimension_numbers, string_of
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ir.types import dtype_of
from pcp.ops.batching import Batched
from pcp.ops.derivative import Cotangent, Expansion, Primal
from pcp.ops.elementwise import convert
from pcp.ops.movement import expand_dims, moveaxis, reshape, transpose
from pcp.ops.movement.shape import inverse
from pcp.ops.promotion import broadcast_shape, promote, promoted
from pcp.ops.record import Kind, declare
from pcp.ops.reductions.primitives import sum_
from pcp.tensor import DTypeMismatch, ShapeMismatch, Tensor, TensorLike, emit, operation

Pairs = tuple[Sequence[int], Sequence[int]]


@operation
def dot_general(
    x: TensorLike, y: TensorLike, contract: Pairs, batch: Pairs = ((), ()), dtype: DTypeLike | None = None
) -> Tensor:
    """The sum of products over pairs of axes.

    Arguments:
        contract: axes of x and of y that are summed over, pairwise of equal size.
        batch: axes of x and of y that run together and come first in the result.
        dtype: element type of result and accumulation; that of the operands if None.

    Returns:
        Axes: batch, then the free ones of x, then the free ones of y.

    Raises:
        ShapeMismatch: paired axes differ in size.
    """
    left, right = promoted(x, y)
    if left.dtype.kind in ("bool", "storage"):
        raise DTypeMismatch(
            f"dot_general: element type {left.dtype} was given; expected numbers; use .astype"
        )
    for i, j in (*zip(*contract, strict=True), *zip(*batch, strict=True)):
        if left.shape[i] != right.shape[j]:
            raise ShapeMismatch(
                f"dot_general: axis {i} of shape {left.shape} and axis {j} of shape {right.shape} are paired but differ in size"
            )
    free_left = [a for a in range(left.ndim) if a not in (*contract[0], *batch[0])]
    free_right = [a for a in range(right.ndim) if a not in (*contract[1], *batch[1])]
    shape = (
        *(left.shape[a] for a in batch[0]),
        *(left.shape[a] for a in free_left),
        *(right.shape[a] for a in free_right),
    )
    numbers = (
        f"#stablehlo.dot<lhs_batching_dimensions = {list(batch[0])}, rhs_batching_dimensions = {list(batch[1])}, "
        f"lhs_contracting_dimensions = {list(contract[0])}, rhs_contracting_dimensions = {list(contract[1])}>"
    )
    spec = TensorSpec(shape, left.dtype if dtype is None else dtype_of(dtype))
    return emit("dot_general", (left, right), (spec,), {"dot_dimension_numbers": numbers})


@operation
def matmul(x: TensorLike, y: TensorLike) -> Tensor:
    """The matrix product, as NumPy's: leading axes broadcast, a vector is a row on the left and a column on the right.

    Arguments:
        x: shape (..., n, k) or (k,).
        y: shape (..., k, m) or (k,).

    Returns:
        Shape (..., n, m), without the axes that a vector lacks.

    Raises:
        ShapeMismatch: the inner sizes differ, an operand is a scalar, or leading axes do not broadcast.
    """
    left, right = promoted(x, y)
    if not left.ndim or not right.ndim:
        raise ShapeMismatch(
            f"matmul: shapes {left.shape} and {right.shape} were given; a scalar is not a matrix; use *"
        )
    if left.shape[-1] != right.shape[max(right.ndim - 2, 0)]:
        raise ShapeMismatch(
            f"matmul: shapes {left.shape} and {right.shape} do not fit: the last axis of the first has size {left.shape[-1]}, "
            f"the {'only' if right.ndim == 1 else 'second last'} axis of the second {right.shape[max(right.ndim - 2, 0)]}"
        )
    if right.ndim <= 2:
        return dot_general(left, right, ((left.ndim - 1,), (max(right.ndim - 2, 0),)))
    if left.ndim == 1:
        return reshape_away(matmul(expand_dims(left, 0), right), -2)
    lead = broadcast_shape("matmul", left.shape[:-2], right.shape[:-2])
    left = left.broadcast_to((*lead, *left.shape[-2:]))
    right = right.broadcast_to((*lead, *right.shape[-2:]))
    together = tuple(range(len(lead)))
    return dot_general(left, right, ((left.ndim - 1,), (right.ndim - 2,)), (together, together))


def reshape_away(tensor: Tensor, axis: int) -> Tensor:
    """The tensor without an axis of size 1."""
    place = axis % tensor.ndim
    return reshape(tensor, (*tensor.shape[:place], *tensor.shape[place + 1 :]))


@operation
def einsum(formula: str, *operands: TensorLike) -> Tensor:
    """Einstein's summation: `einsum("bqhd,bkhd->bhqk", q, k)`.

    Arguments:
        formula: letters for the axes of each operand, `->`, the letters of the result (without `->`: those that occur
            once, in alphabetical order).
        operands: contracted from left to right.

    Raises:
        ShapeMismatch: the formula does not fit the operands.
    """
    inputs, arrow, output = formula.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if not arrow:
        output = "".join(sorted(c for c in set(inputs) - {","} if inputs.count(c) == 1))
    tensors = promoted(*operands)
    sizes: dict[str, int] = {}
    if len(terms) != len(tensors) or any(
        len(t) != x.ndim or len(set(t)) != len(t) for t, x in zip(terms, tensors, strict=False)
    ):
        shapes = ", ".join(str(t.shape) for t in tensors)
        raise ShapeMismatch(
            f"einsum: {formula!r} does not fit operands of shapes {shapes}; give one distinct letter for each axis"
        )
    for term, tensor in zip(terms, tensors, strict=True):
        for letter, size in zip(term, tensor.shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise ShapeMismatch(
                    f"einsum: {formula!r}: axis {letter} has size {sizes[letter]} and size {size}"
                )
    if not set(output) <= set(sizes) or len(set(output)) != len(output):
        raise ShapeMismatch(
            f"einsum: {formula!r}: the result names an axis twice, or one that no operand has"
        )
    term, tensor = terms[0], tensors[0]
    for index in range(1, len(terms)):
        later = set("".join(terms[index + 1 :])) | set(output)
        term, tensor = _contract(term, tensor, terms[index], tensors[index], later)
    gone = [term.index(c) for c in term if c not in output]
    if gone:
        tensor = _summed(tensor, tuple(gone))
    kept = "".join(c for c in term if c in output)
    return transpose(tensor, [kept.index(c) for c in output]) if output else tensor


def _summed(tensor: Tensor, axes: tuple[int, ...]) -> Tensor:
    """A sum in the type of a product: integers wrap around, as in `dot_general`."""
    return sum_(tensor, axes).astype(tensor.dtype)


def _contract(left: str, x: Tensor, right: str, y: Tensor, later: set[str]) -> tuple[str, Tensor]:
    """One product of two operands, summed over the letters that nothing later needs."""
    for term, other in ((left, right), (right, left)):
        alone = tuple(term.index(c) for c in term if c not in other and c not in later)
        if alone and term is left:
            x, left = _summed(x, alone), "".join(c for c in left if c in other or c in later)
        elif alone:
            y, right = _summed(y, alone), "".join(c for c in right if c in other or c in later)
    shared = [c for c in left if c in right]
    summed, together = [c for c in shared if c not in later], [c for c in shared if c in later]
    contract = [left.index(c) for c in summed], [right.index(c) for c in summed]
    batch = [left.index(c) for c in together], [right.index(c) for c in together]
    rest = [c for c in left if c not in shared] + [c for c in right if c not in shared]
    return "".join(together + rest), dot_general(x, y, contract, batch)


Axes = tuple[int, ...]


def _factors(primal: Primal, g: Tensor) -> list[Cotangent]:
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
        product = _product(primal, y, g, (other[0], tuple(range(batch))), (other_free, tuple(theirs)))
    else:
        order = (*own[0], *own_free, *kept)
        product = _product(primal, g, y, (tuple(range(batch)), other[0]), (tuple(theirs), other_free))
    return convert(transpose(product, inverse(order)) if order else product, x.dtype)


def _product(
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


def _by_einsum(primal: Primal) -> Sequence[Tensor]:
    return [einsum(string_of(primal.op.attributes["einsum_config"]), *primal.inputs)]


def _batched_dot(batched: Batched) -> list[Tensor]:
    numbers = dimension_numbers(str(batched.op.attributes["dot_dimension_numbers"]))
    axes = [
        [numbers.get(f"{side}_{kind}_dimensions", ()) for kind in ("batching", "contracting")]
        for side in ("lhs", "rhs")
    ]
    both = all(batched.flags)
    for side, flag in zip(axes, batched.flags, strict=True):
        if flag:
            side[:] = [tuple(axis + 1 for axis in kind) for kind in side]
        if both:
            side[0] = (0, *side[0])
    (left_batch, left_contract), (right_batch, right_contract) = axes
    text = (
        f"#stablehlo.dot<lhs_batching_dimensions = {list(left_batch)}, rhs_batching_dimensions = {list(right_batch)}, "
        f"lhs_contracting_dimensions = {list(left_contract)}, rhs_contracting_dimensions = {list(right_contract)}>"
    )
    # The axis of samples of one side alone is the first of its free axes.
    place = 0 if both else len(left_batch)
    if not batched.flags[0]:
        place += len(batched.spec(0).shape) - len(left_batch) - len(left_contract)
    (spec,) = batched.specs
    shape = (*spec.shape[:place], batched.size, *spec.shape[place:])
    operands = [batched.operand(0), batched.operand(1)]
    (made,) = batched.clone_with(operands, {"dot_dimension_numbers": text}, [TensorSpec(shape, spec.dtype)])
    return [moveaxis(made, place, 0)]


def _dot_flops(op: ir.Operation) -> int:
    contracted = dimension_numbers(str(op.attributes["dot_dimension_numbers"]))
    shape = spec_of(op.operands[0].type).shape
    terms = math.prod(shape[axis] for axis in contracted.get("lhs_contracting_dimensions", ()))
    return 2 * spec_of(op.results[0].type).size * terms


declare(
    "dot_general",
    Kind.product,
    is_bilinear=True,
    flops=_dot_flops,
    functions=("dot_general",),
    derivative=_factors,
    batching=_batched_dot,
)
declare("einsum", Kind.product, derivative=Expansion(_by_einsum), batching=None)
