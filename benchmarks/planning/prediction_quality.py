"""How good predictions are: a tenth of the regions is left out in turn, and predicted from the others."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pcp.kernels import FAMILIES, Kernel, UnknownKernel, kernel_named, replaced
from pcp.planning.prediction.cost_model import estimated_seconds
from pcp.planning.prediction.model import CostModel, Known, known_here
from pcp.planning.profile.database import ProfileDatabase

FOLDS = 10


@dataclass(frozen=True, slots=True)
class Quality:
    """How near predictions are to measurements.

    Arguments:
        count: of predictions.
        rank_correlation: Spearman's, 1 where the order is right.
        median_factor: the typical prediction is wrong by this factor, 1 where it is right.
        within_2: the part of predictions that are wrong by at most a factor of 2.
    """

    count: int
    rank_correlation: float
    median_factor: float
    within_2: float


def quality_of(database: ProfileDatabase, hardware: str, versions: str) -> dict[str, Quality]:
    """The quality of both models on the regions of a database, by what is predicted and by which model.

    Raises:
        DatabaseUnusable: it cannot be read.
    """
    pairs: dict[str, list[tuple[float, float]]] = {}
    for family in FAMILIES:
        known = known_here(database, hardware, versions, family)
        for fold in range(FOLDS):
            others = [each for place, each in enumerate(known) if place % FOLDS != fold]
            model = CostModel(lambda _, others=others: others)  # type: ignore[misc]  # bound now
            for each in known[fold::FOLDS]:
                for name, predicted, measured in _predictions(model, each):
                    pairs.setdefault(name, []).append((predicted, measured))
    return {name: _quality(found) for name, found in sorted(pairs.items())}


def _predictions(model: CostModel, each: Known) -> Iterator[tuple[str, float, float]]:
    """What is predicted, by which model; the prediction and the measurement. Both models are asked for the same."""
    estimate = estimated_seconds(each.region)
    seconds = model.plain_seconds(each.region, each.family)
    if seconds is not None:
        yield "seconds, learnt", seconds, each.seconds
        yield "seconds, analytic", estimate, each.seconds
    for label, ratio in each.ratios.items():
        kernel = _kernel(label)
        forecast = model.forecast(each.region, label)
        if kernel is not None and forecast is not None:
            yield "ratios, learnt", forecast.ratio, ratio
            yield "ratios, analytic", estimated_seconds(replaced(each.region, kernel)) / estimate, ratio


def _kernel(label: str) -> Kernel | None:
    """The kernel of a label, if it is still registered here in that version."""
    name, _, version = label.partition("@")
    try:
        kernel = kernel_named(name)
    except UnknownKernel:
        return None
    return kernel if str(kernel.version) == version else None


def _quality(pairs: Sequence[tuple[float, float]]) -> Quality:
    predicted, measured = np.log2(np.array(pairs)).T
    missed = np.abs(predicted - measured)
    return Quality(
        len(pairs),
        _rank_correlation(predicted, measured),
        float(2.0 ** np.median(missed)),
        float(np.mean(missed <= 1.0)),
    )


def _rank_correlation(
    first: "np.ndarray[tuple[int], np.dtype[np.float64]]",
    second: "np.ndarray[tuple[int], np.dtype[np.float64]]",
) -> float:
    """Spearman's; equal values have the mean of their ranks."""
    ranks = [_ranks(each) - (len(each) - 1) / 2 for each in (first, second)]
    scale = math.sqrt(float((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum()))
    return float((ranks[0] * ranks[1]).sum() / scale) if scale else 0.0


def _ranks(
    values: "np.ndarray[tuple[int], np.dtype[np.float64]]",
) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means: np.ndarray[tuple[int], np.dtype[np.float64]] = ends - (counts + 1) / 2
    return means[places]
