"""Gradient accumulation: the mean gradient of several micro-batches, one after another, as a loop inside the step.

Only one micro-batch's activations are alive at a time, so a batch may be larger than memory would hold at once.
"""

from collections.abc import Callable, Sequence
from typing import Any

from pcp.errors import PCPError
from pcp.ir.tree import flatten, map_tree
from pcp.ir.types import DType, TensorSpec
from pcp.ops.elementwise import convert
from pcp.ops.movement import reshape, zeros
from pcp.ops.reductions.primitives import mean
from pcp.ops.scanning import scan
from pcp.tensor import Tensor
from pcp.tracing import ArgumentSpec, spec


class InvalidAccumulation(PCPError):
    """A number of micro-batches that cannot be: below 1, or no divisor of the batch."""


ValueAndGradients = Callable[..., tuple[Any, Any, Any]]
"""From buffers, parameters and the arguments of one micro-batch to the loss (and what comes with it), the gradients, and the
buffers after it."""


def widened(batch: Any, count: int) -> Any:
    """The specs of `count` micro-batches that follow one another along their first axes.

    Arguments:
        batch: the specs of one micro-batch, nested; a scalar is the same for all of them.
        count: how many.

    Raises:
        InvalidAccumulation: `count` is no integer of at least 1.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidAccumulation(
            f"accumulate is {count!r}; expected how many micro-batches make a step, at least 1"
        )

    def wide(entry: ArgumentSpec) -> ArgumentSpec:
        shape = entry.spec.shape
        return spec((shape[0] * count, *shape[1:]), entry.spec.dtype) if shape else entry

    return map_tree(wide, batch)


def mean_over_micro_batches(
    function: ValueAndGradients, held: Any, changing: Any, parameters: Any, batch: Sequence[Any], count: int
) -> tuple[Any, Any, Any]:
    """The means of values and gradients over the parts of a batch.

    Gradients narrower than f32 are summed in f32. Floating-point values are averaged; of others the last one is kept. Buffers
    that change go from each part to the next, as running means do in PyTorch when several backward passes make one step.

    Arguments:
        function: what is computed for each part.
        held: buffers, nested Tensors.
        changing: the same if parts change them; None if they stay.
        parameters: nested Tensors.
        batch: the arguments of the whole batch; `count` divides every first axis.

    Returns:
        Values, gradients and buffers, nested and typed as `function` returns them.
    """
    leaves, tree = flatten(tuple(batch))
    parts = [reshape(leaf, (count, leaf.shape[0] // count, *leaf.shape[1:])) for leaf in leaves if leaf.shape]

    def body(carried: Any, rows: list[Tensor]) -> tuple[Any, Any]:
        sums, before = carried
        following = iter(rows)
        part = tree.unflatten(next(following) if leaf.shape else leaf for leaf in leaves)
        values, gradients, after = function(held if changing is None else before, parameters, *part)
        added = [
            total + convert(g, total.dtype) for total, g in zip(sums, flatten(gradients)[0], strict=True)
        ]
        return (added, before if changing is None else after), values

    zero = [zeros(entry.shape, _wide(entry.dtype)) for entry in (p.spec for p in flatten(parameters)[0])]
    (sums, after), values = scan(body, (zero, () if changing is None else changing), parts, length=count)
    entries: list[TensorSpec] = [p.spec for p in flatten(parameters)[0]]
    means = iter([convert(total / count, e.dtype) for total, e in zip(sums, entries, strict=True)])
    new = held if changing is None else after
    return map_tree(_mean_or_last, values), map_tree(lambda _: next(means), parameters), new


def _wide(dtype: DType) -> DType:
    return DType.f32 if dtype.itemsize < DType.f32.itemsize else dtype


def _mean_or_last(stack: Tensor) -> Tensor:
    return mean(stack, 0) if stack.dtype.is_float else stack[-1]
