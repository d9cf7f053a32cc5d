"""How long every operation takes, measured alone on the values that it gets in a real call.

Each operation of `main` is compiled as a program of its own and run, so a time contains what the backend needs to start a
program (some microseconds), and fusion is not represented: in the plan itself XLA computes many of these operations in one
pass over memory, so the sum over operations is usually larger than the time of the plan, which stands beside it. The profile
says which operations are heavy, not what share of the plan each takes. A loop is one operation.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcp.autodiff.flops import flops_of
from pcp.backends import Backend, Executable
from pcp.backends.base import Buffer
from pcp.ir import Program
from pcp.ir.operations import Operation
from pcp.ir.program_file import write_atomically
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.tree import flatten
from pcp.kernels.regions import region_of
from pcp.planning.capacity import human
from pcp.planning.compiled import Compiled
from pcp.planning.diagnostics.dataflow import Dataflow
from pcp.planning.instrument import flat


@dataclass(frozen=True, slots=True)
class OperationTime:
    """The time of one operation.

    Arguments:
        operation: name, numbers of its operands and results, the user's line.
        seconds: the least of the measured times.
        flops: floating-point operations.
        operands: types of what it takes.
    """

    operation: Operation
    seconds: float
    flops: int
    operands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OperationProfile:
    """The times of all operations of a plan, in order.

    Arguments:
        device: where they were measured.
        times: one for each operation, constants left out.
        whole: seconds of the plan itself, where operations are fused.
    """

    device: str
    times: tuple[OperationTime, ...]
    whole: float

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a trace that Perfetto and Chrome's tracing page show: the operations one after the other, with their lines.

        Raises:
            OSError: the file cannot be written.
        """
        events: list[dict[str, Any]] = [
            {"ph": "M", "pid": 1, "tid": thread, "name": f"{what}_name", "args": {"name": name}}
            for what, thread, name in (
                ("process", 1, f"PCP on {self.device}"),
                ("thread", 1, "each operation alone"),
                ("thread", 2, "the plan (fused)"),
            )
        ]
        events.append(_event("plan", 2, 0.0, self.whole, {}))
        start = 0.0
        for entry in self.times:
            op = entry.operation
            facts = {
                "operands": list(entry.operands),
                "results": [str(spec or "?") for spec in op.specs],
                "line": op.location or "unknown",
                "flops": entry.flops,
            }
            events.append(_event(op.name, 1, start, entry.seconds, facts))
            start += entry.seconds
        trace = {"displayTimeUnit": "ms", "traceEvents": events}
        write_atomically(Path(path), json.dumps(trace).encode())

    def __str__(self) -> str:
        total = sum(entry.seconds for entry in self.times)
        lines = [
            f"{len(self.times)} operations on {self.device}: {total * 1e3:.3f} ms one by one, "
            f"{self.whole * 1e3:.3f} ms as a plan"
        ]
        for entry in sorted(self.times, key=lambda entry: -entry.seconds)[:12]:
            op = entry.operation
            types = f"({', '.join(entry.operands)}) -> {', '.join(str(spec or '?') for spec in op.specs)}"
            lines.append(
                f"  {entry.seconds * 1e6:9.1f} us  {op.name:20} {types}  {human(op.bytes)}  {op.location or ''}"
            )
        return "\n".join(lines)


def profile_operations(
    plan: Compiled, lowered: Program, arguments: Sequence[Any], repeats: int = 5
) -> OperationProfile:
    """Measure every operation of a plan alone, on the values that a call with these arguments gives it.

    Arguments:
        repeats: how often each operation is run; the least time counts.

    Raises:
        TreeMismatch, ArgumentMismatch, OutOfMemory: as `Plan.run`.
        CompilationFailed: an operation does not compile alone.
    """
    placed = plan.place(*arguments)
    program = flat(lowered)
    dataflow = Dataflow(program)
    target = plan.target.with_options({})
    module = program.module()
    *pieces, _ = (op.operation for op in entry_block(module).operations)
    compiled: dict[str, Executable] = {}  # once for all operations that are equal
    values = dict(enumerate(flatten((*plan.bound, *placed))[0]))
    last_use = {number: index for index, numbers in enumerate(dataflow.reads) for number in numbers}
    times = []
    for index, op in enumerate(dataflow.operations):
        alone = region_of(pieces[index])
        executable = compiled.get(alone.digest) or target.compile(alone, cache=False)
        compiled[alone.digest] = executable
        operands = [values[number] for number in dataflow.reads[index]]
        seconds, results = _timed(lambda e=executable, o=operands: e.run(o), repeats, plan.backend)  # type: ignore[misc]  # defaults bind
        values.update(zip(op.results, results, strict=True))
        if op.name != "constant":
            shown = tuple(str(dataflow.specs[number] or "?") for number in dataflow.reads[index])
            times.append(OperationTime(op, seconds, flops_of(pieces[index]), shown))
        for number in (*dataflow.reads[index], *op.results):
            if last_use.get(number, -1) <= index:
                values.pop(number, None)
    return OperationProfile(plan.target.places, tuple(times), _whole(plan, placed, repeats))


def _whole(plan: Compiled, placed: tuple[Any, ...], repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        copied = plan.with_copied_state(placed)
        plan.backend.wait(flatten(copied)[0])
        seconds, _results = _timed(lambda copied=copied: flatten(plan.call(*copied))[0], 1, plan.backend)  # type: ignore[misc]  # as above
        best = min(best, seconds)
    return best


def _timed(call: Callable[[], list[Buffer]], repeats: int, backend: Backend) -> tuple[float, list[Buffer]]:
    best, results = float("inf"), []
    for _ in range(repeats):
        began = time.perf_counter()
        results = call()
        backend.wait(results)
        best = min(best, time.perf_counter() - began)
    return best, results


def _event(name: str, thread: int, start: float, seconds: float, facts: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "cat": "operation",
        "ph": "X",
        "pid": 1,
        "tid": thread,
        "ts": start * 1e6,
        "dur": seconds * 1e6,
        "args": facts,
    }
