"""A composite as kernels see it, and what kernels of several families do with one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.composites import composite_name, known_attributes, primal_count
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.tensor import Tensor, current_builder


@dataclass(frozen=True, slots=True)
class Named:
    """What a composite computes, or the gradient of it.

    Arguments:
        name: of what is computed, without `pcp.` and `.vjp`.
        attributes: of `pcp.NAME`, with `wrt` and `added` if it is the gradient.
        operands: of `pcp.NAME`, shapes and element types.
        results: shapes and element types.
        further: operands of a gradient behind those: the cotangent, and what other uses gave.
    """

    name: str
    attributes: Mapping[str, Any]
    operands: tuple[TensorSpec, ...]
    results: tuple[TensorSpec, ...]
    further: tuple[TensorSpec, ...] = ()

    @classmethod
    def of(cls, op: ir.Operation) -> "Named":
        """The composite that an operation is."""
        attributes = known_attributes(op)
        operands, count = tuple(spec_of(value.type) for value in op.operands), primal_count(op)
        results = tuple(spec_of(value.type) for value in op.results)
        name = composite_name(op).removeprefix("pcp.").removesuffix(".vjp")
        return cls(name, attributes, operands[:count], results, operands[count:])

    @property
    def is_f32(self) -> bool:
        """Whether every floating-point number is a float32."""
        return all(
            spec.dtype is DType.f32
            for spec in (*self.operands, *self.further, *self.results)
            if spec.dtype.is_differentiable
        )

    def cotangents(self, op: ir.Operation, cotangents: Mapping[int, Tensor]) -> list[Tensor]:
        """The results of a gradient, from the cotangent of each operand: what other uses gave is added.

        Arguments:
            op: the composite.
            cotangents: by the place of their operand, of all in `wrt` at least.
        """
        operands = tensors(op)
        earlier = dict(zip(self.attributes["added"], operands[len(self.operands) + 1 :], strict=True))
        return [earlier[i] + cotangents[i] if i in earlier else cotangents[i] for i in self.attributes["wrt"]]


def tensors(op: ir.Operation) -> list[Tensor]:
    """The operands of an operation."""
    builder = current_builder()
    return [Tensor(value, builder) for value in op.operands]


def is_named(*names: str) -> Callable[[ir.Operation], bool]:
    """Whether an operation is a composite of one of these names."""
    return lambda op: composite_name(op) in names


def applies_to_f32(op: ir.Operation) -> bool:
    """Whether all floating-point numbers of a composite are float32."""
    return Named.of(op).is_f32


def total(parts: Sequence[Tensor]) -> Tensor:
    """The sum of tensors of one shape, of which there is one at least."""
    added = parts[0]
    for part in parts[1:]:
        added = added + part
    return added
