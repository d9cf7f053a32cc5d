"""Elementwise instructions that follow one another, run by one call of a native library where it is built."""

import ctypes
import functools
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from pcp.backends.arena.lowerings.elementwise import maximum, minimum
from pcp.backends.arena.storage import Instruction, View
from pcp.kernels.native import LIBRARIES, NativeUnavailable
from pcp.kernels.native.building import kept
from pcp.kernels.native.loading import opened
from pcp.kernels.native.permission import refusal

log = logging.getLogger("pcp.backends.arena")

_OPERATIONS: dict[Callable[..., object], int] = {
    np.add: 0, np.subtract: 1, np.multiply: 2, np.divide: 3, maximum: 4, minimum: 5,
    np.negative: 6, np.abs: 7, np.sqrt: 8, np.tanh: 9,
}  # fmt: skip
_TYPES = {np.dtype(np.float32): 0, np.dtype(np.float64): 1}
_TANH = 9
_STEP = np.dtype(
    [("operation", "i4"), ("type", "i4"), ("repeats", "i4"), ("unused", "i4"), ("count", "i8")]
    + [(name, "u8") for name in ("left", "right", "out")]
)
_LARGEST = 1 << 14
"""Elements up to which the calls of NumPy take longer than its loops, which are as fast."""


@functools.cache
def runner() -> Callable[[int, int], None] | None:
    """What runs a table of steps, from its address and their number; None where the library is not built or not allowed.

    It is never built here, because that takes seconds: `pcp kernels build` does it, and wheels bring it.
    """
    reason = refusal("steps")
    try:
        build = None if reason else kept(LIBRARIES["steps"])
        if build is None or refusal("steps", build.digest):
            log.info("small programs run by NumPy alone: %s", reason or "run `pcp kernels build`")
            return None
        function = opened(build).pcp_run_steps
    except NativeUnavailable as error:
        log.info("small programs run by NumPy alone: %s", error)
        return None
    function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_int64), None
    run: Callable[[int, int], None] = function
    return run


def runs_of(instructions: Sequence[Instruction]) -> Iterator[tuple[list[Instruction], bool]]:
    """The instructions in runs, in order, and whether the native library runs them.

    A single one is left to NumPy, which is as fast then, but not a hyperbolic tangent: of all operations its bits are not
    NumPy's, and they must not depend on what stands beside it.
    """
    waiting: list[Instruction] = []

    def pays() -> bool:
        return len(waiting) > 1 or waiting[0].function is np.tanh

    for each in instructions:
        if _is_native(each):
            waiting.append(each)
            continue
        if waiting:
            yield waiting, pays()
            waiting = []
        yield [each], False
    if waiting:
        yield waiting, pays()


def _is_native(instruction: Instruction) -> bool:
    code = _OPERATIONS.get(instruction.function)
    if code is None or not all(isinstance(each, View) for each in instruction.arguments):
        return False
    *operands, out = instruction.arguments
    kinds = {view.dtype for view in instruction.arguments}
    if len(kinds) != 1 or out.dtype not in _TYPES or (code == _TANH and out.dtype != np.float32):
        return False
    return (
        out.is_contiguous
        and 0 < out.size <= _LARGEST
        and all(_repeats(x) or (x.is_contiguous and x.shape == out.shape) for x in operands)
        and all(_is_apart(x, out) for x in operands)
    )


def _repeats(x: View) -> bool:
    """Whether one element stands for all."""
    return all(n == 1 or stride == 0 for n, stride in zip(x.shape, x.strides, strict=True))


def _is_apart(x: View, out: View) -> bool:
    """Whether the same elements are read and written at one place, or none are both."""
    return x.storage is not out.storage or (x.offset == out.offset and not _repeats(x)) or out.size == 1


class Table:
    """Steps as the native library reads them.

    Arguments:
        instructions: that follow one another.
        address: of the first element of a view; None for an array of the caller, which comes with each call.
    """

    def __init__(self, instructions: Sequence[Instruction], address: Callable[[View], int | None]) -> None:
        self.rows = np.zeros(len(instructions), _STEP)
        self.open: list[tuple[View, int, str]] = []
        """Views of arrays of the caller, with row and column of their address."""
        for row, each in enumerate(instructions):
            *operands, out = each.arguments
            entry: Any = self.rows[row]
            entry["operation"], entry["type"] = _OPERATIONS[each.function], _TYPES[out.dtype]
            entry["count"] = math.prod(out.shape)
            pair = (operands[0], operands[-1])
            entry["repeats"] = sum(bit for bit, x in zip((1, 2), pair, strict=True) if _repeats(x))
            for name, view in zip(("left", "right", "out"), (*pair, out), strict=True):
                place = address(view)
                if place is None:
                    self.open.append((view, row, name))
                else:
                    entry[name] = place
        self.arguments = (self.rows.ctypes.data, len(self.rows))
