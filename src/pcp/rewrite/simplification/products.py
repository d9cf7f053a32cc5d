"""Products of tensors: transposes before and after them become part of them.

XLA folds a transpose of a result into the product by exchanging the operands, after it has chosen how products run; done here
first, a product is known as the one that runs.
"""

from dataclasses import dataclass
from typing import Any

from pcp.ir import TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import dimension_numbers
from pcp.ir.toolkit.dataflow import has_single_use
from pcp.ops.elementwise import negate
from pcp.rewrite.pattern import defined_by, numbers, spec, tensor
from pcp.rewrite.row import Effect, Row
from pcp.rewrite.simplification.reshaping import Found
from pcp.tensor import Tensor, emit

Axes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Dot:
    """The axes of a product, each kind for the left and the right operand."""

    contract: tuple[Axes, Axes]
    batch: tuple[Axes, Axes]
    free: tuple[Axes, Axes]

    @staticmethod
    def of(op: ir.Operation) -> "_Dot":
        fields = dimension_numbers(str(op.attributes["dot_dimension_numbers"]))

        def axes(kind: str) -> tuple[Axes, Axes]:
            return fields.get(f"lhs_{kind}_dimensions", ()), fields.get(f"rhs_{kind}_dimensions", ())

        contract, batch = axes("contracting"), axes("batching")
        ranks = [len(spec(value).shape) for value in op.operands]
        left, right = (
            tuple(axis for axis in range(ranks[side]) if axis not in (*contract[side], *batch[side]))
            for side in (0, 1)
        )
        return _Dot(contract, batch, (left, right))

    def emit(self, x: Tensor, y: Tensor, like: ir.Operation, exchanged: bool = False) -> Tensor:
        """The product of x and y as precise as another one, whose operands stand the other way round if `exchanged`."""
        shape = (
            *(x.shape[axis] for axis in self.batch[0]),
            *(x.shape[axis] for axis in self.free[0]),
            *(y.shape[axis] for axis in self.free[1]),
        )
        attributes: dict[str, Any] = {
            "dot_dimension_numbers": f"#stablehlo.dot<lhs_batching_dimensions = {list(self.batch[0])}, "
            f"rhs_batching_dimensions = {list(self.batch[1])}, "
            f"lhs_contracting_dimensions = {list(self.contract[0])}, "
            f"rhs_contracting_dimensions = {list(self.contract[1])}>"
        }
        if "precision_config" in like.attributes:
            entries = list(ir.ArrayAttr(like.attributes["precision_config"]))
            attributes["precision_config"] = ir.ArrayAttr.get(entries[::-1] if exchanged else entries)
        if "algorithm" in like.attributes:
            attributes["algorithm"] = like.attributes["algorithm"]
        return emit("dot_general", (x, y), (TensorSpec(shape, spec(like.results[0]).dtype),), attributes)


def _transpose_of_dot(op: ir.Operation) -> Found:
    inner = defined_by(op.operands[0], "dot_general")
    if inner is None or "algorithm" in inner.attributes or not has_single_use(op.operands[0]):
        return None
    dot, order = _Dot.of(inner), numbers(op, "permutation")
    count, left = len(dot.batch[0]), len(dot.free[0])
    first, rest = order[:count], order[count:]
    lefts, rights = tuple(range(count, count + left)), tuple(range(count + left, len(order)))
    if sorted(first) != list(range(count)) or rest not in (lefts + rights, rights + lefts):
        return None
    exchanged = rest != lefts + rights
    one, other = (1, 0) if exchanged else (0, 1)
    turned = _Dot(
        (dot.contract[one], dot.contract[other]),
        (tuple(dot.batch[one][axis] for axis in first), tuple(dot.batch[other][axis] for axis in first)),
        (dot.free[one], dot.free[other]),
    )
    operands = tensor(inner.operands[one]), tensor(inner.operands[other])
    return [turned.emit(*operands, inner, exchanged)]


def _dot_of_transpose(op: ir.Operation) -> Found:
    """Batch axes stay where they are: moving one costs a copy wherever it is done."""
    dot, changed = _Dot.of(op), False
    operands: list[Tensor] = []
    contract: list[Axes] = []
    free: list[Axes] = []
    for side, operand in enumerate(op.operands):
        inner = defined_by(operand, "transpose")
        source = () if inner is None else numbers(inner, "permutation")
        moved = tuple(source[axis] for axis in dot.free[side]) if inner is not None else ()
        if inner is None or moved != tuple(sorted(moved)) or any(source[a] != a for a in dot.batch[side]):
            operands.append(tensor(operand))
            contract.append(dot.contract[side])
            free.append(dot.free[side])
            continue
        changed = True
        operands.append(tensor(inner.operands[0]))
        contract.append(tuple(source[axis] for axis in dot.contract[side]))
        free.append(moved)
    if not changed:
        return None
    absorbed = _Dot((contract[0], contract[1]), dot.batch, (free[0], free[1]))
    return [absorbed.emit(operands[0], operands[1], op)]


def _dot_of_negate(op: ir.Operation) -> Found:
    for side in (0, 1):
        inner = defined_by(op.operands[side], "negate")
        if inner is not None and spec(op.results[0]).size <= spec(op.operands[side]).size:
            operands = [tensor(value) for value in op.operands]
            operands[side] = tensor(inner.operands[0])
            return [negate(_Dot.of(op).emit(operands[0], operands[1], op))]
    return None


ROWS: tuple[Row, ...] = (
    Row(
        "transpose_of_dot", "stablehlo.transpose", Effect.exact, _transpose_of_dot
    ),  # transpose(a b) = transpose(b) transpose(a), as other axes of one product
    Row(
        "dot_of_transpose", "stablehlo.dot_general", Effect.exact, _dot_of_transpose
    ),  # transpose(a) b = the product over other axes of a
    Row(
        "dot_of_negate", "stablehlo.dot_general", Effect.reassociating, _dot_of_negate
    ),  # (-a) b = -(a b), but a sum of 0 keeps its sign
)
