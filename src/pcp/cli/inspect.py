"""`pcp inspect`: what a program takes, computes and moves."""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from pcp.cli.arrays import add_sizes, arguments_from, read_at
from pcp.ir import Argument, Program
from pcp.ir.program import load
from pcp.ir.program_file import write_named, writing
from pcp.planning import plan
from pcp.planning.capacity import human
from pcp.planning.diagnostics.cost import CostEstimate, estimate_cost
from pcp.planning.diagnostics.operation_times import OperationProfile
from pcp.planning.pages import page, program_fragment
from pcp.rewrite import simplify
from pcp.symbolic.program import SymbolicProgram
from pcp.training.data.array_file import read_array_file

DESCRIPTION = {
    "description": "Show what a program takes and returns, and its operations, floating-point operations and bytes.",
    "epilog": """\
The bytes of an operation are those of its operands and results, as if it ran alone; fusion avoids most of them.
With --time, every operation is compiled and measured alone. This shows which are expensive, but not what fusion saves.

examples:
  pcp inspect step.mlir
  pcp inspect step.mlir --html step.html                 a page: memory over time, layers, operations
  pcp inspect step.mlir --json
  pcp inspect step.mlir --time --trace trace.json        a trace for Perfetto, on random arguments
  pcp inspect step.mlir --time --inputs x.npz            on your own arguments
  pcp inspect symbolic.pcp --at batch=8,length=512       a symbolic program at these sizes
""",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument("program", type=Path, metavar="PROGRAM", help="file of the program")
    parser.add_argument(
        "--simplified", action="store_true", help="simplify the program first, without changing its results"
    )
    parser.add_argument("--time", action="store_true", help="measure the time of every operation alone")
    parser.add_argument("--trace", type=Path, help="write the times to this file as a trace; implies --time")
    parser.add_argument(
        "--inputs", type=Path, help=".npz file with arguments for --time; random ones if not given"
    )
    parser.add_argument("--device", help="where --time runs, such as cpu:0")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write what a notebook shows of it as a page, too"
    )
    add_sizes(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    program = load(arguments.program)
    if (
        isinstance(program, SymbolicProgram)
        and not arguments.at
        and not (arguments.time or arguments.trace or arguments.html)
    ):
        _show_symbolic(simplify(program) if arguments.simplified else program, arguments.json)
        return 0
    program = read_at(arguments.program, arguments.at)
    if arguments.simplified:
        program = simplify(program)
    if arguments.html is not None:
        write_named(arguments.html, page(f"{arguments.program.name}", program_fragment(program)).encode())
    cost = estimate_cost(program)
    profile = _profile(program, arguments) if arguments.time or arguments.trace else None
    if arguments.json:
        print(json.dumps(_facts(program, cost, profile)))
        return 0
    print(_described(program, cost))
    if profile is not None:
        print(f"\n{profile}")
    if arguments.html is not None:
        print(f"page         {arguments.html}")
    if arguments.trace is not None:
        print(f"trace        {arguments.trace} (open it at ui.perfetto.dev or chrome://tracing)")
    return 0


def _show_symbolic(program: SymbolicProgram, as_json: bool) -> None:
    """Show what is known of a program before its sizes are."""
    if as_json:
        facts = {
            "digest": program.digest,
            "symbols": list(program.symbols),
            "constraints": list(program.constraints),
            "arguments": [
                {"name": entry.name, "type": str(entry.spec), "role": entry.role.value}
                for entry in program.arguments
            ],
            "results": [{"name": entry.name, "type": str(entry.spec)} for entry in program.results],
        }
        print(json.dumps(facts))
        return
    print(f"program      {program.digest[:12]}, symbolic")
    print(
        f"sizes        {', '.join(program.symbols)}, each 1 or more; --at gives them, and shows operations and bytes"
    )
    for constraint in program.constraints:
        print(f"  where      {constraint}")
    print("takes")
    for i, entry in enumerate(program.arguments):
        print(f"  {entry.name or i}: {entry.spec}  {entry.role.value}")
    print("returns")
    for i, result in enumerate(program.results):
        print(f"  {result.name or i}: {result.spec}")


def _profile(program: Program, arguments: argparse.Namespace) -> OperationProfile:
    if arguments.inputs is None:
        rng = np.random.default_rng(0)
        values = program.argument_tree.unflatten([_random(entry, rng) for entry in program.arguments])
    else:
        values = arguments_from(program, read_array_file(arguments.inputs), arguments.inputs)
    with writing(arguments.trace):
        return plan(program, arguments.device).profile(*values, path=arguments.trace)


def _random(entry: Argument, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Normal floats; integers and booleans that are 0 or 1, so that they index whatever they may index."""
    if entry.spec.dtype.is_differentiable:
        return np.asarray(rng.standard_normal(entry.spec.shape)).astype(entry.spec.dtype.numpy)
    return np.asarray(rng.integers(0, 2, entry.spec.shape)).astype(entry.spec.dtype.numpy)


def _facts(program: Program, cost: CostEstimate, profile: OperationProfile | None) -> dict[str, Any]:
    total = cost.total
    facts: dict[str, Any] = {
        "digest": program.digest,
        "arguments": [
            {"name": entry.name, "type": str(entry.spec), "role": entry.role.value, "bytes": entry.spec.bytes}
            for entry in program.arguments
        ],
        "results": [{"name": entry.name, "type": str(entry.spec)} for entry in program.results],
        "operations": {
            name: {"count": kind.count, "flops": kind.flops, "bytes": kind.bytes}
            for name, kind in cost.kinds.items()
        },
        "flops": total.flops,
        "bytes": total.bytes,
        "least_bytes": cost.least_bytes,
        "intensity": cost.intensity if cost.least_bytes else None,
        "least_memory": cost.memory,
        "unknown_loops": cost.unknown_loops,
    }
    if profile is not None:
        facts["seconds"] = profile.whole
        facts["operation_seconds"] = [
            {"operation": entry.operation.name, "line": entry.operation.location, "seconds": entry.seconds}
            for entry in profile.times
        ]
    return facts


def _described(program: Program, cost: CostEstimate) -> str:
    total = cost.total
    lines = [f"program      {program.digest[:12]}", "takes"]
    lines += [
        f"  {entry.name or i}: {entry.spec}  {entry.role.value}" for i, entry in enumerate(program.arguments)
    ]
    lines += ["returns", *(f"  {entry.name or i}: {entry.spec}" for i, entry in enumerate(program.results))]
    lines.append(f"{'operations':24}{'count':>8}{'flops':>16}{'bytes':>12}")
    for name, kind in cost.kinds.items():
        lines.append(f"  {name:22}{kind.count:8}{kind.flops:16,}{human(kind.bytes):>12}")
    lines.append(f"  {'all':22}{total.count:8}{total.flops:16,}{human(total.bytes):>12}")
    lines.append(f"intensity    {cost.intensity:.1f} flops for each byte of arguments and results at best")
    lines.append(f"memory       at least {human(cost.memory)}: arguments and results")
    if cost.unknown_loops:
        lines.append(
            f"loops        the trips of {cost.unknown_loops} are not known; their bodies are counted once"
        )
    return "\n".join(lines)
