"""Regression by a Gaussian process: a linear trend, and between known points what their neighbours say, with how sure that is.

The length over which neighbours count is the one by which points that are left out are predicted best, which takes no second
fit. Points far from all others of their neighbourhood are drawn towards what those say, so that noise does not bend the rest.

Source: Rasmussen, Williams, "Gaussian Processes for Machine Learning", MIT Press 2006: prediction (2.25, 2.26), and leaving out
one point (5.12).
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

LENGTHS = (4.0, 8.0, 16.0)
"""Of neighbourhoods, in units of the features."""
NOISES = (0.3, 1.0)
"""Standard deviations of a measurement, relative to that of all values."""
SLOPES = (0.05, 0.3)
"""Standard deviations of the trend's slope along a feature, relative to that of all values."""
OUTLIER = 4.0
"""A point is drawn in that is further from its prediction than this many times the typical distance."""
ROUNDS = 3
_LEAST_DEVIATION = 0.03
_NORMAL = 0.6745
"""The median of the absolute values of a normal distribution, relative to its standard deviation."""


@dataclass(frozen=True, slots=True)
class Gaussian:
    """A fitted process; make one with `fitted`.

    Arguments:
        points: that it was fitted to.
        centre: of the points, at which the trend is nothing.
        weights: of the points in a prediction.
        inverse: of the covariance of the points.
        mean, scale: of all values.
        length: of neighbourhoods.
        slope: of the trend.
        noise: of a measurement.
        deviation: that predictions of points left out had, relative to what the process said of itself.
        left_out: what each point was predicted to be by all others.
    """

    points: Array
    centre: Array
    weights: Array
    inverse: Array
    mean: float
    scale: float
    length: float
    slope: float
    noise: float
    deviation: float
    left_out: Array

    def predicted(self, point: Array) -> tuple[float, float]:
        """What would be measured at a point, and the standard deviation of that."""
        to_points = _covariance(point[None, :], self.points, self.centre, self.length, self.slope)[0]
        own = _covariance(point[None, :], point[None, :], self.centre, self.length, self.slope)[0, 0]
        variance = max(own - float(to_points @ self.inverse @ to_points), 0.0) + self.noise**2
        return (
            self.mean + self.scale * float(to_points @ self.weights),
            max(self.scale * self.deviation * math.sqrt(variance), _LEAST_DEVIATION),
        )


def fitted(points: Array, values: Array) -> Gaussian:
    """The process by which points left out are predicted best.

    Arguments:
        points: (n, features).
        values: (n,).
    """
    process = min(
        (_fitted(points, values, *each) for each in itertools.product(LENGTHS, NOISES, SLOPES)),
        key=lambda each: float(np.mean(np.abs(values - each.left_out))),
    )
    for _ in range(ROUNDS):
        missed = values - process.left_out
        limit = OUTLIER * max(_typical(missed), _LEAST_DEVIATION)
        if np.all(np.abs(missed) <= limit):
            break
        drawn_in = process.left_out + np.clip(missed, -limit, limit)
        process = _fitted(points, drawn_in, process.length, process.noise, process.slope)
    return process


def _fitted(points: Array, values: Array, length: float, noise: float, slope: float) -> Gaussian:
    mean = float(np.median(values))
    scale = max(_typical(values - mean) / _NORMAL, _LEAST_DEVIATION)
    scaled = (values - mean) / scale
    centre: Array = np.median(points, axis=0)
    covariance = _covariance(points, points, centre, length, slope)
    inverse = np.asarray(np.linalg.inv(covariance + noise**2 * np.eye(len(points))), np.float64)
    weights: Array = inverse @ scaled
    variances = 1.0 / np.diag(inverse)
    missed = weights * variances
    deviation = max(_typical(missed / np.sqrt(variances)) / _NORMAL, 0.1)
    left_out = mean + scale * (scaled - missed)
    return Gaussian(points, centre, weights, inverse, mean, scale, length, slope, noise, deviation, left_out)


def _covariance(first: Array, second: Array, centre: Array, length: float, slope: float) -> Array:
    """Of the values at points: of neighbours by their distance, and of all by the trend."""
    squares = ((first[:, None, :] - second[None, :, :]) ** 2).sum(axis=2)
    trend = slope**2 * (first - centre) @ (second - centre).T
    covariance: Array = np.exp(-squares / (2 * length**2)) + trend
    return covariance


def _typical(values: Array) -> float:
    return float(np.median(np.abs(values)))
