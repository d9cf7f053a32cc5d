"""A program whose largest and smallest elements are NaN where an element is, also where a compiler would forget that.

On processors XLA gives reductions of a few thousand elements and more to YNNPACK, whose maximum and minimum leave out NaN
(jaxlib 0.10.2: `jax.jit(jnp.max)` of 10,000 numbers and a NaN is a number). StableHLO's propagate it. YNNPACK takes only
a reduction whose body is that one operation, so here the body chooses NaN itself, which changes no number.
"""

from pcp.ir import DType, Program, TensorSpec
from pcp.ir.bindings import Value, context, ir
from pcp.ir.toolkit.tensor_types import mlir_type, spec_of

_EXTREMES = ("stablehlo.maximum", "stablehlo.minimum")


def with_propagated_nan(program: Program) -> Program:
    """The program with bodies that choose NaN in every reduction of floats to the largest or smallest element.

    Those of 16-bit floats are computed in f32, which is exact: XLA's own loops over bfloat16 take ten times as long.

    Arguments:
        program: any Program; it stays as it is.
    """
    module = program.module()
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "stablehlo.reduce" and _is_extreme_of_floats(op):
            found.append(op)
        return ir.WalkResult.ADVANCE

    with context():
        module.operation.walk(visit)
        for op in found:
            with op.location, ir.InsertionPoint(op):
                op.results[0].replace_all_uses_with(_propagating(op))
            op.erase()
    return Program.from_module(module) if found else program


def _is_extreme_of_floats(op: ir.Operation) -> bool:
    names = [inner.operation.name for inner in op.regions[0].blocks[0].operations]
    return (
        len(op.results) == 1
        and names[0] in _EXTREMES
        and names[1:] == ["stablehlo.return"]
        and spec_of(op.results[0].type).dtype.is_float
    )


def _propagating(op: ir.Operation) -> Value:
    """The same reduction, before it; NaN where an element is."""
    given = spec_of(op.results[0].type)
    dtype = DType.f32 if given.dtype.itemsize < 4 else given.dtype
    scalar = mlir_type(TensorSpec((), dtype))
    reduced = ir.Operation.create(
        op.name,
        [mlir_type(TensorSpec(given.shape, dtype))],
        [_converted(operand, dtype) for operand in op.operands],
        {"dimensions": op.attributes["dimensions"]},
        regions=1,
    )
    block = reduced.regions[0].blocks.append(scalar, scalar)
    left, right = block.arguments
    with ir.InsertionPoint(block):
        combine = op.regions[0].blocks[0].operations[0].operation.name
        extreme = _made(combine, scalar, left, right)
        truth = mlir_type(TensorSpec((), DType.bool))
        direction = ir.Attribute.parse("#stablehlo<comparison_direction NE>")
        is_nan = _made("stablehlo.compare", truth, left, left, comparison_direction=direction)
        chosen = _made("stablehlo.select", scalar, is_nan, left, extreme)
        ir.Operation.create("stablehlo.return", [], [chosen])
    return _converted(reduced.results[0], given.dtype)


def _converted(value: Value, dtype: DType) -> Value:
    given = spec_of(value.type)
    return (
        value
        if given.dtype == dtype
        else _made("stablehlo.convert", mlir_type(TensorSpec(given.shape, dtype)), value)
    )


def _made(name: str, type_: ir.Type, *operands: Value, **attributes: ir.Attribute) -> Value:
    result: Value = ir.Operation.create(name, [type_], operands, attributes).results[0]
    return result
