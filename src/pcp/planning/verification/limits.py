"""How wrong a result may be, by what a kernel says that it does to numbers."""

from pcp.ir import DType
from pcp.kernels.candidate import Candidate
from pcp.kernels.problems import Problem
from pcp.planning.measuring.at_site import LARGEST, TIMES_PLAIN
from pcp.planning.measuring.measurement import Failure
from pcp.planning.measuring.site_operands import unit_of
from pcp.planning.verification.deviation import Deviation
from pcp.rewrite.row import Effect

UNCLAIMED = 0.1
"""The largest error of a kernel that claims no tolerance."""
GRADIENT_UNITS = 8.0
"""How much more than results gradients may err that are computed in another way, such as exp(x - logsumexp(x))."""
NORMWISE, NORMWISE_WORST = 2.0, 16.0
"""How much more the whole, and an element on the typical scale, may err where methods are sound whose error is bounded on the
scale of the whole: two levels of Strassen's product."""
_UNITS = {2: 4.0, 4: 64.0, 8: 64.0}


def floor_of(dtype: DType) -> float:
    """What other orders of sums, and other ways to compute exponentials, do to every element."""
    return _UNITS[dtype.itemsize] * unit_of(dtype)


def fault_of(
    candidate: Candidate, problem: Problem, judgement: Deviation, units: float = 1.0
) -> tuple[Failure, str] | None:
    """What is wrong with a result; `units` widens the floor."""
    if judgement.fault is not None:
        return judgement.fault, judgement.detail
    error = 0.0 if judgement.error is None else judgement.error
    if error > LARGEST or (judgement.worst > LARGEST and judgement.plain_worst < LARGEST / TIMES_PLAIN):
        return Failure.wrong, f"an error of {max(error, judgement.worst):.2g}; {judgement.place}"
    if candidate.effect is Effect.lowers_precision:
        claimed = candidate.claimed(problem)
        limit = UNCLAIMED if claimed is None else claimed
        if error > limit:
            words = "for a kernel that claims no tolerance" if claimed is None else "that it claims"
            return (
                Failure.overclaimed,
                f"an error of {error:.2g}, beyond {limit:g} {words}; {judgement.place}",
            )
        return None
    if candidate.effect is Effect.exact:
        if judgement.same_bits:
            return None
        return Failure.overclaimed, f"it is not bit for bit what the plain program returns; {judgement.place}"
    floor = units * floor_of(problem.dtype)
    slack = (NORMWISE, NORMWISE_WORST) if problem.definition.normwise else (1.0, 1.0)
    pairs = ((error, judgement.plain_error), (judgement.worst, judgement.plain_worst))
    for (mine, plain), times in zip(pairs, slack, strict=True):
        limit = max(TIMES_PLAIN * plain, times * floor)
        if mine > limit:
            detail = f"an error of {mine:.2g}; another order of sums explains at most {limit:.2g}; {judgement.place}"
            return Failure.overclaimed, detail
    return None


def largest_noise(candidate: Candidate, problem: Problem, judgement: Deviation) -> float:
    """How far the results of two calls on the same operands may lie apart, on the scale of each element.

    Sums whose order is left to chance, as of atomic additions, differ by roundings. A kernel that says that it is not
    deterministic may differ by as much as it errs.
    """
    if candidate.effect is Effect.exact or candidate.deterministic:
        return 0.0
    limit = max(floor_of(problem.dtype), TIMES_PLAIN * judgement.plain_worst)
    return limit if candidate.deterministic is None else max(limit, 2.0 * judgement.worst)
