"""Cross entropy of the product that makes the logits, without logits: neither the loss nor its gradient has them all at once.

The loss and its gradient are computed for some examples at a time, with all their logits and all that reads the gradient: the
cotangents of weights and biases, which are sums over blocks, and that of the hidden states. No product is computed twice.
Logits that are no larger than the weights stay whole, and so do those that anything else reads.

Source: Wijmans et al., "Cut Your Losses in Large-Vocabulary Language Models", 2025.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pcp.ir import Builder, Program
from pcp.ir.bindings import Value, context, ir, run_passes
from pcp.ir.composites import composite_name, private_function
from pcp.ir.composites.records import CROSS_ENTROPY
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.editing import clone_operations, erase_dead
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.regions import values_from_outside
from pcp.ir.toolkit.tensor_types import spec_if_tensor, spec_of
from pcp.ir.toolkit.walking import walk_block
from pcp.rewrite.memory.blocks import bytes_inside, cut_up, function_of

ROWS = 256
"""Examples of a block, at least: of fewer, weights would be read, and added to, too often."""

_NAMES = CROSS_ENTROPY.name, CROSS_ENTROPY.gradient_name
_NAME = f"{CROSS_ENTROPY.name}.linear"


def without_logits(program: Program, most: int) -> Program:
    """The program, in which logits that only cross entropy and its gradient read are never whole.

    Arguments:
        program: any Program.
        most: bytes of logits that are left whole.
    """
    if CROSS_ENTROPY.name.encode() not in program.bytecode:
        return program
    module = program.module()
    inline_calls(module)
    by_logits: dict[Value, list[ir.Operation]] = {}
    for op in walk_block(entry_block(module)):
        if composite_name(op) in _NAMES and bytes_inside(op) > most:
            by_logits.setdefault(op.operands[0], []).append(op)
    with context(), ir.Location.unknown():
        sites = [_Site.of(each) for each in by_logits.values()]
        written = [site.write(module, most) for site in sites if site is not None]
        if not any(written):
            return program
        erase_dead(entry_block(module))
        run_passes(module, "builtin.module(symbol-dce)")
    return Program.from_module(module)


@dataclass(frozen=True, slots=True)
class _Site:
    """Cross entropy of some logits, its gradient, and what stands around them, all in one block.

    Arguments:
        composites: the loss, its gradient, or both.
        makers: the operations that make the logits, each behind what it reads.
        readers: those that read the cotangent of the logits, or what is as large.
        order: of the operations of the block.
    """

    composites: Sequence[ir.Operation]
    makers: Sequence[ir.Operation]
    readers: Sequence[ir.Operation]
    order: Mapping[ir.Operation, int]

    @classmethod
    def of(cls, composites: Sequence[ir.Operation]) -> "_Site | None":
        """That of all composites of some logits; None where the logits are needed whole."""
        block, logits = ir.InsertionPoint(composites[0]).block, composites[0].operands[0]
        if any(ir.InsertionPoint(op).block != block for op in composites):
            return None
        order = {view.operation: place for place, view in enumerate(block.operations)}
        makers, readers = _makers(logits, order), _readers(composites, order)
        if makers is None or readers is None:
            return None
        own = {*makers, *composites, *readers}
        large = [
            value for op in makers for value in op.results if _is_large(value, spec_of(logits.type).size)
        ]
        is_alone = all(use.owner.operation in own for value in large for use in value.uses)
        return cls(composites, makers, readers, order) if is_alone else None

    def write(self, module: ir.Module, most: int) -> bool:
        """Put blocks in the place of the site; whether there are such."""
        logits = spec_of(self.composites[0].operands[0].type)
        members = [*self.makers, *self.composites, *self.readers]
        ends = [value for op in members for value in op.results if not _is_large(value, logits.size)]
        taken = dict.fromkeys(value for op in members for value in (*op.operands, *values_from_outside(op)))
        # Constants come along: whether something is a sum is seen by the number that it begins with.
        makers = [op for value in taken if (op := defining_op(value)) is not None]
        members = [*dict.fromkeys(op for op in makers if op.name == "stablehlo.constant"), *members]
        members = list(dict.fromkeys(members))
        made = {value for op in members for value in op.results}
        inputs = [value for value in taken if value not in made]
        moved = self._behind(inputs, ends, {*members})
        if moved is None:
            return False

        def fill(block: ir.Block) -> list[Value]:
            return clone_operations(members, dict(zip(inputs, block.arguments, strict=True)), block, ends)

        symbol = private_function(module.operation, _NAME, [value.type for value in inputs], fill)
        least = min(ROWS * logits.shape[-1] * logits.dtype.itemsize, logits.bytes // 2)
        function = function_of(module, symbol)
        blocks = cut_up(module, _NAME, function, range(len(inputs)), logits.bytes, max(most, least))
        if blocks is None:
            return False
        place, *others = moved
        builder = Builder(module, ir.InsertionPoint(place).block)
        builder.pinned = ir.Location.unknown()
        for op in others:
            op.move_before(place)
        with builder.before(others[0] if others else place):
            results = builder.inline(blocks, inputs)
        for old, new in zip(ends, results, strict=True):
            old.replace_all_uses_with(new)
        return True

    def _behind(
        self, inputs: Sequence[Value], ends: Sequence[Value], members: Collection[ir.Operation]
    ) -> list[ir.Operation] | None:
        """The operation in front of which all inputs are there, then those before it that read the ends; None where inputs are
        made of the ends."""
        operations = list(self.order)
        makers = [maker for value in inputs if (maker := defining_op(value)) is not None]
        behind = max((self.order.get(op, -1) for op in makers), default=-1) + 1
        read, found = {*ends}, [operations[behind]]
        for op in operations[:behind]:
            if op not in members and not read.isdisjoint((*op.operands, *values_from_outside(op))):
                read.update(op.results)
                found.append(op)
        return found if read.isdisjoint(inputs) else None


def _is_large(value: Value, size: int) -> bool:
    spec = spec_if_tensor(value.type)
    return spec is not None and spec.size >= size


def _makers(logits: Value, order: Mapping[ir.Operation, int]) -> list[ir.Operation] | None:
    """The operations that make logits of what is smaller; None where one is not in the block, or there are none."""
    found, waiting, size = dict[ir.Operation, None](), [logits], spec_of(logits.type).size
    for value in waiting:  # grows
        op = defining_op(value)
        if op is None or op not in order or len(op.regions):
            return None
        if op not in found:
            found[op] = None
            waiting += [each for each in op.operands if _is_large(each, size)]
    return sorted(found, key=order.__getitem__)


def _readers(
    composites: Sequence[ir.Operation], order: Mapping[ir.Operation, int]
) -> list[ir.Operation] | None:
    """The operations that read what composites make of the size of the logits, or make as much of that; None where one is not
    in the block, or returns it."""
    size, found = spec_of(composites[0].operands[0].type).size, list(composites)
    for op in found:  # grows
        users = [use.owner.operation for value in op.results if _is_large(value, size) for use in value.uses]
        if any(user not in order or not len(user.results) for user in users):
            return None
        found += [user for user in dict.fromkeys(users) if user not in found]
    return sorted(found[len(composites) :], key=order.__getitem__)
