"""Whether a kernel errs evenly: an error that is many times larger for one size than for others is no rounding."""

import operator
from collections.abc import Iterator, Sequence

from pcp.kernels.candidate import Candidate
from pcp.kernels.problems import Problem
from pcp.planning.measuring.measurement import Failure
from pcp.planning.verification.deviation import Deviation
from pcp.planning.verification.limits import floor_of
from pcp.planning.verification.values import Values
from pcp.rewrite.row import Effect

TIMES_USUAL = 8.0
"""How much more than for most sizes a kernel of low precision may err for one."""
TIMES_USUAL_WORST = 12.0
TIMES_USUAL_GRADIENT = 16.0

Judged = tuple[Problem, Values, Deviation]
"""A judgement of the results on some values of a problem."""


def uneven(
    candidate: Candidate, judgements: Sequence[Judged], gradients: Sequence[Judged]
) -> Iterator[tuple[Failure, Problem, Values, str]]:
    """What is much more wrong for some problems than for others, on the same kind of values, with words that say so.

    Arguments:
        candidate: the kernel; only one that lowers precision may be uneven.
        judgements: of its results.
        gradients: of its gradients.
    """
    if candidate.effect is not Effect.lowers_precision:
        return
    for dtype in candidate.dtypes:
        claimed = candidate.tolerance.get(dtype, 0.0)
        rows = [row for row in judgements if row[0].dtype is dtype]
        for name, times in (("error", TIMES_USUAL), ("worst", TIMES_USUAL_WORST)):
            measure = operator.attrgetter(name)
            # What a kernel claims it may do for one size and not for others: compilers drop some roundings.
            floor = max(floor_of(dtype), claimed / TIMES_USUAL)
            normal = _usual([measure(row[2]) for row in rows if row[1].name == "normal"])
            for problem, values, judgement in rows:
                mine = measure(judgement)
                usual = _usual([measure(row[2]) for row in rows if row[1] is values])
                if mine is not None and mine > times * max(usual, normal, floor):
                    detail = (
                        f"an error of {mine:.2g}, for most other sizes of at most {max(usual, normal):.2g}; "
                        f"{judgement.place}; if that is meant, claim a tolerance"
                    )
                    yield Failure.uneven, problem, values, detail
        usual = _usual([row[2].error for row in rows if row[1].typical])
        limit = max(TIMES_USUAL_GRADIENT * max(usual, floor_of(dtype)), claimed)
        for problem, values, judgement in gradients:
            error = judgement.error
            if problem.dtype is dtype and error is not None and error > limit:
                detail = f"an error of {error:.2g}, and the results have {usual:.2g}; {judgement.place}"
                yield Failure.wrong_gradient, problem, values, detail


def _usual(errors: Sequence[float | None]) -> float:
    """What at least three of four errors reach."""
    known = sorted(error for error in errors if error is not None)
    return known[len(known) // 4] if known else 0.0
