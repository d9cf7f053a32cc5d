"""The cheapest recomputation that fits in a budget of bytes.

The forward pass is cut where little crosses from one part to the next, and what crosses is kept; of the other values that the
backward pass reads, those are made again that take few operations for each byte. Every number of parts and every limit of
operations for a byte is a candidate; the cheapest that fits is improved by keeping again what is dear, as far as fits.

Source: Chen, Xu, Zhang and Guestrin, "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174, section 4.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from pcp.autodiff.rematerialisation.joint_graph import JointGraph
from pcp.autodiff.rematerialisation.memory_estimate import peak_bytes
from pcp.autodiff.rematerialisation.policy import ByteBudget
from pcp.errors import PCPError

log = logging.getLogger("pcp.autodiff")

_PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
_LIMITS = 5


class BudgetUnreachable(PCPError):
    """A budget of bytes in which no choice of values to make again fits."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Values to keep, the floating-point operations that this costs, and the backward pass."""

    kept: frozenset[int]
    flops: int
    order: list[int]


def cheapest_within(graph: JointGraph, budget: ByteBudget, allowed: frozenset[int]) -> frozenset[int]:
    """The residuals to keep, so that the program fits in a budget at the least recomputation that was found.

    Arguments:
        graph: the differentiated program.
        budget: bytes that it may take at once.
        allowed: the values that may be kept at all.

    Raises:
        BudgetUnreachable: none fits; the message says what the smallest takes.
    """
    residuals = frozenset(graph.residuals) & allowed
    limit = budget.bytes - budget.reserved
    everything = _candidate(graph, residuals)
    whole = smallest = peak_bytes(graph, everything.order)
    if whole <= limit:
        return everything.kept
    for candidate in sorted(
        _candidates(graph, residuals), key=lambda entry: (entry.flops, sorted(entry.kept))
    ):
        peak = peak_bytes(graph, candidate.order)
        smallest = min(smallest, peak)
        if peak <= limit:
            chosen = _improved(graph, candidate, residuals, limit)
            log.info(
                "%d of %d residuals are kept within %d bytes, and %d floating-point operations done again",
                len(chosen.kept), len(residuals), budget.bytes, chosen.flops,
            )  # fmt: skip
            return chosen.kept
    least, most = smallest + budget.reserved, whole + budget.reserved
    raise BudgetUnreachable(
        f"no choice of values to recompute fits in {budget.bytes} bytes: the smallest that was found takes about {least}, "
        f"keeping everything {most}; give at least {least}, or use a smaller batch"
    )


def _candidate(graph: JointGraph, kept: frozenset[int]) -> _Candidate:
    order = graph.schedule(kept.__contains__)
    return _Candidate(kept, sum(graph.flops[~op] for op in order if op < 0), order)


def _candidates(graph: JointGraph, residuals: frozenset[int]) -> list[_Candidate]:
    """One for each number of parts and each limit of operations for a byte, without repetition."""
    intensity = _intensity(graph, residuals)
    ordered = sorted(set(intensity.values()))
    limits = sorted(
        {ordered[(len(ordered) - 1) * i // _LIMITS] for i in range(1, _LIMITS + 1)} if ordered else ()
    )
    found = {
        frozenset(v for v in residuals if intensity[v] > limit) | crossing
        for crossing in _crossings(graph, residuals)
        for limit in limits
    }
    return [_candidate(graph, kept) for kept in found]


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
    weight = [sum(graph.bytes(v) for v in made if v in residuals) for made in graph.results[: graph.forward]]
    live: set[int] = set()
    width, crossing = [], []
    for index in range(graph.forward):
        live = {v for v in live if last[v] > index}
        live |= {v for v in graph.results[index] if last.get(v, -1) > index and graph.can_be_remade(v)}
        crossing.append(frozenset(live))
        width.append(sum(map(graph.bytes, live)))
    found = [
        frozenset.union(frozenset(), *(crossing[i] for i in _cuts(weight, width, parts))) for parts in _PARTS
    ]
    return list(dict.fromkeys(found))


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


def _improved(graph: JointGraph, candidate: _Candidate, residuals: frozenset[int], limit: int) -> _Candidate:
    """The candidate with as many of its dearest values kept as fit; each takes the most operations for its bytes."""
    intensity = _intensity(graph, residuals)
    dropped = sorted(residuals - candidate.kept, key=lambda v: (-intensity[v], v))
    low, high, best = 0, len(dropped), candidate
    while low < high:
        middle = (low + high + 1) // 2
        trial = _candidate(graph, candidate.kept | frozenset(dropped[:middle]))
        if peak_bytes(graph, trial.order) <= limit:
            low, best = middle, trial
        else:
            high = middle - 1
    return best if best.flops < candidate.flops else candidate
