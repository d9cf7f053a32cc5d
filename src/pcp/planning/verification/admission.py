"""Whether a kernel for a region is admitted: right within its tolerance, and faster than the region itself beyond noise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pcp.backends import Target
from pcp.ir import Program
from pcp.kernels import Claims
from pcp.kernels.candidate import Candidate
from pcp.planning.judging.oracle import widened
from pcp.planning.measuring.at_site import TIMES_PLAIN
from pcp.planning.measuring.bench import Bench, PlainProgramFailed
from pcp.planning.measuring.index_ranges import site_ranges
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.measuring.random_inputs import Recipe
from pcp.planning.measuring.request import Request
from pcp.planning.measuring.significance import is_faster_in, joint, undisturbed
from pcp.planning.verification.verdict import bucket
from pcp.rewrite.row import Effect

MARGIN = 0.02
"""The least gain, as a part of the time, as planning asks for."""
SECONDS = 1.5
"""How long a candidate and the region are timed in turn, in one block."""
BLOCKS = 3
"""Blocks of calls that are timed at most, where one does not say for sure which is faster."""
CLOSE = 1.05
"""From which ratio of times on a candidate is slower, and not only perhaps."""
LEAST = 1e-5
"""The error that another order of sums explains in any case."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What came of measuring a kernel for a region.

    Arguments:
        kernel: its name.
        fault: why it is refused; empty if it is admitted.
        detail: numbers, places, or what an exception said.
        limit: the largest error that is admitted; 0 asks for the same bits.
        rows: what was measured, in blocks.
    """

    kernel: str
    fault: str
    detail: str
    limit: float
    rows: tuple[Measurement, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether plans may use it."""
        return not self.fault

    @property
    def seconds(self) -> tuple[float, float]:
        """Of a call of the kernel, and of the region itself, little disturbed; infinite where none was timed."""
        mine, plain = joint([block for row in self.rows for block in row.blocks])
        return undisturbed(mine), undisturbed(plain)

    @property
    def ratio(self) -> float | None:
        """Its time relative to the region's own; None where none was timed."""
        mine, plain = self.seconds
        return mine / plain if math.isfinite(mine) else None

    @property
    def error(self) -> float | None:
        """The smallest tolerance that its results are within; None where none was measured."""
        return self.rows[0].least_tolerance if self.rows else None

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        mine, plain = self.seconds
        return {
            "kernel": self.kernel,
            "accepted": self.accepted,
            "fault": self.fault,
            "detail": self.detail,
            "error": self.error,
            "limit": self.limit,
            "seconds": mine if math.isfinite(mine) else None,
            "plain_seconds": plain if math.isfinite(plain) else None,
            "time_ratio": self.ratio,
            "tolerances": {} if not self.accepted or self.error is None else {"region": bucket(self.error)},
        }

    def __str__(self) -> str:
        detail = "".join(
            each if each.isprintable() else " " for each in self.detail
        )  # what a stranger's code says
        lines = [f"{self.kernel}: {'accepted' if self.accepted else f'refused: {self.fault}: {detail}'}"]
        if self.error is not None:
            lines.append(f"  error {self.error:.2g}; admitted up to {self.limit:g}")
        if self.ratio is not None:
            mine, plain = self.seconds
            lines.append(
                f"  {mine * 1e3:.3f} ms; the region itself {plain * 1e3:.3f} ms: {self.ratio:.2f} of its time"
            )
        return "\n".join(lines)


def refused(kernel: str, fault: str, detail: str) -> Admission:
    """A kernel that does not come to be measured."""
    return Admission(kernel, fault, " ".join(detail.split()), math.nan)


def least_limit(plain_error: float | None) -> float:
    """The error that another order of sums explains, from the error of the region itself."""
    return max(LEAST, TIMES_PLAIN * (plain_error or 0.0))


def examined(
    candidate: Candidate,
    program: Program,
    label: str,
    bench: Bench,
    target: Target,
    plain_error: float | None = None,
    seconds: float = SECONDS,
) -> Admission:
    """Measure a kernel for a region: types, determinism, other kinds of operands, error against float64, time.

    Arguments:
        program: what the kernel became.
        label: of its measurements in the database.
        bench: that measures, in a process of its own.
        plain_error: of the region itself, if it is known; else it is measured.
        seconds: that a block of calls is timed.

    Raises:
        PlainProgramFailed: the region itself does not run.
        TemporaryFolderUnusable: files of the measurement cannot be written.
    """
    region, claimed = candidate.problems[0].reference(), candidate.claimed(candidate.problems[0])
    if plain_error is None and candidate.effect is not Effect.exact and claimed is None:
        plain_error = bench.measure(request_of(region, region, "plain", target)).least_plain
    limit = claimed
    if candidate.effect is Effect.exact:
        limit = 0.0
    elif limit is None or candidate.effect is Effect.reassociating:
        limit = min(least_limit(plain_error), limit or math.inf)
    rows: list[Measurement] = []
    for count in range(BLOCKS):
        site = candidate.claims if not count else None
        try:
            row = bench.measure(request_of(region, program, label, target, seconds, site, limit))
        except PlainProgramFailed as error:
            bench.measure(request_of(region, region, "plain", target))  # it runs alone
            return Admission(candidate.name, "crash", f"beside it the region itself fails: {error}", limit)
        rows.append(row)
        if row.failure is not None:
            return Admission(candidate.name, str(row.failure), row.detail, limit, tuple(rows))
        if is_faster_in([block for each in rows for block in each.blocks], MARGIN):
            return Admission(candidate.name, "", "", limit, tuple(rows))
        if row.ratio > CLOSE:
            break
    return Admission(candidate.name, "too slow", _slow(rows), limit, tuple(rows))


def _slow(rows: Sequence[Measurement]) -> str:
    mine, plain = (undisturbed(each) for each in joint([block for row in rows for block in row.blocks]))
    return (
        f"it takes {mine / plain:.2f} of the region's own time ({mine * 1e3:.3f} ms beside {plain * 1e3:.3f} ms), which is not "
        f"surely less than {1 - MARGIN:g} of it"
    )


def request_of(
    region: Program,
    program: Program,
    label: str,
    target: Target,
    seconds: float = 0.0,
    site: Claims | None = None,
    tolerance: float | None = None,
) -> Request:
    """What is asked of a program beside the region that it claims to compute.

    Arguments:
        seconds: that both are timed in turn.
        label, site, tolerance: as of `Request`.
    """
    return Request(
        region,
        program,
        label,
        exact=widened(region),
        inputs=Recipe(ranges=site_ranges(region)),
        target=target,
        tolerance=tolerance,
        timing_seconds=seconds,
        site=site,
    )
