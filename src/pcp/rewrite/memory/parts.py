"""A batch computed in parts, one after another: gradient accumulation of a finished program, whoever made it.

What depends on examples alone is computed in a loop over parts of the batch; sums over examples are added up from part to part;
what is made of these sums, as the update of a training step, comes after the loop. Only the values of one part are alive at a
time. No operation is done twice. Sums are added up in another order.
"""

from pcp.autodiff.rematerialisation.emission import zeros_after
from pcp.ir import Builder, DType, Program, Role
from pcp.ir.bindings import Value, context, ir, run_passes
from pcp.ir.composites import open_composites
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.editing import erase_dead
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import flatten, inline_calls
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.control.loops import fori_loop
from pcp.ops.elementwise import convert
from pcp.ops.indexing.blocks import dynamic_update_slice
from pcp.ops.movement import zeros
from pcp.rewrite.memory.axes import cut_of
from pcp.rewrite.memory.copies import Copies
from pcp.rewrite.memory.cutting import Cutting
from pcp.rewrite.memory.named import NamedCuts
from pcp.tensor import Tensor, building, current_builder


def flat_module(program: Program) -> ir.Module:
    """A program without calls and composites."""
    module = program.module()
    inline_calls(module)
    flatten(module)
    erase_dead(entry_block(module))
    return module


def in_parts(program: Program, parts: int, named: bool = False) -> Program | None:
    """The program that computes its batch in equal parts.

    Arguments:
        program: any Program. Its batch are those inputs of one size along their first axes by which most of it is cut.
        parts: how many.
        named: whether composites stay named where one can stand for each part; else all are written out.

    Returns:
        None if nothing in it can be computed in so many parts.
    """
    if not named:
        return _divided(program, flat_module(program), parts)
    module = program.module()
    inline_calls(module)
    with context():
        return _divided(program, module, parts, named=True)


def _divided(program: Program, module: ir.Module, parts: int, named: bool = False) -> Program | None:
    block = entry_block(module)
    inputs: dict[int, dict[Value, int]] = {}
    for entry, value in zip(program.arguments, block.arguments, strict=True):
        shape = entry.spec.shape
        if entry.role is not Role.state and shape and shape[0] and shape[0] % parts == 0:
            inputs.setdefault(shape[0], {})[value] = 0
    rules = [NamedCuts(module) for _ in inputs]
    cuttings = [
        (Cutting(block, seeds, parts, rule if named else cut_of), rule.refused)
        for seeds, rule in zip(inputs.values(), rules, strict=True)
    ]
    if not cuttings:
        return None
    cutting, refused = max(cuttings, key=lambda each: (each[0].bytes, len(each[1])))
    if refused:
        del cutting, cuttings
        open_composites(module, lambda op: op not in refused)
        return _divided(program, module, parts, named)
    if not cutting.cuts:
        return None
    with context(), ir.Location.unknown():
        builder = Builder(module, block)
        builder.pinned = ir.Location.unknown()
        with building(builder):
            write_in_parts(cutting, builder)
    erase_dead(block)
    if named:
        run_passes(module, "builtin.module(symbol-dce)")
    return Program.from_module(module)


def write_in_parts(cutting: Cutting, builder: Builder, front: Value | None = None) -> None:
    """Put a loop over the parts in the place of the operations that are cut.

    Arguments:
        front: before which there need not be what parts are put into; a compiler makes that early otherwise, and keeps it.
    """
    anchor = cutting.cuts[0][0]
    place = {op: index for index, op in enumerate(cutting.operations)}
    for op in cutting.needed_before():
        if place[op] > place[anchor]:
            op.move_before(anchor)
    leaving = cutting.leaving
    adds_to = {op.results[0]: op.operands[cut.adds_to] for op, cut in cutting.cuts if cut.adds_to is not None}
    with builder.before(anchor):
        begin = [
            Tensor(adds_to[value], builder)
            if value in adds_to
            else _zeros(front, *_carried(value, value in cutting.axes))
            for value in leaving
        ]

        def body(index: Tensor, carried: list[Tensor]) -> list[Tensor]:
            begun = dict(zip(leaving, carried, strict=True))
            part = Copies(cutting, builder, index, begun, {})
            return [_carried_on(cutting, part, index, value, begun[value]) for value in leaving]

        carried_out = fori_loop(0, cutting.parts, body, begin)
        ends = [
            convert(tensor, spec_of(value.type).dtype)
            for value, tensor in zip(leaving, carried_out, strict=True)
        ]
    for value, tensor in zip(leaving, ends, strict=True):
        value.replace_all_uses_with(tensor.value)
    for op, _ in reversed(cutting.cuts):
        op.erase()


def _zeros(front: Value | None, shape: tuple[int, ...], dtype: DType) -> Tensor:
    return (
        zeros(shape, dtype) if front is None else zeros_after(Tensor(front, current_builder()), shape, dtype)
    )


def _carried(value: Value, is_cut: bool) -> tuple[tuple[int, ...], DType]:
    """Shape and element type of what a loop carries for a value: sums of short numbers are added up in float32."""
    spec = spec_of(value.type)
    short = not is_cut and spec.dtype in (DType.bf16, DType.f16)
    return spec.shape, DType.f32 if short else spec.dtype


def _carried_on(cutting: Cutting, part: Copies, index: Tensor, value: Value, before: Tensor) -> Tensor:
    """What the loop carries of a value after a part."""
    piece, axis = Tensor(part.of(value), current_builder()), cutting.axes.get(value)
    if axis is not None:
        start = [index * piece.shape[i] if i == axis else 0 for i in range(piece.ndim)]
        return dynamic_update_slice(before, piece, start)
    op = defining_op(value)
    adds_itself = any(op == each and cut.adds_to is not None for each, cut in cutting.cuts)
    return piece if adds_itself else before + convert(piece, before.dtype)
