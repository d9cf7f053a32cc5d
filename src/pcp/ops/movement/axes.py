"""Which axes are meant."""

from collections.abc import Sequence

import numpy as np

from pcp.tensor import ShapeMismatch


def checked_axis(name: str, axis: int, rank: int) -> int:
    """A non-negative axis of a tensor of `rank` axes.

    Raises:
        ShapeMismatch: there is no such axis.
    """
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer) or not -rank <= axis < rank:
        raise ShapeMismatch(
            f"{name}: axis {axis!r} was given for a tensor of rank {rank}; expected {-rank} <= axis < {rank}"
        )
    return int(axis) % rank


def checked_axes(name: str, axes: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Distinct non-negative axes in ascending order; None means all.

    Raises:
        ShapeMismatch: an axis does not exist or is named twice.
    """
    if axes is None:
        return tuple(range(rank))
    named = (axes,) if isinstance(axes, int | np.integer) else tuple(axes)
    places = sorted(checked_axis(name, axis, rank) for axis in named)
    if len(set(places)) != len(places):
        raise ShapeMismatch(f"{name}: axes {named} name one axis twice")
    return tuple(places)
