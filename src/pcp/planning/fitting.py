"""A path that fits in a number of bytes, as the compiler counts them, at as little recomputation as was found.

Which values are made again is chosen by an estimate; the compiler's own figure decides. Between an estimate that fits and one
that does not, the middle is tried.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pcp.autodiff.rematerialisation.candidates import Candidate
from pcp.autodiff.rematerialisation.recomputation import Recomputable
from pcp.backends import MemoryUse, OutOfMemory, Target
from pcp.ir import Program
from pcp.planning.capacity import human
from pcp.planning.paths.path import Path

log = logging.getLogger("pcp.planning")

_ATTEMPTS = 6
_CLOSE = 1.03
"""Estimates that differ by less than this factor are taken for equal."""


class MemoryUnreachable(OutOfMemory):
    """Memory in which nothing that was tried runs a program.

    Arguments:
        least: bytes that were found to be enough.
    """

    def __init__(self, message: str, least: int) -> None:
        super().__init__(message)
        self.least = least


@dataclass(frozen=True, slots=True)
class Fit:
    """What a path gives up to fit into memory.

    Arguments:
        path: it.
        asked: bytes that a call may take.
        peak: bytes that a call takes, as the compiler reports them.
        without: the same if nothing was made again.
        remade: how many operations run a second time.
        more: floating-point operations that are done again, as a share of all.
    """

    path: Path
    asked: int
    peak: int
    without: int
    remade: int = 0
    more: float = 0.0

    def __str__(self) -> str:
        given = "nothing is computed again for that"
        if self.remade:
            again = f"{self.remade} operations run again, {self.more:.1%} more floating-point operations"
            given = f"{again}; without that {human(self.without)}"
        return f"{human(self.peak)} of {human(self.asked)} asked for: {given}"

    def to_json(self) -> Mapping[str, Any]:
        """The same as values of JSON."""
        return {
            "asked": self.asked, "peak": self.peak, "without": self.without, "remade": self.remade, "more": self.more
        }  # fmt: skip


def fitted(program: Program, path: Path, target: Target, limit: int, cache: bool = True) -> Fit:
    """The path with as little made again as was found to fit.

    Arguments:
        program: that it is of.
        path: how it runs otherwise; what it makes again already does not count.
        target: what it is compiled for.
        limit: bytes that a call may take.
        cache: whether compiled forms are kept.

    Raises:
        MemoryUnreachable: nothing that was tried fits; the message says what takes the least.
        CompilationFailed: the compiler refuses the program.
    """
    path = replace(path, recomputation=None)
    use = target.compile(path.applied(program), cache=cache).memory
    if use.peak <= limit:
        return Fit(path, limit, use.peak, use.peak)
    search = _Search(path, Recomputable(path.applied(program)), target, limit, cache)
    found = search.run(use)
    if found is None:
        least = use if search.least is None or use.peak < search.least.peak else search.least
        raise MemoryUnreachable(_unreachable(program, least, use, limit), least.peak)
    return found


class _Search:
    def __init__(self, path: Path, source: Recomputable, target: Target, limit: int, cache: bool) -> None:
        self.path, self.source, self.target, self.limit, self.cache = path, source, target, limit, cache
        self.least: MemoryUse | None = None
        self._tried: set[frozenset[int]] = set()
        self._best: Fit | None = None

    def run(self, plain: MemoryUse) -> Fit | None:
        """The best that fits."""
        candidates = self.source.candidates
        fits, too_much = candidates.smallest.peak, candidates.everything.peak  # by the estimate
        guess = too_much * self.limit / plain.peak
        self._tried.add(candidates.everything.kept)
        for attempt in range(_ATTEMPTS):
            last = attempt == _ATTEMPTS - 1 and self._best is None
            candidate = None if last or guess <= fits else candidates.within(int(guess))
            candidate = candidates.smallest if candidate is None else candidate
            if candidate.kept in self._tried:
                break
            if self._try(candidate, plain):
                fits = candidate.peak
                guess = (fits + too_much) / 2
            else:
                too_much = candidate.peak
                guess = (fits + too_much) / 2 if self._best else min(0.9 * too_much, guess * 0.9)
            if too_much < _CLOSE * fits and self._best is not None:
                break
        return self._best

    def _try(self, candidate: Candidate, plain: MemoryUse) -> bool:
        self._tried.add(candidate.kept)
        recomputation, made = self.source.made(candidate)
        use = self.target.compile(made, cache=self.cache).memory
        log.info(
            "%d values kept: %d bytes of %d, estimated %d",
            len(candidate.kept),
            use.peak,
            self.limit,
            candidate.peak,
        )
        if self.least is None or use.peak < self.least.peak:
            self.least = use
        if use.peak > self.limit:
            return False
        if self._best is None or candidate.flops / self.source.flops <= self._best.more:
            self._best = Fit(
                replace(self.path, recomputation=recomputation),
                self.limit,
                use.peak,
                plain.peak,
                sum(op < 0 for op in candidate.order),
                candidate.flops / self.source.flops,
            )
        return True


def _unreachable(program: Program, use: MemoryUse, plain: MemoryUse, limit: int) -> str:
    held = use.arguments + use.results - use.aliased
    help_ = (
        "of this, arguments and results take the most: use a smaller model, optimizer state in fewer bytes, or more workers"
        if held > use.temporaries
        else "a smaller batch or shorter sequences take less, as do more micro-batches (accumulate=) and, within a tolerance, "
        "kernels that keep less"
    )
    return (
        f"nothing that was tried runs program {program.digest[:12]} in {human(limit)}: the least takes {human(use.peak)} "
        f"(arguments and results {human(held)}, temporaries {human(use.temporaries)}), and {human(plain.peak)} if nothing is "
        f"computed again; give memory of at least {use.peak} bytes, or: {help_}"
    )
