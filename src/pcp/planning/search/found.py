"""What a search came to, and the path that should be the fastest where nothing may be measured, as far as it may be taken."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pcp.kernels import Kernel
from pcp.planning.fitting import Fit
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.paths.path import Path
from pcp.planning.search.selection import ErrorModel, path_by, saved, select
from pcp.planning.search.strategy import Strategy
from pcp.planning.search.tuning import MeasuredClass
from pcp.planning.search.whole import Whole


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is expected of a path that was never measured.

    Arguments:
        ratio: the time of the sites where kernels stand, relative to their plain time, alone.
        error: that its results are expected to have at most. Nobody measured it.
        measured, similar: classes of sites whose kernels were measured at equal sites, and at similar ones only.
    """

    ratio: float
    error: float
    measured: int
    similar: int


@dataclass(slots=True)
class Found:
    """What a search came to.

    Arguments:
        path: the fastest that was accepted; the plain one if none was.
        measurement: what is known of it, or None if nothing is.
        classes: what was measured of the sites.
        choices: the kernel of each class on this path, by the digest of its region; plain ones are not there.
        measured: how many measurements were made, others than those from the database.
        notes: what was left out and why, one sentence each.
        complete: whether nothing was left out for lack of time.
        prediction: what is expected of the path, where it was not measured.
        fit: what it gives up to fit into memory, where that was asked for.
    """

    path: Path
    measurement: Measurement | None = None
    classes: list[MeasuredClass] = field(default_factory=list)
    choices: dict[str, Kernel] = field(default_factory=dict)
    measured: int = 0
    notes: list[str] = field(default_factory=list)
    complete: bool = True
    prediction: Prediction | None = None
    fit: Fit | None = None


def predicted_path(
    whole: Whole,
    classes: Sequence[MeasuredClass],
    banned: set[tuple[str, str]],
    known: Mapping[str, Measurement],
    strategy: Strategy,
) -> tuple[Path, Prediction] | None:
    """The path that should be the fastest; None if there is none that may be taken without being measured.

    Errors of its kernels were measured at equal sites, or its kernels compute the operations' own arithmetic, in another order
    at most (see `tuning`). What they come to in the whole is expected to be far within the tolerance. Whoever asks for the bits
    of the plain path gets nothing that was not compared with them. Where a path was timed in the whole, measurements decide.

    Arguments:
        banned: pairs of a class and a kernel's name that are left out.
        known: what was measured of the whole program, by path.
        strategy: says how much larger errors may become in the whole.
    """
    plain_errors = [row.plain_error for row in known.values() if row.plain_error is not None]
    is_decided = any(row.seconds and path != whole.plain.digest for path, row in known.items())
    if not whole.tolerance or max(plain_errors, default=0.0) > whole.tolerance or is_decided:
        return None
    # As if a plan had been measured, so that errors of sites add up from the beginning.
    weights = {each.sites.digest: strategy.amplified**2 * each.sites.uses for each in classes}
    model = ErrorModel(weights, [({}, 0.0)])
    selection = select(classes, whole.tolerance, model, banned, strategy.error_margin)
    path, error = path_by(selection, classes, whole), model.predicted(selection)
    kernels = {digest: one.kernel.name for digest, one in selection.items() if one.kernel is not None}
    taken = [each for each in classes if each.sites.digest in kernels]
    plain_seconds = math.fsum(each.sites.uses * each.plain_seconds for each in taken)
    if not taken or path.digest in known or error > whole.tolerance or plain_seconds <= 0:
        return None
    similar = sum(kernels[each.sites.digest] in each.forecasts for each in taken)
    ratio = 1 - saved(selection) / plain_seconds
    return path, Prediction(ratio, error, len(taken) - similar, similar)
