"""Which kernel each class gets: the most time saved for an error that the whole may have.

Errors of different sites are independent, so their squares add up. What weight the square of a class has in the results is not
known in advance; every measurement of a whole plan says what the weighted sum was, and the weights are corrected by that.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pcp.kernels import Kernel, cover
from pcp.planning.paths.path import Path
from pcp.planning.search.site_classes import kernels_by_site
from pcp.planning.search.tuning import PLAIN, Alternative, MeasuredClass
from pcp.planning.search.whole import Whole

_ROUNDS = 50

Selection = Mapping[str, Alternative]
"""What each class is computed by, by the digest of its region."""


@dataclass(slots=True)
class ErrorModel:
    """Predicts the error of a whole plan.

    Arguments:
        weights: how much the squared error of each class weighs in the results' squared error.
        seen: selections and the squares of their measured errors.
    """

    weights: dict[str, float]
    seen: list[tuple[dict[str, float], float]]

    @staticmethod
    def of(classes: Sequence[MeasuredClass]) -> "ErrorModel":
        """The model before anything is known: each class passes on its own error, and only the largest shows."""
        return ErrorModel({each.sites.digest: 1.0 for each in classes}, [])

    def predicted(self, selection: Selection) -> float:
        """The error of a whole plan; before any is measured the largest of its parts."""
        squares = _squares(selection)
        if not self.seen:
            return math.sqrt(max(squares.values(), default=0.0))
        return math.sqrt(sum(self.weights[digest] * square for digest, square in squares.items()))

    def learn(self, selection: Selection, error: float) -> None:
        """Correct the weights by the measured error of a whole plan, as little as possible (multiplicative algebraic
        reconstruction: a weight is scaled by how large its class's part in the miss can be)."""
        if not math.isfinite(error) or not any(_squares(selection).values()):
            return
        self.seen.append((_squares(selection), error**2))
        for _ in range(_ROUNDS):
            for squares, measured in self.seen:
                total = sum(self.weights[digest] * square for digest, square in squares.items())
                if total <= 0.0 or measured <= 0.0:
                    continue
                largest = max(squares.values())
                for digest, square in squares.items():
                    self.weights[digest] *= (measured / total) ** (square / largest)


@dataclass(slots=True)
class Experience:
    """What was learnt of selections in the whole program.

    Arguments:
        banned: pairs of a class and a kernel's name that do not work there.
        tried: digests of the paths that need not be tried any more.
    """

    model: ErrorModel
    banned: set[tuple[str, str]] = field(default_factory=set)
    tried: set[str] = field(default_factory=set)


def select(
    classes: Sequence[MeasuredClass],
    tolerance: float,
    model: ErrorModel,
    banned: set[tuple[str, str]],
    error_margin: float,
) -> dict[str, Alternative]:
    """The selection that saves most, as far as the model knows, within a tolerance.

    From the fastest kernel of every class, the class that pays most in error for the time it saves is moved to a slower and
    more exact kernel, until the predicted error fits.

    Arguments:
        classes: with their alternatives, the fastest first.
        tolerance: the largest error of the whole.
        banned: pairs of a class and a kernel's name that did not work in the whole program.
        error_margin: the predicted error may be this part of the tolerance.
    """
    choices = {each.sites.digest: _usable(each, banned) for each in classes}
    chosen = {digest: usable[0] for digest, usable in choices.items()}
    if not tolerance:  # bits are compared, and only kernels that should change none are here
        return _cover(classes, chosen)
    limit = tolerance if not model.seen else error_margin * tolerance
    while model.predicted(chosen) > limit:
        moves = []
        for digest, usable in choices.items():
            now = chosen[digest]
            weight = model.weights[digest]
            for other in usable:
                gained = weight * (now.error**2 - other.error**2)
                if gained > 0.0 and other.saved <= now.saved:
                    lost = max(now.saved - other.saved, 1e-12)
                    moves.append((gained / lost, digest, other))
        if not model.seen:  # only what is too wrong alone has to move
            moves = [move for move in moves if chosen[move[1]].error > limit]
        if not moves:
            break
        _, digest, other = max(moves, key=lambda move: (move[0], move[1]))
        chosen[digest] = other
    return _cover(classes, chosen)


def _cover(classes: Sequence[MeasuredClass], chosen: dict[str, Alternative]) -> dict[str, Alternative]:
    """The same, where of sites that overlap only one side has kernels: that which saves more, by times alone."""
    for wide in sorted(
        classes, key=lambda each: -max((len(site.takes) for site in each.sites.sites), default=0)
    ):
        digest = wide.sites.digest
        parts = {} if chosen[digest].kernel is None else _overlapping(wide, classes, chosen)
        if math.fsum(chosen[each].saved * part for each, part in parts.items()) > chosen[digest].saved:
            chosen[digest] = PLAIN
        else:
            chosen |= {each: PLAIN for each, part in parts.items() if part == 1.0}
    return chosen


def _overlapping(
    wide: MeasuredClass, classes: Sequence[MeasuredClass], chosen: Mapping[str, Alternative]
) -> dict[str, float]:
    """For each other class with kernels, by digest, the part of its sites without any where the wide class has its own."""
    shares = {}
    for each in classes:
        if each is not wide and chosen[each.sites.digest].kernel is not None:
            kept = {site.key for site in cover((*wide.sites.sites, *each.sites.sites))}
            left_out = sum(site.key not in kept for site in each.sites.sites)
            if left_out:
                shares[each.sites.digest] = left_out / len(each.sites.sites)
    return shares


def kernels_of(selection: Selection) -> dict[str, Kernel]:
    """The kernels of a selection, by the digests of their classes."""
    return {digest: one.kernel for digest, one in selection.items() if one.kernel is not None}


def path_by(selection: Selection, classes: Sequence[MeasuredClass], whole: Whole) -> Path:
    """The path on which a selection computes each class."""
    return whole.path(kernels_by_site([each.sites for each in classes], kernels_of(selection)))


def saved(selection: Selection) -> float:
    """Seconds that a selection saves, by times taken alone."""
    return math.fsum(one.saved for one in selection.values())


def _usable(each: MeasuredClass, banned: set[tuple[str, str]]) -> list[Alternative]:
    return [
        one
        for one in each.alternatives
        if one.kernel is None or (each.sites.digest, one.kernel.name) not in banned
    ]


def _squares(selection: Selection) -> dict[str, float]:
    return {digest: one.error**2 for digest, one in selection.items()}
