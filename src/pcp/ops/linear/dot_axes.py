"""The axes of a product of two tensors: those that are summed over, and those that run together."""

from dataclasses import dataclass
from typing import Any, Self

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import dimension_numbers
from pcp.tensor import Tensor, emit

Axes = tuple[int, ...]
Pair = tuple[Axes, Axes]
"""Axes of the left operand, and as many of the right."""


@dataclass(frozen=True, slots=True)
class DotAxes:
    """How the axes of the operands of `dot_general` correspond.

    The result has the axes that run together, then the free ones of the left operand, then those of the right.

    Arguments:
        contract: those that are summed over.
        batch: those that run together.
    """

    contract: Pair
    batch: Pair = ((), ())

    @classmethod
    def of(cls, op: ir.Operation) -> Self:
        """The axes of a `dot_general`."""
        numbers = dimension_numbers(str(op.attributes["dot_dimension_numbers"]))
        contract, batch = (
            (numbers.get(f"lhs_{kind}_dimensions", ()), numbers.get(f"rhs_{kind}_dimensions", ()))
            for kind in ("contracting", "batching")
        )
        return cls(contract, batch)

    def attribute(self) -> dict[str, str]:
        """The attribute of a `dot_general`, by its name."""
        fields = (
            f"{side}_{kind}_dimensions = {list(axes)}"
            for kind, pair in (("batching", self.batch), ("contracting", self.contract))
            for side, axes in zip(("lhs", "rhs"), pair, strict=True)
        )
        return {"dot_dimension_numbers": f"#stablehlo.dot<{', '.join(fields)}>"}

    def free(self, side: int, rank: int) -> Axes:
        """The other axes of the left (0) or the right (1) operand, of a rank."""
        return tuple(axis for axis in range(rank) if axis not in (*self.contract[side], *self.batch[side]))

    def shape(self, left: Tensor, right: Tensor) -> tuple[int, ...]:
        """The shape of the product."""
        together = [left.shape[axis] for axis in self.batch[0]]
        free = [t.shape[axis] for side, t in enumerate((left, right)) for axis in self.free(side, t.ndim)]
        return (*together, *free)

    def behind_another(self, left: bool, right: bool) -> Self:
        """The same for operands of which some have another axis in front."""

        def moved(pair: Pair) -> Pair:
            return tuple(axis + left for axis in pair[0]), tuple(axis + right for axis in pair[1])

        return type(self)(moved(self.contract), moved(self.batch))

    def multiply(self, left: Tensor, right: Tensor, dtype: DType, **attributes: Any) -> Tensor:
        """The product, as `dot_general` with further attributes."""
        spec = TensorSpec(self.shape(left, right), dtype)
        return emit("dot_general", (left, right), (spec,), {**self.attribute(), **attributes})


def led_by_first(pair: Pair) -> Pair:
    """Axes, and the first axis of either operand before them."""
    return (0, *pair[0]), (0, *pair[1])
