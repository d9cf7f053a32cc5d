"""How many floating-point operations an operation takes, from its shapes alone."""

from pcp.ir import InvalidProgram, UnknownDType
from pcp.ir.bindings import Value, ir
from pcp.ir.program import spec_of
from pcp.ops.record import RECORDS, Cost

_UNCOUNTED = (Cost.free, Cost.move, Cost.heavy_move)
"""What moves, names or draws data computes nothing that is counted."""


def flops_of(op: ir.Operation) -> int:
    """Floating-point operations of one operation; of a loop or a branch, one for each element of its results."""
    record = RECORDS.get(op.name)
    if record is not None and record.flops is not None:
        return record.flops(op)
    return 0 if record is not None and record.cost in _UNCOUNTED else sum(map(_size, op.results))


def _size(value: Value) -> int:
    try:
        return spec_of(value.type).size
    except (InvalidProgram, UnknownDType):  # a token
        return 0
