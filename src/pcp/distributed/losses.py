"""The losses of a lease as an update tells them: those of all its steps, or means of as many pieces as a message holds."""

import math
from collections.abc import Sequence
from itertools import pairwise

from pcp.distributed.bounds import LOSS, LOSSES
from pcp.distributed.pieces import borders


def usable(losses: Sequence[float]) -> bool:
    """Whether all are numbers that a message may hold: finite, and none beyond what f32 holds."""
    return all(abs(loss) <= LOSS.most for loss in losses)  # false for NaN, too


def told(losses: Sequence[float]) -> tuple[float, ...]:
    """What an update says of the losses of its steps; NaN for what is not usable.

    Of more steps than a message holds losses for, the means of equal pieces, one after the other; so `mean` is the same.
    """
    return tuple(_piece(losses[first:end]) for first, end in pairwise(borders(len(losses), LOSSES)) if end)


def _piece(losses: Sequence[float]) -> float:
    return LOSS.clamped(math.fsum(losses) / len(losses)) if usable(losses) else math.nan


def mean(losses: Sequence[float], steps: int) -> float:
    """The mean over so many steps of what an update told of them.

    Arguments:
        losses: usable, at least one, no more than steps.
        steps: behind them.
    """
    cuts = pairwise(borders(steps, len(losses)))
    return math.fsum(loss * (end - first) for loss, (first, end) in zip(losses, cuts, strict=True)) / steps
