"""Counted loops in the backward pass."""

from collections.abc import Callable, Iterable, Sequence

from pcp.ir import DType
from pcp.ir.toolkit.editing import erase_dead
from pcp.ops.elementwise import less
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
