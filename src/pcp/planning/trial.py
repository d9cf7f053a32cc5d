"""One candidate tried against its subject: types, results, determinism, errors, memory, time. This runs in the child."""

import math
import runpy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pcp.backends import CompilationFailed, ExecutionFailed, OutOfMemory
from pcp.backends.base import CompileOptions
from pcp.backends.jax_function import JAXFunction
from pcp.ir import Program, TensorSpec
from pcp.planning.measurement import Failure
from pcp.planning.request import PythonFunction
from pcp.planning.subject import Subject
from pcp.planning.timing import Runnable, Variations, timed, times_in_turn
from pcp.planning.tolerance import ResultError
from pcp.planning.verification.at_site import fault_at_site, is_noise

LONG_SECONDS = 0.3
"""A call of a program that takes longer is not made without being timed."""
STEADY = 0.1
"""Two calls whose times differ by less were disturbed alike."""

Stage = Callable[[str], None]
"""Called with what begins now: `candidate` while code of the candidate runs, `judging`, or `timing`."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of it; see `Measurement`."""

    seconds: Sequence[float] = ()
    plain_seconds: Sequence[float] = ()
    error: float | None = None
    plain_error: float | None = None
    peak_bytes: int | None = None
    failure: Failure | None = None
    detail: str = ""


class Refused(Exception):
    """The candidate is none; carried to the end of the trial."""

    def __init__(self, failure: Failure, detail: str) -> None:
        super().__init__(detail)
        self.trial = Trial(failure=failure, detail=detail)


def tried(
    subject: Subject,
    candidate: Program | PythonFunction,
    options: CompileOptions,
    tolerance: float | None,
    calls: int,
    seconds: float,
    rival: float | None,
    stage: Stage,
    site: str | None = None,
) -> Trial:
    """Try a candidate.

    Arguments:
        subject: what it is compared with.
        candidate: what claims to compute the same.
        options: of the compiler.
        tolerance, calls, seconds, rival, site: as in `Request`.
        stage: told what is going on.
    """
    try:
        stage("candidate")
        runnable = _compiled(subject, candidate, options)
        if site is not None:
            fault = fault_at_site(subject, runnable, site, bits=tolerance == 0.0, stage=stage)
            if fault is not None:
                raise Refused(*fault)
        return _judged(subject, runnable, tolerance, calls, seconds, rival, stage)
    except Refused as refused:
        return refused.trial
    except CompilationFailed as error:
        return Trial(failure=Failure.of_compiling(str(error)), detail=str(error))
    except ExecutionFailed as error:
        return Trial(failure=Failure.run_error, detail=str(error))
    except (OutOfMemory, MemoryError) as error:
        return Trial(failure=Failure.out_of_memory, detail=str(error) or "memory ran out")


def _compiled(subject: Subject, candidate: Program | PythonFunction, options: CompileOptions) -> Runnable:
    plain = subject.program
    expected = [entry.spec for entry in plain.results]
    if isinstance(candidate, PythonFunction):
        function = JAXFunction(_loaded(candidate), [entry.spec for entry in plain.arguments], subject.device)
        _check("returns", function.results, expected)
        return Runnable(function, [replace(entry, alias=None) for entry in plain.arguments])
    _check("takes", [e.spec for e in candidate.arguments], [e.spec for e in plain.arguments])
    _check("returns", [entry.spec for entry in candidate.results], expected)
    executable = subject.backend.compile(candidate, subject.device, options, cache=True)
    return Runnable(executable, candidate.arguments)


def _loaded(candidate: PythonFunction) -> Callable[..., Any]:
    try:
        function: Callable[..., Any] = runpy.run_path(candidate.file)[candidate.function]
    except MemoryError:
        raise
    except KeyError:
        detail = f"{candidate.file} defines no {candidate.function}"
        raise Refused(Failure.compile_error, detail) from None
    except (Exception, SystemExit) as error:  # whatever somebody else's file raises
        detail = f"{candidate.file}: {type(error).__name__}: {error}"
        raise Refused(Failure.compile_error, detail) from None
    return function


def _check(verb: str, given: Sequence[TensorSpec], expected: Sequence[TensorSpec]) -> None:
    shown = f"{verb} {_listed(given)}; expected {_listed(expected)}"
    if [spec.shape for spec in given] != [spec.shape for spec in expected]:
        raise Refused(Failure.wrong_shape, shown)
    if list(given) != list(expected):
        raise Refused(Failure.wrong_dtype, shown)


def _listed(specs: Sequence[TensorSpec]) -> str:
    shown = ", ".join(map(str, specs[:6])) or "nothing"
    return shown + (f" and {len(specs) - 6} more" if len(specs) > 6 else "")


def _judged(
    subject: Subject,
    runnable: Runnable,
    tolerance: float | None,
    calls: int,
    seconds: float,
    rival: float | None,
    stage: Stage,
) -> Trial:
    errors: list[ResultError] = []
    known = False
    first: list[Any] = []
    fastest = math.inf
    for index, buffers in enumerate(subject.inputs):
        stage("candidate")
        found, took = timed(runnable, buffers, subject.backend, subject.device)
        fastest = min(fastest, took)
        first = first or found
        stage("judging")
        if tolerance == 0.0:
            _check_bits(subject, index, found)
        made, exactly = subject.errors(index, found)
        known = known or exactly
        errors += made if exactly or not known else [each for each in made if not math.isfinite(each.error)]
        _check_errors(subject, made, found, tolerance, exactly, known)
    del found  # memory is short where a program is large
    stage("candidate")
    again, took = timed(runnable, subject.inputs[0], subject.backend, subject.device)
    stage("judging")
    _check_repeated(subject, first, again, bits=tolerance == 0.0)
    del again, first
    largest = max(errors, key=lambda each: each.error, default=None)
    plain_error = max((each.plain for each in errors), default=0.0)
    mine, plain_times = [], []
    if seconds > 0:
        stage("timing")
        # What is given from outside might remember results of equal arguments, so that its second call says nothing.
        is_long = not isinstance(runnable.executable, JAXFunction) and fastest > LONG_SECONDS
        mine, plain_times = _times(subject, runnable, calls, seconds, rival, took if is_long else None)
    return Trial(
        tuple(mine),
        tuple(plain_times),
        (largest.error if largest else 0.0) if known else None,
        plain_error if known else None,
        runnable.executable.memory.peak,
        detail=f"the largest error is in result {largest.name}"
        if known and largest and largest.error
        else "",
    )


def _check_repeated(subject: Subject, first: Sequence[Any], again: Sequence[Any], *, bits: bool) -> None:
    """Sums whose order is left to chance differ by roundings; that is no fault where no bits are asked for."""
    for place, (a, b) in enumerate(zip(first, again, strict=True)):
        if subject.comparison.same_bits(a, b) or is_noise(np.asarray(a), np.asarray(b), bits):
            continue
        if subject.is_deterministic:
            detail = f"result {_name(subject, place)} differs between two calls with the same arguments"
            raise Refused(Failure.nondeterministic, detail)


def _times(
    subject: Subject, runnable: Runnable, calls: int, seconds: float, rival: float | None, took: float | None
) -> list[list[float]]:
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
        _, fresh = timed(subject.plain, subject.inputs[0], subject.backend, subject.device)
        known = [[took], [fresh]]
        spare = [each for each in before if abs(each / fresh - 1.0) < STEADY]
    variations = Variations(subject.program.arguments, subject.inputs[0], subject.backend, subject.device)
    found = times_in_turn(
        [runnable, subject.plain],
        variations,
        subject.backend,
        subject.device,
        calls,
        seconds,
        known,
        spare[-calls:],
        rival,
    )
    if took is not None:
        subject.plain_seconds += found[1][:1]
    return found


def _check_bits(subject: Subject, index: int, found: Sequence[Any]) -> None:
    for place, (plain, y) in enumerate(zip(subject.plain_results(index), found, strict=True)):
        if not subject.comparison.same_bits(plain, y):
            detail = f"result {_name(subject, place)} is not bit for bit that of the plain program"
            raise Refused(Failure.inaccurate, detail)


def _name(subject: Subject, place: int) -> str:
    return subject.program.results[place].name or str(place)


def _check_errors(
    subject: Subject,
    errors: Sequence[ResultError],
    found: Sequence[Any],
    tolerance: float | None,
    exactly: bool,
    known: bool,
) -> None:
    worst = max(errors, key=lambda each: each.error, default=None)
    if worst is None or (math.isinf(worst.error) and math.isinf(worst.plain)):
        return
    limit = math.inf if tolerance is None or tolerance == 0.0 else tolerance
    if known and not exactly:
        limit *= 2  # the plain results have an error of their own
    if math.isfinite(worst.error) and worst.error <= limit:
        return
    place = next(i for i, each in enumerate(errors) if each is worst)
    value = np.asarray(found[place])
    if not math.isfinite(worst.error):
        is_finite = not subject.program.results[place].spec.dtype.is_differentiable or bool(
            np.isfinite(value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)).all()
        )
        failure = Failure.inaccurate if is_finite else Failure.not_finite
        detail = f"result {worst.name} is " + ("wrong" if is_finite else "not finite where it should be")
    else:
        failure = Failure.inaccurate
        of = "of" if exactly else "relative to the plain results, of"
        detail = f"the error {of} result {worst.name} is {worst.error:.3g}; the tolerance is {tolerance:g}"
    refused = Refused(failure, detail)
    if exactly:
        plain = max(each.plain for each in errors)
        refused.trial = Trial(error=worst.error, plain_error=plain, failure=failure, detail=detail)
    raise refused
