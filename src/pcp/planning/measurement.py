"""What was measured of one way to run one program, or why it could not be."""

import enum
from dataclasses import dataclass

from pcp.planning.significance import undisturbed

_NO_HANDLER = ("No registered implementation for", "No FFI handler registered", "Unknown custom call")


class Failure(enum.StrEnum):
    """Why a way to run a program is no way."""

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
    missing_handler = "missing handler"
    differs_here = "differs in the user's process"

    @property
    def may_pass(self) -> bool:
        """Whether it may be otherwise the next time: the machine was busy or full, or something was not installed."""
        return self in (Failure.timeout, Failure.out_of_memory, Failure.missing_handler)

    @staticmethod
    def of_compiling(message: str) -> "Failure":
        """What a compiler's message says."""
        if "RESOURCE_EXHAUSTED" in message:
            return Failure.out_of_memory
        missing = any(words in message for words in _NO_HANDLER)
        return Failure.missing_handler if missing else Failure.compile_error


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
        error: the largest error of the results; see `pcp.planning.tolerance`.
        plain_error: that of the plain path.
        peak_bytes: memory of one call.
        failure: why there are no times, or no error.
        detail: what the failure said.
        when: seconds since 1970, UTC.
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

    @property
    def typical(self) -> float:
        """Seconds of a call that little disturbs; infinite where there is none."""
        return undisturbed(self.seconds)

    @property
    def ratio(self) -> float:
        """The time relative to the plain path's, from calls in turn; infinite where it failed."""
        if not self.seconds or not self.plain_seconds:
            return float("inf")
        return self.typical / undisturbed(self.plain_seconds)
