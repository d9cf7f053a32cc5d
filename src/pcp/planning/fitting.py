"""A path that fits in a number of bytes, as the compiler counts them, with as little given up as was found.

Which values are made again is chosen by an estimate; the compiler's own figure decides. Between an estimate that fits and one
that does not, the middle is tried.
"""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pcp.autodiff.rematerialisation.candidates import Candidate
from pcp.backends import MemoryUse, OutOfMemory, Target
from pcp.ir import Program
from pcp.planning.capacity import check_capacity, human
from pcp.planning.paths.kinds import REMADE
from pcp.planning.paths.parts import InParts
from pcp.planning.paths.path import Path
from pcp.rewrite.memory.recomputation import Recomputable

log = logging.getLogger("pcp.planning")

_ATTEMPTS = 6
_FEW_ATTEMPTS = 3
"""With kernels, before the batch is computed in parts: what kernels return is not made again, so little is gained."""
_CLOSE = 1.03
"""Estimates that differ by less than this factor are taken for equal."""
_PARTS = (2, 4, 8, 16, 32, 64)
_GAIN = 0.97
"""More parts are tried as long as a part more brings the bytes below this share."""
_LIGHT = 0.05
"""Of all operations, what is made again before the batch is computed in more parts."""


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
        without: the same if nothing was given up.
        parts: in how many parts the batch is computed.
        remade: how many operations run a second time, in each part.
        more: floating-point operations that are done again, as a share of all.
    """

    path: Path
    asked: int
    peak: int
    without: int
    parts: int = 1
    remade: int = 0
    more: float = 0.0

    def __str__(self) -> str:
        measures = [f"the batch is computed in {self.parts} parts"] * (self.parts > 1)
        if self.remade:
            measures.append(
                f"{self.remade} operations run again, {self.more:.1%} more floating-point operations"
            )
        cost = (
            f"{', '.join(measures)}; without that {human(self.without)}"
            if measures
            else "nothing is given up for that"
        )
        return f"{human(self.peak)} of {human(self.asked)} that it may take: {cost}"

    def to_json(self) -> Mapping[str, Any]:
        """The same as values of JSON."""
        return {name: getattr(self, name) for name in ("asked", "peak", "without", "parts", "remade", "more")}


def fitted(program: Program, path: Path, target: Target, limit: int, cache: bool = True) -> Fit:
    """The path with as little given up as was found to fit.

    What costs few operations comes first: values made again, then the batch in more and more parts. What costs many comes
    last. Where kernels are chosen, each part is computed by them.

    Arguments:
        program: that it is of.
        path: how it runs otherwise; what it makes again already does not count. One in parts stays in as many.
        target: what it is compiled for.
        limit: bytes that a call may take.
        cache: whether compiled forms are kept.

    Raises:
        MemoryUnreachable: nothing that was tried fits; the message says what takes the least.
        CompilationFailed: the compiler refuses the program.
    """
    path = path.having(REMADE.name)
    lowered = path.applied(program)
    there = target.suited(lowered)
    plain, path = there.compile(lowered, cache=cache).memory, path.compiled_by(there.options)
    if plain.peak <= limit:
        return Fit(path, limit, plain.peak, plain.peak, path.parts)
    search = _Search(target, limit, plain, cache)
    source, peak, before = _Source(path, lowered), plain.peak, math.inf
    attempts = _FEW_ATTEMPTS if path.choices else _ATTEMPTS
    is_light = search.run(source, peak, _LIGHT, attempts)
    divided_in = _divided_by(source, program, target)
    for parts in _PARTS if not is_light and path.parts == 1 else ():
        divided = divided_in(parts)
        if divided is None:
            break
        took = search.attempt(divided, divided.made.candidates.everything)
        if took > _GAIN * before:
            break
        before = took
        if (
            took < peak
        ):  # a few parts may take more than the whole, of which a compiler makes values again by itself
            source, peak = divided, took
            if peak <= limit or search.run(source, peak, _LIGHT, attempts):
                break
    if search.best is None:
        search.run(source, peak, math.inf)
    if search.best is None:
        raise MemoryUnreachable(_unreachable(program, search.least, plain, limit), search.least.peak)
    return search.best


def fitted_unasked(program: Program, use: MemoryUse, target: Target, limit: int, cache: bool) -> Fit:
    """A path that fits on a device, of a program that does not as it is written.

    Arguments:
        use: what it takes as it is written.

    Raises:
        OutOfMemory: none was found; the message says what takes the most.
    """
    log.warning(
        "the program takes %s as it is written, and %s has %s: what fits is looked for, which compiles it several times",
        human(use.peak), target.places, human(limit),
    )  # fmt: skip
    try:
        plain = Path.plain(program, dict(target.options), target.backend)
        return fitted(program, plain, target, limit, cache)
    except MemoryUnreachable as error:
        tried = f"where values are made again, and the batch is computed in parts, it takes at least {human(error.least)}"
        check_capacity(program, use, target, limit, tried)
        raise


class _Source:
    """A path, and its program, in which values may be made again.

    Arguments:
        path: that makes nothing again.
        lowered: the program as it has it computed.
        parts: in how many parts its batch is computed then.
    """

    def __init__(self, path: Path, lowered: Program, parts: int = 1) -> None:
        self.path, self.lowered, self.parts = path, lowered, parts
        self.made = Recomputable(lowered, parts)

    def with_kept(self, candidate: Candidate) -> tuple[Path, Program]:
        """The path that keeps what a candidate says, and its program."""
        if self.parts == 1 and candidate is self.made.candidates.everything:
            return self.path, self.lowered
        recomputation, program = self.made.made(candidate)
        return self.path.having(REMADE.name, [REMADE.move(recomputation)]), program


def _divided_by(source: _Source, program: Program, target: Target) -> Callable[[int], _Source | None]:
    """What divides the batch of a path into parts: a kernel is for one size, so kernels are chosen for a part's sizes first."""
    path = source.path
    if path.choices and path.prepared:
        in_parts = InParts(path, program, target)

        def with_kernels(parts: int) -> _Source | None:
            divided = in_parts(parts)
            return None if divided is None else _Source(divided, divided.applied(program))

        return with_kernels

    def as_it_is(parts: int) -> _Source | None:
        divided = _Source(path, source.lowered, parts)
        return None if divided.made.divided is None else divided

    return as_it_is


class _Search:
    """What was tried for one path, and the best that fits."""

    def __init__(self, target: Target, limit: int, plain: MemoryUse, cache: bool) -> None:
        self.target, self.limit, self.plain, self.cache = target, limit, plain, cache
        self.best: Fit | None = None
        self.least = plain

    def run(self, source: _Source, peak: int, most: float, attempts: int = _ATTEMPTS) -> bool:
        """Look for the least recomputation that fits; whether any does.

        Arguments:
            peak: bytes that the program takes if nothing is made again.
            most: operations that may be done again, as a share of all.
            attempts: programs that are compiled at most.
        """
        candidates = source.made.candidates
        fits, too_much = candidates.smallest.peak, candidates.everything.peak  # by the estimate
        guess, has_fit = too_much * self.limit / peak, False
        tried = {candidates.everything.kept}
        for attempt in range(attempts):
            last = attempt == attempts - 1 and not has_fit
            candidate = None if last or guess <= fits else candidates.within(int(guess))
            candidate = candidates.smallest if candidate is None else candidate
            if candidate.kept in tried or candidate.flops > most * source.made.flops:
                break
            tried.add(candidate.kept)
            took = self.attempt(source, candidate)
            if took <= self.limit:
                has_fit, fits = True, candidate.peak
                guess = (fits + too_much) / 2
            else:
                too_much = candidate.peak
                guess = (fits + too_much) / 2 if has_fit else candidate.peak * min(0.97, self.limit / took)
            if has_fit and too_much < _CLOSE * fits:
                break
        return has_fit

    def attempt(self, source: _Source, candidate: Candidate) -> int:
        """Compile a candidate; the bytes that it takes."""
        path, program = source.with_kept(candidate)
        parts = path.parts * source.parts
        there = self.target.suited(program)
        use = there.compile(program, cache=self.cache).memory
        log.info(
            "in %d parts, %d values kept: %d bytes of %d, estimated %d",
            parts, len(candidate.kept), use.peak, self.limit, candidate.peak,
        )  # fmt: skip
        if use.peak < self.least.peak:
            self.least = use
        more = candidate.flops / source.made.flops
        if use.peak <= self.limit and (self.best is None or more <= self.best.more):
            remade = sum(op < 0 for op in candidate.order)
            self.best = Fit(
                path.compiled_by(there.options), self.limit, use.peak, self.plain.peak, parts, remade, more
            )
        return use.peak


def _unreachable(program: Program, use: MemoryUse, plain: MemoryUse, limit: int) -> str:
    held = use.arguments + use.results - use.aliased
    help_ = (
        "of this, arguments and results take the most: use a smaller model, optimizer state in fewer bytes, as a tolerance and "
        "narrows=('state.optimizer',) allow, or more workers"
        if held > use.temporaries
        else "a smaller batch or shorter sequences take less, as do more micro-batches (accumulate=) and, within a tolerance, "
        "kernels that keep less"
    )
    return (
        f"nothing that was tried runs program {program.digest[:12]} in {human(limit)}: the least takes {human(use.peak)} "
        f"(arguments and results {human(held)}, temporaries {human(use.temporaries)}), and {human(plain.peak)} as it "
        f"is written; give memory of at least {use.peak} bytes, or: {help_}; or run it piece by piece: pcp.streamed"
    )
