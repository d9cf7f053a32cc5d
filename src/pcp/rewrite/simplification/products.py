"""Products of tensors: transposes before and after them become part of them; convolutions become products where they can.

XLA folds a transpose of a result into the product by exchanging the operands, after it has chosen how products run; done here
first, a product is known as the one that runs.
"""

from typing import Any

from pcp.ir.bindings import ir
from pcp.ir.toolkit.dataflow import has_single_use
from pcp.ops.elementwise import negate
from pcp.ops.linear.dot_axes import Axes, DotAxes
from pcp.ops.windows.convolution_rules import Convolution, is_turned
from pcp.rewrite.pattern import defined_by, numbers, of, spec, tensor
from pcp.rewrite.row import Replacement, Row, exact, reassociating
from pcp.tensor import Tensor, emit


def product_like(axes: DotAxes, x: Tensor, y: Tensor, like: ir.Operation, exchanged: bool = False) -> Tensor:
    """The product of x and y as precise as another one, whose operands stand the other way round if `exchanged`."""
    attributes: dict[str, Any] = {}
    if "precision_config" in like.attributes:
        entries = list(ir.ArrayAttr(like.attributes["precision_config"]))
        attributes["precision_config"] = ir.ArrayAttr.get(entries[::-1] if exchanged else entries)
    if "algorithm" in like.attributes:
        attributes["algorithm"] = like.attributes["algorithm"]
    return axes.multiply(x, y, spec(like.results[0]).dtype, **attributes)


@of("dot_general")
def _transpose_of_dot(op: ir.Operation, inner: ir.Operation) -> Replacement:
    if "algorithm" in inner.attributes or not has_single_use(op.operands[0]):
        return None
    dot, order = DotAxes.of(inner), numbers(op, "permutation")
    count, left = len(dot.batch[0]), len(dot.free(0, len(spec(inner.operands[0]).shape)))
    first, rest = order[:count], order[count:]
    lefts, rights = tuple(range(count, count + left)), tuple(range(count + left, len(order)))
    if sorted(first) != list(range(count)) or rest not in (lefts + rights, rights + lefts):
        return None
    exchanged = rest != lefts + rights
    one, other = (1, 0) if exchanged else (0, 1)
    turned = DotAxes(
        (dot.contract[one], dot.contract[other]),
        (tuple(dot.batch[one][axis] for axis in first), tuple(dot.batch[other][axis] for axis in first)),
    )
    return [
        product_like(turned, tensor(inner.operands[one]), tensor(inner.operands[other]), inner, exchanged)
    ]


def _dot_of_transpose(op: ir.Operation) -> Replacement:
    """Batch axes stay where they are: moving one costs a copy wherever it is done."""
    dot, changed = DotAxes.of(op), False
    operands: list[Tensor] = []
    contract: list[Axes] = []
    for side, operand in enumerate(op.operands):
        inner = defined_by(operand, "transpose")
        source = () if inner is None else numbers(inner, "permutation")
        moved = [source[axis] for axis in dot.free(side, len(source))]
        if inner is None or moved != sorted(moved) or any(source[a] != a for a in dot.batch[side]):
            operands.append(tensor(operand))
            contract.append(dot.contract[side])
            continue
        changed = True
        operands.append(tensor(inner.operands[0]))
        contract.append(tuple(source[axis] for axis in dot.contract[side]))
    if not changed:
        return None
    return [product_like(DotAxes((contract[0], contract[1]), dot.batch), operands[0], operands[1], op)]


def _dot_of_negate(op: ir.Operation) -> Replacement:
    for side in (0, 1):
        inner = defined_by(op.operands[side], "negate")
        if inner is not None and spec(op.results[0]).size <= spec(op.operands[side]).size:
            operands = [tensor(value) for value in op.operands]
            operands[side] = tensor(inner.operands[0])
            return [negate(product_like(DotAxes.of(op), operands[0], operands[1], op))]
    return None


def _dot_over_one(op: ir.Operation) -> Replacement:
    dot, whole = DotAxes.of(op), spec(op.results[0])
    if (
        "algorithm" in op.attributes or whole.dtype.kind == "complex"
    ):  # a complex number is made of sums itself
        return None
    if any(spec(op.operands[0]).shape[axis] != 1 for axis in dot.contract[0]):
        return None
    batch, left = len(dot.batch[0]), len(dot.free(0, len(spec(op.operands[0]).shape)))
    factors = []
    for side, value in enumerate(op.operands):
        x, first = tensor(value), batch + left * side
        x, order = x.astype(whole.dtype), (*dot.batch[side], *dot.free(side, x.ndim))
        x = x.transpose(*order, *dot.contract[side]).reshape(*(x.shape[axis] for axis in order))
        places = (*range(batch), *range(first, first + x.ndim - batch))
        factors.append(emit("broadcast_in_dim", (x,), (whole,), {"broadcast_dimensions": places}))
    return [emit("multiply", tuple(factors)) + 0]  # a sum of -0 is 0


def _dot_of_convolution(op: ir.Operation) -> Replacement:
    if len({spec(value).dtype for value in (*op.operands, *op.results)}) > 1 or is_turned(op):
        return None
    attributes = {name: op.attributes[name] for name in ("precision_config",) if name in op.attributes}
    x, kernel = (tensor(value) for value in op.operands)
    form = Convolution.read(op).product(x, kernel, padded=False, **attributes)
    return None if form is None else [form()]


ROWS: tuple[Row, ...] = (
    # transpose(a b) = transpose(b) transpose(a), as other axes of one product
    exact("transpose_of_dot", "transpose", _transpose_of_dot),
    # transpose(a) b = the product over other axes of a
    exact("dot_of_transpose", "dot_general", _dot_of_transpose),
    # (-a) b = -(a b), but a sum of 0 keeps its sign
    reassociating("dot_of_negate", "dot_general", _dot_of_negate),
    # a product of real numbers that is summed over axes of one place is an outer product, added to 0
    exact("dot_over_one", "dot_general", _dot_over_one),
    # a convolution by a kernel of one place, at a single place, or of patches beside one another, is a product
    exact("dot_of_convolution", "convolution", _dot_of_convolution),
)
