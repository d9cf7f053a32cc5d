"""What a search came to."""

from dataclasses import dataclass, field

from pcp.kernels import Kernel
from pcp.planning.fitting import Fit
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.paths.path import Path
from pcp.planning.search.predicted_path import Prediction
from pcp.planning.search.tuning import MeasuredClass


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
