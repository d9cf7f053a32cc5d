"""GPT-2's training step on a processor: PCP beside PyTorch (eager, torch.compile) and JAX, by wall and CPU time and error.

    python -m benchmarks cpu --precision lower
    python -m benchmarks cpu --precision f32
    python -m benchmarks cpu --precision lower --tolerance 1e-2 --budget 200
    python -m benchmarks cpu --only fastest eager --turns 10
    python -m benchmarks cpu --only fastest eager --cores 1 2 4 8 16
    python -m benchmarks cpu --dry

There are two groups, one after the other, because a contestant takes some 4 GB: what may round to bfloat16, and float32. In a
group each contestant runs in a process of its own and takes one step in turn; what its first step after one that warms up took
is told at once. PCP plans within the error of eager PyTorch of
its group, or within `--tolerance`. In float32, too, nobody's error is below some 1e-4: biases whose gradient is zero in exact
arithmetic are updated by what rounding leaves of it.

The error is that of docs/concepts/paths.md, of every result of one step from the same warm state, beside PCP's step as it is
written, in float32. CPU time and page faults are those of the contestant's process and its children, the least of all turns:
what else the machine does changes them less than wall time. Threads that spin while they wait, as OpenMP's do, count.
"""

import argparse
import functools
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.gpu.contestants import Made, Task, contestant, judged
from benchmarks.own_process import OwnProcess, Run, on_cores
from pcp.models.published import CONFIGURATIONS, gpt2_config

GROUPS = {
    "lower": ("eager", "fastest", "torch.compile", "planned"),
    "f32": ("eager f32", "fastest f32", "fastest 16 bits", "planned", "torch.compile f32", "jax f32"),
}
# What proves in a minute that every line of this runs.
DRY = gpt2_config(2, 2, 128, 64, 256, True)
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """What one step took.

    Arguments:
        loss: of the step.
        cpu_seconds: of all threads, of the process and its children.
        faults: pages that the system had to bring.
        peak: bytes that the process had at most so far.
    """

    loss: float
    cpu_seconds: float
    faults: int
    peak: int


def counted(kind: str, task: Task, tolerance: float, budget: float) -> tuple[Made, Run] | None:
    """A contestant whose turns tell what they took."""
    found = contestant(kind, task, tolerance, budget)
    if found is None:
        return None
    made, steps = found

    def run(count: int) -> Turn:
        before, faults = _cpu_seconds(), _faults()
        loss = steps(count)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        return Turn(loss, _cpu_seconds() - before, _faults() - faults, peak)

    return made, run


def _cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _faults() -> int:
    return sum(resource.getrusage(who).ru_minflt for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def compared(
    kinds: Sequence[str],
    task: Task,
    tolerance: float | None,
    budget: float,
    turns: int,
    tell: Callable[[Row], None] = lambda _: None,
) -> list[Row]:
    """One row for each contestant of a group; those that cannot run have only `about`.

    Arguments:
        tolerance: of PCP's plan; None takes the error of eager PyTorch, the first contestant.
        tell: called with what is known of each after its first step.
    """
    rows: list[Row] = []
    with ExitStack() as stack:
        processes: list[OwnProcess] = []
        for kind in kinds:
            within, cold = 0.0, None
            if kind == "planned":
                within = tolerance or (processes[0].made.error.error if processes else 0.0)
                if not within:
                    rows.append(
                        {
                            "contestant": kind,
                            "about": "no tolerance is given, and PyTorch's error is not known",
                        }
                    )
                    continue
                # In a process that ends, which gives back the memory that measuring took; then what it found is taken.
                with OwnProcess(counted, kind, task, within, budget) as process:
                    cold = process.made and process.made.ready_seconds
                budget = 0.0
            process = stack.enter_context(OwnProcess(counted, kind, task, within, budget))
            made: Made | None = process.made
            if made is None or made.error is None:
                rows.append({"contestant": kind, "about": made.about if made else "memory is not enough"})
                continue
            process.made = made if cold is None else replace(made, ready_seconds=cold)
            processes.append(process)
            process.call(1)  # warms up
            tell({**_row(process.made, [process.call(1)]), "about": "of one step"})
        taken: list[list[tuple[float, Turn]]] = [[] for _ in processes]
        for turn in range(turns):
            for place in range(len(processes)):
                which = (turn + place) % len(processes)  # nobody always runs after the same neighbour
                taken[which].append(processes[which].call(1))
        rows += [_row(process.made, found) for process, found in zip(processes, taken, strict=True)]
    return rows


def _row(made: Made, taken: list[tuple[float, Turn]]) -> Row:
    seconds, turns = [wall for wall, _ in taken], [turn for _, turn in taken]
    assert made.error is not None
    return {
        "contestant": made.name,
        "ready_seconds": made.ready_seconds,
        "step_seconds": statistics.median(seconds),
        "fastest_seconds": min(seconds),
        "cpu_seconds": min(turn.cpu_seconds for turn in turns),
        "faults": min(turn.faults for turn in turns),
        "peak_bytes": max(turn.peak for turn in turns),
        "error": made.error.error,
        "error_of": made.error.result,
        "gradient_error": made.error.gradients,
        "loss": turns[-1].loss,
        "about": made.about,
    }


HEAD = (
    f"{'':30s} {'ready':>7s} {'step':>8s} {'fastest':>8s} {'CPU':>7s} {'faults':>8s} {'memory':>9s} {'error':>8s} "
    f"{'gradients':>9s} {'loss':>8s}"
)


def line_of(row: Row) -> str:
    """A row as text."""
    if "step_seconds" not in row:
        return f"{row['contestant']:30s} left out: {row['about']}"
    return (
        f"{row['contestant']:30s} {row['ready_seconds']:6.1f}s {row['step_seconds']:7.3f}s {row['fastest_seconds']:7.3f}s "
        f"{row['cpu_seconds']:6.2f}s {row['faults']:8d} {row['peak_bytes'] / 2**30:5.1f} GiB {row['error']:8.2g} "
        f"{row['gradient_error']:9.2g} {row['loss']:8.4f}  of {row['error_of']}  {row['about']}"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument("--batch", type=int, default=4, help="sequences (default: 4)")
    parser.add_argument("--model", default="gpt2", choices=sorted(CONFIGURATIONS), help="default: gpt2, 124M")
    parser.add_argument("--layers", type=int, help="of the model (default: all)")
    parser.add_argument(
        "--context", type=int, help="tokens of a sequence (default: 256, or what the model has if less)"
    )
    parser.add_argument(
        "--precision", choices=tuple(GROUPS), help="one group of contestants only (default: both)"
    )
    parser.add_argument(
        "--only", nargs="+", choices=sorted({each for kinds in GROUPS.values() for each in kinds}),
        help="contestants (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--tolerance", type=float,
        help="of PCP's plans (default: in each group the error of eager PyTorch)",
    )  # fmt: skip
    parser.add_argument("--budget", type=float, default=150.0, help="seconds of each planning (default: 150)")
    parser.add_argument("--turns", type=int, default=5, help="of each contestant, one step each (default: 5)")
    parser.add_argument(
        "--cores", type=int, nargs="+", help="how many, one after another (default: all that it may use)"
    )
    parser.add_argument("--dry", action="store_true", help="a tiny model, to see that all of it runs")


def run(arguments: argparse.Namespace) -> None:
    """Print the comparison."""
    full = CONFIGURATIONS[arguments.model]
    layers, context = arguments.layers or full.layers, arguments.context or min(256, full.context)
    config = DRY if arguments.dry else replace(full, layers=layers, context=context)
    tell = functools.partial(print, flush=True) if not arguments.json else lambda _: None
    with tempfile.TemporaryDirectory() as folder:
        task = Task(config, arguments.batch, "cpu:0", folder)
        with OwnProcess(judged, task):
            pass
        for group in [arguments.precision] if arguments.precision else GROUPS:
            kinds = [kind for kind in GROUPS[group] if kind in (arguments.only or GROUPS[group])]
            for cores in arguments.cores or [0]:
                tell(f"{config}, {arguments.batch} sequences, {group}, {cores or 'all'} cores\n{HEAD}")
                with on_cores(cores):
                    rows = compared(
                        kinds, task, arguments.tolerance, arguments.budget, arguments.turns,
                        lambda row: tell(line_of(row)),
                    )  # fmt: skip
                for row in rows:
                    row |= {"group": group, "cores": cores}
                    print(json.dumps(row) if arguments.json else line_of(row), flush=True)
