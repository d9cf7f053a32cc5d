"""What came of verifying a kernel from outside: the tolerance that it deserves, or why it is refused."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pcp.planning.measuring.measurement import Failure
from pcp.planning.verification.tried import Tried

MARGIN = 1.5
"""How far the largest error that was measured stays below the tolerance."""
_STEPS = (1.0, 2.0, 5.0)


def bucket(error: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that an error stays below by `MARGIN`; 0 for no error."""
    if error == 0.0:
        return 0.0
    wanted = MARGIN * error
    power = math.floor(math.log10(wanted))
    steps = (float(f"{step:g}e{power + more}") for more in (0, 1) for step in _STEPS)
    return next(step for step in steps if step >= wanted)


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

    fault: Failure
    problem: str
    values: str
    detail: str
    also: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = ", ".join(part for part in (self.problem, self.values and f"{self.values} values") if part)
        also = f"; also on {', '.join(self.also)} values" if self.also else ""
        return f"{self.fault}: {self.detail}" + (f" [{where}]" if where else "") + also


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of verifying a kernel.

    Arguments:
        kernel: its name.
        findings: what is wrong with it; without any it is accepted.
        errors: the largest error of results and gradients, by the element type of the operands.
        problems: how many problems it was tried on.
        calls: how many calls were judged.
        seed: of the random operands; the same seed makes the same operands.
        times: seconds of calls: `plain` of the plain program, `own` of the kernel.
        tried: the ranges that the verdict holds for.
        noise: how far calls on the same operands lay apart; such a kernel is not deterministic, and never exact.
    """

    kernel: str
    findings: tuple[Finding, ...]
    errors: Mapping[str, float]
    problems: int
    calls: int
    seed: int
    times: Mapping[str, list[float]] = field(default_factory=dict)
    tried: Tried = field(default_factory=Tried)
    noise: float = 0.0

    @property
    def accepted(self) -> bool:
        """Whether nothing was found to be wrong with it."""
        return not self.findings

    @property
    def tolerances(self) -> dict[str, float]:
        """The tolerance that it deserves, by the element type of the operands; empty if it is refused."""
        return {dtype: bucket(error) for dtype, error in self.errors.items()} if self.accepted else {}

    @property
    def ratio(self) -> float | None:
        """Its time relative to the plain program's; None if no time was measured."""
        if not self.times:
            return None
        return statistics.median(self.times["own"]) / statistics.median(self.times["plain"])

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "kernel": self.kernel,
            "accepted": self.accepted,
            "tolerances": self.tolerances,
            "errors": dict(self.errors),
            "findings": [
                {
                    "fault": each.fault,
                    "problem": each.problem,
                    "values": [name for name in (each.values, *each.also) if name],
                    "detail": each.detail,
                }
                for each in self.findings
            ],
            "problems": self.problems,
            "calls": self.calls,
            "seed": self.seed,
            "time_ratio": self.ratio,
            "tried": self.tried.to_json(),
            "deterministic": self.noise == 0.0,
            "noise": self.noise,
        }

    def __str__(self) -> str:
        tried = f"{self.problems} problems, {self.calls} calls, seed {self.seed}"
        if not self.accepted:
            return "\n".join([f"{self.kernel}: refused ({tried})", *(f"  {each}" for each in self.findings)])
        lines = [f"{self.kernel}: accepted ({tried})"]
        for dtype, tolerance in self.tolerances.items():
            lines.append(f"  {dtype}: tolerance {tolerance:g}, largest error {self.errors[dtype]:.2g}")
        if self.noise:
            lines.append(
                f"  not deterministic: calls on the same operands differ by up to {self.noise:.2g}, as roundings do; "
                "it never counts as exact"
            )
        if self.ratio is not None:
            lines.append(f"  time: {self.ratio:.2f} of the plain computation's")
        lines.append(f"  {self.tried}")
        lines.append(
            "  beyond these ranges nothing is known of it: plans verify it at their sites before they use it"
        )
        return "\n".join(lines)
