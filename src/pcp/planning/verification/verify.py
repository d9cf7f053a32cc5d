"""Verifying a kernel from outside: run in another process on many problems and values, judged here by what it returns.

What a kernel that reassociates may err is bounded by what the plain program errs. One that lowers precision may err as much as
it claims, but evenly (`evenness`).
"""

import logging
import math
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pcp.kernels.candidate import REFERENCE, Candidate
from pcp.kernels.problems import Problem
from pcp.planning.measuring.measurement import Failed, Failure
from pcp.planning.verification.deviation import (
    difference,
    judged,
    judgements_of,
    pooled,
    repeats,
    same,
)
from pcp.planning.verification.evenness import Judged, uneven
from pcp.planning.verification.expected import (
    Expectation,
    differentiable,
    expected_gradients,
    expected_results,
    expected_wide,
)
from pcp.planning.verification.limits import GRADIENT_UNITS, fault_of, largest_noise
from pcp.planning.verification.process import CandidateProcess
from pcp.planning.verification.repeating import SKIPS, repeated
from pcp.planning.verification.text import NONE, Texts, texts_of
from pcp.planning.verification.tried import Tried
from pcp.planning.verification.user_process import run_as_user
from pcp.planning.verification.verdict import Finding, Verdict

log = logging.getLogger("pcp.planning.verification")

ALIKE = ("normal", "again", "half zero")
"""Kinds of values of one scale."""
_GRADIENT_PROBLEMS = 4
_REPEATS = 3
MANY_CALLS, MANY_SECONDS = 5000, 8.0
"""Calls of a small problem, since some kernels are wrong in one call of thousands; and how long they may take."""
FEW_CALLS, MANY_BYTES = 300, 1 << 26
"""Fewer calls where their results would take more than these bytes."""
WIDE_SECONDS = 50.0
"""After which no further wide problem is begun."""
AS_USER = 3
"""Problems that a user's process tries."""

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
    except Failed as failed:
        examination.find(failed.failure, None, "", str(failed))
    return examination.verdict()


class _Examination:
    """One candidate, and what was found so far."""

    def __init__(self, candidate: Candidate, process: CandidateProcess, seed: int) -> None:
        self.candidate, self.process, self.seed = candidate, process, seed
        self.findings: dict[Failure, Finding] = {}
        self.judgements: list[Judged] = []
        self.gradient_errors: list[Judged] = []
        self.wide_judgements: list[Judged] = []
        self.times: dict[str, list[float]] = {}
        self.tried = Tried()
        self.noise = 0.0
        self.problems = self.calls = 0
        self.texts: Texts = NONE
        self._problem: Problem | None = None

    def find(self, fault: Failure, problem: Problem | None, values: str, detail: str) -> None:
        """Note a fault; what showed it first is told in detail."""
        problem = problem or self._problem
        finding = Finding(fault, str(problem or ""), values, detail)
        log.info("%s: %s", self.candidate.name, finding)
        first = self.findings.setdefault(fault, finding)
        if values not in (first.values, *first.also):
            self.findings[fault] = replace(first, also=(*first.also, values))

    def run(self, keep_going: bool, progress: Progress | None) -> None:
        """Try every problem, then gradients, then what only many calls show."""
        problems, wide = self.candidate.problems, self.candidate.wide
        total = len(problems) + len(wide) + 1
        if self.candidate.function is None:
            self.texts = texts_of(self.candidate)
        with_gradient = set(problems[:: max(1, len(problems) // _GRADIENT_PROBLEMS)])
        for count, problem in enumerate(problems):
            if progress is not None:
                progress(count, total, str(problem))
            self._problem = problem
            self.problems += 1
            first = self.results_of(problem)
            if not count and not self.findings and self.candidate.function is not None:
                first = self.results_of_its_text(problem)
            if problem in with_gradient and self.candidate.gradient != REFERENCE:
                self.gradients_of(problem)
            if problem == problems[-1] and not self.findings:
                self.calls_again(problem, first)
            if self.findings and not keep_going:
                return
        began = time.monotonic()
        for count, problem in enumerate(wide, len(problems)):
            if progress is not None:
                progress(count, total, str(problem))
            self._problem = problem
            left = WIDE_SECONDS - (time.monotonic() - began)
            if self.findings or left <= 0:
                self.tried.left_out.append(str(problem))
            else:
                self.wide_results_of(problem, left)
        if not self.findings and progress is not None:
            progress(total - 1, total, "many calls, and calls in a user's process")
        self._end(min(problems, key=lambda each: each.size))

    def results_of_its_text(self, problem: Problem) -> list[Array]:
        """Judge what plans would hold of it for the first problem, whose results were right; from now on it is what is run."""
        self.texts = texts_of(self.candidate)
        first = self.results_of(problem)
        for fault in set(self.findings) - {Failure.process_dependent}:
            finding = self.findings.pop(fault)
            detail = f"as plans would hold it, lowered in a process of its own, {finding.detail}"
            self.find(Failure.process_dependent, problem, finding.values, detail)
        return first

    def _end(self, smallest: Problem) -> None:
        """What is tried of a kernel that nothing was found of, and what all problems together say."""
        if not self.findings:
            self._problem = smallest
            self.many_calls(smallest)
            self._problem = None
            self.results_in_a_users_process()
        self._problem = None
        if self.findings.keys() <= {Failure.wrong_gradient}:
            for fault, problem, values, detail in uneven(
                self.candidate, self.judgements, self.gradient_errors
            ):
                self.find(fault, problem, values.name, detail)

    def results_of(self, problem: Problem) -> list[Array]:
        """Judge the results on every kind of values, of what plans would hold if that is known; returns those on the first."""
        expected = expected_results(problem, self.seed)
        count = len(expected.kinds)
        order = [*range(count), 0, 1, *[0] * (_REPEATS - 1)]
        results, changed = self._run(problem, expected, order)
        self.calls += len(order)
        self.tried.add(problem, [kind.name for kind in expected.kinds], len(order), expected.result.size)
        judgements = judgements_of(expected, results[:count], self.candidate.nonfinite)
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
            objection = fault_of(self.candidate, problem, judgement)
            if objection is None:
                sound.append(place)
                continue
            fault, detail = objection
            repeated = next((old for old in sound if repeats(results, expected, old, place)), None)
            if repeated is not None:
                fault = Failure.stale
                detail = (
                    f"it returned what it had returned for {expected.kinds[repeated].name} values; {detail}"
                )
            self.find(fault, problem, values.name, detail)
        for place, which in enumerate(order[count:], count):
            self._compare_calls(problem, expected, which, results[which], results[place])
        for which in changed:
            detail = "an operand, or the memory around it, was something else after the call"
            self.find(Failure.changes_operands, problem, expected.kinds[which].name, detail)
        return results[0]

    def _run(
        self,
        problem: Problem,
        expected: Expectation,
        order: Sequence[int],
        seconds: float = math.inf,
        limit: float = math.inf,
    ) -> tuple[list[list[Array]], list[int]]:
        """Results, and which lists were changed, of what plans would hold of it if that is known, else of its function."""
        text = self.texts.made.get(problem)
        away = self.process.compiled(self.candidate, problem, expected.program, limit=limit, text=text)
        answers = away.calls(expected.arguments, order, seconds)
        if problem in self.texts.failed:
            self.find(Failure.process_dependent, problem, "", self.texts.failed[problem])
        return answers

    def _compare_calls(
        self,
        problem: Problem,
        expected: Expectation,
        which: int,
        first: Sequence[Array],
        again: Sequence[Array],
        words: str = "a second call on the same operands returned other bits",
    ) -> None:
        """Two calls on one list of arguments may differ by roundings, unless the kernel is said to be exact."""
        if same(first, again):
            return
        kind, outcome = expected.kinds[which], expected.outcomes[which][0]
        noise = difference(first[0], again[0], outcome)
        judgement = judged(first[0], outcome, kind.typical, self.candidate.nonfinite)
        limit = largest_noise(self.candidate, problem, judgement)
        if noise <= limit:
            self.noise = max(self.noise, noise)
            return
        at = int(np.argmax(first[0].reshape(-1) != again[0].reshape(-1)))
        detail = f"{words}, first at element {at} in order; they differ by {noise:.2g}, of which {limit:.2g} is rounding"
        self.find(Failure.nondeterministic, problem, kind.name, detail)

    def wide_results_of(self, problem: Problem, seconds: float) -> None:
        """Judge the results of a wide problem on a few kinds of values, unless they take too long."""
        expected = expected_wide(problem, self.seed)
        order = list(range(len(expected.kinds)))
        try:
            results, _ = self._run(problem, expected, order, limit=seconds)
        except Failed as failed:
            if failed.failure not in (Failure.timeout, Failure.out_of_memory):
                raise
            self.tried.left_out.append(f"{problem} ({failed.failure})")
            return
        self.problems += 1
        self.calls += len(order)
        self.tried.add(problem, [kind.name for kind in expected.kinds], len(order), expected.result.size)
        for kind, [result], [outcome] in zip(expected.kinds, results, expected.outcomes, strict=True):
            judgement = judged(result, outcome, True, "exact")
            self.wide_judgements.append((problem, kind, judgement))
            objection = fault_of(self.candidate, problem, judgement)
            if objection is not None:
                self.find(objection[0], problem, kind.name, objection[1])

    def many_calls(self, problem: Problem) -> None:
        """Call it some thousand times on a few lists of arguments in turn, as counters only show then."""
        expected = expected_results(problem, self.seed)
        size = expected.result.bytes
        order = [count % 3 for count in range(min(MANY_CALLS, max(FEW_CALLS, MANY_BYTES // size)))]
        results, _ = self._run(problem, expected, order, MANY_SECONDS)
        self.calls += len(results)
        self.tried.add(problem, (), len(results), expected.result.size)
        for count, (which, result) in enumerate(zip(order, results, strict=False)):
            words = f"call {count + 1} returned something else than call {which + 1} did on the same operands"
            self._compare_calls(problem, expected, which, results[which], result, words)

    def results_in_a_users_process(self) -> None:
        """See whether the results are those that a process has which is not made for verifying."""
        if self.candidate.function is None:
            return
        step = max(1, len(self.candidate.problems) // AS_USER)
        problems = sorted(self.candidate.problems, key=lambda each: each.size)[::step][:AS_USER]
        expectations = [expected_results(each, self.seed) for each in problems]
        tasks = [
            (problem, expected.arguments[:2], expected.result)
            for problem, expected in zip(problems, expectations, strict=True)
        ]
        every = list(self.texts.made)
        seconds = self.process.seconds + 2.0 * len(every)
        returned, texts = run_as_user(self.candidate, self.process.device, tasks, every, seconds)
        for problem, text in zip(every, texts, strict=True):
            words = self.texts.differs(problem, text)
            if words:
                self.find(Failure.process_dependent, problem, "", f"in a process like a user's {words}")
        self.tried.processes.append("user's")
        for problem, expected, results in zip(problems, expectations, returned, strict=True):
            for which, result in enumerate(results):
                self.calls += 1
                kind, outcome = expected.kinds[which], expected.outcomes[which][0]
                judgement = judged(result, outcome, kind.typical, "exact")
                objection = fault_of(self.candidate, problem, judgement)
                if objection is not None:
                    detail = f"in a process like a user's {objection[1]}"
                    self.find(Failure.process_dependent, problem, kind.name, detail)

    def gradients_of(self, problem: Problem) -> None:
        """Judge the gradients."""
        expected = expected_gradients(problem, self.seed)
        order = [*range(len(expected.kinds)), 0]
        try:
            # JAX differentiates a function, which may say how; text is differentiated as it stands.
            text = self.texts.made.get(problem) if self.candidate.function is None else None
            wrt = differentiable(problem)
            away = self.process.compiled(self.candidate, problem, expected.program, wrt, text=text)
            results, _ = away.calls(expected.arguments, order)
        except Failed as failed:
            if failed.failure not in (Failure.compile_error, Failure.run_error, Failure.missing_handler):
                raise
            self.find(
                Failure.no_gradient,
                problem,
                "",
                f'{failed}; give one, or say gradient = "reference" if that of the plain computation is to be used',
            )
            return
        self.calls += len(order)
        judgements = judgements_of(expected, results[:-1], self.candidate.nonfinite)
        self.gradient_errors += [(problem, *each) for each in judgements]
        for values, judgement in judgements:
            objection = fault_of(self.candidate, problem, judgement, GRADIENT_UNITS)
            if objection is not None:
                self.find(Failure.wrong_gradient, problem, values.name, objection[1])
        self._compare_calls(
            problem,
            expected,
            0,
            results[0],
            results[-1],
            "a second call of the gradient on the same operands returned other bits",
        )

    def calls_again(self, problem: Problem, first: Sequence[Array]) -> None:
        """Time it, and see whether many calls later, compiled anew, it still computes the same."""
        expected = expected_results(problem, self.seed)
        text = self.texts.made.get(problem)
        away = self.process.compiled(self.candidate, problem, expected.program, text=text)
        skipped, self.times = repeated(away, expected.arguments[0])
        if skipped > SKIPS:
            detail = f"calls on the operands of the call before take 1/{skipped:.1f} of the time of calls on others"
            self.find(Failure.skips_work, problem, expected.kinds[0].name, detail)
        results, _ = self._run(problem, expected, [0])
        words = "compiled anew, after many calls, it returned other bits for the same operands"
        self._compare_calls(problem, expected, 0, first, results[0], words)

    def verdict(self) -> Verdict:
        """What came of it."""
        errors: dict[str, float] = {}
        for problem, values, judgement in (*self.judgements, *self.wide_judgements, *self.gradient_errors):
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
            self.tried,
            self.noise,
        )
