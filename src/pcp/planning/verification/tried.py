"""What a verdict holds for: the ranges that a kernel was tried in."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from pcp.kernels.problems import Problem


@dataclass(slots=True)
class Tried:
    """The ranges of what a kernel was tried on. Beyond them nothing is known of it, and it is verified again at the site.

    Arguments:
        dtypes: of the floating-point operands.
        forms: of the family.
        sizes: the smallest and the largest of every size, by its name.
        elements: of the largest array.
        kinds: of values of the operands.
        calls: of one compiled problem, at most.
        processes: kinds of processes that it ran in.
        left_out: problems that were too large for the limits of time or memory.
    """

    dtypes: list[str] = field(default_factory=list)
    forms: list[str] = field(default_factory=list)
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    elements: int = 0
    kinds: list[str] = field(default_factory=list)
    calls: int = 0
    processes: list[str] = field(default_factory=lambda: ["disposable"])
    left_out: list[str] = field(default_factory=list)

    def add(self, problem: Problem, kinds: Iterable[str], calls: int) -> None:
        """Enter a problem that was tried."""
        for known, new in (
            (self.dtypes, [str(problem.dtype)]),
            (self.forms, [problem.form or "its region"]),
            (self.kinds, kinds),
        ):
            known += [each for each in new if each not in known]
        for name, size in problem.sizes:
            low, high = self.sizes.get(name, (size, size))
            self.sizes[name] = min(low, size), max(high, size)
        self.elements = max(self.elements, *(spec.size for spec in (*problem.specs, *problem.results)))
        self.calls = max(self.calls, calls)

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self) | {"sizes": {name: list(limits) for name, limits in self.sizes.items()}}

    def __str__(self) -> str:
        sizes = "".join(f"{name} {low} to {high}, " for name, (low, high) in self.sizes.items())
        out = f"; left out for lack of time or memory: {'; '.join(self.left_out)}" if self.left_out else ""
        return (
            f"tried on {', '.join(self.dtypes)}; forms {', '.join(self.forms)}; {sizes}arrays of up to "
            f"{self.elements} elements; {len(self.kinds)} kinds of values ({', '.join(self.kinds)}); up to "
            f"{self.calls} calls of one problem; {' and '.join(self.processes)} processes{out}"
        )
