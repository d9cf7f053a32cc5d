"""Native products whose right operand is bound: a call of its own copies it into panels, which the bind stage makes once."""

import math
from collections.abc import Sequence

from pcp.ir import Builder, DType, Program, TensorSpec
from pcp.ir.bindings import context, ir
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.regions import block_operations
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.kernels.native import LIBRARIES
from pcp.kernels.native.building import build_here
from pcp.kernels.native.calling import call_build, target_of
from pcp.rewrite.binding import decided_values
from pcp.rewrite.regions import opened
from pcp.tensor import Tensor, building, current_builder

_LIBRARY = LIBRARIES["products"]
_FORMS = ("product_f32", "product_bf16", "product_int8", "product_of_bf16")
_NARROWER = "product_bf16"
"""Of one row the others read the right operand where it lies; this one has half as much to read."""
_COLUMNS = 32
"""Panels of all processors are as many columns wide, or a part of that."""


def with_kept_panels(program: Program, bound: Sequence[int]) -> Program:
    """A program in which native products copy right operands that bound arguments decide in calls of their own.

    Arguments:
        bound: the flat places of these arguments.
    """
    if b"pcp.product_" not in program.bytecode:
        return program
    module = opened(program)
    block = entry_block(module)
    decided, has_panels = decided_values(block, bound), False
    with context(), building(Builder(module, block)) as builder:
        for op in block_operations(block):
            if (
                decided.isdisjoint(op.results)
                and (form := _form_of(op)) is not None
                and op.operands[1] in decided
            ):
                with builder.before(op):
                    builder.pinned = op.location
                    _put(op, form)
                    builder.pinned = None
                has_panels = True
    return Program.from_module(module) if has_panels else program


def _form_of(op: ir.Operation) -> str | None:
    """The form of a native product whose right operand is worth being kept in panels; None of all else."""
    if op.name != "stablehlo.custom_call":
        return None
    name, digest = ir.StringAttr(op.attributes["call_target_name"]).value, build_here(_LIBRARY.name).digest
    form = next((form for form in _FORMS if name == target_of(form, digest)), None)
    if form is None:
        return None
    rows, columns, inner, *_ = _numbers(op, "sizes")
    return form if columns > 1 and inner and (rows > 1 or form == _NARROWER) else None


def _attributes(op: ir.Operation) -> ir.DictAttr:
    return ir.DictAttr(op.attributes["backend_config"])


def _numbers(op: ir.Operation, name: str) -> list[int]:
    return list(ir.DenseI64ArrayAttr(_attributes(op)[name]))


def _put(op: ir.Operation, form: str) -> None:
    """Let a product read panels that a call before it makes."""
    build, builder = build_here(_LIBRARY.name), current_builder()
    left, right, *more = (Tensor(value, builder) for value in op.operands)
    sizes, strides = _numbers(op, "sizes"), _numbers(op, "right_strides")
    _, columns, inner, *batch = sizes
    packed = TensorSpec((math.prod(batch), words_of(form, columns, inner)), DType.u32)
    attributes = {"sizes": [columns, inner, *batch], "strides": strides}
    (panels,) = call_build(build, f"keep_{form}", [right], [packed], attributes)
    kept: dict[str, float | Sequence[int]] = {
        "sizes": sizes,
        "left_strides": _numbers(op, "left_strides"),
        "right_strides": [],
    }
    kept |= {name: ir.IntegerAttr(_attributes(op)[name]).value for name in ("bias", "residual", "activation")}
    results = [spec_of(value.type) for value in op.results]
    for old, new in zip(
        op.results, call_build(build, f"kept_{form}", [left, panels, *more], results, kept), strict=True
    ):
        old.replace_all_uses_with(new.value)
    op.erase()


def words_of(form: str, columns: int, inner: int) -> int:
    """Words of the panels of a right operand, on any processor at most."""
    wide = -(-columns // _COLUMNS) * _COLUMNS
    match form:
        case "product_f32":
            return wide * inner
        case "product_int8":
            blocks = -(-inner // 128)  # each with two words for every column before its bytes
            return wide * blocks * (2 + 32)
    return wide * (-(-inner // 32) * 16)
