"""Composites in parts: the same composite for one part, whose function is narrowed as operations in a loop are.

It stays named, so kernels are chosen for it. A composite whose parts differ in more than what they read is written out instead.
"""

from collections.abc import Mapping

from pcp.ir import Builder
from pcp.ir.bindings import Value, ir
from pcp.ir.composites import COMPOSITE, composite_name, decomposition_of, private_function
from pcp.ir.toolkit.attributes import symbol_name
from pcp.ir.toolkit.editing import taken_out
from pcp.ir.toolkit.inlining import names_functions
from pcp.ir.toolkit.tensor_types import mlir_type, spec_of
from pcp.rewrite.memory.axes import Axes, Cut, cut_of
from pcp.rewrite.memory.copies import Copies, NeedsPlace, narrowed
from pcp.rewrite.memory.cutting import Cutting
from pcp.tensor import building


class _IsWhole(Exception):
    """A function that is not computed in parts."""


class NamedCuts:
    """How the operations of a module are cut, composites among them; their narrowed functions are added to the module.

    Arguments:
        module: without calls.

    Attributes:
        refused: the composites that were found not to be computed in parts.
    """

    def __init__(self, module: ir.Module) -> None:
        self._module = module
        self._known: dict[tuple[str, tuple[int | None, ...], int], Cut | None] = {}
        self.refused: set[ir.Operation] = set()

    def __call__(self, op: ir.Operation, along: Axes, parts: int) -> Cut | None:
        """As `cut_of`."""
        cut = self._cut(op, along, parts)
        if cut is None and op.name == COMPOSITE:
            self.refused.add(op)
        return cut

    def _cut(self, op: ir.Operation, along: Axes, parts: int) -> Cut | None:
        if op.name != COMPOSITE:
            return cut_of(op, along, parts)
        if names_functions(op):
            return None
        function = decomposition_of(op)
        key = symbol_name(function), tuple(along), parts
        if key not in self._known:
            self._known[key] = self._of(op, function, along, parts)
        return self._known[key]

    def _of(self, op: ir.Operation, function: ir.Operation, along: Axes, parts: int) -> Cut | None:
        operands = list(along)
        arguments = list(function.regions[0].blocks[0].arguments)
        for _ in range(len(operands)):
            if any(
                axis is not None and spec_of(value.type).shape[axis] % parts
                for value, axis in zip(arguments, operands, strict=True)
            ):
                return None
            try:
                symbol, results = self._narrowed(composite_name(op), function, operands, parts)
            except _IsWhole:
                return None
            except _NeedsOperand as needed:
                operands[needed.place] = needed.axis
            else:
                return Cut(tuple(operands), results, function=symbol)
        return None

    def _narrowed(
        self, name: str, function: ir.Operation, axes: Axes, parts: int
    ) -> tuple[str, tuple[int | None, ...]]:
        """Add the function for one part; its symbol, and along which axes its results are cut.

        Raises:
            _IsWhole: it is not computed in parts.
            _NeedsOperand: an operand that is given whole has to be cut.
        """
        wide = [value.type for value in function.regions[0].blocks[0].arguments]
        results: list[int | None] = []

        def fill(block: ir.Block) -> list[Value]:
            arguments = list(block.arguments)
            builder = Builder(self._module, block)
            builder.pinned = ir.Location.unknown()
            whole = [
                value if axis is None else block.add_argument(kind, ir.Location.unknown())
                for value, axis, kind in zip(arguments, axes, wide, strict=True)
            ]
            with building(builder):
                returned = builder.inline(function, whole)
                end = builder.emit("func.return", returned, ())
                with builder.before(end):
                    values = self._copied(
                        builder, block, dict(zip(whole, arguments, strict=True)), axes, parts, results
                    )
            for place, value in enumerate(values):
                end.operands[place] = value
            return taken_out(block, len(arguments))

        types = [
            kind if axis is None else mlir_type(narrowed(spec_of(value.type), axis, parts))
            for value, kind, axis in zip(function.regions[0].blocks[0].arguments, wide, axes, strict=True)
        ]
        return private_function(self._module.operation, name, types, fill), tuple(results)

    def _copied(
        self,
        builder: Builder,
        block: ir.Block,
        pieces: Mapping[Value, Value],
        axes: Axes,
        parts: int,
        results: list[int | None],
    ) -> list[Value]:
        """Write what one part computes behind what the whole does; what it returns."""
        seeds = {value: axis for value, axis in zip(pieces, axes, strict=True) if axis is not None}
        cutting = Cutting(block, seeds, parts, self._cut)
        sums = {
            op.results[i] for op, cut in cutting.cuts for i, axis in enumerate(cut.results) if axis is None
        }
        is_known = all(value in cutting.axes or value in sums for value in cutting.returned)
        if not is_known or any(cut.adds_to is not None for _, cut in cutting.cuts):
            raise _IsWhole
        known: dict[tuple[Value, int | None], Value] = {
            (value, axis): pieces[value] for value, axis in seeds.items()
        }
        try:
            part = Copies(cutting, builder, None, {}, known)
        except NeedsPlace as needed:
            operands = list(pieces)
            if needed.value in operands:
                raise _NeedsOperand(operands.index(needed.value), needed.axis) from None
            raise _IsWhole from None
        results[:] = [cutting.axes.get(value) for value in cutting.returned]
        return [part.of(value) for value in cutting.returned]


class _NeedsOperand(Exception):
    """An operand that is given whole has to be cut.

    Arguments:
        place: of the operand, and `axis` along which.
    """

    def __init__(self, place: int, axis: int) -> None:
        super().__init__()
        self.place, self.axis = place, axis
