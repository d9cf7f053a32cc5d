"""What verifying a kernel from outside measured, as rows of the database."""

import time
from dataclasses import replace

from pcp.backends import Target
from pcp.kernels import FAMILIES
from pcp.kernels.candidate import Candidate
from pcp.planning.measuring.hardware import hardware_of, versions
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.verification.family_bench import sites_in
from pcp.planning.verification.verdict import Verdict


def rows_of(verdict: Verdict, candidate: Candidate, target: Target) -> list[tuple[Measurement, str]]:
    """The rows, each with what its subject is, for people: those of a region; for a family one.

    The subject of that is the operation alone, as `pcp kernels bench` measures it, of the problem whose time was taken, or
    which first showed that something is wrong. A refused kernel is a failure, so nobody takes it for a fast one.
    """
    if candidate.region is not None:
        return [(row, str(candidate.region)) for row in verdict.rows]
    first = next(iter(verdict.findings), None)
    problem = next(
        (each for each in candidate.problems if first is not None and str(each) == first.problem),
        candidate.problems[-1],
    )
    sites = sites_in(problem, FAMILIES[candidate.family], target)
    row = Measurement(
        sites[0].region.digest if sites else problem.reference().digest,
        f"{candidate.name}@{candidate.version}",
        hardware_of(target).digest,
        versions(target.backend),
        detail=str(verdict.tried),
        when=time.time(),
    )
    if first is not None:
        row = replace(row, failure=first.fault, detail=f"{first.fault}: {first.detail}")
    elif verdict.rows:
        [timed] = verdict.rows
        error = verdict.errors.get(str(problem.dtype))
        row = replace(row, seconds=timed.seconds, plain_seconds=timed.plain_seconds, error=error)
    return [(row, str(problem))]
