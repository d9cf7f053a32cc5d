"""A program as IREE compiles it right: forms that it refuses or gets wrong are written otherwise."""

from dataclasses import replace

from pcp.backends.iree.bounds import with_bounds
from pcp.backends.iree.copies import with_own_arrays
from pcp.backends.iree.overlapping import writes_a_part, written_from_a_copy
from pcp.backends.iree.rounding import is_read_unrounded, rounded
from pcp.backends.iree.sorting import with_order_of_equals
from pcp.backends.iree.widening import chosen_numbers, widened_without_sign, widens_booleans, widens_unsigned
from pcp.backends.rewritten import Applies, Form, rewrite_each
from pcp.backends.whole_powers import with_whole_powers
from pcp.ir import DType, Program, TensorSpec
from pcp.ir.bindings import context, ir, run_passes
from pcp.ir.signature import describe_signature
from pcp.ir.toolkit.attributes import integers_of
from pcp.ir.toolkit.functions import main_of
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ir.toolkit.walking import named_operations
from pcp.ops.elementwise import bitcast, convert, exp, sign, where
from pcp.ops.movement import flip, zeros
from pcp.ops.record import is_bilinear
from pcp.tensor import Tensor, current_builder


def with_safe_forms(program: Program) -> Program:
    """The same program for IREE 3.13: every operation in the form of its row of `_FORMS`, indices and integers within
    bounds, and nothing donated.

    IREE gives results that are equal one memory, as all moments of a fresh optimizer are. It would write a result into
    an argument that is donated to it, and so into the other arrays that lie there.
    """
    program = with_whole_powers(program)
    module = program.module()
    with context():
        if named_operations(module.operation, "stablehlo.dynamic_update_slice"):
            run_passes(module, "builtin.module(cse)")  # what reads equal values reads one, in IREE
    changed = any(entry.alias is not None for entry in program.arguments)
    with context():
        if changed:
            kept = [replace(entry, alias=None) for entry in program.arguments]
            trees = program.argument_tree, program.result_tree
            describe_signature(main_of(module), kept, program.results, *trees)
        changed = with_bounds(module) or changed
        changed = with_order_of_equals(module) or changed
        changed = with_own_arrays(module) or changed
        for applies, form in _FORMS:
            changed = rewrite_each(module, applies, form) or changed
    return Program.from_module(module) if changed else program


def _sums_nothing(op: ir.Operation) -> bool:
    return (
        op.name in ("stablehlo.dot_general", "stablehlo.convolution")
        and spec_of(op.results[0].type).size > 0
        and any(spec_of(operand.type).size == 0 for operand in op.operands)
    )


def _zeros(op: ir.Operation, *_: Tensor) -> Tensor:
    spec = spec_of(op.results[0].type)
    return zeros(spec.shape, spec.dtype)


def _sums_in_16_bits(op: ir.Operation) -> bool:
    return (
        is_bilinear(op.name)
        and len(op.results) == 1
        and spec_of(op.results[0].type).dtype in (DType.bf16, DType.f16)
    )


def _summed_in_f32(op: ir.Operation, *operands: Tensor) -> Tensor:
    narrow, builder = spec_of(op.results[0].type), current_builder()
    attributes = {name: op.attributes[name] for name in op.attributes if name != "algorithm"}
    wide = TensorSpec(narrow.shape, DType.f32)
    sums = builder.emit(op.name, [each.value for each in operands], [wide], attributes)
    return convert(Tensor(sums.results[0], builder), narrow.dtype)


def _sums_negated(op: ir.Operation) -> bool:
    """Whether it is a sum, from zero, of elements of which each is the negative of a number."""
    if op.name != "stablehlo.reduce" or len(op.results) != 1:
        return False
    names = [inner.operation.name for inner in op.regions[0].blocks[0].operations]
    elements, start = (operand.owner for operand in op.operands)
    return (
        names == ["stablehlo.add", "stablehlo.return"]
        and spec_of(op.results[0].type).dtype.is_float
        and isinstance(elements, ir.OpView | ir.Operation)
        and elements.name == "stablehlo.negate"
        and isinstance(start, ir.OpView | ir.Operation)
        and start.name == "stablehlo.constant"
        and "dense<0.0" in str(start.attributes["value"])
    )


def _negated_sum(op: ir.Operation, *_: Tensor) -> Tensor:
    summed = op.clone().operation
    summed.operands[0] = op.operands[0].owner.operands[0]
    return -Tensor(summed.results[0], current_builder())


def _adds_booleans(op: ir.Operation) -> bool:
    return op.name == "stablehlo.add" and spec_of(op.results[0].type).dtype is DType.bool


def _either(_op: ir.Operation, x: Tensor, y: Tensor) -> Tensor:
    return x | y


def _reverses_unsigned(op: ir.Operation) -> bool:
    return op.name == "stablehlo.reverse" and spec_of(op.results[0].type).dtype.kind == "unsigned"


def _reversed_as_signed(op: ir.Operation, x: Tensor) -> Tensor:
    turned = flip(bitcast(x, x.dtype.replace("u", "i")), integers_of(op.attributes["dimensions"]))
    return bitcast(turned, x.dtype)


def _is_wide_tanh(op: ir.Operation) -> bool:
    return op.name == "stablehlo.tanh" and spec_of(op.results[0].type).dtype is DType.f64


def _tanh_by_exponential(_op: ir.Operation, x: Tensor) -> Tensor:
    """To some roundings of float64: with `e = exp(-2 |x|)` it is `sign(x) * (1 - e) / (1 + e)`.

    Near zero, where that cancels, it is the continued fraction `x / (1 + x² / (3 + x² / (5 + ...)))`.
    """
    size, square = abs(x), x * x
    e = exp(-(size + size))
    divisor = square / 17.0 + 15.0
    for number in range(13, 0, -2):
        divisor = square / divisor + float(number)
    return where(size < 0.5, x / divisor, sign(x) * ((1.0 - e) / (1.0 + e)))


_FORMS: tuple[tuple[Applies, Form], ...] = (
    (writes_a_part, written_from_a_copy),  # it overwrites what it reads
    (widens_unsigned, widened_without_sign),  # products read them as signed
    (widens_booleans, chosen_numbers),  # products refuse them
    (_sums_nothing, _zeros),  # it refuses products over axes of size 0
    (_sums_in_16_bits, _summed_in_f32),  # IREE sums products in the type of the result
    (
        _sums_negated,
        _negated_sum,
    ),  # fused into a reduction by subtraction, for which it finds no neutral element
    (_adds_booleans, _either),  # it wraps around
    (_reverses_unsigned, _reversed_as_signed),  # it refuses them
    (_is_wide_tanh, _tanh_by_exponential),  # its library for compiled code has none
    (is_read_unrounded, rounded),  # of bfloat16, between operations that it fuses
)
"""Which operations are written otherwise, and how; with what IREE would make of them."""
