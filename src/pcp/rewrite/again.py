"""What a forward kernel wrote, from its gradient's kernel once more: what is read behind it alone need not be kept until then.

A gradient has at hand what its forward operation was made of, and often that itself, as the activation whose slope it computes.
To write it again takes a pass of writing; to keep it takes its bytes for every layer, from the forward pass on. It is read by
the gradients of weights, which nothing waits for but the update: they are moved behind the kernel.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cmp_to_key

from pcp.ir.bindings import Value, ir
from pcp.ir.digest import has_effect
from pcp.ir.toolkit.dataflow import is_dead
from pcp.tensor import Tensor, current_builder

MOST = 16
"""Operations that are moved for one that reads it, at most: of the forward pass far more would have to be."""
_MOVES = frozenset(f"stablehlo.{name}" for name in ("convert", "reshape", "transpose"))


@dataclass(frozen=True, slots=True)
class _Late:
    """An operation that may read a value when a gradient is computed.

    Arguments:
        reader: it, and `place` of the operand.
        moves: of the value, on the way to it.
        waiting: what has to be moved behind the gradient then, in order.
    """

    reader: ir.Operation
    place: int
    moves: tuple[ir.Operation, ...]
    waiting: Sequence[ir.Operation]


@dataclass(frozen=True, slots=True)
class Again:
    """A value of the forward pass, and what may read it from the kernel of a gradient instead.

    Arguments:
        gradient: the operation that the kernel stands for.
        value: of the forward pass.
        late: what may; empty where there is nothing to be gained.
    """

    gradient: ir.Operation
    value: Tensor
    late: tuple[_Late, ...]

    @classmethod
    def of(cls, gradient: ir.Operation, handed: Sequence[Tensor], *beside: Tensor | None) -> "Again | None":
        """The value that a forward kernel handed on, where that was made of the same; None where nothing is gained.

        Arguments:
            handed: the value, then what it was made of beside what the gradient is known by.
            beside: what the gradient takes of that, in the same order.
        """
        if not handed:
            return None
        value, *others = handed
        own = [each.value for each in beside if each is not None]
        if [each.value for each in others] != own:
            return None
        late = tuple(_late(value.value, gradient, ()))
        return cls(gradient, value, late) if late else None

    def replaced(self, x: Tensor) -> None:
        """Let them read a tensor of the same numbers, which stands in front of the gradient."""
        known: dict[ir.Operation, Value] = {}
        builder = current_builder()
        for each in self.late:
            value = x.value
            for move in each.moves:
                if move not in known:
                    copy = move.clone(ip=builder.insertion)
                    copy.operands[0] = value
                    known[move] = copy.results[0]
                value = known[move]
            each.reader.operands[each.place] = value
        waiting = {op for each in self.late for op in each.waiting}
        last = self.gradient
        for op in sorted(waiting, key=cmp_to_key(_order)):
            op.move_after(last)
            last = op


def _order(one: ir.Operation, other: ir.Operation) -> int:
    return -1 if one.is_before_in_block(other) else 1


def _late(value: Value, gradient: ir.Operation, moves: tuple[ir.Operation, ...]) -> Iterator[_Late]:
    for use in value.uses:
        reader = use.owner.operation
        if reader == gradient or is_dead(reader):
            continue
        waiting = _waiting(reader, gradient)
        if waiting is not None:
            yield _Late(reader, use.operand_number, moves, waiting)
        elif reader.name in _MOVES:
            yield from _late(reader.results[0], gradient, (*moves, reader))


def _waiting(reader: ir.Operation, gradient: ir.Operation) -> Sequence[ir.Operation] | None:
    """An operation and all that reads it before a gradient; None where the gradient is made of it, or that is too much."""
    block = ir.InsertionPoint(gradient).block
    readers, waiting = dict[ir.Operation, None](), [reader]
    for op in waiting:  # grows
        if op == gradient or ir.InsertionPoint(op).block != block or len(readers) > MOST:
            return None
        if op in readers or gradient.is_before_in_block(op):
            continue
        if has_effect(op):
            return None
        readers[op] = None
        waiting += [use.owner.operation for result in op.results for use in result.uses]
    return tuple(readers)
