"""The cost model: from regions that were measured here to the time of a region, and to the time and error of kernels there."""

import functools
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pcp.ir import Program
from pcp.planning.measuring.measurement import Measurement, pooled
from pcp.planning.prediction.cost_model import NAMES, features_of
from pcp.planning.prediction.gaussian import Gaussian, fitted
from pcp.planning.profile.best_effort_database import BestEffortDatabase
from pcp.planning.profile.database import ProfileDatabase
from pcp.planning.profile.rows import NotARegion

log = logging.getLogger("pcp.planning.search")

FEWEST = 4
"""Regions at which a kernel was measured, before anything is said of others."""
MOST = 100
"""Regions of a family that predictions are made from, those that were measured last: reading each takes milliseconds."""
MOST_ROWS = 4096
"""Measurements that are read for that."""
SURELY = 2.0
"""Standard deviations within which a prediction is relied on."""
_ANALYTIC = NAMES.index("seconds by the analytic model")
_DEPTH = NAMES.index("elements that are contracted in the largest product")


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a kernel should take at a region where it was not measured.

    Arguments:
        ratio: its time relative to the plain operation's.
        least, most: between which that should be.
        error: of its results, as much as it may be; None where nothing is known.
        regions: at how many it was measured.
    """

    ratio: float
    least: float
    most: float
    error: float | None
    regions: int


@dataclass(frozen=True, slots=True)
class Known:
    """A region that was measured.

    Arguments:
        family: of its operation.
        seconds: of the plain operation.
        ratios, errors: of kernels, by their labels.
    """

    region: Program
    family: str
    seconds: float
    ratios: Mapping[str, float]
    errors: Mapping[str, float]


def known_regions(rows: Sequence[Measurement], regions: Mapping[str, Program]) -> list[Known]:
    """What rows say of regions.

    Arguments:
        rows: of one hardware and one set of versions, pooled by path.
        regions: the programs, by digest.
    """
    grouped: dict[str, list[Measurement]] = defaultdict(list)
    for row in rows:
        if row.failure is None and row.seconds and row.plain_seconds and row.subject in regions:
            grouped[row.subject].append(row)
    known = []
    for subject, own in grouped.items():
        family = _family(own[0].path)
        seconds = min(row.typical / row.ratio for row in own)
        ratios = {row.path: row.ratio for row in own}
        errors = {row.path: row.error for row in own if row.error is not None}
        known.append(Known(regions[subject], family, seconds, ratios, errors))
    return known


def known_here(
    database: BestEffortDatabase | ProfileDatabase, hardware: str, versions: str, family: str
) -> list[Known]:
    """The regions of a family that were measured on some hardware with some versions, those first that were measured last."""
    grouped: dict[tuple[str, str], list[Measurement]] = {}
    for row in database.of_regions(family, hardware, versions, MOST_ROWS):
        grouped.setdefault((row.subject, row.path), []).insert(0, row)
    programs = {}
    newest = list(dict.fromkeys(subject for subject, _ in grouped))[:MOST]
    for digest, region in database.regions(newest).items():
        try:
            programs[digest] = region.program()
        except NotARegion as error:
            log.info("a region in the database is not used: %s", error)
    return known_regions([pooled(rows) for rows in grouped.values()], programs)


class CostModel:
    """Predicts from regions that were measured.

    Arguments:
        known: the regions of a family, those that were measured last first; asked for once.
    """

    def __init__(self, known: Callable[[str], Sequence[Known]]) -> None:
        self._known = functools.cache(lambda family: known(family)[:MOST])

    def plain_seconds(self, region: Program, family: str) -> float | None:
        """The time of one call of the operation itself; None where too little is known of its family."""
        process = self._of_family(family)
        if process is None:
            return None
        features = features_of(region)
        return float(2.0 ** (features[_ANALYTIC] + process.predicted(features)[0]))

    def forecast(self, region: Program, label: str) -> Forecast | None:
        """What a kernel should take at a region; None where too little is known of it."""
        process = self._of_kernel(label)
        if process is None:
            return None
        middle, deviation = process.predicted(features_of(region))
        ratio, least, most = (2.0 ** (middle + by * deviation) for by in (0.0, -SURELY, SURELY))
        return Forecast(ratio, least, most, self._error(region, label), len(process.points))

    def _error(self, region: Program, label: str) -> float | None:
        """The largest that was measured: sums of random terms round like the root of their number, so it grows with that."""
        depth = features_of(region)[_DEPTH]
        errors: list[float] = [
            each.errors[label] * 2.0 ** max(0.0, (depth - features_of(each.region)[_DEPTH]) / 2)
            for each in self._known(_family(label))
            if label in each.errors and math.isfinite(each.errors[label])
        ]
        return float(max(errors)) if errors else None

    @functools.cache  # noqa: B019  (a model lives as long as a search)
    def _of_kernel(self, label: str) -> Gaussian | None:
        own = [each for each in self._known(_family(label)) if label in each.ratios]
        return _process(own, [math.log2(each.ratios[label]) for each in own])

    @functools.cache  # noqa: B019
    def _of_family(self, family: str) -> Gaussian | None:
        own = self._known(family)
        missed = [math.log2(each.seconds) - float(features_of(each.region)[_ANALYTIC]) for each in own]
        return _process(own, missed)


def _family(label: str) -> str:
    return label.partition(".")[0]


def _process(known: Sequence[Known], values: Sequence[float]) -> Gaussian | None:
    if len(known) < FEWEST:
        return None
    points = np.array([features_of(each.region) for each in known])
    return fitted(points, np.array(values))
