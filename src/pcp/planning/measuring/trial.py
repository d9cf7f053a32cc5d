"""One candidate tried against its subject: types, results, determinism, errors, memory, time. This runs in the child."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pcp.backends import CompilationFailed, ExecutionFailed, OutOfMemory
from pcp.backends.jax_function import JAXFunction
from pcp.backends.regions import compiled_in_places
from pcp.backends.regions.bound import called_often
from pcp.ir import Program, TensorSpec
from pcp.ir.toolkit.walking import named_operations
from pcp.kernels import Claims
from pcp.planning.judging.judge import named_places, result_name
from pcp.planning.judging.tolerance import SLICES, Judged, ResultError, worst
from pcp.planning.measuring.at_site import fault_at_site, is_noise
from pcp.planning.measuring.measurement import Failed, Failure, Judgement, Measurement
from pcp.planning.measuring.process import Away
from pcp.planning.measuring.request import Request
from pcp.planning.measuring.significance import is_surely_slower
from pcp.planning.measuring.subject import Subject
from pcp.planning.measuring.timing import Runnable, Variations, timed, times_in_turn
from pcp.rewrite.row import Effect

log = logging.getLogger("pcp.planning.measuring")

LONG_SECONDS = 0.3
"""A call of a program that takes longer is not made without being timed."""
MOST_MISSED = 40
"""Results that a row names of those that are too wrong: where more are, no few sites are to blame."""
STEADY = 0.1
"""Two calls whose times differ by less were disturbed alike."""

Stage = Callable[[str], None]
"""Called with what begins now: `candidate` while code of the candidate runs, `judging`, or `timing`."""


def tried(
    subject: Subject,
    request: Request,
    stage: Stage,
    compile_candidate: Callable[[Request], Runnable] | None = None,
) -> Measurement:
    """Try a candidate. At a site it is verified after it was timed, and only if it may be of use.

    Arguments:
        subject: the request's.
        compile_candidate: None compiles it here.
    """
    try:
        if request.site is None and request.judged_at is not None:
            _check_reference(subject)
        stage("candidate")
        candidate, site, worth = request.candidate, request.site, request.worth
        is_plain = isinstance(candidate, Program) and candidate == subject.program and not request.is_moved
        is_plain = is_plain and request.bound == request.subject_bound
        if is_plain and not request.timing_seconds:
            return _of_plain(subject, request.tolerance)
        runnable = (compile_candidate or compiled)(request)
        trial = _judged(subject, runnable, request, stage)
        is_slow = worth is not None and is_surely_slower(trial.seconds, trial.plain_seconds, worth)
        if site is not None and not is_slow:
            compile_donating = _donating(request, runnable) if site.is_added else None
            fault = fault_at_site(subject, runnable, site, stage, compile_donating)
            if fault is not None:
                raise Failed(*fault)
        return trial
    except FAILURES as error:
        return failed(error)


def _trial(**known: Any) -> Measurement:
    """What came of a candidate; who asked knows of which, and where."""
    return Measurement("", "", "", "", **known)


FAILURES = (Failed, CompilationFailed, ExecutionFailed, OutOfMemory, MemoryError)
"""What is raised where a candidate cannot be taken."""


def failed(error: Exception) -> Measurement:
    """The end of a trial that one of `FAILURES` is."""
    match error:
        case Failed():
            return _trial(failure=error.failure, detail=str(error), **error.known)
        case CompilationFailed():
            return _trial(failure=Failure.of_compiling(str(error)), detail=str(error))
        case ExecutionFailed() if "MemoryError" not in str(error):  # which a callback may raise
            return _trial(failure=Failure.run_error, detail=str(error))
    return _trial(failure=Failure.out_of_memory, detail=str(error) or "memory ran out")


def compiled(request: Request, *, cache: bool = True) -> Runnable:
    """A request's candidate, a program, compiled here; raises one of `FAILURES`."""
    candidate = request.candidate
    assert isinstance(candidate, Program)
    check("takes", [e.spec for e in candidate.arguments], request.taken)
    check("returns", [e.spec for e in candidate.results], request.returned)
    executable = compiled_in_places(
        candidate, request.target_for(candidate), request.placement, request.bound, cache=cache
    )
    return Runnable(called_often(executable), candidate.arguments, request.elsewhere)


def _donating(request: Request, runnable: Runnable) -> Callable[[], Runnable] | None:
    away = runnable.executable
    if not isinstance(away, Away):
        return donating(request)
    return (lambda: replace(runnable, executable=away.donating())) if away.may_donate else None


def donating(request: Request) -> Callable[[], Runnable] | None:
    """Compiles a candidate that is given the memory of its operands; None where only the compiler could make a difference."""
    candidate = request.candidate
    if request.is_moved or request.bound or not isinstance(candidate, Program):
        return None
    donated = candidate.donating()
    calls = named_operations(candidate.module().operation, "stablehlo.custom_call")
    if donated is candidate or not any(calls):
        return None
    return lambda: Runnable(request.target_for(donated).compile(donated), donated.arguments)


def check(verb: str, specs: Sequence[TensorSpec], expected: Sequence[TensorSpec]) -> None:
    """Compare what a candidate takes or returns with what it should.

    Raises:
        Failed: it is something else.
    """
    shown = f"it {verb} {_listed(specs)}; expected {_listed(expected)}"
    if [spec.shape for spec in specs] != [spec.shape for spec in expected]:
        raise Failed(Failure.wrong_shape, shown)
    if list(specs) != list(expected):
        raise Failed(Failure.wrong_dtype, shown)


def _listed(specs: Sequence[TensorSpec]) -> str:
    shown = ", ".join(map(str, specs[:6])) or "nothing"
    return shown + (f" and {len(specs) - 6} more" if len(specs) > 6 else "")


def _judged(subject: Subject, runnable: Runnable, request: Request, stage: Stage) -> Measurement:
    tolerance = request.tolerance
    errors: list[ResultError] = []
    first: list[Any] = []
    fastest = math.inf
    for index, buffers in enumerate(subject.inputs):
        stage("candidate")
        results, took = timed(runnable, buffers, subject.target)
        fastest = min(fastest, took)
        first = first or results
        stage("judging")
        if index and request.site is not None and _is_stale(subject, index, first, results):
            raise Failed(Failure.stale, "it returned what it had returned for other operands")
        if tolerance == 0.0:
            _check_bits(subject, index, results)
        call_errors = subject.judges[index].errors(results)
        errors += call_errors
        _check_errors(subject, call_errors, results, tolerance)
    del results  # memory is short where a program is large
    stage("candidate")
    again, took = timed(runnable, subject.inputs[0], subject.target)
    stage("judging")
    own = max((each.error for each in errors), default=0.0)
    claims = request.site or Claims(Effect.lowers_precision)
    bits = tolerance == 0.0 or claims.repeats_bits
    _check_repeated(subject, first, again, claims.explains(own), bits=bits)
    del again
    if request.sketched is not None:
        _give_sketch(subject, runnable, first, request.sketched, exact=tolerance == 0.0)
    del first
    mine, plain_times = [], []
    if request.timing_seconds > 0:
        stage("timing")
        # What is given from outside might remember results of equal arguments, so that its second call says nothing.
        is_long = not isinstance(runnable.executable, JAXFunction | Away) and fastest > LONG_SECONDS
        mine, plain_times = _times(subject, runnable, request, took if is_long else None)
    peak = runnable.executable.memory.peak
    return _trial(seconds=mine, plain_seconds=plain_times, peak_bytes=peak, **_errors_of(subject, errors))


def _give_sketch(
    subject: Subject,
    runnable: Runnable,
    first: list[Any],
    sketched: Callable[[bytes], object],
    *,
    exact: bool,
) -> None:
    """Give the sketch of results of a form that was judged, on arguments that another process can make; none without room."""
    arguments = subject.inputs[0]
    if subject.is_warm:
        first.clear()
        try:
            arguments = subject.cold_arguments()
            first += timed(runnable, arguments, subject.target)[0]
        except OutOfMemory as error:
            log.info("no sketch of results is given, for which memory is short: %s", error)
            return
    sketched(subject.sketch(arguments, first, exact=exact).to_bytes())


def _check_reference(subject: Subject) -> None:
    """Refuse to judge by what is mostly not finite: every result is right beside that."""
    lost = next((judge.lost for judge in subject.judges if judge.lost is not None), None)
    if lost is not None:
        raise Failed(Failure.not_finite, f"{100 * lost[1]:.3g} % of result {lost[0]}", error=math.inf)


def _of_plain(subject: Subject, tolerance: float | None) -> Measurement:
    """What is known of the plain program without running it again."""
    errors = [each for judge in subject.judges for each in judge.plain]
    trial = _trial(peak_bytes=subject.plain.executable.memory.peak, **_errors_of(subject, errors))
    largest = worst(errors)
    if tolerance and largest is not None and not largest.least_tolerance <= tolerance:
        return replace(trial, failure=Failure.inaccurate, detail=_too_wrong(subject, largest, tolerance))
    return trial


def _errors_of(subject: Subject, errors: Sequence[ResultError], limit: float = math.inf) -> dict[str, Any]:
    """What a trial says of the worst errors: how large they are, whose, how they were found, and which are beyond a limit."""
    if not subject.is_judged:
        return {}
    largest = max(errors, key=lambda each: each.error, default=None)
    slices = max(errors, key=lambda each: each.slice_error, default=None)
    judged = {each.name: each for each in sorted(errors, key=lambda each: each.error)}  # the worst counts
    judgement = Judgement(
        largest.name if largest and largest.error else "",
        slices.slice_error if slices else 0.0,
        f"{slices.name}, {slices.slice}" if slices and slices.slice else "",
        max((each.plain_slice for each in errors), default=0.0),
        subject.reference,
        tuple(
            (name, each.missed)
            for name, each in judged.items()
            if each.judged is Judged.group and (each.missed or each.error)
        ),
        tuple(
            (name, each.error) for name, each in judged.items() if each.judged is Judged.share and each.error
        ),
        tuple(subject.ignored_names),
        tuple(
            (each.name, each.least_tolerance)
            for each in sorted(judged.values(), key=lambda each: -each.least_tolerance)
            if each.least_tolerance > limit
        )[:MOST_MISSED],
    )
    return {
        "error": largest.error if largest else 0.0,
        "plain_error": max((each.plain for each in errors), default=0.0),
        "judgement": judgement,
    }


def _check_repeated(
    subject: Subject, first: Sequence[Any], again: Sequence[Any], error: float, *, bits: bool
) -> None:
    """Sums whose order is left to chance differ by roundings; that is no fault where no bits are asked for.

    Arguments:
        error: of the candidate, whose roundings may be larger than its results' type explains.
    """
    for place, (a, b) in enumerate(zip(first, again, strict=True)):
        if is_noise(subject.comparison, a, b, bits, error):
            continue
        if subject.is_deterministic:
            detail = f"result {result_name(subject.program, place)} differs between two calls with the same arguments"
            raise Failed(Failure.nondeterministic, detail)


def _times(subject: Subject, runnable: Runnable, request: Request, took: float | None) -> list[list[float]]:
    """Times of the candidate and of the plain program in turn.

    Where calls are long, every one counts: the repeated call of the candidate is a sample, beside one of the plain program; and
    earlier calls of the plain program stand for further ones if they took about as long as that.

    Arguments:
        took: seconds of the repeated call, where that counts.
    """
    known: list[list[float]] = [[], []]
    spare: list[float] = []
    if took is not None:
        before = subject.plain_seconds[1:]  # the first one warms up
        _, fresh = timed(subject.plain, subject.inputs[0], subject.target)
        known = [[took], [fresh]]
        spare = [each for each in before if abs(each / fresh - 1.0) < STEADY]
    if isinstance(runnable.executable, Away):
        times = runnable.executable.times(subject.inputs[0])
        runnable.executable.check_repeating(subject.inputs[0])
        return times
    variations = Variations(subject.program.arguments, subject.inputs[0], subject.target, request.fixed)
    times = times_in_turn(
        [runnable, subject.plain],
        variations,
        subject.target,
        request.calls,
        request.timing_seconds,
        known,
        spare[-request.calls :],
        request.rival,
    )
    if took is not None:
        subject.plain_seconds += times[1][:1]
    return times


def _is_stale(subject: Subject, index: int, first: Sequence[Any], results: Sequence[Any]) -> bool:
    """Whether results are those for the first list of arguments, for which the plain program has others."""
    same_bits, plain = subject.comparison.same_bits, subject.plain_results
    return all(map(same_bits, first, results)) and not all(map(same_bits, plain[0], plain[index]))


def _check_bits(subject: Subject, index: int, results: Sequence[Any]) -> None:
    for place, (plain, y) in enumerate(zip(subject.plain_results[index], results, strict=True)):
        if not subject.comparison.same_bits(plain, y):
            detail = (
                f"result {result_name(subject.program, place)} is not bit for bit that of the plain program"
            )
            raise Failed(Failure.inaccurate, detail)


def _check_errors(
    subject: Subject, errors: Sequence[ResultError], results: Sequence[Any], tolerance: float | None
) -> None:
    largest = worst(errors)
    if largest is None or (math.isinf(largest.error) and math.isinf(largest.plain)):
        return
    limit = math.inf if tolerance is None or tolerance == 0.0 else tolerance
    if math.isfinite(largest.least_tolerance) and largest.least_tolerance <= limit:
        return
    if math.isfinite(largest.error):
        failure, detail = Failure.inaccurate, _too_wrong(subject, largest, limit)
    else:
        value = np.asarray(results[next(iter(named_places(subject.program, [largest.name])))])
        is_finite = value.dtype.kind not in "fVc" or bool(
            np.isfinite(value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)).all()
        )
        failure = Failure.inaccurate if is_finite else Failure.not_finite
        detail = f"result {largest.name} is " + ("wrong" if is_finite else "not finite where it should be")
    raise Failed(failure, detail, **_errors_of(subject, errors, limit))


def _too_wrong(subject: Subject, wrong: ResultError, tolerance: float) -> str:
    """Why a result is not within a tolerance."""
    of = "of" if subject.is_judged else "relative to the plain results, of"
    if wrong.judged is Judged.share:
        return f"a share of {wrong.error:.3g} of result {wrong.name} differs; the tolerance is {tolerance:g}"
    scale = ", on the scale of its group," if wrong.judged is Judged.group else ""
    if wrong.error <= tolerance:
        return (
            f"the error {of} a slice of result {wrong.name} ({wrong.slice}){scale} is {wrong.slice_error:.3g}; "
            f"the tolerance for slices is {SLICES * tolerance:g}"
        )
    return f"the error {of} result {wrong.name}{scale} is {wrong.error:.3g}; the tolerance is {tolerance:g}"
