"""How many floating-point operations an operation takes, from its shapes alone."""

from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.tensor_types import spec_if_tensor
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
    spec = spec_if_tensor(value.type)
    return spec.size if spec else 0  # a token
