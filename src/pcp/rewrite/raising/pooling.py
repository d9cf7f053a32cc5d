"""The largest number of each window of images becomes `pcp.max_pool`, so that its gradient is one operation.

Operand: x, whose first axis is that of samples, the last that of features, with two between them along which windows slide.
Attributes, each a number for either of these two: `sizes` of a window, `strides` between windows, and `before`: how many rows
and columns of the first window are not there. The function is the matched form itself, so no number changes.
"""

import math

from pcp.ir.bindings import ir
from pcp.ir.composites.records import MAX_POOL
from pcp.ir.toolkit.attributes import integer_elements, integers_of
from pcp.ir.toolkit.regions import combiner
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.rewrite.outline import outlined
from pcp.rewrite.row import Effect, Row
from pcp.rewrite.view import View
from pcp.tensor import Tensor


def raise_max_pool(op: ir.Operation) -> list[Tensor] | None:
    """The maximum over windows that slide along the two axes in the middle."""
    spec = spec_of(op.operands[0].type)
    if len(op.results) != 1 or len(spec.shape) != 4 or not spec.dtype.is_float or 0 in spec.shape:
        return None
    if combiner(op.regions[0]) != "maximum" or View.of(op.operands[1]).number() != -math.inf:
        return None
    windows = {name: integers_of(op.attributes[name]) for name in _ONES if name in op.attributes}
    sizes, strides, *dilations = (windows.get(name) or (1,) * 4 for name in _ONES)
    flat = integer_elements(op.attributes["padding"]) if "padding" in op.attributes else (0,) * 8
    apart = {*dilations[0], *dilations[1], *sizes[::3], *strides[::3]}
    if apart != {1} or any((*flat[:2], *flat[6:])) or sizes == (1,) * 4:
        return None
    attributes = {"sizes": sizes[1:3], "strides": strides[1:3], "before": tuple(flat[2:6:2])}
    return outlined(MAX_POOL, op, [op.operands[0]], attributes)


_ONES = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
"""Attributes that are 1 along every axis where they are not given."""
RAISE_MAX_POOL = Row("raise_max_pool", "stablehlo.reduce_window", Effect.exact, raise_max_pool)
