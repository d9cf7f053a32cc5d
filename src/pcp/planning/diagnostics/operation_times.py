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
from pcp.backends import Backend, Executable, Target
from pcp.backends.base import Buffer
from pcp.ir import Argument, Program, Result, Role, Tree
from pcp.ir.bindings import context, ir
from pcp.ir.operations import Operation
from pcp.ir.program_file import write_atomically
from pcp.ir.signature import describe_signature
from pcp.ir.toolkit.functions import main_of
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ir.tree import LEAF, flatten
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
            {
                "ph": "M",
                "pid": 1,
                "tid": 1,
                "name": "process_name",
                "args": {"name": f"PCP on {self.device}"},
            },
            {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": "each operation alone"}},
            {"ph": "M", "pid": 1, "tid": 2, "name": "thread_name", "args": {"name": "the plan (fused)"}},
            _event("plan", 2, 0.0, self.whole, {}),
        ]
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
    pieces = _Pieces(program, dataflow, plan.target.with_options({}))
    values = dict(enumerate(flatten((*plan.bound, *placed))[0]))
    last_use = {number: index for index, numbers in enumerate(dataflow.reads) for number in numbers}
    times = []
    for index, op in enumerate(dataflow.operations):
        executable, flops = pieces.executable(index)
        operands = [values[number] for number in dataflow.reads[index]]
        seconds, results = _timed(lambda e=executable, o=operands: e.run(o), repeats, plan.backend)  # type: ignore[misc]  # defaults bind
        values.update(zip(op.results, results, strict=True))
        if op.name != "constant":
            shown = tuple(str(dataflow.specs[number] or "?") for number in dataflow.reads[index])
            times.append(OperationTime(op, seconds, flops, shown))
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


class _Pieces:
    """Every operation as a program of its own, compiled once for all operations that are equal."""

    def __init__(self, program: Program, dataflow: Dataflow, target: Target) -> None:
        self._program = program
        self._dataflow = dataflow
        self._target = target
        self._module = program.module()
        *self._operations, _ = (op.operation for op in main_of(self._module).regions[0].blocks[0].operations)
        self._compiled: dict[str, tuple[Executable, int]] = {}

    def executable(self, index: int) -> tuple[Executable, int]:
        """The compiled operation of that index, and its floating-point operations."""
        key = self._key(index)
        if key not in self._compiled:
            alone = self._alone(index)
            executable = self._target.compile(alone, cache=False)
            self._compiled[key] = (executable, flops_of(self._operations[index]))
        return self._compiled[key]

    def _key(self, index: int) -> str:
        """Equal for operations that compute the same from operands of equal types."""
        op = self._operations[index]
        if len(op.regions) or (
            op.name == "stablehlo.constant" and self._dataflow.operations[index].bytes > 64
        ):
            return str(index)
        attributes = {entry: str(op.attributes[entry]) for entry in op.attributes}
        types = [str(self._dataflow.specs[n]) for n in self._dataflow.reads[index]]
        order = [self._dataflow.reads[index].index(n) for n in self._dataflow.operations[index].operands]
        return str((op.name, sorted(attributes.items()), types, order, [str(r.type) for r in op.results]))

    def _alone(self, index: int) -> Program:
        module = self._program.module()
        main = main_of(module)
        block = main.regions[0].blocks[0]
        *operations, terminator = (op.operation for op in block.operations)
        numbers = self._dataflow.reads[index]
        maker = self._dataflow.maker
        places = [
            operations[maker[n]].results[self._dataflow.operations[maker[n]].results.index(n)]
            if n in maker
            else block.arguments[n]
            for n in numbers
        ]
        count = len(block.arguments)
        with context(), ir.Location.unknown():
            for value in places:
                value.replace_all_uses_with(block.add_argument(value.type, ir.Location.unknown()))
            with ir.InsertionPoint(terminator):
                ir.Operation.create("func.return", [], list(operations[index].results))
            terminator.erase()
            inputs = [value.type for value in list(block.arguments)[count:]]
            outputs = [value.type for value in operations[index].results]
            main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, outputs))
            arguments = [Argument(str(n), spec_of(t), Role.input) for n, t in enumerate(inputs)]
            results = [Result(str(n), spec_of(t)) for n, t in enumerate(outputs)]
        for number in reversed([i for i in range(len(operations)) if i != index]):
            operations[number].erase()
        del operations, terminator, places
        for number in reversed(range(count)):
            block.erase_argument(number)
        trees = [Tree("tuple", (), (LEAF,) * len(entries)) for entries in (arguments, results)]
        describe_signature(main, arguments, results, *trees)
        return Program.from_module(module)
