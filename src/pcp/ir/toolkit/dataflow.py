"""Who defines a value, who uses it, and walks along dependences, all without recursion."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from pcp.ir.bindings import Value, ir
from pcp.ir.digest import has_effect
from pcp.ir.toolkit.regions import values_from_outside

T = TypeVar("T", bound=Hashable)


def defining_op(value: Value) -> ir.Operation | None:
    """The operation that defines a value; None for an argument of a block."""
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def result_owner(value: Value) -> ir.Operation:
    """The operation that a value is a result of."""
    assert not isinstance(value.owner, ir.Block)
    return value.owner.operation


def is_used(value: Value) -> bool:
    """Whether any operation takes the value."""
    return next(iter(value.uses), None) is not None


def has_single_use(value: Value) -> bool:
    """Whether a value is used, and only once."""
    uses = iter(value.uses)
    return next(uses, None) is not None and next(uses, None) is None


def users_of(op: ir.Operation) -> Iterator[ir.Operation]:
    """The operations that use a result, once for each use."""
    for result in op.results:
        for use in result.uses:
            yield use.owner.operation


def is_dead(op: ir.Operation) -> bool:
    """Whether an operation computes what nothing uses."""
    return bool(len(op.results)) and not has_effect(op) and not any(is_used(result) for result in op.results)


def depth_first(starts: Iterable[T], before: Callable[[T], Iterable[T]]) -> list[T]:
    """Everything that the starts depend on, and they themselves, each behind what it depends on.

    Arguments:
        starts: where the walk begins; what the first depends on comes first.
        before: what one directly depends on. There are no cycles.
    """
    done: dict[T, None] = {}
    waiting = list(starts)[::-1]
    while waiting:
        each = waiting[-1]
        missing = [] if each in done else [one for one in before(each) if one not in done]
        if missing:
            waiting += reversed(missing)
        else:
            done.setdefault(waiting.pop())
    return list(done)


def operations_between(inputs: Iterable[Value], outputs: Iterable[Value]) -> list[ir.Operation]:
    """The operations that compute `outputs`, back to `inputs`, in an order in which they can run."""
    ends = set(inputs)

    def makers(values: Iterable[Value]) -> list[ir.Operation]:
        inside = (value for value in values if value not in ends)
        return [value.owner.operation for value in inside if not isinstance(value.owner, ir.Block)]

    return depth_first(makers(outputs), lambda op: makers((*op.operands, *values_from_outside(op))))
