"""Verifying a kernel from outside: run in another process on many problems and values, judged here by what it returns.

What a kernel that reassociates may err is bounded by what the plain program errs. One that lowers precision may err as much as
it claims, but evenly: an error that is many times larger for one size than for others is no rounding.
"""

import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pcp.ir import DType
from pcp.kernels.candidate import REFERENCE, Candidate
from pcp.kernels.problems import Problem
from pcp.planning.verification.expected import (
    Expectation,
    differentiable,
    expected_gradients,
    expected_results,
)
from pcp.planning.verification.fault import Fault, Finding
from pcp.planning.verification.judgement import Judgement, judged, pooled, same
from pcp.planning.verification.process import CandidateFailed, CandidateProcess
from pcp.planning.verification.values import Values, unit
from pcp.planning.verification.verdict import Verdict, median
from pcp.rewrite.row import Effect

log = logging.getLogger("pcp.planning.verification")

LARGEST = 0.3
"""The largest error of any kernel; beyond it a result has little to do with what it should be."""
UNCLAIMED = 0.1
"""The largest error of a kernel that claims no tolerance."""
TIMES_PLAIN = 8.0
"""How much more than the plain program a kernel may err that only reassociates."""
TIMES_USUAL = 8.0
"""How much more than for most sizes a kernel of low precision may err for one."""
TIMES_USUAL_WORST = 12.0
TIMES_USUAL_GRADIENT = 16.0
GRADIENT_UNITS = 8.0
"""How much more than results gradients may err that are computed in another way, such as exp(x - logsumexp(x))."""
ALIKE = ("normal", "again", "half zero")
"""Kinds of values of one scale."""
SKIPS = 2.0
"""How much faster calls on repeated operands may be, before that is taken for no accident."""
_UNITS = {2: 4.0, 4: 64.0, 8: 64.0}
_GRADIENT_PROBLEMS = 4
_REPEATS = 3
_TIMING_SECONDS = 1.0

Array = np.ndarray[Any, Any]
Progress = Callable[[int, int, str], object]
"""Called before every problem with how many are done, how many there are, and the problem."""


def verify(
    candidate: Candidate,
    process: CandidateProcess,
    *,
    seed: int | None = None,
    keep_going: bool = True,
    progress: Progress | None = None,
) -> Verdict:
    """Try a kernel from outside.

    Arguments:
        candidate: from `read_candidate`.
        process: where it runs.
        seed: of the random operands; None takes another one each time.
        keep_going: whether the remaining problems are tried when one has shown something wrong.
        progress: called before every problem.

    Raises:
        VerificationFailed: the process does not start.
    """
    examination = _Examination(candidate, process, secrets.randbits(32) if seed is None else seed)
    try:
        process.load(candidate)
        examination.run(keep_going, progress)
    except CandidateFailed as failed:
        examination.find(failed.fault, None, "", str(failed))
    return examination.verdict()


class _Examination:
    """One candidate, and what was found so far."""

    def __init__(self, candidate: Candidate, process: CandidateProcess, seed: int) -> None:
        self.candidate, self.process, self.seed = candidate, process, seed
        self.findings: dict[Fault, Finding] = {}
        self.judgements: list[tuple[Problem, Values, Judgement]] = []
        self.gradient_errors: list[tuple[Problem, Values, Judgement]] = []
        self.times: dict[str, list[float]] = {}
        self.problems = self.calls = 0
        self._problem: Problem | None = None

    def find(self, fault: Fault, problem: Problem | None, values: str, detail: str) -> None:
        """Note a fault; what showed it first is told in detail."""
        problem = problem or self._problem
        finding = Finding(fault, str(problem or ""), values, detail)
        log.info("%s: %s", self.candidate.name, finding)
        first = self.findings.setdefault(fault, finding)
        if values not in (first.values, *first.also):
            self.findings[fault] = replace(first, also=(*first.also, values))

    def run(self, keep_going: bool, progress: Progress | None) -> None:
        """Try every problem, then gradients, then what only many calls show."""
        problems = self.candidate.problems
        with_gradient = set(problems[:: max(1, len(problems) // _GRADIENT_PROBLEMS)])
        for count, problem in enumerate(problems):
            if progress is not None:
                progress(count, len(problems), str(problem))
            self._problem = problem
            self.problems += 1
            first = self.results_of(problem)
            if problem in with_gradient and self.candidate.gradient != REFERENCE:
                self.gradients_of(problem)
            if problem == problems[-1] and not self.findings:
                self.calls_again(problem, first)
            if self.findings and not keep_going:
                return
        self._problem = None
        if self.findings.keys() <= {Fault.wrong_gradient}:
            self.compare_problems()

    def results_of(self, problem: Problem) -> list[Array]:
        """Judge the results on every kind of values; returns those on the first."""
        expected = expected_results(problem, self.seed)
        count = len(expected.kinds)
        order = [*range(count), 0, 1, *[0] * (_REPEATS - 1)]
        results, changed = self.process.run(
            problem, expected.specs, expected.arguments, order, None, expected.results
        )
        self.calls += len(order)
        judgements = self._judge(expected, results[:count])
        if judgements[0][1].error is None and judgements[0][1].fault is None:
            # Few elements may be small by chance; those of several calls together are not.
            alike = [place for place, kind in enumerate(expected.kinds) if kind.name in ALIKE]
            together = pooled(
                [results[place][0] for place in alike], [expected.outcomes[place][0] for place in alike]
            )
            judgements[0] = (expected.kinds[0], together)
        self.judgements += [(problem, *each) for each in judgements]
        sound: list[int] = []
        for place, (values, judgement) in enumerate(judgements):
            found = self._fault_of(problem, judgement)
            if found is None:
                sound.append(place)
                continue
            fault, detail = found
            repeated = next((old for old in sound if _repeats(results, expected, old, place)), None)
            if repeated is not None:
                fault = Fault.stale
                detail = (
                    f"it returned what it had returned for {expected.kinds[repeated].name} values; {detail}"
                )
            self.find(fault, problem, values.name, detail)
        for place, which in enumerate(order[count:], count):
            if not same(results[place], results[which]):
                at = int(np.argmax(results[place][0].reshape(-1) != results[which][0].reshape(-1)))
                self.find(
                    Fault.nondeterministic,
                    problem,
                    expected.kinds[which].name,
                    f"a second call on the same operands returned other bits, first at element {at} in order",
                )
        for which in changed:
            detail = "an operand, or the memory around it, was something else after the call"
            self.find(Fault.changes_operands, problem, expected.kinds[which].name, detail)
        return results[0]

    def gradients_of(self, problem: Problem) -> None:
        """Judge the gradients."""
        expected = expected_gradients(problem, self.seed)
        order = [*range(len(expected.kinds)), 0]
        try:
            results, _ = self.process.run(
                problem, expected.specs, expected.arguments, order, differentiable(problem), expected.results
            )
        except CandidateFailed as failed:
            if failed.fault not in (Fault.compile_error, Fault.run_error):
                raise
            self.find(
                Fault.no_gradient,
                problem,
                "",
                f'{failed}; give one, or say gradient = "reference" if that of the plain computation is to be used',
            )
            return
        self.calls += len(order)
        judgements = self._judge(expected, results[:-1])
        self.gradient_errors += [(problem, *each) for each in judgements]
        for values, judgement in judgements:
            found = self._fault_of(problem, judgement, GRADIENT_UNITS)
            if found is not None:
                self.find(Fault.wrong_gradient, problem, values.name, found[1])
        if not same(results[-1], results[0]):
            detail = "a second call of the gradient on the same operands returned other bits"
            self.find(Fault.nondeterministic, problem, expected.kinds[0].name, detail)

    def calls_again(self, problem: Problem, first: Sequence[Array]) -> None:
        """Time it, and see whether many calls later, compiled anew, it still computes the same."""
        expected = expected_results(problem, self.seed)
        skipped = [self._skipped(problem, expected)]
        if skipped[0] > SKIPS:  # a busy machine would not do it twice
            skipped.append(self._skipped(problem, expected))
        if min(skipped) > SKIPS:
            detail = f"calls on the operands of the call before take 1/{min(skipped):.1f} of the time of calls on others"
            self.find(Fault.skips_work, problem, expected.kinds[0].name, detail)
        results, _ = self.process.run(
            problem, expected.specs, expected.arguments, [0], None, expected.results
        )
        if not same(results[0], first):
            detail = "compiled anew, after many calls, it returned other bits for the same operands"
            self.find(Fault.nondeterministic, problem, expected.kinds[0].name, detail)

    def _skipped(self, problem: Problem, expected: Expectation) -> float:
        """How many times faster than on other operands it is on the same again, compared with the plain program."""
        self.times = self.process.times(problem, expected.arguments[0], problem.reference(), _TIMING_SECONDS)
        own, plain = (
            median(self.times[name]) / median(self.times[f"{name}_again"]) for name in ("own", "plain")
        )
        return own / max(1.0, plain)

    def compare_problems(self) -> None:
        """An error that is much larger for some problems than for others, on the same kind of values, is no rounding."""
        if self.candidate.effect is not Effect.lowers_precision:
            return
        for dtype in self.candidate.dtypes:
            rows = [row for row in self.judgements if row[0].dtype is dtype]
            for measure, times in ((_error, TIMES_USUAL), (_worst, TIMES_USUAL_WORST)):
                # What a kernel claims it may do for one size and not for others: compilers drop some roundings.
                floor = max(_floor(dtype), self.candidate.tolerance.get(dtype, 0.0) / TIMES_USUAL)
                normal = _usual([measure(row[2]) for row in rows if row[1].name == "normal"])
                for problem, values, judgement in rows:
                    mine = measure(judgement)
                    usual = _usual([measure(row[2]) for row in rows if row[1] is values])
                    if mine is not None and mine > times * max(usual, normal, floor):
                        self.find(
                            Fault.uneven,
                            problem,
                            values.name,
                            f"an error of {mine:.2g}, for most other sizes of at most {max(usual, normal):.2g}; "
                            f"{judgement.place}; if that is meant, claim a tolerance",
                        )
            usual = _usual([_error(row[2]) for row in rows if row[1].typical])
            for problem, values, judgement in self.gradient_errors:
                error = _error(judgement)
                if problem.dtype is dtype and error is not None:
                    limit = max(
                        TIMES_USUAL_GRADIENT * max(usual, _floor(dtype)),
                        self.candidate.tolerance.get(dtype, 0.0),
                    )
                    if error > limit:
                        detail = (
                            f"an error of {error:.2g}, and the results have {usual:.2g}; {judgement.place}"
                        )
                        self.find(Fault.wrong_gradient, problem, values.name, detail)

    def verdict(self) -> Verdict:
        """What came of it."""
        errors: dict[str, float] = {}
        for problem, values, judgement in (*self.judgements, *self.gradient_errors):
            if values.typical and judgement.error is not None:
                errors[problem.dtype] = max(errors.get(problem.dtype, 0.0), judgement.error)
        return Verdict(
            self.candidate.name,
            tuple(self.findings.values()),
            errors,
            self.problems,
            self.calls,
            self.seed,
            self.times,
        )

    def _judge(
        self, expected: Expectation, results: Sequence[Sequence[Array]]
    ) -> list[tuple[Values, Judgement]]:
        """One judgement of every list of arguments: that of its worst result."""
        made = []
        for values, outcomes, found in zip(expected.kinds, expected.outcomes, results, strict=True):
            nonfinite = "exact" if values.finite else self.candidate.nonfinite
            each = [
                judged(result, outcome, values.typical, nonfinite)
                for result, outcome in zip(found, outcomes, strict=True)
            ]
            made.append(
                (values, max(each, key=lambda one: (one.fault is not None, one.error or 0.0, one.worst)))
            )
        return made

    def _fault_of(
        self, problem: Problem, judgement: Judgement, units: float = 1.0
    ) -> tuple[Fault, str] | None:
        """What is wrong with a result, by what the kernel says that it does to numbers; `units` widens the floor."""
        if judgement.fault is not None:
            return judgement.fault, judgement.detail
        error = 0.0 if judgement.error is None else judgement.error
        if error > LARGEST or (judgement.worst > LARGEST and judgement.plain_worst < LARGEST / TIMES_PLAIN):
            return Fault.wrong, f"an error of {max(error, judgement.worst):.2g}; {judgement.place}"
        if self.candidate.effect is Effect.lowers_precision:
            claimed = self.candidate.tolerance.get(problem.dtype)
            limit = UNCLAIMED if claimed is None else claimed
            if error > limit:
                words = "for a kernel that claims no tolerance" if claimed is None else "that it claims"
                return (
                    Fault.inaccurate,
                    f"an error of {error:.2g}, beyond {limit:g} {words}; {judgement.place}",
                )
            return None
        if self.candidate.effect is Effect.exact:
            if judgement.same_bits:
                return None
            return (
                Fault.inaccurate,
                f"it is not bit for bit what the plain program returns; {judgement.place}",
            )
        floor = units * _floor(problem.dtype)
        for mine, plain in ((error, judgement.plain_error), (judgement.worst, judgement.plain_worst)):
            limit = max(TIMES_PLAIN * plain, floor)
            if mine > limit:
                return (
                    Fault.inaccurate,
                    f"an error of {mine:.2g}; another order of sums explains at most {limit:.2g}; {judgement.place}",
                )
        return None


def _repeats(results: Sequence[Sequence[Array]], expected: Expectation, old: int, new: int) -> bool:
    """Whether a call returned the results of an earlier one, which were right there and are not constant."""
    varied = any(np.unique(each).size > 1 for each in results[old])
    plain = ([outcome.plain for outcome in expected.outcomes[place]] for place in (old, new))
    return varied and same(results[old], results[new]) and not same(*plain)


def _error(judgement: Judgement) -> float | None:
    return judgement.error


def _worst(judgement: Judgement) -> float | None:
    return judgement.worst


def _usual(errors: Sequence[float | None]) -> float:
    """What at least three of four errors reach."""
    known = sorted(error for error in errors if error is not None)
    return known[len(known) // 4] if known else 0.0


def _floor(dtype: DType) -> float:
    """What other orders of sums, and other ways to compute exponentials, do to every element."""
    return _UNITS[dtype.itemsize] * unit(dtype.numpy)
