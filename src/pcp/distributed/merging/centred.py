"""Centred clipping: each contribution moves the centre by no more than a radius."""

from collections.abc import Sequence

import numpy as np

from pcp import ops
from pcp.backends import Device
from pcp.distributed.merging.base import (
    NOT_FINITE,
    Loader,
    Merge,
    Merged,
    Segment,
    State,
    Vector,
    Verdict,
    shares,
)
from pcp.distributed.merging.measuring import Meter, leaf_norm
from pcp.planning import plan
from pcp.tensor import Tensor
from pcp.tracing import spec, trace


class CentredClipping(Merge):
    """`v <- v + sum w_i (x_i - v) min(1, r / |x_i - v|)`, which begins at what the last round came to.

    The radius r is the median distance from the centre, so there is nothing to tune. Every iteration takes two passes.

    Arguments:
        segments, device: as of every `Merge`.
        iterations: how often the centre moves in a round.

    Source: Karimireddy, He, Jaggi, "Learning from History for Byzantine Robust Optimization" (2012.10333),
        algorithm 2; the radius is theirs of section 5 made adaptive.
    """

    def __init__(
        self, segments: Sequence[Segment], device: Device | str | None = None, iterations: int = 2
    ) -> None:
        super().__init__(segments, device)
        self._iterations = iterations
        self._meter = Meter([Segment("fragment", self.size)], device)
        flat, scalar = spec((self.size,), "f32"), spec((), "f32")

        def distance(vector: Tensor, centre: Tensor) -> Tensor:
            return leaf_norm(vector - centre)

        def move(total: Tensor, vector: Tensor, centre: Tensor, factor: Tensor) -> Tensor:
            return total + factor * (vector - centre)

        self._distance = plan(trace(distance, flat, flat), device=device)
        self._move = plan(trace(move, spec((self.size,), "f32", "state"), flat, flat, scalar), device=device)
        self._add = plan(trace(lambda a, b: ops.add(a, b), flat, flat), device=device)

    def initial_state(self) -> State:
        """The centre: zero."""
        return {"centre": np.zeros(self.size, np.float32)}

    def merge(self, loaders: Sequence[Loader], weights: np.ndarray, state: State) -> Merged:
        finite = self._meter.measure(loaders).finite
        share = shares(weights, finite)
        centre: Vector = state["centre"]
        for _ in range(self._iterations):
            distances = np.array(
                [
                    float(self._distance.run(load(), centre)) if usable else 0.0
                    for load, usable in zip(loaders, finite, strict=True)
                ]
            )
            radius = float(np.median(distances[finite]))
            scale = np.where(distances > radius, radius / np.where(distances > radius, distances, 1.0), 1.0)
            step: Vector = np.zeros(self.size, np.float32)
            for load, factor in zip(loaders, share * scale, strict=True):
                if factor:
                    step = self._move.run(step, load(), centre, np.float32(factor))
            centre = self._add.run(centre, step)
        verdicts = tuple(
            Verdict(float(share[i]), _reason(scale[i]) if finite[i] else NOT_FINITE)
            for i in range(len(share))
        )
        return Merged(centre, verdicts, {"centre": centre})


def _reason(scale: float) -> str:
    return (
        ""
        if scale >= 0.9
        else f"it lies {1 / max(scale, 1e-300):.3g} times as far from the centre as the median"
    )
