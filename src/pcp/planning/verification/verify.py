"""Verifying a kernel from outside: judged on every region that it claims to compute, as at a site of a program.

A kernel for a region has that one, and has to be faster there. One for a family has the family's problems, and their gradients;
it is also run in a process like a user's. How wrong it is on some sizes bounds what it may be on others.
"""

import logging
import math
import secrets
import time
from collections.abc import Callable, Sequence

from pcp.autodiff import vjp
from pcp.backends import Target
from pcp.ir import DType, Program
from pcp.kernels.candidate import DERIVED, REFERENCE, Candidate
from pcp.kernels.problems import Problem
from pcp.planning.measuring.at_site import CALLS, LARGEST, kinds_at
from pcp.planning.measuring.bench import Bench, PlainProgramFailed
from pcp.planning.measuring.measurement import Failed, Failure, Measurement
from pcp.planning.measuring.request import ProgramText, PythonFunction, Request
from pcp.planning.measuring.significance import is_faster_in, joint, undisturbed
from pcp.planning.measuring.site_case import FEWEST
from pcp.planning.measuring.site_operands import unit_of
from pcp.planning.verification.judging import SECONDS, SETS, Made, limit_of, request_of
from pcp.planning.verification.text import NONE, Texts, texts_of
from pcp.planning.verification.tried import Tried
from pcp.planning.verification.user_process import run_as_user
from pcp.planning.verification.verdict import Finding, Verdict
from pcp.rewrite.row import Effect

log = logging.getLogger("pcp.planning.verification")

MARGIN = 0.02
"""The least gain of a kernel for a region, as a part of the time, as planning asks for."""
BLOCKS = 3
"""Blocks of calls that are timed at most, where one does not say for sure which is faster."""
CLOSE = 1.05
"""From which ratio of times on a candidate is slower, and not only perhaps."""
GRADIENTS = 4
"""Problems whose gradients are tried."""
SHORT = 1 << 21
"""Elements of operands up to which a wide problem is tried on all kinds of them."""
FEW = 4
"""Elements of a result from which on its norm is hardly small by chance."""
WIDE_SECONDS = 50.0
"""After which no further wide problem is begun."""
AS_USER = 3
"""Problems that a user's process tries."""
TIMES_USUAL, TIMES_USUAL_GRADIENT = 8.0, 16.0
"""How much more than for most sizes a kernel that claims no tolerance may err for one, and in gradients."""
GRADIENT_UNITS = 8.0
"""How much more than results gradients may err that are computed in another way, such as exp(x - logsumexp(x))."""
ENDS = {
    Failure.compile_error, Failure.run_error, Failure.missing_handler, Failure.crash, Failure.timeout, Failure.out_of_memory,
    Failure.wrong_shape, Failure.wrong_dtype,
}  # fmt: skip
"""After which nothing further is tried."""
LEAVES_OUT = (Failure.timeout, Failure.out_of_memory)
"""What is no fault of a kernel on a wide problem."""

Progress = Callable[[int, int, str], object]
"""Called before every problem with how many are done, how many there are, and the problem."""


def verify(
    candidate: Candidate,
    bench: Bench,
    target: Target,
    *,
    program: Program | None = None,
    label: str = "",
    seed: int | None = None,
    keep_going: bool = True,
    progress: Progress | None = None,
) -> Verdict:
    """Try a kernel from outside.

    Arguments:
        candidate: from `read_candidate`.
        bench: that measures, in a process of its own.
        program: what a kernel for a region became; None for a family's.
        label: of its measurements in the database.
        seed: of the random operands; None takes another one each time for a family, and planning's for a region.
        keep_going: whether the remaining problems are tried when one has shown something wrong.
        progress: called before every problem.

    Raises:
        PlainProgramFailed: what it claims to compute does not run.
        TemporaryFolderUnusable: files of the measurement cannot be written.
    """
    if seed is None:
        seed = 0 if program is not None else secrets.randbits(32)
    label = label or f"{candidate.name}@{candidate.version}"
    examination = _Examination(candidate, bench, target, label, seed)
    try:
        if program is not None:
            examination.admit(program)
        else:
            examination.run(keep_going, progress or (lambda *_: None))
    except Failed as failed:
        examination.find(failed.failure, None, str(failed))
    return examination.verdict()


class _Examination:
    """One candidate, and what was found so far."""

    def __init__(self, candidate: Candidate, bench: Bench, target: Target, label: str, seed: int) -> None:
        self.candidate, self.bench, self.target, self.seed = candidate, bench, target, seed
        self.label = label
        self.findings: dict[Failure, Finding] = {}
        self.judged: list[tuple[Problem, float]] = []
        self.gradients: list[tuple[Problem, float]] = []
        self.rows: list[Measurement] = []
        self.tried = Tried()
        self.noise = 0.0
        self.limit = 0.0
        self.problems = self.calls = 0
        self.texts: Texts = NONE

    def find(self, fault: Failure, problem: Problem | None, detail: str) -> None:
        """Note a fault; what showed it first is told."""
        finding = Finding(fault, str(problem or ""), detail)
        log.info("%s: %s", self.candidate.name, finding)
        self.findings.setdefault(fault, finding)

    def plain(self, region: Program) -> Request:
        """Asks for what is known of a region itself."""
        return request_of(region, region, "plain", self.target, seed=self.seed)

    def limit_on(self, problem: Problem, region: Program) -> float:
        """The largest error that is admitted."""
        return limit_of(self.candidate, problem, self.plain(region), self.bench)

    def measure(
        self, problem: Problem, made: Made, seconds: float = 0.0, *, is_checked: bool = True
    ) -> Measurement | None:
        """Judge it on a problem, and note what is wrong; None where the region fails beside it.

        Arguments:
            seconds: that it is timed beside the region.
            is_checked: whether it is tried on all kinds of operands.
        """
        region, site = problem.reference(), self.candidate.claims if is_checked else None
        self.limit = self.limit_on(problem, region)
        # Of very few elements the norm, which errors are relative to, may be small by chance; at sites there is another scale.
        is_small = problem.region is None and max(spec.size for spec in problem.results) < FEW
        limit = math.inf if is_small and self.limit else self.limit
        request = request_of(region, made, self.label, self.target, seconds, site, limit, self.seed)
        try:
            row = self.bench.measure(request)
        except PlainProgramFailed as error:
            self.bench.measure(self.plain(region))  # it runs alone
            self.find(Failure.crash, problem, f"beside it the region itself fails: {error}")
            return None
        kinds = kinds_at(problem.size) if is_checked else ()
        self.count(problem, [kind.name for kind in kinds], CALLS + len(kinds))
        if row.failure is None:
            self.judged += [] if is_small else [(problem, row.least_tolerance or 0.0)]
        elif not (problem in self.candidate.wide and row.failure in LEAVES_OUT):
            self.find(_fault_of(row), problem, row.detail)
        return row

    def count(self, problem: Problem, kinds: Sequence[str], calls: int) -> None:
        """Note what a problem was tried on."""
        self.calls += calls
        self.tried.add(problem, kinds, calls)

    def admit(self, program: Program) -> None:
        """Judge it on its region, where it has to be faster."""
        [problem] = self.candidate.problems
        self.problems = 1
        for block in range(BLOCKS):
            row = self.measure(problem, program, SECONDS, is_checked=not block)
            self.rows += [row] if row is not None else []
            if row is None or self.findings:
                return
            if is_faster_in([block for each in self.rows for block in each.blocks], MARGIN):
                return
            if row.ratio > CLOSE:
                break
        mine, plain = (undisturbed(each) for each in joint([b for row in self.rows for b in row.blocks]))
        self.find(
            Failure.too_slow,
            problem,
            f"it takes {mine / plain:.2f} of the region's own time ({mine * 1e3:.3f} ms beside {plain * 1e3:.3f} ms), which is "
            f"not surely less than {1 - MARGIN:g} of it",
        )

    def run(self, keep_going: bool, progress: Progress) -> None:
        """Judge it on the problems of its family, then gradients, calls in a user's process, and wide problems."""
        candidate = self.candidate
        problems, wide = candidate.problems, candidate.wide
        total = len(problems) + len(wide) + 1
        if candidate.function is None:
            self.texts = texts_of(candidate)
        large = [
            each
            for each in problems
            if min(each.specs[place].size for place in each.differentiable) >= FEWEST
        ]
        with_gradient = (large or problems)[:: max(1, len(large or problems) // GRADIENTS)]
        for count, problem in enumerate(problems):
            progress(count, total, str(problem))
            self.problems += 1
            is_last = count == len(problems) - 1
            row = self.measure(problem, self.made_for(problem), SECONDS if is_last else 0.0)
            self.rows += [row] if row is not None and is_last else []
            if not count and not self.findings and candidate.function is not None:
                self.judge_its_text(problem)
            if problem in self.texts.failed:
                self.find(Failure.process_dependent, problem, self.texts.failed[problem])
            if self.findings.keys() & ENDS:
                return
            if candidate.gradient != REFERENCE and problem in with_gradient:
                self.judge_gradient(problem)
            if self.findings and not keep_going:
                return
        self.look_for_uneven()
        if not self.findings and candidate.function is not None:
            progress(len(problems), total, "calls in a user's process")
            self.judge_as_user()
        began = time.monotonic()
        for count, problem in enumerate(wide, len(problems) + 1):
            progress(count, total, str(problem))
            if self.findings or time.monotonic() - began > WIDE_SECONDS:
                self.tried.left_out.append(str(problem))
                continue
            row = self.measure(problem, self.made_for(problem), is_checked=problem.size <= SHORT)
            if row is not None and row.failure in LEAVES_OUT:
                self.tried.left_out.append(f"{problem} ({row.failure})")
            else:
                self.problems += 1

    def judge_its_text(self, problem: Problem) -> None:
        """Judge what plans would hold of it where its function was right; from now on that is what is run."""
        self.texts = texts_of(self.candidate)
        if problem in self.texts.made:
            self.measure(problem, self.made_for(problem))
            for fault in list(self.findings):
                detail = self.findings.pop(fault).detail
                words = f"as plans would hold it, lowered in a process of its own, {detail}"
                self.find(Failure.process_dependent, problem, words)

    def judge_gradient(self, problem: Problem) -> None:
        """Judge its gradients; text is differentiated as it stands, and a function may say how it is."""
        wrt, candidate = problem.differentiable, self.candidate
        gradient = (
            self.made_for(problem, wrt) if candidate.function is None else self.function_for(problem, wrt)
        )
        region = vjp(problem.reference(), wrt=wrt)
        limit = self.limit_on(problem, region)
        if candidate.effect is Effect.reassociating:
            limit = max(limit, GRADIENT_UNITS * floor_of(problem.dtype))
        request = request_of(region, gradient, self.label, self.target, 0.0, None, limit, self.seed)
        row = self.bench.measure(request)
        self.calls += SETS + 1
        if row.failure is None:
            self.gradients.append((problem, row.least_tolerance or 0.0))
        elif row.failure in (Failure.compile_error, Failure.run_error, Failure.missing_handler):
            words = 'give one, or say gradient = "reference" if that of the plain computation is to be used'
            self.find(Failure.no_gradient, problem, f"{row.detail}; {words}")
        else:
            is_noise = row.failure is Failure.nondeterministic
            self.find(row.failure if is_noise else Failure.wrong_gradient, problem, row.detail)

    def judge_as_user(self) -> None:
        """See whether a process that is not made for verifying has the same programs and results, over many calls."""
        candidate, every = self.candidate, list(self.texts.made)
        problems = sorted(candidate.problems, key=lambda each: each.size)
        problems = problems[:: max(1, len(problems) // AS_USER)][:AS_USER]
        tasks, texts = run_as_user(candidate, self.target.device, problems, every, self.seed)
        self.tried.processes.append("user's")
        for problem, text in zip(every, texts, strict=True):
            words = self.texts.differs(problem, text)
            if words:
                self.find(Failure.process_dependent, problem, f"in a process like a user's {words}")
        claims = candidate.claims
        for problem, (errors, noises) in zip(problems, tasks, strict=True):
            self.count(problem, (), len(noises))
            limit = max(self.limit_on(problem, problem.reference()), floor_of(problem.dtype))
            error, noise = max(errors), max(noises)
            if not error <= limit:
                words = f"it has an error of {error:.2g}; at most {limit:.2g} is admitted"
                self.find(Failure.process_dependent, problem, f"in a process like a user's {words}")
            explained = 0.0 if claims.repeats_bits else max(floor_of(problem.dtype), claims.explains(error))
            if not noise <= explained:
                words = f"call {noises.index(noise) + 1} returned something else than an earlier one on the same operands"
                self.find(
                    Failure.nondeterministic,
                    problem,
                    f"in a process like a user's {words}; they differ by {noise:.2g}, of which {explained:.2g} is rounding",
                )
            self.noise = max(self.noise, noise)

    def usual_error(self, dtype: DType) -> float:
        """What at least three of four problems reach."""
        known = sorted(error for problem, error in self.judged if problem.dtype is dtype)
        return known[len(known) // 4] if known else 0.0

    def look_for_uneven(self) -> None:
        """Find an error that is many times larger for one size than for others: it is no rounding."""
        if self.candidate.effect is not Effect.lowers_precision:
            return
        for errors, times, fault in (
            (self.judged, TIMES_USUAL, Failure.uneven),
            (self.gradients, TIMES_USUAL_GRADIENT, Failure.wrong_gradient),
        ):
            for problem, error in errors:
                usual = max(self.usual_error(problem.dtype), floor_of(problem.dtype))
                if error > max(times * usual, self.candidate.tolerance.get(problem.dtype, 0.0)):
                    detail = f"an error of {error:.2g}, and results for most sizes have at most {usual:.2g}"
                    self.find(fault, problem, f"{detail}; if that is meant, claim a tolerance")

    def function_for(self, problem: Problem, wrt: tuple[int, ...] | None = None) -> PythonFunction:
        """Its function, or that of its gradients, which may be its own."""
        file, function = self.candidate.file, str(self.candidate.function)
        if wrt is not None and self.candidate.gradient not in (DERIVED, REFERENCE):
            (file, _, function), wrt = self.candidate.gradient.partition(":"), None
        return PythonFunction(str(self.candidate.folder / file), function, problem.attributes, wrt)

    def made_for(self, problem: Problem, wrt: tuple[int, ...] | None = None) -> Made:
        """What plans would hold of it if that is known, else its function."""
        text = self.texts.made.get(problem)
        return self.function_for(problem, wrt) if text is None else ProgramText(text, wrt)

    def verdict(self) -> Verdict:
        """What came of it."""
        errors: dict[str, float] = {}
        for problem, error in (*self.judged, *self.gradients):
            name = str(problem.dtype) if problem.region is None else "region"
            errors[name] = max(errors.get(name, 0.0), error)
        return Verdict(
            self.candidate.name,
            tuple(self.findings.values()),
            errors,
            self.problems,
            self.calls,
            self.seed,
            tuple(self.rows),
            self.tried,
            self.noise,
            self.limit,
        )


def _fault_of(row: Measurement) -> Failure:
    """Of one that misses its tolerance, whether it claims too much, or computes something else."""
    assert row.failure is not None
    if row.failure is not Failure.inaccurate:
        return row.failure
    return Failure.wrong if (row.error or 0.0) > LARGEST else Failure.overclaimed


def floor_of(dtype: DType) -> float:
    """The error that other orders of sums, and other ways to compute exponentials, explain."""
    return (4.0 if dtype.itemsize == 2 else 64.0) * unit_of(dtype)
