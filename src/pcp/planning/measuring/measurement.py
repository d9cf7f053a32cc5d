"""What was measured of one way to run one program, or why it could not be; and several measurements as one, of those that were
made while little disturbed."""

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from pcp.planning.judging.tolerance import least_tolerance
from pcp.planning.measuring.significance import Block, calm_blocks, is_surely_slower, joint, undisturbed

_NO_HANDLER = (
    "No registered implementation for",
    "No FFI handler registered",
    "Unknown custom call",
    "native library",
)


class Failure(enum.StrEnum):
    """Why a way to run a program is no way, or a kernel from outside is refused."""

    compile_error = "compile error"
    run_error = "run error"
    crash = "crash"
    timeout = "timeout"
    out_of_memory = "out of memory"
    wrong_shape = "wrong shape"
    wrong_dtype = "wrong dtype"
    not_finite = "not finite"
    inaccurate = "inaccurate"
    nondeterministic = "nondeterministic"
    changes_operands = "changes its operands"
    missing_handler = "missing handler"
    differs_here = "differs in the user's process"
    # Of kernels from outside; rows of the database do not say so:
    hides_nonfinite = "hides infinities or NaN"
    wrong = "wrong"
    overclaimed = "less accurate than it claims"
    uneven = "wrong in places"
    stale = "stale"
    process_dependent = "right in the verifying process only"
    skips_work = "skips work on repeated operands"
    no_gradient = "no gradient"
    wrong_gradient = "wrong gradient"
    # Of a kernel for a region, or what should have been one:
    too_slow = "too slow"
    not_lowered = "not lowered"
    no_answer = "no answer"
    no_kernel = "no kernel"

    @property
    def may_pass(self) -> bool:
        """Whether it may be otherwise the next time: the machine was busy or full, or something was not installed."""
        return self in (Failure.timeout, Failure.out_of_memory, Failure.missing_handler)

    @property
    def at_site(self) -> "Failure":
        """What rows of the database say, as an older PCP may read them."""
        if self is Failure.hides_nonfinite:
            return Failure.not_finite
        return Failure.inaccurate if self in _OF_OUTSIDE else self

    @staticmethod
    def of_compiling(message: str) -> "Failure":
        """What a compiler's message says."""
        if "RESOURCE_EXHAUSTED" in message:
            return Failure.out_of_memory
        missing = any(words in message for words in _NO_HANDLER)
        return Failure.missing_handler if missing else Failure.compile_error


_OF_OUTSIDE = list(Failure)[list(Failure).index(Failure.hides_nonfinite) :]


class Failed(Exception):
    """A candidate that raised, crashed, hung, took too much memory, or returns what it must not; this ends its trial.

    Arguments:
        failure: what that is.
        detail: numbers, places, or what an exception said.
        known: what was measured nevertheless, by the names of `Measurement`.
    """

    def __init__(self, failure: Failure, detail: str, **known: Any) -> None:
        super().__init__(detail)
        self.failure, self.known = failure, known


@dataclass(frozen=True, slots=True)
class Judgement:
    """How the error of a measurement was found; see `pcp.planning.judging.tolerance`.

    Arguments:
        result: the name of the result with the largest error.
        slice_error: the largest error of a slice.
        slice: which slice that is: the result's name, the axis and the index.
        plain_slice: the largest error of a slice of the plain path.
        reference: what results were held against: `float64`, or `float32`, whose own error is added to all others.
        grouped: results judged on the scale of their group, and the plain path's error relative to their own norm.
        shares: integer results of which some elements differ, and their share.
        ignored: results that were left out.
        missed: results beyond the tolerance that was asked for, the worst first and not more than some, and the smallest that
            each is within; of what is taken none.
    """

    result: str = ""
    slice_error: float = 0.0
    slice: str = ""
    plain_slice: float = 0.0
    reference: str = "float64"
    grouped: tuple[tuple[str, float], ...] = ()
    shares: tuple[tuple[str, float], ...] = ()
    ignored: tuple[str, ...] = ()
    missed: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement; it is never changed, only added to others.

    Arguments:
        subject: digest of the program, or of the region of a site.
        path: digest of the Path; for a region `NAME@VERSION` of its kernel, or `plain`.
        hardware: digest of the hardware.
        versions: of what generates code.
        seconds: of every timed call.
        plain_seconds: of the plain path, timed in turn with it.
        error: the largest error of the results; see `pcp.planning.judging.tolerance`.
        plain_error: the plain path's.
        peak_bytes: memory of one call.
        failure: why there are no times, or no error.
        detail: what the failure said.
        when: seconds since 1970, UTC.
        judgement: how the error was found; None where there is none.
    """

    subject: str
    path: str
    hardware: str
    versions: str
    seconds: tuple[float, ...] = ()
    plain_seconds: tuple[float, ...] = ()
    error: float | None = None
    plain_error: float | None = None
    peak_bytes: int | None = None
    failure: Failure | None = None
    detail: str = ""
    when: float = 0.0
    judgement: Judgement | None = None

    @property
    def least_tolerance(self) -> float | None:
        """The smallest tolerance that the results are within; None where no error was measured."""
        if self.error is None:
            return None
        return least_tolerance(self.error, self.judgement.slice_error if self.judgement else 0.0)

    @property
    def least_plain(self) -> float | None:
        """The smallest tolerance that the plain path's results are within."""
        if self.plain_error is None:
            return None
        return least_tolerance(self.plain_error, self.judgement.plain_slice if self.judgement else 0.0)

    @property
    def typical(self) -> float:
        """Seconds of a call that little disturbs; infinite where there is none."""
        return undisturbed(self.seconds)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Its calls, which were made in one go."""
        return ((self.seconds, self.plain_seconds),) if self.seconds and self.plain_seconds else ()

    def is_verified(self, worth: float) -> bool:
        """Whether a kernel that was measured alone at a site was verified there, by a request with `worth`."""
        return self.failure is None and not is_surely_slower(self.seconds, self.plain_seconds, worth)

    @property
    def ratio(self) -> float:
        """The time relative to the plain path's, from calls in turn; infinite where it failed."""
        if not self.seconds or not self.plain_seconds:
            return float("inf")
        return self.typical / undisturbed(self.plain_seconds)


@dataclass(frozen=True, slots=True)
class Pooled(Measurement):
    """All that was measured of one path of a program here, as one row.

    Arguments:
        calm: the blocks that count, one for each measurement during which little disturbed; where none was calm, all.
        is_calm: whether any of them was.
    """

    calm: tuple[Block, ...] = ()
    is_calm: bool = True

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The calls that count, by measurements."""
        return self.calm


def pooled(rows: Sequence[Measurement], least: float = math.inf) -> Measurement:
    """Rows of one path of one program as one row; if the last one is a failure, that counts.

    Arguments:
        rows: one at least.
        least: undisturbed seconds of the plain program, as far as measurements of other paths have shown.
    """
    last = rows[-1]
    if last.failure is not None:
        return last
    sound = [row for row in rows if row.failure is None]

    judged = max(
        (row for row in sound if row.error is not None),
        key=lambda row: row.least_tolerance or 0.0,
        default=last,
    )
    blocks = [block for row in sound for block in row.blocks]
    are_calm = calm_blocks(blocks, least)
    calm = tuple(block for block, is_calm in zip(blocks, are_calm, strict=True) if is_calm) or tuple(blocks)
    seconds, plain_seconds = joint(calm)
    peaks = [row.peak_bytes for row in sound if row.peak_bytes is not None]
    together = {
        "seconds": tuple(seconds),
        "plain_seconds": tuple(plain_seconds),
        "error": judged.error,
        "plain_error": judged.plain_error,
        "judgement": judged.judgement,
        "peak_bytes": max(peaks, default=None),
        "when": sound[0].when,
    }
    others = {each.name: getattr(last, each.name) for each in fields(Measurement)}
    return Pooled(**others | together, calm=calm, is_calm=any(are_calm) or not blocks)
