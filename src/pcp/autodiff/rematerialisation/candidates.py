"""What to keep where a program is cut in two, and what to make again: candidates, from which a limit of bytes chooses.

What comes before the cut is cut once more where little crosses from one part to the next, and what crosses is kept; of the
other values that are read behind the cut, those are made again that take few operations for each byte. Every number of parts
and every limit of operations for a byte is a candidate; the cheapest that fits is improved by keeping what is costly again, as
far as fits.

Source: Chen, Xu, Zhang and Guestrin, "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174, section 4.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pcp.autodiff.rematerialisation.joint_graph import JointGraph
from pcp.autodiff.rematerialisation.memory_estimate import peak_bytes

_PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
_LIMITS = 5


@dataclass(frozen=True, slots=True)
class Candidate:
    """Values to keep, and what that comes to.

    Arguments:
        kept: numbers of values.
        flops: floating-point operations that are done again.
        peak: bytes that the program should take at once.
        order: of the operations behind the cut, as `JointGraph.schedule` returns it.
    """

    kept: frozenset[int]
    flops: int
    peak: int
    order: tuple[int, ...]


class Candidates:
    """What may be kept of the first part of a program.

    Arguments:
        graph: of the program; its forward pass is what comes before the cut.
    """

    def __init__(self, graph: JointGraph) -> None:
        self.graph = graph
        self._residuals = frozenset(graph.residuals)
        self._intensity = _intensity(graph, self._residuals)
        self.everything = self._candidate(self._residuals)

    @cached_property
    def smallest(self) -> Candidate:
        """The one that should take the fewest bytes."""
        return min((self.everything, *self._coarse), key=lambda each: (each.peak, each.flops))

    def within(self, limit: int) -> Candidate | None:
        """The one with the least recomputation of those that should take no more than so many bytes."""
        if self.everything.peak <= limit:
            return self.everything
        first = next((each for each in self._coarse if each.peak <= limit), None)
        return None if first is None else self._improved(first, limit)

    def _candidate(self, kept: frozenset[int]) -> Candidate:
        order = tuple(self.graph.schedule(kept.__contains__))
        flops = sum(self.graph.flops[~op] for op in order if op < 0)
        return Candidate(kept, flops, peak_bytes(self.graph, order), order)

    @cached_property
    def _coarse(self) -> list[Candidate]:
        """One for each number of parts and each limit of operations for a byte, without repetition; the cheapest first."""
        ordered = sorted(set(self._intensity.values()))
        limits = (
            {ordered[(len(ordered) - 1) * i // _LIMITS] for i in range(1, _LIMITS + 1)} if ordered else ()
        )
        kept_values = {
            frozenset(v for v in self._residuals if self._intensity[v] > limit) | crossing
            for crossing in _crossings(self.graph, self._residuals)
            for limit in limits
        }
        return sorted(map(self._candidate, kept_values), key=lambda each: (each.flops, sorted(each.kept)))

    def _improved(self, candidate: Candidate, limit: int) -> Candidate:
        """The candidate, with as many more values kept as fit: first those that take the most operations for their bytes."""
        dropped = sorted(self._residuals - candidate.kept, key=lambda v: (-self._intensity[v], v))
        low, high, best = 0, len(dropped), candidate
        while low < high:
            middle = (low + high + 1) // 2
            trial = self._candidate(candidate.kept | frozenset(dropped[:middle]))
            if trial.peak <= limit:
                low, best = middle, trial
            else:
                high = middle - 1
        return best if best.flops < candidate.flops else candidate


def _intensity(graph: JointGraph, residuals: frozenset[int]) -> dict[int, float]:
    """For each residual, the operations that making it again takes for each of its bytes, from the other residuals."""
    alone: dict[int, int] = {}
    for index in range(graph.forward):
        work = graph.flops[index] + sum(
            alone[v] for v in graph.reads[index] if v not in residuals and graph.can_be_remade(v)
        )
        alone.update(dict.fromkeys(graph.results[index], work))
    return {value: alone[value] / max(graph.bytes(value), 1) for value in residuals}


def _crossings(graph: JointGraph, residuals: frozenset[int]) -> list[frozenset[int]]:
    """For each number of parts, what is carried from one part of the forward pass to the next."""
    last = {value: index for index in range(graph.forward) for value in graph.reads[index]}
    weight = [
        sum(graph.bytes(v) for v in results if v in residuals) for results in graph.results[: graph.forward]
    ]
    live: set[int] = set()
    width, crossing = [], []
    for index in range(graph.forward):
        live = {v for v in live if last[v] > index}
        live |= {v for v in graph.results[index] if last.get(v, -1) > index and graph.can_be_remade(v)}
        crossing.append(frozenset(live))
        width.append(sum(map(graph.bytes, live)))
    crossing_cuts = [
        frozenset.union(frozenset(), *(crossing[i] for i in _cuts(weight, width, parts))) for parts in _PARTS
    ]
    return list(dict.fromkeys(crossing_cuts))


def _cuts(weight: Sequence[int], width: Sequence[int], parts: int) -> list[int]:
    """Where to cut into parts of about equal weight: in each of as many stretches, where the least crosses."""
    total, sums, running = sum(weight), [], 0
    for entry in weight:
        running += entry
        sums.append(running)
    cuts = []
    for part in range(1, parts):
        low, high = (total * (2 * part - 1) / (2 * parts), total * (2 * part + 1) / (2 * parts))
        stretch = [i for i, entry in enumerate(sums) if low <= entry < high]
        if stretch:
            cuts.append(min(stretch, key=lambda i: width[i]))
    return cuts
