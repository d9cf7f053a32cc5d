"""Cosines and sines of the same angles, which a processor computes once.

XLA counts both as cheap, and fuses them into whatever reads them: rotary embeddings computed them anew for every head,
layer and gradient, and took most of their time for that. It does not fuse a condition, which here always holds.
"""

from pcp.ir import Builder, DType, Program
from pcp.ir.bindings import Value, context, ir
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ir.toolkit.walking import every_operation
from pcp.ops.control.branches import cond
from pcp.ops.elementwise import bitcast, bitwise_or, convert, cos, not_equal, sin
from pcp.ops.movement import reshape, slice_
from pcp.ops.record import Kind, kind_of
from pcp.tensor import Tensor, building

_LEAST = 1024
"""Functions of angles that are saved at least: some microseconds."""


def with_angles_kept(program: Program) -> Program:
    """The program, in which cosines and sines of the same angles stand in a condition, where they are read several times."""
    if b"cosine" not in program.bytecode:
        return program
    module = program.module()
    with context():
        pairs = [
            (op, sine)
            for op in every_operation(module.operation, lambda op: op.name == "stablehlo.cosine")
            if (sine := _sine_beside(op)) is not None and _is_read_often(op.results[0], sine.results[0])
        ]
        for pair in pairs:
            _write_condition(module, *pair)
    return Program.from_module(module) if pairs else program


def _sine_beside(cosine: ir.Operation) -> ir.Operation | None:
    """The sine of the same angles, in the same block."""
    users = (use.owner for use in cosine.operands[0].uses)
    sines = (op.operation for op in users if op.operation.name == "stablehlo.sine")
    return next((op for op in sines if op.block == cosine.block), None)


def _is_read_often(*values: Value) -> bool:
    """Whether other operations read so many numbers more than there are, once all are repeated as these need them."""
    size, read = sum(spec_of(value.type).size for value in values), 0
    waiting, seen = list(values), set(values)
    while waiting:
        value = waiting.pop()
        for use in value.uses:
            op = use.owner.operation
            if kind_of(op.name) is not Kind.movement:
                read += spec_of(value.type).size
            elif op.results[0] not in seen:
                seen.add(op.results[0])
                waiting.append(op.results[0])
    return read - size >= max(size, _LEAST)


def _write_condition(module: ir.Module, cosine: ir.Operation, sine: ir.Operation) -> None:
    builder = Builder(module, cosine.block)
    first = next(op.operation for op in cosine.block.operations if op.operation in (cosine, sine))
    with building(builder), builder.before(first), cosine.location:
        angles = Tensor(cosine.operands[0], builder)
        both = cond(_holds(angles), lambda x: (cos(x), sin(x)), lambda x: (x, x), angles)
        parts = [each.value for each in both]
    for op, value in zip((cosine, sine), parts, strict=True):
        op.results[0].replace_all_uses_with(value)
        op.erase()


def _holds(x: Tensor) -> Tensor:
    """True, computed from an element: its bits with the last one set are not zero."""
    element = reshape(slice_(x, [0] * x.ndim, [1] * x.ndim), ())
    return not_equal(bitwise_or(bitcast(convert(element, DType.f32), DType.i32), 1), 0)
