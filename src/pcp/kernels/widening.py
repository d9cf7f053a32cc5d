"""Operations of bfloat16 or float16 numbers, as a model has them that was loaded so, for kernels that compute in float32.

The same operation of float32 numbers stands between conversions, which cost nothing where a kernel keeps its operands in
bfloat16 itself. What the operation rounds on its way is not rounded then.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pcp.ir import Builder, DType
from pcp.ir.bindings import Value, context, ir
from pcp.ir.composites import COMPOSITE, composite_name, decomposition_of, module_of, private_function
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.regions import block_operations, returned_by
from pcp.ir.toolkit.retyping import Copier
from pcp.ir.toolkit.tensor_types import mlir_type, spec_if_tensor, spec_of
from pcp.ir.types import TensorSpec
from pcp.kernels.regions import only_operation, region_of
from pcp.ops.elementwise import convert
from pcp.tensor import Tensor, building, current_builder

NARROW = frozenset((DType.bf16, DType.f16))
_OF_BITS = frozenset(("stablehlo.bitcast_convert", "stablehlo.custom_call"))
"""Operations that have no form of other numbers."""


def is_narrow(op: ir.Operation) -> bool:
    """Whether an operation takes or returns numbers of 16 bits, and has a form of float32 numbers."""
    specs = [spec_if_tensor(value.type) for value in (*op.operands, *op.results)]
    return (
        op.name not in _OF_BITS and None not in specs and any(spec and spec.dtype in NARROW for spec in specs)
    )


@dataclass(frozen=True, slots=True)
class Widened:
    """The same operation of float32 numbers, with what is read in the place of its results by what read the old ones.

    Arguments:
        op: the operation.
        narrow: its results in the element types of the old ones.
    """

    op: ir.Operation
    narrow: Sequence[Value]

    @classmethod
    def of(cls, old: ir.Operation) -> "Widened":
        """Put it where the builder stands; what took the old results takes the new ones."""
        builder = current_builder()
        widening = _Widening()
        widening.known = {value: _converted(Tensor(value, builder)) for value in old.operands}
        with old.location, builder.insertion:
            op = widening.operation(old)
        types = [spec_of(each.type).dtype for each in old.results]
        narrow = [
            convert(Tensor(each, builder), dtype).value for each, dtype in zip(op.results, types, strict=True)
        ]
        for before, after in zip(old.results, narrow, strict=True):
            before.replace_all_uses_with(after)
        return cls(op, narrow)

    @classmethod
    def alone(cls, old: ir.Operation) -> tuple[ir.Operation | None, ir.Module | None]:
        """The operation in a module of its own, which has to be kept as long as it is; None of one that is not narrow."""
        if not is_narrow(old):
            return None, None
        module = region_of(old).module()
        block = entry_block(module)
        inner = only_operation(block)
        with context(), building(Builder(module, block)) as builder, builder.before(inner):
            return cls.of(inner).op, module

    def replaced(self, results: Sequence[Tensor]) -> list[Tensor]:
        """Put tensors in the place of its results; what stands in the place of the old ones then."""
        builder = current_builder()
        for old, new in zip(self.op.results, results, strict=True):
            if old.type != new.value.type:
                return list(results)
            old.replace_all_uses_with(new.value)
        own: dict[Value, Tensor] = dict(zip(self.op.results, results, strict=True))
        return [own[value] if value in own else Tensor(value, builder) for value in self.narrow]


def _wide(type_: ir.Type) -> ir.Type:
    spec = spec_of(type_)
    return mlir_type(TensorSpec(spec.shape, DType.f32)) if spec.dtype in NARROW else type_


def _converted(x: Tensor) -> Value:
    return convert(x, DType.f32).value if x.dtype in NARROW else x.value


class _Widening(Copier):
    """A copy of an operation in wider types, what is in its regions and its function as well."""

    def __init__(self) -> None:
        super().__init__(_wide, ("stablehlo.constant",))

    def attributes(self, op: ir.Operation) -> dict[str, ir.Attribute]:
        """What the copy of an operation says; that of a composite has a function of wider types."""
        attributes = super().attributes(op)
        if op.name == COMPOSITE:
            function = decomposition_of(op).regions[0].blocks[0]

            def fill(block: ir.Block) -> list[Value]:
                inside = _Widening()
                inside.known.update(zip(function.arguments, block.arguments, strict=True))
                with ir.InsertionPoint(block):
                    for each in block_operations(function):
                        inside.operation(each)
                return [inside.known[value] for value in returned_by(function)]

            types = [_wide(value.type) for value in op.operands]
            symbol = private_function(module_of(op), composite_name(op), types, fill)
            attributes["decomposition"] = ir.FlatSymbolRefAttr.get(symbol)
        return attributes
