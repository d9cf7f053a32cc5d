"""Whether a kernel skips work on the operands of the call before: its calls are much quicker then."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp.planning.measuring.process import Away
from pcp.planning.measuring.significance import undisturbed

SKIPS = 2.0
"""How much faster calls on repeated operands may be, before that is taken for no accident."""
_TIMING_SECONDS, _TIMES, _LONG = 1.0, 3, 0.3


def repeated(away: Away, arguments: Sequence[np.ndarray[Any, Any]]) -> tuple[float, dict[str, list[float]]]:
    """How much more a kernel gains from repeated operands than the plain program does, and the times of all calls.

    On a busy machine it may seem to gain for a short time; then it is timed for longer, and the least gain counts.
    """
    factors: list[float] = []
    times: dict[str, list[float]] = {}
    while len(factors) < _TIMES and (not factors or factors[-1] > SKIPS):
        least = _LONG if factors else 0.0
        times = away.times_repeated(arguments, least, _TIMING_SECONDS)
        own, plain = (
            undisturbed(times[name]) / undisturbed(times[f"{name}_again"]) for name in ("own", "plain")
        )
        factors.append(own / max(1.0, plain))
    return min(factors), times
