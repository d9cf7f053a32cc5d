"""What came of verifying a kernel from outside: the tolerance that it deserves, or why it is refused."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pcp.planning.measuring.measurement import Failure, Measurement
from pcp.planning.measuring.significance import joint, undisturbed
from pcp.planning.measuring.site_operands import KINDS
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
        detail: numbers, places, or what an exception said.
    """

    fault: Failure
    problem: str
    detail: str

    @property
    def values(self) -> list[str]:
        """The kinds of operands that the detail names."""
        return [kind.name for kind in KINDS if f"on {kind.name} operands" in self.detail]

    def __str__(self) -> str:
        detail = "".join(each if each.isprintable() else " " for each in self.detail)  # what a stranger says
        return f"{self.fault}: {detail}" + (f" [{self.problem}]" if self.problem else "")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of verifying a kernel.

    Arguments:
        kernel: its name.
        findings: what is wrong with it; without any it is accepted.
        errors: the largest error of results and gradients on normal operands, by their element type, or of its `region`.
        problems: how many problems it was tried on.
        calls: how many calls were judged.
        seed: of the random operands; the same seed makes the same operands.
        rows: what was measured where it was timed.
        tried: the ranges that the verdict holds for.
        noise: how far calls on the same operands lay apart; such a kernel is not deterministic, and never exact.
        limit: the largest error that is admitted, on the last problem; 0 asks for the same bits.
    """

    kernel: str
    findings: tuple[Finding, ...]
    errors: Mapping[str, float] = field(default_factory=dict)
    problems: int = 0
    calls: int = 0
    seed: int = 0
    rows: tuple[Measurement, ...] = ()
    tried: Tried = field(default_factory=Tried)
    noise: float = 0.0
    limit: float | None = None

    @property
    def accepted(self) -> bool:
        """Whether nothing was found to be wrong with it."""
        return not self.findings

    @property
    def tolerances(self) -> dict[str, float]:
        """The tolerance that it deserves, by the same names as errors; empty if it is refused."""
        return {dtype: bucket(error) for dtype, error in self.errors.items()} if self.accepted else {}

    @property
    def seconds(self) -> tuple[float, float]:
        """Of a call of the kernel, and of the plain computation, little disturbed; infinite where none was timed."""
        mine, plain = joint([block for row in self.rows for block in row.blocks])
        return undisturbed(mine), undisturbed(plain)

    @property
    def ratio(self) -> float | None:
        """Its time relative to the plain computation's; None if no time was measured."""
        mine, plain = self.seconds
        return mine / plain if math.isfinite(mine) else None

    @property
    def error(self) -> float | None:
        """The largest error; None where none was measured."""
        return max(self.errors.values(), default=None)

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        mine, plain = (each if math.isfinite(each) else None for each in self.seconds)
        first = next(iter(self.findings), None)
        return {
            "kernel": self.kernel,
            "accepted": self.accepted,
            "fault": first.fault if first else "",
            "detail": first.detail if first else "",
            "tolerances": self.tolerances,
            "errors": dict(self.errors),
            "error": self.error,
            "limit": self.limit,
            "findings": [
                {
                    "fault": each.fault,
                    "problem": each.problem,
                    "values": each.values,
                    "detail": each.detail,
                }
                for each in self.findings
            ],
            "problems": self.problems,
            "calls": self.calls,
            "seed": self.seed,
            "seconds": mine,
            "plain_seconds": plain,
            "time_ratio": self.ratio,
            "tried": self.tried.to_json(),
            "deterministic": self.noise == 0.0,
            "noise": self.noise,
        }

    def __str__(self) -> str:
        tried = f" ({self.problems} problems, {self.calls} calls, seed {self.seed})" if self.problems else ""
        lines = [f"{self.kernel}: {'accepted' if self.accepted else 'refused'}{tried}"]
        lines += [f"  {each}" for each in self.findings]
        for name, error in self.errors.items():
            tolerance = f"tolerance {self.tolerances[name]:g}, " if self.accepted else ""
            lines.append(f"  {name}: {tolerance}largest error {error:.2g}")
        if self.noise:
            lines.append(
                f"  not deterministic: calls on the same operands differ by up to {self.noise:.2g}, as roundings do; "
                "it never counts as exact"
            )
        if self.ratio is not None:
            mine, plain = (f"{each * 1e3:.3f} ms" for each in self.seconds)
            lines.append(f"  time: {self.ratio:.2f} of the plain computation's ({mine}, {plain})")
        if self.accepted:
            lines.append(f"  {self.tried}")
            lines.append(
                "  beyond these ranges nothing is known of it: plans verify it at their sites before they use it"
            )
        return "\n".join(lines)


def refused(kernel: str, fault: Failure, detail: str) -> Verdict:
    """A kernel that does not come to be measured."""
    return Verdict(kernel, (Finding(fault, "", " ".join(detail.split())),))
