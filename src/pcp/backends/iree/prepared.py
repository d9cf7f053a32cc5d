"""A program as IREE compiles it right: forms that it refuses or gets wrong are written otherwise."""

from collections.abc import Callable

import numpy as np

from pcp.backends.iree.bounds import with_bounds
from pcp.backends.iree.copies import with_own_arrays
from pcp.backends.iree.overlapping import writes_a_part, written_from_a_copy
from pcp.backends.iree.rounding import is_read_unrounded, rounded
from pcp.backends.iree.sorting import with_order_of_equals
from pcp.backends.iree.widening import chosen_numbers, widened_without_sign, widens_booleans, widens_unsigned
from pcp.backends.whole_powers import with_whole_powers
from pcp.ir import DType, Program, TensorSpec
from pcp.ir.bindings import Value, context, ir, run_passes
from pcp.ir.builder import dense
from pcp.ir.toolkit.functions import main_of
from pcp.ir.toolkit.tensor_types import mlir_type, spec_of
from pcp.ir.toolkit.walking import every_operation, named_operations
from pcp.ops.record import is_bilinear


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
            main = main_of(module)
            kept = []
            for facts in map(ir.DictAttr, ir.ArrayAttr(main.attributes["arg_attrs"])):
                named = [facts[number] for number in range(len(facts))]
                kept.append(
                    ir.DictAttr.get(
                        {each.name: each.attr for each in named if each.name != "tf.aliasing_output"}
                    )
                )
            main.attributes["arg_attrs"] = ir.ArrayAttr.get(kept)
        changed = with_bounds(module) or changed
        changed = with_order_of_equals(module) or changed
        changed = with_own_arrays(module) or changed
        for applies, written in _FORMS:
            for op in every_operation(module.operation, applies):
                with op.location, ir.InsertionPoint(op):
                    op.results[0].replace_all_uses_with(written(op))
                op.erase()
                changed = True
    return Program.from_module(module) if changed else program


def _sums_nothing(op: ir.Operation) -> bool:
    return (
        op.name in ("stablehlo.dot_general", "stablehlo.convolution")
        and spec_of(op.results[0].type).size > 0
        and any(spec_of(operand.type).size == 0 for operand in op.operands)
    )


def _zeros(op: ir.Operation) -> Value:
    spec = spec_of(op.results[0].type)
    return _constant(op.results[0].type, dense(np.zeros(spec.shape, spec.dtype.numpy), spec))


def _sums_in_16_bits(op: ir.Operation) -> bool:
    return (
        is_bilinear(op.name)
        and len(op.results) == 1
        and spec_of(op.results[0].type).dtype in (DType.bf16, DType.f16)
    )


def _summed_in_f32(op: ir.Operation) -> Value:
    narrow = op.results[0].type
    wide = mlir_type(TensorSpec(spec_of(narrow).shape, DType.f32))
    attributes = {name: op.attributes[name] for name in op.attributes if name != "algorithm"}
    sums = ir.Operation.create(op.name, [wide], list(op.operands), attributes)
    return _made("convert", narrow, sums.results[0])


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


def _negated_sum(op: ir.Operation) -> Value:
    summed = op.clone().operation
    summed.operands[0] = op.operands[0].owner.operands[0]
    return _made("negate", op.results[0].type, summed.results[0])


def _adds_booleans(op: ir.Operation) -> bool:
    return op.name == "stablehlo.add" and spec_of(op.results[0].type).dtype is DType.bool


def _either(op: ir.Operation) -> Value:
    return _made("or", op.results[0].type, *op.operands)


def _reverses_unsigned(op: ir.Operation) -> bool:
    return op.name == "stablehlo.reverse" and spec_of(op.results[0].type).dtype.kind == "unsigned"


def _reversed_as_signed(op: ir.Operation) -> Value:
    spec = spec_of(op.results[0].type)
    signed = mlir_type(TensorSpec(spec.shape, DType(spec.dtype.replace("u", "i"))))
    operand = _made("bitcast_convert", signed, *op.operands)
    attributes = {name: op.attributes[name] for name in op.attributes}
    turned = ir.Operation.create(op.name, [signed], [operand], attributes)
    return _made("bitcast_convert", op.results[0].type, turned.results[0])


def _is_wide_tanh(op: ir.Operation) -> bool:
    return op.name == "stablehlo.tanh" and spec_of(op.results[0].type).dtype is DType.f64


def _tanh_by_exponential(op: ir.Operation) -> Value:
    """To some roundings of float64: with `e = exp(-2 |x|)` it is `sign(x) * (1 - e) / (1 + e)`.

    Near zero, where that cancels, it is the continued fraction `x / (1 + x² / (3 + x² / (5 + ...)))`.
    """
    (x,), kind = op.operands, op.results[0].type
    size, square = _made("abs", kind, x), _made("multiply", kind, x, x)
    e = _made("exponential", kind, _made("negate", kind, _made("add", kind, size, size)))
    one = _number(kind, 1.0)
    ratio = _made("divide", kind, _made("subtract", kind, one, e), _made("add", kind, one, e))
    divisor = _number(kind, 17.0)
    for number in range(15, 0, -2):
        divisor = _made("add", kind, _number(kind, float(number)), _made("divide", kind, square, divisor))
    is_near = ir.Operation.create(
        "stablehlo.compare",
        [mlir_type(TensorSpec(spec_of(kind).shape, DType.bool))],
        [size, _number(kind, 0.5)],
        {"comparison_direction": ir.Attribute.parse("#stablehlo<comparison_direction LT>")},
    ).results[0]
    near, far = _made("divide", kind, x, divisor), _made("multiply", kind, _made("sign", kind, x), ratio)
    return _made("select", kind, is_near, near, far)


def _number(kind: ir.Type, number: float) -> Value:
    return _constant(kind, ir.DenseElementsAttr.get_splat(kind, ir.FloatAttr.get_f64(number)))


def _constant(kind: ir.Type, value: ir.Attribute) -> Value:
    constant: Value = ir.Operation.create("stablehlo.constant", [kind], attributes={"value": value}).results[
        0
    ]
    return constant


def _made(name: str, kind: ir.Type, *operands: Value) -> Value:
    value: Value = ir.Operation.create(f"stablehlo.{name}", [kind], list(operands)).results[0]
    return value


_FORMS: tuple[tuple[Callable[[ir.Operation], bool], Callable[[ir.Operation], Value]], ...] = (
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
