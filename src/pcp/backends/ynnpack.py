"""Reductions that XLA gives to YNNPACK on processors, which gets some of them wrong, and takes long for others.

Its maximum and minimum of a few thousand elements and more leave out NaN (jaxlib 0.10.2: `jax.jit(jnp.max)` of 10,000
numbers and a NaN is a number). StableHLO's propagate it. YNNPACK takes only a reduction whose body is that one operation, so
here the body chooses NaN itself, which changes no number. That takes twice as long, so what is only taken off its own elements
before the sum of their exponentials, as in softmax, stays as it is: that sum is NaN without it.

Sums over the first axes of an array with many columns, as of the gradient of a bias of logits, it copies into another order
first (a sum over 512 rows of 30,522 columns takes 72 ms of CPU time, the product with a vector of ones 2 ms). Such a sum is
written as that product. Of few columns, and along the last axis, YNNPACK is the faster one.
"""

from pcp.backends.rewritten import rewrite_each
from pcp.ir import DType, Program, TensorSpec
from pcp.ir.bindings import Value, context, ir
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.elementwise import convert, where
from pcp.ops.linear.products import dot_general
from pcp.ops.movement import ones, reshape
from pcp.rewrite.pattern import numbers
from pcp.rewrite.vanishing.sums import is_sum
from pcp.tensor import Tensor, current_builder

WIDE = 16384
"""Columns from which on a product is faster than a sum."""
_EXTREMES = ("stablehlo.maximum", "stablehlo.minimum")


def with_propagated_nan(program: Program) -> Program:
    """The program with bodies that choose NaN in every reduction of floats to the largest or smallest element.

    Those of 16-bit floats are computed in f32, which is exact: XLA's own loops over bfloat16 take ten times as long.
    """
    module = program.module()
    with context():
        has_extremes = rewrite_each(module, _forgets_nan, _propagating)
    return Program.from_module(module) if has_extremes else program


def _forgets_nan(op: ir.Operation) -> bool:
    if op.name != "stablehlo.reduce" or not _is_extreme_of_floats(op):
        return False
    return not _is_shift_of_exponentials(op)


def _is_extreme_of_floats(op: ir.Operation) -> bool:
    names = [inner.operation.name for inner in op.regions[0].blocks[0].operations]
    return (
        len(op.results) == 1
        and names[0] in _EXTREMES
        and names[1:] == ["stablehlo.return"]
        and spec_of(op.results[0].type).dtype.is_float
    )


_SAME_ELEMENTS = (
    "stablehlo.reshape",
    "stablehlo.broadcast_in_dim",
    "stablehlo.transpose",
    "stablehlo.convert",
    "stablehlo.optimization_barrier",
)


def _is_shift_of_exponentials(op: ir.Operation) -> bool:
    """Whether a NaN among the elements reaches all that the extreme reaches, whatever the extreme is.

    It does where the extreme, or a number in its place where it is not finite, is taken off the elements, their exponentials
    are summed along the same axes, and the extreme itself is at most added to the logarithm of that sum.
    """
    values, summed = [op.results[0]], False
    for value in values:  # grows
        for use in value.uses:
            user = use.owner
            place = use.operand_number
            is_chosen = user.name == "stablehlo.select" and place == 1
            is_bounded = user.name in _EXTREMES and _made_by(user.operands[1 - place]) == "stablehlo.constant"
            if user.name in _SAME_ELEMENTS or is_chosen or is_bounded:
                values.append(user.results[0])
            elif user.name == "stablehlo.subtract" and place == 1:
                if _origin(user.operands[0]) != _origin(op.operands[0]) or not _are_summed(
                    user.results[0], op
                ):
                    return False
                summed = True
            elif user.name == "stablehlo.add":
                if _made_by(user.operands[1 - place]) != "stablehlo.log":
                    return False
            elif user.name != "stablehlo.is_finite" or not _only_selects(user.results[0]):
                return False
    return summed


def _are_summed(shifted: Value, op: ir.Operation) -> bool:
    """Whether exponentials are summed along the axes of a reduction, and otherwise only divided and multiplied."""
    exponentials = [use.owner.results[0] for use in shifted.uses if use.owner.name == "stablehlo.exponential"]
    return any(
        use.owner.name == "stablehlo.reduce"
        and use.owner.attributes["dimensions"] == op.attributes["dimensions"]
        and use.owner.regions[0].blocks[0].operations[0].operation.name == "stablehlo.add"
        for each in exponentials
        for use in each.uses
    )


def _only_selects(truth: Value) -> bool:
    """Whether truth values only choose between others, also repeated along axes."""
    values = [truth]
    for value in values:  # grows
        for use in value.uses:
            if use.owner.name in _SAME_ELEMENTS:
                values.append(use.owner.results[0])
            elif use.owner.name != "stablehlo.select" or use.operand_number != 0:
                return False
    return True


def _made_by(value: Value) -> str:
    """The operation whose elements a value has; none of a block's argument."""
    owner = _origin(value).owner
    return owner.name if isinstance(owner, ir.OpView | ir.Operation) else ""


def _origin(value: Value) -> Value:
    """The value that another is made of by moving or converting its elements."""
    while isinstance(value.owner, ir.OpView | ir.Operation) and value.owner.name in _SAME_ELEMENTS:
        value = value.owner.operands[0]
    return value


def _propagating(op: ir.Operation, x: Tensor, start: Tensor) -> Tensor:
    """The same reduction; NaN where an element is."""
    spec = spec_of(op.results[0].type)
    dtype = DType.f32 if spec.dtype.itemsize < 4 else spec.dtype
    scalar, extreme = TensorSpec((), dtype), op.regions[0].blocks[0].operations[0].operation.name
    builder = current_builder()
    reduced = builder.emit(
        op.name,
        [convert(x, dtype).value, convert(start, dtype).value],
        [TensorSpec(spec.shape, dtype)],
        {"dimensions": op.attributes["dimensions"]},
        regions=1,
    )
    with builder.region(reduced, 0, (scalar, scalar)) as (first, second):
        left = Tensor(first, builder)
        either = Tensor(builder.emit(extreme, [first, second], [scalar]).results[0], builder)
        builder.emit("stablehlo.return", [where(left != left, left, either).value], ())
    return convert(Tensor(reduced.results[0], builder), spec.dtype)


def with_wide_sums_as_products(program: Program) -> Program:
    """The program, in which sums of f32 over the first axes are products with ones, where what is left is wide."""
    if b"reduce" not in program.bytecode:
        return program
    module = program.module()
    with context():
        has_sums = rewrite_each(module, _is_wide, _product)
    return Program.from_module(module) if has_sums else program


def _is_wide(op: ir.Operation) -> bool:
    if op.name != "stablehlo.reduce" or not is_sum(op):
        return False
    axes, result = sorted(numbers(op, "dimensions")), spec_of(op.results[0].type)
    rows = spec_of(op.operands[0].type).size // max(1, result.size)
    return result.dtype is DType.f32 and result.size >= WIDE and rows > 1 and axes == list(range(len(axes)))


def _product(op: ir.Operation, x: Tensor, _: Tensor) -> Tensor:
    result = spec_of(op.results[0].type)
    rows = reshape(x, (x.size // result.size, result.size))
    return reshape(dot_general(ones((rows.shape[0],), result.dtype), rows, ((0,), (0,))), result.shape)
