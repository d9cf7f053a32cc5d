"""Losses of the product that makes the logits, without logits: neither the loss nor its gradient has them all at once.

The loss and its gradient are computed for some examples at a time, with all their logits, all that is as large, and all that
reads it: the cotangents of weights and biases, which are sums over blocks, and that of the hidden states. No product is
computed twice. It begins where logits are normalised: cross entropy, log softmax, the logarithm of a sum of exponentials. What
else is made of them, as an element or the mean of each row for smooth labels, and what of that the gradient takes, comes along.
Logits that are no larger than the weights stay whole, and so do those that are needed as they are.

Source: Wijmans et al., "Cut Your Losses in Large-Vocabulary Language Models", 2025.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pcp.ir import Builder, Program
from pcp.ir.bindings import Value, context, ir, run_passes
from pcp.ir.composites import composite_name, private_function
from pcp.ir.composites.records import CROSS_ENTROPY, LOG_SOFTMAX, LOG_SUM_EXP
from pcp.ir.digest import has_effect
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.editing import clone_operations, erase_dead
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.regions import values_from_outside
from pcp.ir.toolkit.tensor_types import spec_if_tensor, spec_of
from pcp.ir.toolkit.walking import walk_block
from pcp.ops.tapping import TAP
from pcp.rewrite.memory.blocks import cut_up, function_of

ROWS = 256
"""Examples of a block, at least: of fewer, weights would be read, and added to, too often."""

MOST = 60
"""Operations of a loss and its gradient: more are a network whose values are all as large as its logits, as of an image."""

_NAMES = [
    name for each in (CROSS_ENTROPY, LOG_SOFTMAX, LOG_SUM_EXP) for name in (each.name, each.gradient_name)
]
_NAME = f"{CROSS_ENTROPY.name}.linear"
_REGIONS = ("stablehlo.scatter", "stablehlo.reduce")
"""Operations with a region that only says how two numbers are put together."""


def without_logits(program: Program, most: int) -> Program:
    """The program, in which logits that only a loss and its gradient read are never whole.

    Arguments:
        program: any Program.
        most: bytes of logits that are left whole.
    """
    if not any(name.encode() in program.bytecode for name in _NAMES):
        return program
    module = program.module()
    inline_calls(module)
    by_logits: dict[Value, list[ir.Operation]] = {}
    for op in walk_block(entry_block(module)):
        if composite_name(op) in _NAMES and spec_of(op.operands[0].type).bytes > most:
            by_logits.setdefault(op.operands[0], []).append(op)
    with context(), ir.Location.unknown():
        sites = [_Site.of(logits, each) for logits, each in by_logits.items()]
        written = [site.write(module, most) for site in sites if site is not None]
        if not any(written):
            return program
        erase_dead(entry_block(module))
        run_passes(module, "builtin.module(symbol-dce)")
    return Program.from_module(module)


@dataclass(frozen=True, slots=True)
class _Site:
    """What makes some logits, and all that is made of them while it is as large, all in one block.

    Arguments:
        logits: the value.
        members: the operations, each behind what it reads.
        order: of the operations of the block.
    """

    logits: Value
    members: Sequence[ir.Operation]
    order: Mapping[ir.Operation, int]

    @classmethod
    def of(cls, logits: Value, composites: Sequence[ir.Operation]) -> "_Site | None":
        """That of all composites of some logits; None where the logits are needed whole."""
        block, size = ir.InsertionPoint(composites[0]).block, spec_of(logits.type).size
        if any(ir.InsertionPoint(op).block != block for op in composites):
            return None
        order = {view.operation: place for place, view in enumerate(block.operations)}
        makers = _makers(logits, order, size)
        readers = makers and _readers([logits, *_made(makers, size)], order, size)
        if not makers or readers is None or len(makers) + len(readers) > MOST:
            return None
        own = {*makers, *readers}
        own |= _made_beside(own, order, size)
        own |= _between(own, order)
        if len(own) > MOST:
            return None
        if any(TAP in op.attributes or has_effect(op) or not _stays(op, own, size) for op in own):
            return None
        return cls(logits, sorted(own, key=order.__getitem__), order)

    def write(self, module: ir.Module, most: int) -> bool:
        """Put blocks in the place of the site; whether there are such."""
        logits, members = spec_of(self.logits.type), self.members
        ends = [value for op in members for value in op.results if not _is_large(value, logits.size)]
        taken = dict.fromkeys(value for op in members for value in (*op.operands, *values_from_outside(op)))
        # Constants come along: whether something is a sum is seen by the number that it begins with.
        makers = [op for value in taken if (op := defining_op(value)) is not None]
        members = [*dict.fromkeys(op for op in makers if op.name == "stablehlo.constant"), *members]
        members = list(dict.fromkeys(members))
        inside = {value for op in members for value in op.results}
        inputs = [value for value in taken if value not in inside]
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
        read, behind_it = {*ends}, [operations[behind]]
        for op in operations[:behind]:
            if op not in members and not read.isdisjoint((*op.operands, *values_from_outside(op))):
                read.update(op.results)
                behind_it.append(op)
        return behind_it if read.isdisjoint(inputs) else None


def _is_large(value: Value, size: int) -> bool:
    spec = spec_if_tensor(value.type)
    return spec is not None and spec.size >= size


def _made(operations: Collection[ir.Operation], size: int) -> Iterator[Value]:
    """The large values that operations make."""
    return (value for op in operations for value in op.results if _is_large(value, size))


def _stays(op: ir.Operation, own: Collection[ir.Operation], size: int) -> bool:
    """Whether nothing else reads what an operation makes that is large."""
    return all(use.owner.operation in own for value in _made([op], size) for use in value.uses)


def _makers(large: Value, order: Mapping[ir.Operation, int], size: int) -> dict[ir.Operation, None] | None:
    """The operations that make a large value of what is smaller; None where one is not in the block."""
    makers, waiting = dict[ir.Operation, None](), [large]
    for value in waiting:  # grows
        op = defining_op(value)
        if op is None or op not in order or (len(op.regions) and op.name not in _REGIONS):
            return None
        if op not in makers:
            makers[op] = None
            waiting += [each for each in op.operands if _is_large(each, size)]
    return makers


def _readers(
    large: Sequence[Value], order: Mapping[ir.Operation, int], size: int
) -> dict[ir.Operation, None] | None:
    """The operations that read large values, or what these make that is large; None where one is not in the block, or returns
    it."""
    readers, waiting = dict[ir.Operation, None](), list(large)
    for value in waiting:  # grows
        for user in dict.fromkeys(use.owner.operation for use in value.uses):
            if user not in order or not len(user.results):
                return None
            if user not in readers:
                readers[user] = None
                waiting += _made([user], size)
    return readers


def _made_beside(
    own: Collection[ir.Operation], order: Mapping[ir.Operation, int], size: int
) -> set[ir.Operation]:
    """The operations that make other large values which these alone read, as a cotangent for each row is repeated."""
    operands = {value for op in own for value in op.operands if _is_large(value, size)}
    chains = [_makers(value, order, size) or {} for value in operands if defining_op(value) not in own]
    makers = {op for each in chains for op in each if op not in own}
    while left := {op for op in makers if not _stays(op, {*own, *makers}, size)}:
        makers -= left
    return makers


def _between(own: Collection[ir.Operation], order: Mapping[ir.Operation, int]) -> set[ir.Operation]:
    """The operations that are made of what these make, and that these are made of: the gradient of a loss may take the loss."""
    behind, before = set(own), set(own)
    for op in order:
        if any(defining_op(value) in behind for value in (*op.operands, *values_from_outside(op))):
            behind.add(op)
    for op in reversed([*order]):
        if any(use.owner.operation in before for value in op.results for use in value.uses):
            before.add(op)
    return (behind & before) - {*own}
