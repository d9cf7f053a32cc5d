"""What verifying a kernel from outside measured, as a row of the database."""

import time

from pcp.backends import Target
from pcp.kernels import FAMILIES
from pcp.kernels.candidate import Candidate
from pcp.planning.measuring.hardware import hardware_of, versions
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.verification.family_bench import sites_in
from pcp.planning.verification.verdict import Verdict


def measurement_of(verdict: Verdict, candidate: Candidate, target: Target) -> tuple[Measurement, str]:
    """The row, and what its subject is, for people.

    The subject is the operation alone, as `pcp kernels bench` measures it, of the problem whose time was taken, or which first
    showed that something is wrong. A refused kernel is a failure, so nobody takes it for a fast one.
    """
    first = verdict.findings[0] if verdict.findings else None
    problem = next(
        (each for each in candidate.problems if first is not None and str(each) == first.problem),
        candidate.problems[-1],
    )
    failure = None
    if first is not None:
        failure = first.fault.at_site
    sites = sites_in(problem, FAMILIES[candidate.family], target)
    row = Measurement(
        sites[0].region.digest if sites else problem.reference().digest,
        f"{candidate.name}@{candidate.version}",
        hardware_of(target).digest,
        versions(target.backend),
        seconds=tuple(verdict.times.get("own", ())) if failure is None else (),
        plain_seconds=tuple(verdict.times.get("plain", ())) if failure is None else (),
        error=verdict.errors.get(problem.dtype) if failure is None else None,
        failure=failure,
        detail=str(verdict.tried) if first is None else f"{first.fault}: {first.detail}",
        when=time.time(),
    )
    return row, str(problem)
