"""Loops in the backward pass: counted ones, and stacks with one row for each trip."""

from collections.abc import Callable, Iterable, Sequence

from pcp.ir import DType
from pcp.ir.toolkit.editing import erase_dead
from pcp.ops.elementwise import less
from pcp.ops.indexing.blocks import dynamic_slice, dynamic_update_slice
from pcp.ops.movement import reshape
from pcp.tensor import Tensor, as_tensor, current_builder


def counted(
    count: int | Tensor, first: Sequence[Tensor], trip: Callable[[Tensor, list[Tensor]], Iterable[Tensor]]
) -> list[Tensor]:
    """Run `trip` count times, from `(done, values)` to the next values, where `done` counts from 0.

    Arguments:
        count: how often, an i32 scalar if it is a Tensor.
        first: the first values.
        trip: adds the operations of a trip.
    """
    builder = current_builder()
    carried = [as_tensor(0, DType.i32), *first]
    specs = [t.spec for t in carried]
    op = builder.emit("stablehlo.while", [t.value for t in carried], specs, regions=2)
    with builder.region(op, 0, specs) as (done, *_):
        give_back([less(Tensor(done, builder), count)])
    with builder.region(op, 1, specs) as (done, *values):
        following = trip(Tensor(done, builder), [Tensor(value, builder) for value in values])
        give_back([Tensor(done, builder) + 1, *following])
        del following
        erase_dead(op.regions[1].blocks[0])
    return [Tensor(value, builder) for value in list(op.results)[1:]]


def give_back(values: Sequence[Tensor]) -> None:
    """End a region."""
    current_builder().emit("stablehlo.return", [t.value for t in values], ())


def row(stack: Tensor, index: Tensor) -> Tensor:
    """One row of a stack."""
    shape = stack.shape[1:]
    return reshape(dynamic_slice(stack, [index, *[0] * len(shape)], (1, *shape)), shape)


def with_row(stack: Tensor, index: Tensor, value: Tensor) -> Tensor:
    """A stack with another row in a place."""
    return dynamic_update_slice(stack, reshape(value, (1, *value.shape)), [index, *[0] * value.ndim])
