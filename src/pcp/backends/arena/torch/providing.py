"""Which instructions of a recording torch runs: the ones in its table, on types and views that it takes."""

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp.backends.arena.storage import Instruction, View
from pcp.backends.arena.torch import kernels
from pcp.backends.arena.torch.kernels import KERNELS, REDUCED, Kernel
from pcp.backends.arena.torch.tensors import tensor_over


def provide(instructions: Sequence[Instruction]) -> int:
    """Hand the instructions that torch takes over to it, in loops and branches, too.

    Returns:
        How many these are; the others stay with NumPy and the native library.
    """
    count = 0
    for each in instructions:
        count += sum(provide(body) for body in each.arguments if isinstance(body, list))
        kernel = KERNELS.get(inspect.unwrap(each.function))  # torch takes no memory on the way
        if kernel is not None and _takes(kernel, each):
            each.function, each.over = kernel.function, tensor_over
            count += 1
    return count


def _takes(kernel: Kernel, instruction: Instruction) -> bool:
    views = [(place, each) for place, each in enumerate(instruction.arguments) if isinstance(each, View)]
    apart = dict(kernel.apart)
    dtypes = {view.dtype for place, view in views if place not in apart}
    if len(dtypes) > 1 or not dtypes <= kernel.types:
        return False
    if not all(view.dtype in apart.get(place, kernel.types) and has_tensor(view) for place, view in views):
        return False
    (written,) = instruction.writes
    out = instruction.arguments[written]
    operands = [view for place, view in views if place != written]
    if any(view.storage is out.storage and view != out for view in operands):
        return False  # NumPy copies what it would overwrite; torch refuses
    if not kernel.is_elementwise:
        return not isinstance(instruction.arguments[0], np.ufunc) or _reduces(instruction)
    least = min(_least(view.dtype) for _, view in views)
    # Torch would make the result smaller where NumPy repeats one element.
    whole = (
        instruction.function is np.copyto or np.broadcast_shapes(*(x.shape for x in operands)) == out.shape
    )
    return bool(out.size >= max(1, least) and whole)


def _least(dtype: "np.dtype[Any]") -> int:
    return kernels.NARROW_LEAST if dtype in kernels.NARROW else kernels.LEAST


def _reduces(instruction: Instruction) -> bool:
    """Along neighbours it is faster; else NumPy is, which adds row to row, but for types of few bits."""
    ufunc, x, axes, _ = instruction.arguments
    if ufunc not in REDUCED or not axes or not x.size:
        return False
    nearest = min((stride for n, stride in zip(x.shape, x.strides, strict=True) if n > 1), default=0)
    along_neighbours = any(x.strides[axis] == nearest for axis in axes)
    return along_neighbours or x.dtype in kernels.NARROW or x.dtype.itemsize == 1


def has_tensor(view: View) -> bool:
    """Whether torch has an array of the same strides: whole elements, forwards."""
    item = view.dtype.itemsize
    return all(stride >= 0 and stride % item == 0 for stride in view.strides)
