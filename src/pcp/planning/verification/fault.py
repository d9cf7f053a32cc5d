"""What can be wrong with a kernel from outside, and where it showed."""

import enum
from dataclasses import dataclass


class Fault(enum.StrEnum):
    """Why a kernel is refused."""

    compile_error = "compile error"
    run_error = "run error"
    crash = "crash"
    timeout = "timeout"
    out_of_memory = "out of memory"
    wrong_shape = "wrong shape"
    wrong_dtype = "wrong dtype"
    not_finite = "not finite"
    hides_nonfinite = "hides infinities or NaN"
    wrong = "wrong"
    inaccurate = "less accurate than it claims"
    uneven = "wrong in places"
    stale = "stale"
    nondeterministic = "nondeterministic"
    process_dependent = "right in the verifying process only"
    changes_operands = "changes its operands"
    skips_work = "skips work on repeated operands"
    no_gradient = "no gradient"
    wrong_gradient = "wrong gradient"


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault, and what showed it.

    Arguments:
        fault: what is wrong.
        problem: which problem showed it; empty if none was run.
        values: the kind of values of its operands; empty if they do not matter.
        detail: numbers, places, or what an exception said.
        also: other kinds of values that showed it as well.
    """

    fault: Fault
    problem: str
    values: str
    detail: str
    also: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = ", ".join(part for part in (self.problem, self.values and f"{self.values} values") if part)
        also = f"; also on {', '.join(self.also)} values" if self.also else ""
        return f"{self.fault}: {self.detail}" + (f" [{where}]" if where else "") + also
