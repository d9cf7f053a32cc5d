"""Products: everything becomes one product of matrices, or of a batch of them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp.backends.arena.recording import Lowering, Recorder
from pcp.backends.arena.storage import View
from pcp.ir.bindings import ir
from pcp.ops.linear.dot_axes import DotAxes

Array = np.ndarray[Any, Any]


def computing_type(*dtypes: "np.dtype[Any]") -> "np.dtype[Any]":
    """The type in which products are computed: float32 for narrower floats, which BLAS does not know."""
    widest = max(dtypes, key=lambda dtype: dtype.itemsize)
    narrow = widest.kind == "V" or widest == np.float16
    return np.dtype(np.float32) if narrow else widest


def matrix_product(r: Recorder, x: View, y: View, out: View) -> None:
    """`out = x @ y` for arrays of one or more axes in front, all the same; `out` may have another type."""
    dtypes = {x.dtype, y.dtype, out.dtype}
    dtype = x.dtype if len(dtypes) == 1 and dtypes <= r.narrow else computing_type(*dtypes)
    if dtype.kind not in "fc" and out.dtype.kind in "fc":
        dtype = out.dtype
    x, y = (_for_blas(r, each, dtype) for each in (x, y))
    direct = out.dtype == dtype and out.is_contiguous
    target = out if direct else r.new(out.shape, dtype)
    if not x.shape[-1]:
        r.emit(np.copyto, target, r.constant(np.zeros((), dtype)), writes=(0,))
    elif math.prod(x.shape[:-2]) == 1:
        flat = [each.reshaped(each.shape[-2:]) for each in (x, y, target)]
        r.emit(np.matmul, *flat)
    else:
        r.emit(np.matmul, x, y, target)
    if not direct:
        r.copy_narrowed(target, out)


def _for_blas(r: Recorder, x: View, dtype: "np.dtype[Any]") -> View:
    """An operand whose matrices BLAS reads where they lie: rows, or columns, of neighbours; else a copy."""
    if x.dtype != dtype:
        return r.contiguous(x, dtype)
    if x.is_contiguous:
        return x
    item, (rows, columns), (down, across) = dtype.itemsize, x.shape[-2:], x.strides[-2:]
    by_rows = across == item and down % item == 0 and down >= columns * item
    by_columns = down == item and across % item == 0 and across >= rows * item
    return x if by_rows or by_columns else r.contiguous(x)


def _dot_general(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    axes, (x, y) = DotAxes.of(op), operands
    batch, summed = axes.batch, axes.contract
    free = [axes.free(side, len(each.shape)) for side, each in enumerate(operands)]
    b = [x.shape[a] for a in batch[0]]
    m, n = [x.shape[a] for a in free[0]], [y.shape[a] for a in free[1]]
    k = math.prod(x.shape[a] for a in summed[0])
    left = r.reshaped(x.transposed([*batch[0], *free[0], *summed[0]]), (math.prod(b), math.prod(m), k))
    right = r.reshaped(y.transposed([*batch[1], *summed[1], *free[1]]), (math.prod(b), k, math.prod(n)))
    out = r.result(op)
    product = out.reshaped((math.prod(b), math.prod(m), math.prod(n)))
    assert product is not None
    matrix_product(r, left, right, product)
    return [out]


def _einsum(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    formula = ir.StringAttr(op.attributes["einsum_config"]).value
    out = r.result(op)
    dtype = computing_type(out.dtype)

    def compute(x: Array, y: Array, out: Array) -> None:
        np.einsum(formula, x, y, out=out)

    direct = out.dtype == dtype
    target = out if direct else r.new(out.shape, dtype)
    r.emit(compute, *(x if x.dtype == dtype else r.contiguous(x, dtype) for x in operands), target)
    if not direct:
        r.copy_narrowed(target, out)
    return [out]


LOWERINGS: dict[str, Lowering] = {"dot_general": _dot_general, "einsum": _einsum}
