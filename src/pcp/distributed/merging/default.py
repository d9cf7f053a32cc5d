"""The merge of a run that says nothing else: clipped, without what points elsewhere, and nobody twice."""

from collections.abc import Sequence

import numpy as np

from pcp import ops
from pcp.backends import Device
from pcp.distributed.merging import few
from pcp.distributed.merging.accumulation import Accumulator, borders
from pcp.distributed.merging.base import NOT_FINITE, Loader, Merge, Merged, Segment, State, Verdict, shares
from pcp.distributed.merging.clip import clip_reason, clipped
from pcp.distributed.merging.history import remembered, replayed
from pcp.distributed.merging.measuring import leaf_norm
from pcp.distributed.merging.sketch import BUCKETS, SIGNATURE, signatures, sketch
from pcp.planning import plan
from pcp.tensor import Tensor
from pcp.tracing import spec, trace

ALIGNED = 0.5  # of the median cosine: honest workers on equal data lie within a tenth of it
ALIKE = 0.5  # cosine of what two contributions have beside the common direction; about 0 for independent data
IDENTICAL = 1e-3  # shorter than this share of the contribution, what is beside the centre is rounding
REMEMBERED = 1024  # contributions that are known again


class Default(Merge):
    """The mean of what remains, by weight, when

    1. what is not finite, or was merged in an earlier round, is refused;
    2. each leaf's norm is clipped to the median of what the others' would be with as many batches;
    3. what has less than half the usual cosine with the coordinate median of all is left out;
    4. those that agree in what nobody else has (copies, accomplices) share the weight of one.

    Of two contributions there is no median: neither may be longer than the other or than is usual in this run, and where
    they contradict each other, only the one counts that agrees more with earlier rounds (`few`).

    The coordinate median and the cosines are those of sketches, so that two passes and the memory of one vector do.
    Nobody's weight is ever more than its share of the batches among those that remain.

    Arguments:
        segments, device: as of every `Merge`.

    Source: norms as in Templar; 4. after Fung et al., "The Limitations of Federated Learning in Sybil Settings", 2020.
    """

    def __init__(self, segments: Sequence[Segment], device: Device | str | None = None) -> None:
        super().__init__(segments, device)

        def look(vector: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            norms = ops.stack([leaf_norm(vector[start:end]) for start, end in borders(segments)])
            return norms, ops.all(ops.is_finite(vector)), sketch(vector, segments)

        self._look = plan(trace(look, spec((self.size,), "f32")), device=device)
        self._accumulator = Accumulator(segments, device)

    def initial_state(self) -> State:
        """No contribution was seen."""
        return {
            "seen": np.zeros((REMEMBERED, SIGNATURE), np.float32),
            "norms": np.zeros((few.ROUNDS, len(self.segments)), np.float32),
            "direction": np.zeros(len(self.segments) * BUCKETS, np.float32),
        }

    def merge(self, loaders: Sequence[Loader], weights: np.ndarray, state: State) -> Merged:
        """See `Merge.__call__`."""
        norms, finite, sketches = self._looks(loaders)
        marks = signatures(sketches)
        old = finite & replayed(marks, state["seen"])
        # Where everything was seen before, the training stands still, and nobody is the odd one.
        usable = finite & ~old if (finite & ~old).any() else finite
        shares(weights, usable)  # raises where nothing is
        past, before = (np.asarray(state[name], np.float64) for name in ("norms", "direction"))
        is_few = usable.sum() < few.FEWEST
        bound = few.bounded(norms, weights, usable, past) if is_few else bounds(norms, weights, usable)
        scale = clipped(norms, bound)
        pictures = (sketches * scale[:, :, None]).reshape(len(weights), -1)
        contradiction = is_few and few.contradict(pictures, usable)
        standstill = contradiction and not before.any()
        if standstill:
            scale = np.zeros_like(scale)
        if contradiction and not standstill:
            aligned, cosines = few.nearest(pictures, usable, before)
        else:
            aligned, cosines = direction(pictures, usable)
        alike = companions(pictures, aligned)
        share = shares(weights / alike, aligned)
        total = self._accumulator.total(loaders, share[:, None] * scale)
        usual = float(np.median(cosines[usable]))
        reasons = [
            NOT_FINITE if not finite[i]
            else "it was merged in an earlier round" if not usable[i]
            else "the two contradict each other, and no earlier round says which is right, so neither counts"
            if standstill
            else f"it contradicts the other, which agrees more with earlier rounds (its cosine is {cosines[i]:.2f})"
            if contradiction and not aligned[i]
            else f"its cosine with the median of all is {cosines[i]:.2f}, the usual one is {usual:.2f}" if not aligned[i]
            else f"{alike[i]} contributions are alike and share the weight of one" if alike[i] > 1
            else clip_reason(norms[i], scale[i])
            for i in range(len(weights))
        ]  # fmt: skip
        verdicts = tuple(Verdict(float(a), b) for a, b in zip(share, reasons, strict=True))
        after = {
            "seen": remembered(state["seen"], marks[finite]),
            "norms": state["norms"] if standstill else few.remembered_norms(past, (norms * scale)[aligned]),
            "direction": state["direction"]
            if standstill
            else few.remembered_direction(before, share @ pictures),
        }
        return Merged(total, verdicts, after)

    def _looks(self, loaders: Sequence[Loader]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rows = [self._look.run(load()) for load in loaders]
        finite = np.array([bool(row[1]) for row in rows])
        norms = np.array([np.asarray(row[0], np.float64) for row in rows])
        sketches = np.array([np.asarray(row[2], np.float64) for row in rows])
        kept = finite & np.isfinite(sketches).all((1, 2)) & np.isfinite(norms).all(1)
        return np.where(kept[:, None], norms, 0.0), kept, np.where(kept[:, None, None], sketches, 0.0)


def bounds(norms: np.ndarray, weights: np.ndarray, usable: np.ndarray) -> np.ndarray:
    """What each leaf's norm may be: the median of the norms, where those of fewer batches count as if they had as many.

    Arguments:
        norms: of shape (contributions, leaves).
        weights: of shape (contributions,).
        usable: which contributions the median is of.

    Returns:
        Of shape (contributions, leaves).
    """
    longer = np.maximum(1.0, weights[:, None] / weights[None, usable])
    medians: np.ndarray = np.median(longer[:, :, None] * norms[None, usable], axis=1)
    return medians


def direction(pictures: np.ndarray, usable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which contributions point where the coordinate median of all does, and their cosines with it.

    Arguments:
        pictures: sketches of the contributions, of shape (contributions, k).
    """
    centre = np.median(pictures[usable], axis=0)
    lengths = np.linalg.norm(pictures, axis=1) * np.linalg.norm(centre)
    cosines = pictures @ centre / np.where(lengths > 0, lengths, np.inf)
    usual = np.median(cosines[usable])
    # Where even the median contribution has no direction in common with the others, nobody is the odd one.
    if usable.sum() < few.FEWEST or usual <= 0:
        return usable, cosines
    return usable & (cosines >= ALIGNED * usual), cosines


def companions(pictures: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """How many contributions, itself counted, agree with each in what is not in the common direction.

    Arguments:
        pictures: sketches of the contributions, of shape (contributions, k).
        kept: which are looked at; the others have no companions.
    """
    centre = np.median(pictures[kept], axis=0)
    square = centre @ centre
    along = pictures @ centre / square if square > 0 else np.zeros(len(pictures))
    beside = np.where(kept[:, None], pictures - along[:, None] * centre, 0.0)
    lengths = np.linalg.norm(beside, axis=1)
    lengths[lengths <= IDENTICAL * np.linalg.norm(pictures, axis=1)] = np.inf
    unit = beside / lengths[:, None]
    alike = unit @ unit.T > ALIKE
    np.fill_diagonal(alike, True)
    counts: np.ndarray = alike.sum(1)
    return counts
