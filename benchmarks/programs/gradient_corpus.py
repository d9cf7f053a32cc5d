"""Gradients of some hundred programs of JAX, flax, equinox and PyTorch: PCP's beside the framework's own.

    python -m benchmarks gradient_corpus
    python -m benchmarks gradient_corpus --families control flax_models

Each family runs in processes of its own, so that a crash costs one case. The table goes to benchmarks/results.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.progress import Progress
from tests.corpus import FAMILIES, cases_of

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "benchmarks" / "results" / "gradient_corpus.md"


@dataclass
class Family:
    """What came of the cases of a family."""

    name: str
    total: int
    found: list[dict[str, Any]] = field(default_factory=list)

    def counted(self) -> Counter[str]:
        """Cases by outcome."""
        return Counter(outcome(entry) for entry in self.found)

    @property
    def worst(self) -> float:
        """The greatest distance among the cases that must agree to 1e-10 and do."""
        return max((e["error"] for e in self.found if e.get("error", 1.0) <= 1e-10), default=0.0)


def outcome(entry: dict[str, Any]) -> str:
    """In which column of the table a case counts."""
    if "failure" not in entry:
        return "refused as it must" if entry["refused"] else "equal"
    kind = entry["failure"].partition(":")[0]
    return {"Mismatch": "wrong", "Crash": "wrong"}.get(kind, "failed")


def run_family(family: Family, advance: Any) -> None:
    """Check all cases, in a new process after each crash."""
    names = [case.name for case in cases_of(family.name)]
    while len(family.found) < family.total:
        command = [sys.executable, "-m", "tests.corpus", f"{family.name}:{len(family.found)}"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith('{"case"'):
                    family.found.append(json.loads(line))
                    advance()
        if len(family.found) < family.total:
            crashed = f"{family.name}/{names[len(family.found)]}"
            failure = f"Crash: the process ended with {process.returncode}"
            family.found.append({"case": crashed, "refused": False, "failure": failure, "seconds": 0.0})
            advance()


def report(families: list[Family], seconds: float) -> str:
    """The table as Markdown."""
    lines = [
        "# Gradients of programs from other frameworks",
        "",
        "By `python -m benchmarks gradient_corpus`. Every case is imported by PCP, differentiated with random cotangents,",
        "compiled and run in float64 (unless its name says another type), and compared with the gradient that its own",
        "framework computes; many a second time for the gradient of the gradient. Equal: the greatest difference in each",
        "array is at most 1e-10 of its greatest element, or what the case states with its reason. The last column is over",
        "the cases of 1e-10. Refused: an error of the stated type and text, which the case demands.",
        "",
        "| family | framework | cases | equal | refused as it must | wrong | failed | greatest difference |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    total: Counter[str] = Counter()
    for family in families:
        counted = family.counted()
        total += counted
        columns = [str(counted[name]) for name in ("equal", "refused as it must", "wrong", "failed")]
        lines.append(
            f"| {family.name} | {FAMILIES[family.name]} | {family.total} | {' | '.join(columns)} | {family.worst:.1e} |"
        )
    columns = [f"**{total[name]}**" for name in ("equal", "refused as it must", "wrong", "failed")]
    cases, worst = sum(family.total for family in families), max(family.worst for family in families)
    lines += [
        f"| **all** | | **{cases}** | {' | '.join(columns)} | {worst:.1e} |",
        "",
        f"{seconds:.0f} s.",
        "",
    ]
    failures = [entry for family in families for entry in family.found if "failure" in entry]
    if failures:
        lines += ["Not equal:", "", *(f"- `{entry['case']}`: {entry['failure']}" for entry in failures), ""]
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--jobs", type=int, default=2)


def run(options: argparse.Namespace) -> None:
    """Check every case with a progress bar, print the table, and keep it if it is of all families."""
    families = [Family(name, len(cases_of(name))) for name in options.families]
    began = time.perf_counter()
    with Progress(disable=options.json) as progress, ThreadPoolExecutor(options.jobs) as pool:
        bar = progress.add_task("gradients", total=sum(family.total for family in families))
        list(pool.map(lambda family: run_family(family, lambda: progress.advance(bar)), families))
    if options.json:
        for family in families:
            for entry in family.found:
                print(json.dumps(entry))
    else:
        print(report(families, time.perf_counter() - began))
    if options.families == list(FAMILIES):
        REPORT.write_text(report(families, time.perf_counter() - began), encoding="utf-8")
