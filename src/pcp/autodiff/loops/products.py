"""Sums over the trips of a loop of products, taken after the loop as one product.

The gradient of a matrix that every trip multiplies by is a sum of one small product for each trip. When the factors are
stacked, it is one product that contracts the trips as well, which computers do several times as fast.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from pcp.ir import DType
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import integers_of
from pcp.ir.toolkit.dataflow import defining_op, has_single_use
from pcp.ir.toolkit.regions import returned_by
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.linear.dot_axes import DotAxes, led_by_first
from pcp.ops.movement import reshape, transpose
from pcp.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Product:
    """A product that every trip adds to a sum.

    Arguments:
        factors: which two of the factors that are stacked.
        axes: how the axes of the factors of one trip correspond.
        attributes: its other attributes.
        result: its element type.
        order: the transposition of it that is added, if any.
    """

    factors: tuple[int, int]
    axes: DotAxes
    attributes: dict[str, ir.Attribute]
    result: DType
    order: tuple[int, ...] | None

    def over_trips(self, left: Tensor, right: Tensor) -> Tensor:
        """The sum over all trips, from stacks of the factors."""
        axes = self.axes.behind_another(True, True)
        axes = replace(axes, contract=led_by_first(axes.contract))
        joined = len(axes.contract[0])
        leading = tuple(range(joined))
        if axes.contract == (leading, leading) and not axes.batch[0]:
            # As one axis they are contracted in place; several are first moved behind the others.
            left, right = (reshape(t, (prod(t.shape[:joined]), *t.shape[joined:])) for t in (left, right))
            axes = DotAxes(((0,), (0,)))
        product = axes.multiply(left, right, self.result, **self.attributes)
        return product if self.order is None else transpose(product, self.order)


def products_of(block: ir.Block, argument: Value, index: int, factors: list[Value]) -> list[Product]:
    """The products whose sum a block adds to an argument; empty if it does anything else, or the factors are too large.

    Arguments:
        block: a trip with its derivative.
        argument: a sum so far.
        index: which of the values that the block returns is the next one.
        factors: the values to stack so far, to which those of these products are added.
    """
    products, sides = [], []
    value = returned_by(block)[index]
    while value != argument:
        add = _only_use(value, "stablehlo.add")
        if add is None:
            return []
        left, right = add.operands
        product = _product(right, argument)
        value = left
        if product is None:
            product, value = _product(left, argument), right
        if product is None:
            return []
        products.append(product)
        sides += list(product[0].operands)
    # A factor is written and read once, a sum in every trip.
    new = {side for side in sides if side not in factors}
    if len(list(argument.uses)) != 1 or sum(_bytes(v) for v in new) * 2 > _bytes(argument) * len(products):
        return []
    factors += [side for side in dict.fromkeys(sides) if side in new]
    return [_described(dot, order, factors) for dot, order in products]


def _product(value: Value, argument: Value) -> tuple[ir.Operation, tuple[int, ...] | None] | None:
    if value == argument:
        return None
    dot = _only_use(value, "stablehlo.dot_general")
    if dot is not None:
        return dot, None
    moved = _only_use(value, "stablehlo.transpose")
    dot = None if moved is None else _only_use(moved.operands[0], "stablehlo.dot_general")
    return None if moved is None or dot is None else (dot, integers_of(moved.attributes["permutation"]))


def _described(dot: ir.Operation, order: tuple[int, ...] | None, factors: Sequence[Value]) -> Product:
    left, right = (list(factors).index(value) for value in dot.operands)
    others = {
        name: dot.attributes[name] for name in ("precision_config", "algorithm") if name in dot.attributes
    }
    return Product((left, right), DotAxes.of(dot), others, spec_of(dot.results[0].type).dtype, order)


def _only_use(value: Value, name: str) -> ir.Operation | None:
    """The operation of that name that makes a value which is used once."""
    op = defining_op(value)
    return op if op is not None and op.name == name and has_single_use(value) else None


def _bytes(value: Value) -> int:
    return spec_of(value.type).bytes


def stack_from_outside(block: ir.Block, value: Value, trips: int) -> Value | None:
    """The tensor from outside whose rows, trip for trip, are a value of a block."""
    op = defining_op(value)
    if op is None or op.name != "stablehlo.reshape":
        return None
    read = defining_op(op.operands[0])
    if read is None or read.name != "stablehlo.dynamic_slice":
        return None
    stack, first, *_ = read.operands
    shape, rows = spec_of(stack.type).shape, spec_of(read.results[0].type).shape
    maker = defining_op(stack)
    inside = stack.owner == block if maker is None else maker.block == block
    # Along an axis of which all is read a start has no effect.
    whole = shape[0] == trips and rows == (1, *shape[1:]) and spec_of(value.type).shape == shape[1:]
    return stack if whole and not inside and first == block.arguments[0] else None
