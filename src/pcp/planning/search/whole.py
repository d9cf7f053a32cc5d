"""Whole programs on a path: measured against the plain program and float64, and taken apart where they do not run."""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pcp.backends import Target
from pcp.errors import PCPError
from pcp.ir import Program, Role
from pcp.kernels import Kernel, Site, sites_of
from pcp.planning.fitting import Fit
from pcp.planning.judging.judge import result_name
from pcp.planning.judging.oracle import widened
from pcp.planning.judging.tolerance import USUAL_TOLERANCE
from pcp.planning.measuring.index_ranges import index_ranges
from pcp.planning.measuring.measurement import Failure, Judgement, Measurement
from pcp.planning.measuring.random_inputs import Recipe
from pcp.planning.measuring.request import Arrays, Request
from pcp.planning.paths.kinds import BOUND, ZEROS, in_order
from pcp.planning.paths.kinds.stored import retyped
from pcp.planning.paths.move import Move
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared
from pcp.planning.search.causes import Causes
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.question import Answer, Asking, Question, Rest
from pcp.planning.search.site_classes import SiteClass, classes_of, decided_operands, kernels_by_site
from pcp.planning.search.strategy import Strategy
from pcp.rewrite.vanishing.whole import with_zeros


class ReferenceNotFinite(PCPError):
    """Arguments on which a result is mostly NaN or infinite, so that no path can be judged by it."""


@dataclass(frozen=True)
class Whole:
    """A program whose paths are measured.

    Arguments:
        program: as the user wrote it.
        tolerance: the largest error; 0 for the bits of the plain path.
        example: flat arguments to measure on; None makes random ones.
        example_digest: says which.
        ignored: places of results that are not judged.
        forms: moves that all its paths make before their sites are looked for. The plain path makes none: all are measured
            beside it, and judged by the float64 of the program as it is written.
        bound: how many arguments, flat and from the first, will be bound: all its paths but the plain one compute once what
            these alone decide.
        fit: how its plain path fits in memory, where the program does not as it is written.
        narrows: the flat places of the moments that may be taken and returned in bfloat16.
        instead: moves that all its paths make, the plain one too, so that what is right is said by the program that they make.
    """

    program: Program
    tolerance: float
    target: Target
    example: Sequence[Arrays] | None = None
    example_digest: str = ""
    ignored: tuple[int, ...] = ()
    strategy: Strategy = field(default_factory=Strategy)
    forms: tuple[Move, ...] = ()
    bound: int = 0
    fit: Fit | None = None
    instead: tuple[Move, ...] = ()
    narrows: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not set(self.instead) <= set(self.forms):
            object.__setattr__(self, "forms", in_order((*self.instead, *self.forms)))

    @property
    def subject(self) -> str:
        """What it is called in the database: errors depend on arguments and on what is judged, and equal bits are another
        question than errors."""
        if not self.tolerance:
            facts: list[object] = ["bits"]
        else:
            entries = self.program.arguments
            facts = [(i, entry.kept) for i, entry in enumerate(entries) if entry.kept != 1.0]
            grouped = [(i, entry.group) for i, entry in enumerate(entries) if entry.group]
            # Which gradients are judged on the scale of their group depends on the tolerance.
            facts += [self.judged_at, *grouped] if grouped else []
            facts += [("ignored", self.ignored)] if self.ignored else []
            facts += [self.example_digest] if self.example_digest else sorted(self.program.begins.items())
        facts += [("in less memory", self.plain.digest)] if self.fit else []
        facts += [("instead", repr(self.instead))] if self.instead else []
        if not facts:
            return self.program.digest
        return hashlib.sha256(f"{self.program.digest} {facts}".encode()).hexdigest()

    @property
    def judged_at(self) -> float:
        """The tolerance that decides what is judged on the scale of its group."""
        return self.tolerance if math.isfinite(self.tolerance) else USUAL_TOLERANCE

    def agreement(self, path: Path) -> str:
        """What the question is called whether a path computes what it should in some process."""
        facts = (path.digest, self.subject, str(self.target), self.tolerance, self.ignored)
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    @cached_property
    def prepared(self) -> Program:
        """The program in the form that its sites are looked for in."""
        return prepared(self.program, self.tolerance, self.forms)

    @cached_property
    def sites(self) -> tuple[Site, ...]:
        """All of them, those among them for which there is no kernel here."""
        return sites_of(self.prepared, self.target, bare=True)

    @cached_property
    def classes(self) -> list[SiteClass]:
        """Of the sites for which there are kernels, the costliest first."""
        able = [site for site in self.sites if site.kernels]
        return classes_of(able, self.tolerance, decided_operands(self.prepared, able, self.bound))

    @cached_property
    def result_names(self) -> list[str]:
        """The names of its results, in order."""
        return [result_name(self.program, place) for place in range(len(self.program.results))]

    @cached_property
    def causes(self) -> Causes:
        """Which of the sites its results depend on most directly."""
        return Causes(self.prepared, (site for each in self.classes for site in each.sites))

    def path(self, kernels: Mapping[str, Kernel]) -> Path:
        """The path with these kernels, by the keys of sites; the plain one where that is the same."""
        is_simpler = self.tolerance != 0.0 and self.prepared.digest != self.program.digest
        if not kernels and not is_simpler and not self.forms:
            return self.plain
        options, backend = dict(self.target.options), self.target.backend
        path = Path.of(self.program, kernels, options, self.tolerance, backend, self.forms)
        return self.suited(self.binding(path))

    def binding(self, path: Path) -> Path:
        """A path that computes once what the arguments alone decide that will be bound."""
        return path.having(BOUND.name, [BOUND.move(self.bound)] if self.bound else [])

    @cached_property
    def plain(self) -> Path:
        """The path that runs the program as it is written, with as little given up as was found to fit in memory."""
        return self.plain_on(self.target) if self.fit is None else self.fit.path

    def plain_on(self, target: Target) -> Path:
        """The path that runs it as it is written in some place, or as the moves make it that all paths have."""
        options, backend, forms = dict(target.options), target.backend, self.instead
        path = Path.plain(self.program, options, backend)
        if forms:
            path = Path.of(self.program, {}, options, self.tolerance, backend, forms)
        return path.suited(self.program, target)

    def suited(self, path: Path) -> Path:
        """A path with the options of the compiler that suit it here."""
        return path.suited(self.program, self.target)

    def bytes_of(self, path: Path) -> int:
        """What a call by a path takes, as the compiler in this process says."""
        return path.target(self.target.devices).compile(path.applied(self.program)).memory.peak

    def with_zeros(self) -> "Whole | None":
        """The same, with zeros for sums that are zero in exact arithmetic; None where there are none that are not zeros."""
        if self.instead or not self.tolerance or with_zeros(self.program) is None:
            return None
        return replace(self, instead=(ZEROS.move(True),))

    @cached_property
    def about(self) -> str:
        """What it takes, for people."""
        shown = ", ".join(f"{entry.name}: {entry.spec}" for entry in self.program.arguments[:4])
        more = f" and {len(self.program.arguments) - 4} more" if len(self.program.arguments) > 4 else ""
        return f"program of {shown}{more}"

    @cached_property
    def measured_beside(self) -> Program:
        """What the plain path computes it by."""
        return self.plain.applied(self.program)

    @cached_property
    def exact(self) -> Program:
        """The program in float64."""
        return widened(self.measured_beside)

    @cached_property
    def inputs(self) -> Recipe | Sequence[Arrays]:
        """What it is measured on."""
        if self.example is not None:
            return self.example
        has_state = any(entry.role is Role.state for entry in self.program.arguments)
        # One list of arguments will do: every kernel in it was tried on two before.
        return Recipe(
            sets=1,
            ranges=index_ranges(self.program),
            begins=tuple(self.program.begins.items()),
            warm_calls=self.strategy.warm_calls if has_state else 0,
        )

    def measured(
        self,
        path: Path,
        evidence: Evidence,
        rival: float = math.inf,
        seconds: float | None = None,
        times: int = 1,
    ) -> Asking[Answer]:
        """Times and error of a path; None if there is no time to measure them.

        Arguments:
            rival: the time relative to the plain program's that it has to be below to be of interest.
            seconds: to time it for, if it has to be measured; None takes the strategy's.
            times: how often it has to have been measured.
        """
        what = f"the whole program by {path.digest[:8]}"
        longest = min(evidence.strategy.whole_seconds, evidence.strategy.whole_share * evidence.budget)
        timing_seconds = longest if seconds is None else seconds
        return (
            yield from self._question(
                path, timing_seconds, self.is_enough, what, rival, evidence, times
            ).asked()
        )

    def plain_judged(self, evidence: Evidence) -> Asking[Answer]:
        """How wrong the plain path is; None if that is not known and there is no time to measure it.

        Raises:
            ReferenceNotFinite: a result is mostly NaN or infinite, in exact arithmetic, too.
        """
        row = yield from self._asked_of_plain(evidence).asked()
        if row is not None and row.failure is Failure.not_finite:
            raise self._not_finite(row)
        known = evidence.known(self.subject).values()
        return row or max(
            (
                replace(each, error=each.plain_error, judgement=_of_plain(each.judgement))
                for each in known
                if each.plain_error is not None
            ),
            key=lambda each: each.least_tolerance or 0.0,
            default=None,
        )

    def plain_request(self, evidence: Evidence) -> Request:
        """What will be asked of the plain path."""
        return self._asked_of_plain(evidence).request()

    def _asked_of_plain(self, evidence: Evidence) -> Question:
        return self._question(
            self.plain, 0.0, lambda row: row.error is not None, "the plain path", None, evidence
        )

    def _not_finite(self, row: Measurement) -> ReferenceNotFinite:
        """What the plain path's row says of results that are no numbers."""
        name = row.detail.partition(" of result ")[2]
        arguments = "random arguments" if self.example is None else "the arguments of the example"
        return ReferenceNotFinite(
            f"program {self.program.digest[:12]} cannot be judged on {arguments}: {row.detail} is NaN or infinite, in exact "
            "arithmetic, too, and nothing is wrong beside that. Give others, as example=(...), or leave that result "
            f"out by judge={{{name!r}: 'ignore'}}"
        )

    def measured_again(
        self, path: Path, evidence: Evidence, times: int, seconds: float | None = None
    ) -> Asking[Answer]:
        """Times and error of a path in blocks apart in time, so that no single disturbance decides; None if there is no time.

        Arguments:
            times: how often it has to have been measured, 2 or more.
            seconds: to time it for each time; None takes the strategy's.
        """
        strategy, known = evidence.strategy, evidence.known(self.subject).get(path.digest)
        is_doubtful = known is not None and not strategy.is_faster(known.blocks)
        gap = strategy.gaps[min(times - 2, len(strategy.gaps) - 1)] if is_doubtful else strategy.gap_of_a_gain
        is_due = evidence.count(self.subject, path.digest) < times
        if is_due and not (yield from Rest(self.subject, path.digest, gap).asked()):
            return None
        return (yield from self.measured(path, evidence, seconds=seconds, times=times))

    def runs(self, path: Path, evidence: Evidence) -> Asking[bool | None]:
        """Whether a path runs at all; None if there is no time to see."""
        row = yield from self._question(
            path, 0.0, lambda _: True, f"whether {path.digest[:8]} runs", None, evidence
        ).asked()
        return None if row is None else not self.is_broken(row)

    def is_enough(self, row: Measurement) -> bool:
        """Whether a measurement of a path need not be made again: it was timed, or it says why there is none."""
        if row.failure is Failure.inaccurate:
            return row.least_tolerance is None or row.least_tolerance > self.tolerance
        return row.failure is not None or bool(row.seconds)

    def is_broken(self, row: Measurement) -> bool:
        """Whether a path is no path at all, rather than one that is not exact enough: no error is known that says how much."""
        if row.failure is Failure.inaccurate:
            return not self.tolerance or row.error is None or not math.isfinite(row.error)
        return row.failure is not None

    def accepts(self, row: Measurement, memory_limit: int) -> bool:
        """Whether a path's measured results are within the tolerance, and its memory within what there is."""
        fits = row.peak_bytes is None or row.peak_bytes <= memory_limit
        return row.failure is None and bool(row.seconds) and fits and self.is_exact_enough(row)

    def is_exact_enough(self, row: Measurement) -> bool:
        """Whether an error was measured and is within the tolerance; bits were compared where the tolerance is 0."""
        return row.failure is None and (
            not self.tolerance or (row.least_tolerance is not None and row.least_tolerance <= self.tolerance)
        )

    def _question(
        self,
        path: Path,
        seconds: float,
        enough: Callable[[Measurement], bool],
        what: str,
        rival: float | None,
        evidence: Evidence,
        times: int = 1,
    ) -> Question:
        def keep(sketch: bytes) -> None:
            evidence.sketches[path.digest] = sketch

        def request() -> Request:
            return Request(
                self.measured_beside,
                path.applied(self.program),
                path.digest,
                self.exact if self.tolerance else None,
                self.inputs,
                self.plain.target(self.target.devices),
                self.tolerance,
                options=path.options,
                judged_at=self.judged_at if self.tolerance else None,
                ignored=self.ignored,
                calls=self.strategy.whole_calls,
                timing_seconds=seconds,
                rival=rival,
                bound=path.bound,
                retyped=retyped(self.plain.moves, path.moves),
                sketched=keep,
            )

        return Question(self.subject, path.digest, request, enough, what, path, self.about, times=times)


def _of_plain(judgement: Judgement | None) -> Judgement | None:
    """What a judgement of another path says of the plain one."""
    return None if judgement is None else replace(judgement, slice_error=judgement.plain_slice)


def culprit(
    whole: Whole, classes: Sequence[SiteClass], chosen: dict[str, Kernel], evidence: Evidence
) -> Asking[str | None]:
    """Of choices that do not run together, the digest of the first class whose choice is to blame, by halving.

    Arguments:
        classes: in any order that stays the same.
        chosen: kernels of classes, that work alone.

    Returns:
        None if there was no time to find it.
    """
    order = [each.digest for each in classes if each.digest in chosen]
    works, fails = 0, len(order)  # as many of the first classes
    evidence.planned += math.ceil(math.log2(max(1, fails))) + 1
    while fails - works > 1:
        middle = (works + fails) // 2
        some = {digest: chosen[digest] for digest in order[:middle]}
        path = whole.path(kernels_by_site(classes, some))
        answer = yield from whole.runs(path, evidence)
        if answer is None:
            return None
        works, fails = (middle, fails) if answer else (works, middle)
    return order[fails - 1] if order else None
