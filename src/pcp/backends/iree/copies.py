"""Arrays of their own: IREE 3.13 writes blocks, and sorts, into arrays, arguments among them, that others read later.

Of every other element of an array of 64-bit elements that it computes for others, too, it takes the wrong ones.
"""

from pcp.ir import Builder
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import integers_of
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ir.toolkit.walking import every_operation
from pcp.ops.movement import concatenate, flip, pad, slice_
from pcp.tensor import Tensor, building

SAME_MEMORY = ("reshape", "bitcast_convert", "transpose", "broadcast_in_dim", "optimization_barrier")
"""Operations whose result may lie where their operand does."""
_PASSING_ON = ("while", "case", "if", "composite")
"""Operations whose result may be an array that lives on."""
_WRITING = {"stablehlo.dynamic_update_slice": (0,), "stablehlo.sort": None}
"""Operations that IREE lets write into an operand: which of them, or all."""


def with_own_arrays(module: ir.Module) -> bool:
    """Let operations write into copies of what others read; returns whether there are any.

    A copy is turned around twice. IREE makes equal copies one again, so in between each is longer by another number.
    """
    writing = every_operation(module.operation, lambda op: op.name in _WRITING or _skips_wide_elements(op))
    count = 0
    for op in writing:
        places = _WRITING.get(op.name, (0,)) or range(len(op.operands))
        for place in places:
            if is_read_elsewhere(op.operands[place]):
                count += 1
                op.operands[place] = _copied(module, op, op.operands[place], count)
    return count > 0


def _skips_wide_elements(op: ir.Operation) -> bool:
    if op.name != "stablehlo.slice" or spec_of(op.results[0].type).dtype.bits < 64:
        return False
    return any(step > 1 for step in integers_of(op.attributes["strides"]))


def is_read_elsewhere(value: Value) -> bool:
    """Whether a value may lie in memory that something else reads, too."""
    while True:
        owner = value.owner
        if len(list(value.uses)) > 1:
            return True
        if isinstance(owner, ir.Block):
            return owner.owner.name == "func.func"
        name = owner.name.removeprefix("stablehlo.")
        if name not in SAME_MEMORY:
            return name in _PASSING_ON or owner.name == "func.call"
        value = owner.operands[0]


def _copied(module: ir.Module, op: ir.Operation, value: Value, number: int) -> Value:
    builder = Builder(module, ir.InsertionPoint(op).block)
    with building(builder), builder.before(op), op.location, ir.InsertionPoint(op):
        x = Tensor(value, builder)
        if not x.size:
            return value
        flat = x.reshape((x.size,))
        is_complex = x.dtype.kind == "complex"  # which IREE cannot pad
        longer = concatenate([flat] * (number + 1), 0) if is_complex else pad(flat, [(0, number)])
        backwards = slice_(flip(longer, 0), [longer.size - x.size], [longer.size])
        return flip(backwards, 0).reshape(x.shape).value
