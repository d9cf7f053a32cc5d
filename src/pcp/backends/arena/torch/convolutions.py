"""Convolutions by torch, on the arrays as they lie; those that it does not know become products, as in the arena."""

from collections.abc import Sequence

import numpy as np
import torch

from pcp.backends.arena.lowerings.movement import padded
from pcp.backends.arena.lowerings.windows import LOWERINGS
from pcp.backends.arena.recording import Recorder
from pcp.backends.arena.storage import View
from pcp.backends.arena.torch.kernels import BFLOAT16, FLOATS, NARROW
from pcp.backends.arena.torch.providing import has_tensor
from pcp.backends.arena.torch.tensors import tensor_over
from pcp.ir.bindings import ir
from pcp.ops.windows.convolution_rules import Convolution, turned_in

RANKS = (1, 2, 3)
"""Numbers of spatial axes that torch has convolutions for."""


def convolution(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    """One call of torch, behind the padding if that is not the same on both sides, or lies between the elements."""
    conv, (x, kernel) = Convolution.read(op), operands
    layout, rank, out = conv.layout, len(x.shape) - 2, r.result(op)
    known = x.dtype == kernel.dtype and x.dtype in FLOATS and out.dtype in FLOATS
    if not (rank in RANKS and conv.batch_groups == 1 and known and x.size and kernel.size and out.size):
        return LOWERINGS["convolution"](r, op, operands)
    dtype = x.dtype if x.dtype in BFLOAT16 and out.dtype in BFLOAT16 else np.dtype(np.float32)
    dtype = dtype if {x.dtype, out.dtype} & NARROW else max(x.dtype, out.dtype)
    x, kernel = x.transposed(layout.x), kernel.transposed(layout.kernel)
    kernel = kernel.reversed([axis + 2 for axis in turned_in(op)])
    low, high = zip(*conv.padding, strict=True)
    base = conv.x_dilation
    if low != high or min(low) < 0 or max(base) > 1:
        zero = r.constant(np.zeros((), x.dtype))
        x = padded(r, x, zero, (0, 0, *low), (0, 0, *high), (0, 0, *(n - 1 for n in base)))
        low = (0,) * rank
    x, kernel = (
        each if each.dtype == dtype and has_tensor(each) else r.contiguous(each, dtype)
        for each in (x, kernel)
    )
    shown = out.transposed(layout.result)
    target = shown if out.dtype == dtype else r.new(shown.shape, dtype)
    r.emit(convolve, x, kernel, conv.strides, low, conv.kernel_dilation, conv.feature_groups, target)
    r.instructions[-1].over = tensor_over
    if target is not shown:
        r.copy_narrowed(target, shown)
    return [out]


def convolve(
    x: torch.Tensor,
    kernel: torch.Tensor,
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilations: tuple[int, ...],
    groups: int,
    out: torch.Tensor,
) -> None:
    """What torch computes lies in memory of its own and is copied: it has no form that writes to an array that is given."""
    convolved = torch.ops.aten.convolution(
        x, kernel, None, strides, padding, dilations, False, (0,) * len(strides), groups
    )
    out.copy_(convolved)
