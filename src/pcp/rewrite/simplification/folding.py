"""Operations on constants are computed here, by those of NumPy that IEEE 754 defines to the last bit.

Exponentials and the like stay: every library rounds them in its own way. So do results of more than 1,024 different numbers,
because MLIR keeps every constant for ever. A tensor of one repeated number is folded at any size.
"""

from collections.abc import Callable

import numpy as np

from pcp.ir.bindings import ir
from pcp.ir.toolkit.constants import splat_number
from pcp.ops.record import RECORDS, Fold, Kind
from pcp.rewrite.pattern import (
    LARGEST_CONSTANT,
    defined_by,
    elements,
    filled,
    is_default_accuracy,
    spec,
)
from pcp.rewrite.row import Effect, Replace, Replacement, Row
from pcp.tensor import as_tensor


def _elementwise(compute: Fold) -> Replace:
    def replace(op: ir.Operation) -> Replacement:
        whole = spec(op.results[0])
        if any(
            defined_by(value, "constant", "broadcast_in_dim") is None for value in op.operands
        ) or not is_default_accuracy(op):
            return None
        values = [splat_number(value) for value in op.operands]
        if None not in values:
            arrays = [np.array(n, spec(v).dtype.numpy) for n, v in zip(values, op.operands, strict=True)]
        else:
            arrays = [array for value in op.operands if (array := elements(value)) is not None]
            if len(arrays) < len(op.operands):
                return None
        with np.errstate(all="ignore"):
            result = compute(op, *arrays)
        if result is None:
            return None
        result = np.asarray(result).astype(whole.dtype.numpy)
        return [as_tensor(result) if result.shape == whole.shape else filled(whole, result)]

    return replace


def _moving(compute: Fold) -> Replace:
    def replace(op: ir.Operation) -> Replacement:
        whole = spec(op.results[0])
        if any(defined_by(value, "constant", "broadcast_in_dim") is None for value in op.operands):
            return None
        values = [splat_number(value) for value in op.operands]
        if values[0] is not None and len(values) == 1 and spec(op.operands[0]).shape:
            return [filled(whole, values[0])]
        arrays = [array for value in op.operands if (array := elements(value)) is not None]
        if len(arrays) < len(op.operands) or whole.size > LARGEST_CONSTANT:
            return None
        result = compute(op, *arrays)
        return None if result is None else [as_tensor(np.ascontiguousarray(result).reshape(whole.shape))]

    return replace


def _rows(kind: Kind, folded: Callable[[Fold], Replace]) -> list[Row]:
    return [
        Row(f"fold_{name.removeprefix('stablehlo.')}", name, Effect.exact, folded(record.fold))
        for name, record in sorted(RECORDS.items())
        if record.kind is kind and record.fold is not None
    ]


# 2 + 3 = 5
ROWS: tuple[Row, ...] = (*_rows(Kind.elementwise, _elementwise), *_rows(Kind.movement, _moving))
