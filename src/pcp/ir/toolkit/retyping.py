"""Operations copied with values of other element types: what they compute, their regions and their attributes stay."""

from collections.abc import Callable, Collection

from pcp.ir.bindings import Value, ir


class Copier:
    """Copies operations to where MLIR's insertion point is.

    Arguments:
        retyped: the type of what stands for a value of a type.
        as_written: names of operations that are copied in their own types, between conversions.

    Attributes:
        known: what stands for each value.
    """

    def __init__(self, retyped: Callable[[ir.Type], ir.Type], as_written: Collection[str]) -> None:
        self.retyped = retyped
        self._as_written = as_written
        self.known: dict[Value, Value] = {}

    def operation(self, op: ir.Operation) -> ir.Operation:
        """Copy one operation; values that stand for its results are known then."""
        operands = self.operands(op)
        if op.name in self._as_written:
            narrow = [converted(new, old.type) for new, old in zip(operands, op.operands, strict=True)]
            copy = op.clone()
            for index, value in enumerate(narrow):
                copy.operands[index] = value
        else:
            types = [self.retyped(result.type) for result in op.results]
            copy = ir.Operation.create(op.name, types, operands, self.attributes(op), regions=len(op.regions))
            self.regions(op, copy)
        for old, new in zip(op.results, copy.results, strict=True):
            self.known[old] = converted(new, self.retyped(old.type))
        return copy

    def operands(self, op: ir.Operation) -> list[Value]:
        """What the copy of an operation takes."""
        return [self.known[value] for value in op.operands]

    def attributes(self, op: ir.Operation) -> dict[str, ir.Attribute]:
        """What the copy of an operation says."""
        return {name: op.attributes[name] for name in op.attributes}

    def regions(self, op: ir.Operation, copy: ir.Operation) -> None:
        """Copy the regions of an operation into those of its copy, which are empty."""
        for old_region, new_region in zip(op.regions, copy.regions, strict=True):
            for old in old_region.blocks:
                new = new_region.blocks.append(*(self.retyped(argument.type) for argument in old.arguments))
                self.known.update(zip(old.arguments, new.arguments, strict=True))
                self.block(old, new)

    def block(self, old: ir.Block, new: ir.Block) -> None:
        """Copy all operations of a block to the end of another one."""
        with ir.InsertionPoint(new):
            for view in old.operations:
                self.operation(view.operation)


def converted(value: Value, type_: ir.Type) -> Value:
    """A value as one of a type."""
    if value.type == type_:
        return value
    result: Value = ir.Operation.create("stablehlo.convert", [type_], [value]).results[0]
    return result
