"""Products of tensors: `dot_general`, which everything else is, and matmul and einsum on top of it."""

import math
from collections.abc import Sequence
from dataclasses import replace

from pcp.ir import DType, DTypeLike, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import string_of
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ir.types import dtype_of
from pcp.ops.batching import Batched
from pcp.ops.derivative import Cotangent, Expansion, Primal
from pcp.ops.elementwise import convert
from pcp.ops.linear.dot_axes import DotAxes, led_by_first
from pcp.ops.linear.formulas import parse_formula
from pcp.ops.movement import expand_dims, moveaxis, squeeze, transpose
from pcp.ops.movement.shape import inverse
from pcp.ops.promotion import broadcast_shape, promote, promoted
from pcp.ops.record import Kind, declare
from pcp.ops.reductions.primitives import sum_
from pcp.tensor import DTypeMismatch, ShapeMismatch, Tensor, TensorLike, export_operations, operation

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
    axes = DotAxes((tuple(contract[0]), tuple(contract[1])), (tuple(batch[0]), tuple(batch[1])))
    return axes.multiply(left, right, left.dtype if dtype is None else dtype_of(dtype))


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
        return squeeze(matmul(expand_dims(left, 0), right), -2)
    lead = broadcast_shape("matmul", left.shape[:-2], right.shape[:-2])
    left = left.broadcast_to((*lead, *left.shape[-2:]))
    right = right.broadcast_to((*lead, *right.shape[-2:]))
    together = tuple(range(len(lead)))
    return dot_general(left, right, ((left.ndim - 1,), (right.ndim - 2,)), (together, together))


@operation
def einsum(formula: str, *operands: TensorLike) -> Tensor:
    """Einstein's summation: `einsum("bqhd,bkhd->bhqk", q, k)`.

    Arguments:
        formula: letters for the axes of each operand, `->`, the letters of the result (without `->`: those that occur
            once, in alphabetical order). `...` stands for any number of axes, which broadcast; a letter twice in one
            operand for its diagonal.
        operands: contracted from left to right.

    Raises:
        ShapeMismatch: the formula does not fit the operands.
    """
    terms, output, tensors = parse_formula(formula, promoted(*operands))
    sizes: dict[str, int] = {}
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


def _factors(primal: Primal, g: Tensor) -> list[Cotangent]:
    """Each side is the product of the cotangent with the other side, over the free axes of that other side."""
    axes = DotAxes.of(primal.op)
    return [_side(primal, g, side, axes) if primal.active[side] else None for side in (0, 1)]


def _side(primal: Primal, g: Tensor, side: int, axes: DotAxes) -> Tensor:
    """The cotangent of the left operand, 0, or of the right, 1."""
    x, y = primal.input(side), primal.input(1 - side)
    batch, contract, free = axes.batch[side], axes.contract[side], axes.free(side, x.ndim)
    other_batch, other_contract = axes.batch[1 - side], axes.contract[1 - side]
    other_free = axes.free(1 - side, y.ndim)
    together = tuple(range(len(batch)))
    rest = range(len(batch), g.ndim)
    theirs = tuple(rest[len(free) :] if side == 0 else rest[: len(other_free)])
    # The axes of y that the product keeps come in their order in y; other_contract[k] is paired with contract[k].
    kept = tuple(contract[k] for k in sorted(range(len(contract)), key=other_contract.__getitem__))
    # Nothing is computed in a type of storage: the other side decides.
    stored = [t.dtype.kind == "storage" for t in (g, y)]
    dtype = (
        DType.f32
        if all(stored)
        else y.dtype
        if stored[0]
        else g.dtype
        if stored[1]
        else promote(g.dtype, y.dtype)
    )
    g, y = convert(g, dtype), convert(y, dtype)
    # An algorithm is one for certain element types.
    same = dtype is primal.input(0).dtype is primal.input(1).dtype
    names = ("precision_config", "algorithm") if same else ("precision_config",)
    precise = {name: primal.op.attributes[name] for name in names if name in primal.op.attributes}
    # Either order of the operands is right; the one whose result needs no transpose is taken.
    order = (*batch, *kept, *free)
    if order == tuple(range(x.ndim)):
        product = DotAxes((other_free, theirs), (other_batch, together)).multiply(y, g, dtype, **precise)
    else:
        order = (*batch, *free, *kept)
        product = DotAxes((theirs, other_free), (together, other_batch)).multiply(g, y, dtype, **precise)
    return convert(transpose(product, inverse(order)) if order else product, x.dtype)


def _by_einsum(primal: Primal) -> Sequence[Tensor]:
    return [einsum(string_of(primal.op.attributes["einsum_config"]), *primal.inputs)]


def _batched_dot(batched: Batched) -> list[Tensor]:
    axes = DotAxes.of(batched.op).behind_another(*batched.flags)
    left, right = batched.operand(0), batched.operand(1)
    if all(batched.flags):
        axes, place = replace(axes, batch=led_by_first(axes.batch)), 0
    else:
        # The axis of samples of one side alone is the first of its free axes.
        place = len(axes.batch[0]) + (0 if batched.flags[0] else len(axes.free(0, left.ndim)))
    spec = TensorSpec(axes.shape(left, right), batched.specs[0].dtype)
    (product,) = batched.clone_with([left, right], axes.attribute(), [spec])
    return [moveaxis(product, place, 0)]


def _dot_flops(op: ir.Operation) -> int:
    shape = spec_of(op.operands[0].type).shape
    terms = math.prod(shape[axis] for axis in DotAxes.of(op).contract[0])
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

export_operations(__name__)
