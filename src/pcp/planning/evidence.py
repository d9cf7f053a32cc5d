"""What a search knows: measurements from the database where there are any, and otherwise new ones, which are added to it."""

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Protocol, TypeVar

from pcp.errors import PCPError
from pcp.planning.bench import PlainProgramFailed
from pcp.planning.hardware import Hardware
from pcp.planning.measurement import Failure, Measurement
from pcp.planning.noise import pooled
from pcp.planning.path import Path
from pcp.planning.request import Request

log = logging.getLogger("pcp.planning.search")

T = TypeVar("T")


class Measurer(Protocol):
    """What makes measurements: a `Bench`."""

    def measure(self, request: Request) -> Measurement:
        """Make one."""
        ...


class Rows(Protocol):
    """What keeps measurements: a `ProfileDatabase`."""

    def add(self, measurement: Measurement, path: Path | None = None, hardware: Hardware | None = None) -> None:
        """Keep one."""
        ...

    def measurements(
        self, subject: str | None = None, hardware: str | None = None, versions: str | None = None
    ) -> list[Measurement]:
        """Those that are kept, oldest first."""
        ...

    def path(self, digest: str) -> Path | None:
        """A path that was kept with one."""
        ...


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

    Arguments:
        rows: the database.
        start: starts what measures, when something has to be measured for the first time.
        hardware, versions: that rows must be of to count.
        budget: seconds in which measurements may begin.
        progress: told before every measurement.
    """

    def __init__(
        self,
        rows: Rows,
        start: Callable[[], AbstractContextManager[Measurer]],
        hardware: Hardware,
        versions: str,
        budget: float,
        progress: Callable[[Progress], object] | None = None,
    ) -> None:
        self.hardware, self.versions = hardware, versions
        self.budget = budget
        self.measured = 0
        self.planned = 0
        self._rows = rows
        self._start = start
        self._progress = progress
        self._bench: AbstractContextManager[Measurer] | None = None
        self._measurer: Measurer | None = None
        self._known: dict[str, list[Measurement]] = {}
        self._paths: dict[str, Path] = {}
        self._usable = True
        self._began = time.monotonic()

    def __enter__(self) -> "Evidence":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bench is not None:
            self._bench.__exit__(kind, error, trace)

    @property
    def seconds_left(self) -> float:
        """How much of the budget is left."""
        return max(0.0, self.budget - (time.monotonic() - self._began))

    def rows(self, subject: str) -> list[Measurement]:
        """All that is known of a program, on whatever hardware, oldest first."""
        if subject not in self._known:
            self._known[subject] = self._asked(lambda: self._rows.measurements(subject)) or []
        return self._known[subject]

    def known(self, subject: str) -> dict[str, Measurement]:
        """What is known of a program here, by path, as one row each; those first that were measured first."""
        grouped: dict[str, list[Measurement]] = {}
        for row in self.rows(subject):
            if (row.hardware, row.versions) == (self.hardware.digest, self.versions):
                grouped.setdefault(row.path, []).append(row)
        made = {path: pooled(rows) for path, rows in grouped.items()}
        return {path: row for path, row in made.items() if row is not None}

    def elsewhere(self, subject: str) -> dict[str, float]:
        """Times relative to the plain path's on other hardware or by other versions, by path: hints for what to try first."""
        return {
            row.path: row.ratio
            for row in self.rows(subject)
            if row.seconds and (row.hardware, row.versions) != (self.hardware.digest, self.versions)
        }

    def path(self, digest: str) -> Path | None:
        """A path that some row speaks of."""
        if digest in self._paths:
            return self._paths[digest]
        return self._asked(lambda: self._rows.path(digest))

    def of(
        self,
        request: Request,
        subject: str,
        enough: Callable[[Measurement], bool],
        what: str,
        path: Path | None = None,
        until: float = 0.0,
    ) -> Measurement | None:
        """What is known of one path of a program, measured now if that is not enough; None if there is no time for that.

        Arguments:
            request: to measure.
            subject: what the program and its arguments are called in the database.
            enough: whether a known measurement will do.
            what: is measured, for people.
            path: to be kept with it.
            until: seconds of the budget that must be left for this.
        """
        found = self.known(subject).get(request.path)
        if found is not None and enough(found):
            return found
        if self.seconds_left <= until:
            return None
        if self._progress is not None:
            spent = time.monotonic() - self._began
            total = max(self.planned, self.measured + 1)
            self._progress(Progress(what, self.measured, total, spent, self.budget))
        made = replace(self._measure(request), subject=subject)
        self.measured += 1
        self.rows(subject).append(made)
        if path is not None:
            self._paths[path.digest] = path
        self._asked(lambda: self._rows.add(made, path, self.hardware))
        log.debug("%s: %s %s", what, made.failure or f"{made.ratio:.3f} of plain", made.detail)
        return self.known(subject)[request.path]

    def _measure(self, request: Request) -> Measurement:
        if self._measurer is None:
            self._bench = self._start()
            self._measurer = self._bench.__enter__()
        try:
            return self._measurer.measure(request)
        except PlainProgramFailed as error:
            log.warning("%s", error)
            return Measurement(
                request.subject.digest,
                request.path,
                self.hardware.digest,
                self.versions,
                failure=Failure.run_error,
                detail=f"the plain program: {error}",
                when=time.time(),
            )

    def _asked(self, question: Callable[[], T]) -> T | None:
        """What the database says; one that cannot be used is said once, and then done without."""
        if not self._usable:
            return None
        try:
            return question()
        except PCPError as error:
            log.warning("planning goes on without the profile database: %s", error)
            self._usable = False
            return None

