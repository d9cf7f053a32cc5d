"""What a search knows: measurements from the database where there are any, and otherwise new ones, which are added to it."""

import contextlib
import copy
import functools
import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from pcp.backends import Target
from pcp.planning.measuring.bench import PlainProgramFailed
from pcp.planning.measuring.hardware import hardware_of, versions
from pcp.planning.measuring.measurement import Failure, Measurement, pooled
from pcp.planning.measuring.request import Request
from pcp.planning.measuring.significance import undisturbed
from pcp.planning.paths.path import Path
from pcp.planning.prediction.model import CostModel, known_here
from pcp.planning.profile.best_effort_database import BestEffortDatabase
from pcp.planning.profile.rows import Region
from pcp.planning.search.question import Answer, Asked, Here, Question, Rest, Telling
from pcp.planning.search.strategy import Strategy

log = logging.getLogger("pcp.planning.search")

_ENDLESS = 1e9
"""Seconds of a budget without end, of which there are parts."""
_T = TypeVar("_T")


class Measurer(Protocol):
    """What makes measurements: a `Bench`."""

    def measure(self, request: Request) -> Measurement:
        """Make one."""

    def begin(self, request: Request) -> None:
        """Begin with what a measurement will need, which others may do meanwhile."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search is.

    Arguments:
        what: is being measured.
        done, total: measurements; the total is an estimate until the end.
        seconds: since the beginning.
        budget: seconds that it may take.
    """

    what: str
    done: int
    total: int
    seconds: float
    budget: float


class Evidence:
    """The measurements of one search on one device; a context manager, which ends what measures.

    It holds all that the search was told, in order, so that `again` can tell it to the same search once more. The time is
    told where something is asked, and nowhere else.

    Arguments:
        database: what is known, and what new measurements are added to.
        start: starts what measures, when something has to be measured for the first time.
        target: what regions of sites are compiled for, without options.
        budget: seconds in which measurements may begin.
        strategy: how much evidence is enough.
    """

    def __init__(
        self,
        database: BestEffortDatabase,
        start: Callable[[], AbstractContextManager[Measurer]],
        target: Target,
        budget: float,
        progress: Callable[[Progress], object] | None = None,
        strategy: Strategy = Strategy(),  # noqa: B008  (a frozen value)
    ) -> None:
        self.target = target.with_options({})
        self.hardware, self.versions = hardware_of(target), versions(target.backend)
        """That rows must be of to count."""
        self.strategy = strategy
        self.sketches: dict[str, bytes] = {}
        """Of the right results of paths, by their digests, as this search measured them."""
        self.uncompared: str = ""
        """Why a path was not compared in this process; empty if it was."""
        self.compiled: object = None
        """What was compared in this process last, held until the search is over."""
        self._given = min(budget, _ENDLESS)
        self._database = database
        self._start = start
        self._progress = progress
        self._telling = Telling()
        self.when = time.time()
        """It began."""
        self._begin()

    def _begin(self) -> None:
        """Know nothing yet."""
        self.budget = self._given
        self.is_interrupted = False
        self.measured = 0
        self.verifying = 0.0
        """Seconds that were spent on verifying PCP's own kernels alone, at sites where a whole was judged with them."""
        self.planned = 0
        self.trouble = ""
        self.unmeasurable: dict[str, str] = {}
        """Why nothing more is measured of a program: its plain form does not run."""
        self._to_verify: tuple[Callable[[], float], float] = float, 0.0
        self.too_wrong: set[tuple[int, int]] = set()
        """How exact kernels of all families were that are too wrong together, in the program as it is written."""
        self.took: dict[tuple[str, str], float] = {}
        """Seconds that the last measurement of each path of each program took, from beginning to end."""
        self._ending = contextlib.ExitStack()
        self._measurer: Measurer | None = None
        self._is_measuring = False
        self._known: dict[str, dict[str, list[Measurement]]] = {}
        self._pooled: dict[str, dict[str, Measurement]] = {}
        self._ended: dict[tuple[str, str], float] = {}
        self._paths: dict[str, Path] = {}
        known = functools.partial(known_here, self._database, self.hardware.digest, self.versions)
        self.cost_model = CostModel(functools.partial(self._telling.said, "regions", known))
        """What all regions that were measured here say of others."""

    def again(self) -> "Evidence":
        """A copy that is at the beginning, and is told once more all that this was told; it adds nothing."""
        other = copy.copy(self)
        other._telling = self._telling.again()
        other._begin()
        return other

    def __enter__(self) -> "Evidence":
        return self

    def __exit__(self, *_: object) -> None:
        self.end_measuring()

    def end_measuring(self) -> None:
        """End what measures, so that its memory is free, until something has to be measured again."""
        self._ending.close()
        self._measurer, self._is_measuring = None, False
        self.keep_back(float)  # what was the search's keeps that, and the example, alive

    @contextlib.contextmanager
    def leaving(self, part: float, of: float | None = None) -> Iterator[None]:
        """Leave a part of the budget for what comes afterwards. Here alone a share of a `Strategy` becomes a deadline.

        Arguments:
            of: the seconds that it is a part of; None is the whole budget.
        """
        later = part * (self.budget if of is None else of)
        self.budget -= later
        try:
            yield
        finally:
            self.budget = 0.0 if self.is_interrupted else self.budget + later

    def keep_back(self, seconds: Callable[[], float]) -> None:
        """Keep seconds of the budget for verifying, which nothing else may begin in."""
        self._to_verify = seconds, self.budget

    @property
    def kept_back(self) -> float:
        """Seconds of the budget that are kept beside those that are left for what comes afterwards."""
        seconds, budget = self._to_verify
        return max(0.0, seconds() - max(0.0, budget - self.budget))

    def interrupt(self) -> None:
        """Measure nothing more."""
        self.is_interrupted, self.budget = True, 0.0

    @property
    def seconds_spent(self) -> float:
        """How much of the budget is spent."""
        return self._telling.seconds

    @property
    def seconds_left(self) -> float:
        """How much of the budget is left."""
        return max(0.0, self.budget - self.seconds_spent)

    def known(self, subject: str) -> dict[str, Measurement]:
        """What is known of a program here, by path, as one row each; those first that were measured first."""
        if subject not in self._known:
            grouped: dict[str, list[Measurement]] = {}
            here = {"hardware": self.hardware.digest, "versions": self.versions}
            read = functools.partial(self._database.measurements, **here)
            for row in self._telling.said("rows", read, subject):
                grouped.setdefault(row.path, []).append(row)
            self._known[subject] = grouped
        if subject not in self._pooled:
            of_paths = self._known[subject]
            least = min(
                (undisturbed(row.plain_seconds) for rows in of_paths.values() for row in rows),
                default=math.inf,
            )
            self._pooled[subject] = {path: pooled(rows, least) for path, rows in of_paths.items()}
        return self._pooled[subject]

    def count(self, subject: str, label: str) -> int:
        """How often one path of a program was measured here."""
        return len(self.rows(subject, label))

    def rows(self, subject: str, label: str) -> Sequence[Measurement]:
        """What was measured of one path of a program here, one by one."""
        self.known(subject)
        return self._known[subject].get(label, ())

    @property
    def stands_until(self) -> float:
        """When a search may come to something else, because something that was looked at failed for a reason that may pass; 0
        where the next one may."""
        known = (rows for paths in self._known.values() for rows in paths.values())
        return min(map(self.strategy.tried_again_at, known), default=math.inf)

    def pause(self, subject: str, label: str, seconds: float) -> float:
        """Seconds to go until so much time has passed since the last measurement of a path; as a `Rest`."""
        return max(0.0, self._ended.get((subject, label), -math.inf) + seconds - self.seconds_spent)

    def ranking(self, subject: str) -> dict[str, int]:
        """The place of each path in the order in which to try them, as far as anybody measured them anywhere."""
        here = {"hardware": self.hardware.digest, "versions": self.versions}
        read = functools.partial(self._database.ranking, **here)
        order = self._telling.said("ranking", read, subject)
        return {path: place for place, path in enumerate(order)}

    def path(self, digest: str) -> Path | None:
        """A path that some row speaks of."""
        if digest not in self._paths:
            path = self._telling.said("path", self._database.path_of, digest)
            if path is not None:
                self._paths[digest] = path
        return self._paths.get(digest)

    def knows(self, asked: Question) -> bool:
        """Whether what is known of a path of a program is enough."""
        row = self.of(asked)
        if row is None or not asked.enough(row) or self._is_tried_again(asked.subject, asked.label):
            return False
        return row.failure is not None or self.count(asked.subject, asked.label) >= asked.times

    def of(self, asked: Question) -> Answer:
        """What is known of a path of a program."""
        return self.known(asked.subject).get(asked.label)

    def added(self, asked: Asked, kept: float) -> Any:
        """What something done here comes to; or a path of a program, measured now and added to what is known.

        Arguments:
            kept: seconds of the budget that it may not begin in.

        Returns:
            None if there is no time to measure it, or it cannot be measured; `trouble` says which.

        Raises:
            Unanswered: this is a copy, and what it was made of was not told that.
            BaseException: what doing it raises.
        """
        self._tell(None, float)
        began = self.seconds_spent
        if isinstance(asked, Here):
            try:
                return self._tell(asked, asked.do)
            finally:
                if self.budget and not asked.counts:
                    self.budget += self.seconds_spent - began
        subject, label = asked.subject, asked.label
        if subject in self.unmeasurable:
            self.trouble = self.unmeasurable[subject]
            return None
        if isinstance(asked, Rest):
            wait = self.pause(subject, label, asked.seconds)
            if wait >= self.seconds_left - self._kept_from(subject, kept):
                self.trouble = "the time was up"
                return False
            if wait > 0:
                self._tell(asked, functools.partial(time.sleep, wait))
            return True
        if self.seconds_left <= self._kept_from(subject, kept):
            self.trouble = "the time was up"
            return self.of(asked) if self._is_tried_again(subject, label) else None
        if not self._is_measuring:
            self._tell(asked, self._start_measuring)
            self._is_measuring = True
            self._known.clear()  # another process may have measured it meanwhile
            self._pooled.clear()
            return self.of(asked) if self.knows(asked) else self.added(asked, kept)
        try:
            measured: Measurement = self._tell(asked, functools.partial(self._measured, asked))
        except PlainProgramFailed as error:  # that says nothing of the path
            log.warning("%s", error)
            self.trouble = str(error)
            if error.is_of_all:
                self.unmeasurable[subject] = str(error)
            return None
        self.took.pop((subject, label), None)  # the last one stands last
        self.took[subject, label] = self.seconds_spent - began
        self.measured += 1
        self.verifying += self.took[subject, label] if asked.verifies else 0.0
        self._ended[subject, label] = self.seconds_spent
        if asked.path is not None:
            self._paths[asked.path.digest] = asked.path
        region = None if asked.region is None else Region.of(asked.region)
        self._add(label, replace(measured, subject=subject), asked.path, asked.about, region)
        outcome = measured.failure or f"{measured.ratio:.3f} of plain"
        log.debug("%s: %s %s", asked.what, outcome, measured.detail)
        return self.of(asked)

    def _tell(self, asked: Asked | None, do: Callable[[], _T]) -> _T:
        """What something comes to now; in a copy, what it came to."""
        told = self._telling.before(asked)
        if told is None:
            try:
                told = self._telling.now(asked, do())
            except BaseException as error:
                told = self._telling.now(asked, None, error)
        if told.error is not None:
            raise told.error
        value: _T = told.value
        return value

    def _measured(self, asked: Question) -> Measurement:
        assert self._measurer is not None
        if self._progress is not None:
            total = max(self.planned, self.measured + 1)
            self._progress(Progress(asked.what, self.measured, total, self.seconds_spent, self.budget))
        return self._measurer.measure(asked.request())

    def begin(self, request: Request) -> None:
        """Let what measures begin with what will be asked; unlike a question, it adds nothing to what is known."""
        self._start_measuring()
        assert self._measurer is not None
        self._measurer.begin(request)

    def _start_measuring(self) -> None:
        if self._measurer is None:
            self._measurer = self._ending.enter_context(self._start())

    def _add(
        self,
        label: str,
        row: Measurement,
        path: Path | None,
        about: str | None = None,
        region: Region | None = None,
    ) -> None:
        self.known(row.subject)  # what is there already stands first
        self._known[row.subject].setdefault(label, []).append(row)
        self._pooled.pop(row.subject)  # it may have shown that others were disturbed
        if not self._telling.is_copy:
            self._database.add(row, path=path, hardware=self.hardware, about=about, region=region)

    def _kept_from(self, subject: str, kept: float) -> float:
        """Seconds that must be left for a measurement to begin: those kept back, and as long as it should take itself."""
        return kept + self.expected(subject) if kept else 0.0

    def expected(self, subject: str) -> float:
        """Seconds that a further measurement of a program should take: what the last one did.

        The first of a program makes its arguments and exact results, too.
        """
        own = [seconds for (of, _), seconds in self.took.items() if of == subject]
        return (own or [0.0, *self.took.values()])[-1]

    def refute(self, subject: str, path: Path, detail: str) -> None:
        """Enter that a path does not compute what was measured of it."""
        row = Measurement(
            subject,
            path.digest,
            self.hardware.digest,
            self.versions,
            failure=Failure.differs_here,
            detail=detail,
            when=self.when + self.seconds_spent,
        )
        self._add(path.digest, row, path)

    def agreed(self, asked: str) -> bytes | None:
        """The sketch of results that were right before, on this hardware and these versions."""
        return self._database.agreed(self._here(asked))

    def agree(self, asked: str, sketch: bytes) -> None:
        """Enter that they do."""
        self._database.agree(self._here(asked), sketch)

    def _here(self, asked: str) -> str:
        return hashlib.sha256(f"{self.hardware.digest} {self.versions} {asked}".encode()).hexdigest()

    def _is_tried_again(self, subject: str, label: str) -> bool:
        """Whether the last measurement failed before this search, not too often of late, for a reason that may pass."""
        rows = self.rows(subject, label)
        return bool(rows) and rows[-1].when < self.when and self.strategy.tried_again_at(rows) <= self.when
