"""A judge: says how wrong results of a program are, as the module `tolerance` defines it, for one list of arguments."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.ir import Program
from pcp.ir.types import dtype_of
from pcp.planning.judging.comparison import Comparison
from pcp.planning.judging.distances import INFINITE, Distance, Scale, Squares, rounded_by_chance, share
from pcp.planning.judging.tolerance import Judged, ResultError

SAFETY = 2.0
"""The error of a reference is taken to be this many times what other roundings of the same make of it."""

NOTHING = 2.0**-24
"""Of the size of its group, less than rounding to float32 makes of that: what is so small is zero in exact arithmetic."""


SHORT = 2
"""Bytes of an element of state of which rounding to its type may be more than is added to it."""
MOST_LOST = 0.5
"""A result of which more than this part is not finite says nothing of how exact a program is."""


class UnknownResult(PCPError):
    """A name that no result of a program has."""


@dataclass(frozen=True, slots=True)
class _Standard:
    """What one result is held against.

    Arguments:
        judged: what its errors are relative to.
        scale: that, for floating-point results.
        bound: how far the reference may be from the exact result.
        plain: how far the plain path's result is from it.
        missed: the plain path's error relative to the result's own norm, where another scale took its place.
    """

    judged: Judged
    scale: Scale
    bound: Distance
    plain: Distance
    missed: float = 0.0


class Judge:
    """Holds results of a program against a reference.

    Arguments:
        program: the plain program.
        arguments: of the call, flat, as they were before it.
        right: the results of the reference; they are walked through for every judgement.
        plain: the results of the plain path.
        tolerance: at which gradients and updates that the plain path misses are judged on the scale of their group, as those
            are that are nothing beside it; None or 0 leaves all on their own.
        ignored: places of results that are left out.
        doubts: results of the reference in other roundings, which say how far it may be from exact results; none are
            needed where it is as good as exact.
    """

    def __init__(
        self,
        program: Program,
        arguments: Sequence[Any],
        right: Iterable[Any],
        plain: Iterable[Any],
        comparison: Comparison,
        tolerance: float | None = None,
        ignored: Collection[int] = (),
        doubts: Sequence[Iterable[Any]] = (),
    ) -> None:
        self.program = program
        self._right, self._plain, self._doubts = right, plain, doubts
        self._comparison = comparison
        self._ignored = frozenset(ignored)
        self._noises: dict[int, Squares] = {}
        self._before = before = {
            entry.alias: (entry.kept, value)
            for entry, value in zip(program.arguments, arguments, strict=True)
            if entry.alias is not None and entry.spec.dtype.is_differentiable
        }
        self._stored = frozenset(
            place
            for place, (kept, _) in before.items()
            if kept and program.results[place].spec.dtype.itemsize <= SHORT
        )
        self._standards: list[_Standard] = []
        for place, (entry, of_result) in enumerate(zip(program.results, self._all(), strict=True)):
            if entry.spec.dtype.is_differentiable:
                scale = comparison.scale(of_result[0], *before.get(place, (0.0, None)))
                self._standards.append(self._standard(place, Judged.norm, scale, *of_result))
            else:
                self._standards.append(self._standard(place, Judged.share, _NONE, *of_result))
        lost = {
            result_name(program, place): standard.scale.lost
            for place, standard in enumerate(self._standards)
            if place not in self._ignored and standard.scale.lost > MOST_LOST
        }
        self.lost = max(lost.items(), key=lambda each: each[1], default=None)
        """The result with the most elements that are no numbers in the reference, and their part, if that is more than half."""
        if tolerance:
            self._regroup(tolerance)

    @property
    def plain(self) -> list[ResultError]:
        """The errors of the plain path, of every result that is not ignored."""
        places = (place for place in range(len(self._standards)) if place not in self._ignored)
        return [self._error(place, self._standards[place].plain) for place in places]

    def errors(self, results: Iterable[Any]) -> list[ResultError]:
        """The errors of results of a path, of every result that is not ignored."""
        errors = []
        for place, (right, y) in enumerate(zip(self._right, results, strict=True)):
            if place not in self._ignored:
                standard = self._standards[place]
                noise = self._noise(place, right) if self._is_narrowed(place, y) else None
                distance = self._distance(place, standard.judged, y, right, standard.scale, noise)
                errors.append(self._error(place, _further(distance, standard.bound)))
        return errors

    def _is_narrowed(self, place: int, result: Any) -> bool:
        """Whether a result is state that a path keeps in fewer bits than the program does, and that is judged by what is added
        to it: that may be less than such numbers are apart."""
        is_narrower = dtype_of(result.dtype).itemsize < self.program.results[place].spec.dtype.itemsize
        return is_narrower and bool(self._before.get(place, (0.0, None))[0])

    def _noise(self, place: int, right: Any) -> Squares:
        """The squares that rounding such state by chance makes wrong on average, before a call and after it."""
        if place not in self._noises:
            kept, before = self._before[place]
            self._noises[place] = rounded_by_chance(np.asarray(right), kept, np.asarray(before))
        return self._noises[place]

    def _all(self) -> Iterator[tuple[Any, ...]]:
        """For each result what the reference computes, what the plain path does, and what other roundings make of it."""
        return zip(self._right, self._plain, *self._doubts, strict=True)

    def _standard(
        self,
        place: int,
        judged: Judged,
        scale: Scale,
        right: Any,
        plain: Any,
        *doubts: Any,
        missed: float = 0.0,
    ) -> _Standard:
        bound = Distance(0.0)
        for doubt in doubts:
            other = self._distance(place, judged, doubt, right, scale)
            bound = Distance(max(bound.error, other.error), max(bound.slice_error, other.slice_error))
        if judged is not Judged.share:
            bound = Distance(SAFETY * bound.error, SAFETY * bound.slice_error)
        near = Distance(0.0) if plain is right else self._distance(place, judged, plain, right, scale)
        return _Standard(judged, scale, bound, _further(near, bound), missed)

    def _distance(
        self, place: int, judged: Judged, result: Any, right: Any, scale: Scale, noise: Squares | None = None
    ) -> Distance:
        if judged is Judged.share:
            return Distance(share(np.asarray(result), np.asarray(right)))
        return self._comparison.distance(result, right, scale, place in self._stored, noise)

    def _error(self, place: int, distance: Distance) -> ResultError:
        standard = self._standards[place]
        return ResultError(
            result_name(self.program, place),
            distance.error,
            standard.plain.error,
            distance.slice_error,
            standard.plain.slice_error,
            distance.slice,
            standard.judged,
            standard.missed,
        )

    def _regroup(self, tolerance: float) -> None:
        """Judge gradients and updates that the plain path misses, or that are nothing, on the scale of their groups."""
        groups: dict[str, list[int]] = {}
        for entry in self.program.arguments:
            if entry.group and entry.alias is not None and entry.alias not in self._ignored:
                groups.setdefault(entry.group, []).append(entry.alias)
        sizes: dict[int, float] = {}
        for places in groups.values():
            missed = {p for p in places if self._error(p, self._standards[p].plain).least_plain > tolerance}
            met = [place for place in places if place not in missed]
            count = sum(self.program.results[place].spec.size for place in met)
            if not count:
                continue
            size = math.sqrt(math.fsum(self._standards[place].scale.whole ** 2 for place in met) / count)
            nothing = {place for place in met if self._size(place) < NOTHING * size}
            sizes |= dict.fromkeys(missed | nothing, size)
        if not sizes:
            return
        for place, of_result in enumerate(self._all()):
            if place in sizes:
                scale = Scale.of_elements(sizes[place], self.program.results[place].spec.shape)
                own = self._standards[place].plain.error
                self._standards[place] = self._standard(place, Judged.group, scale, *of_result, missed=own)

    def _size(self, place: int) -> float:
        """The root mean square over the elements of a result of the reference."""
        count = self.program.results[place].spec.size
        return self._standards[place].scale.whole / math.sqrt(count) if count else math.inf


def named_places(program: Program, names: Collection[str]) -> frozenset[int]:
    """The places of results by name; a name also stands for all that are nested in it.

    Raises:
        UnknownResult: no result has one of the names.
    """
    places: set[int] = set()
    for name in names:
        here = {
            place
            for place in range(len(program.results))
            if result_name(program, place) == name or result_name(program, place).startswith(f"{name}.")
        }
        if not here:
            known = [result_name(program, place) for place in range(len(program.results))]
            more = f" and {len(known) - 8} more" if len(known) > 8 else ""
            raise UnknownResult(f"no result is named {name!r}; the results are {', '.join(known[:8])}{more}")
        places |= here
    return frozenset(places)


def result_name(program: Program, place: int) -> str:
    """The name of a result, or its place where it has none."""
    return program.results[place].name or str(place)


_NONE = Scale(0.0, {})


def _further(distance: Distance, bound: Distance) -> Distance:
    """The distance from the exact result, from that to a reference which may itself be some way from it."""
    if distance == INFINITE:
        return distance
    return replace(
        distance,
        error=distance.error + bound.error,
        slice_error=distance.slice_error + bound.slice_error,
    )
