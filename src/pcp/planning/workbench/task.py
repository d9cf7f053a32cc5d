"""A region as a task: what it computes, on what, how exactly, and how fast it is now."""

import math
from dataclasses import dataclass
from typing import Any

from pcp.backends import Target
from pcp.ir import Program
from pcp.planning.measuring.bench import Bench
from pcp.planning.measuring.hardware import hardware_of, versions
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.measuring.significance import undisturbed
from pcp.planning.profile.database import ProfileDatabase
from pcp.planning.verification.judging import SECONDS, least_limit, request_of
from pcp.planning.workbench.regions import family_in


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A region to be computed faster.

    Arguments:
        region: what to compute, alone.
        family: of the kernels that compute it.
        target: what it runs on.
        tolerance: the largest error that is admitted.
        plain: what was measured of the region itself.
        known: what was measured of kernels for it here, the fastest first.
    """

    region: Program
    family: str
    target: Target
    tolerance: float
    plain: Measurement
    known: tuple[Measurement, ...] = ()

    @property
    def plain_seconds(self) -> float:
        """Of a call of the region itself that little disturbs."""
        return undisturbed(self.plain.plain_seconds)

    @property
    def hardware(self) -> str:
        """The processor or accelerator, for people."""
        return hardware_of(self.target).name

    @property
    def default_name(self) -> str:
        """What a kernel for it may be called."""
        return f"{self.family}.for_{self.region.digest[:8]}"

    def to_json(self) -> dict[str, Any]:
        """What `task.json` says."""
        times = self.plain.plain_seconds
        return {
            "region": self.region.digest,
            "family": self.family,
            "arguments": [
                [entry.name, list(entry.spec.shape), str(entry.spec.dtype)] for entry in self.region.arguments
            ],
            "results": [[list(entry.spec.shape), str(entry.spec.dtype)] for entry in self.region.results],
            "tolerance": self.tolerance,
            "target": self.target.described(),
            "hardware": self.hardware,
            "versions": versions(self.target.backend),
            "plain_error": self.plain.least_plain,
            "plain_seconds": {"undisturbed": self.plain_seconds, "least": min(times), "all": list(times)},
            "known": {row.path: row.ratio for row in self.known},
        }


def task_of(
    region: Program,
    target: Target,
    bench: Bench,
    tolerance: float | None = None,
    database: ProfileDatabase | None = None,
    seconds: float = SECONDS,
) -> Task:
    """A task, with its baseline measured now.

    Arguments:
        region: of a site.
        target: what it is measured on.
        bench: that measures.
        tolerance: None admits what another order of sums explains.
        database: where kernels may be known that were measured for it; None looks nowhere.
        seconds: that the region is timed.

    Raises:
        RegionNotFound: no kernels compute it.
        PlainProgramFailed: it does not run.
    """
    family = family_in(region)
    plain = bench.measure(request_of(region, region, "plain", target, seconds))
    known: list[Measurement] = []
    if database is not None:
        hardware, version = hardware_of(target).digest, versions(target.backend)
        rows = database.measurements(region.digest, hardware, version)
        best: dict[str, Measurement] = {}
        for row in sorted((row for row in rows if math.isfinite(row.ratio)), key=lambda row: row.ratio):
            best.setdefault(row.path, row)
        known = list(best.values())
    return Task(
        region,
        family,
        target,
        least_limit(plain.least_plain) if tolerance is None else tolerance,
        plain,
        tuple(known),
    )
