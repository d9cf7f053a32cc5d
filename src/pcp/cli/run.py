"""`pcp run`: run a program on arrays from a file."""

import argparse
import functools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np

from pcp.cli.arrays import add_sizes, arguments_from, sizes_in, write_results
from pcp.ir import Program
from pcp.ir.program import load
from pcp.ir.program_file import is_compiled
from pcp.ir.tree import flatten
from pcp.planning import plan
from pcp.planning.artifact import CompiledArtifact, InvalidArtifact
from pcp.planning.compiled import Compiled
from pcp.symbolic.program import SymbolicProgram
from pcp.training.data.array_file import read_array_file

DESCRIPTION = {
    "description": "Run a program on arrays from a file.",
    "epilog": """\
PROGRAM is StableHLO as text or bytecode, a portable artifact, a file that Program.save wrote, or one of
`pcp compile`, which is machine code: run only those that you trust. The keys of the
input file are the names of the arguments, or their positions (0, 1, ...); `pcp inspect` shows both. A symbolic program
runs at the sizes that the arrays have.

examples:
  pcp run forward.mlir --inputs x.npz --out y.npz
  pcp run step.pcp --inputs x.npz --out y.npz --check       fail if a result is not finite, and say where that began
  pcp run forward.vmfb --inputs x.npz --device iree:llvm-cpu    compiled ahead by `pcp compile`
  pcp run forward.mlir --inputs x.npz --taps                    print the values that pcp.tap marks
  pcp run symbolic.pcp --inputs x.npz --at length=512           refuse arrays of other sizes than these
""",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument("program", type=Path, metavar="PROGRAM", help="file of the program")
    parser.add_argument("--inputs", type=Path, help=".npz file with one array for each argument")
    parser.add_argument("--out", type=Path, help=".npz file to write results to")
    parser.add_argument("--device", help="where it runs, such as cpu:0")
    parser.add_argument(
        "--check", action="store_true", help="fail if a result has NaN or an infinity, and name the operation"
    )
    add_sizes(parser)
    parser.add_argument("--taps", action="store_true", help="print the values that pcp.tap marks")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    artifact = CompiledArtifact.load(arguments.program) if _is_compiled(arguments.program) else None
    program = load(arguments.program) if artifact is None else artifact.program
    if arguments.at:
        program = program.at(**sizes_in(arguments.at))
    arrays = {} if arguments.inputs is None else read_array_file(arguments.inputs)
    values = arguments_from(program, arrays, arguments.inputs or Path("no --inputs file"))
    if isinstance(program, SymbolicProgram):
        program = cast(Program, program.at(**program.sizes_of(*values)))
    compiled: Compiled
    call: Callable[..., Any]
    if artifact is None:
        taps = print if arguments.taps and not arguments.json else None
        compiled = planned = plan(program, arguments.device, taps=taps)
        call = functools.partial(planned.run, check=arguments.check)
    else:
        if arguments.check or arguments.taps:
            raise InvalidArtifact(
                f"{arguments.program} is compiled already, so --check and --taps cannot look inside; give the program"
            )
        compiled = artifact.on(arguments.device)
        call = compiled.call
    began = time.perf_counter()
    results, _ = flatten(call(*values))
    compiled.backend.wait(results)
    seconds = time.perf_counter() - began
    keys = [entry.name or str(position) for position, entry in enumerate(program.results)]
    if arguments.out is not None:
        write_results(arguments.out, program, results)
    outputs = {key: str(entry.spec) for key, entry in zip(keys, program.results, strict=True)}
    if arguments.json:
        written = None if arguments.out is None else str(arguments.out)
        print(json.dumps({"outputs": outputs, "seconds": seconds, "file": written}))
        return 0
    for key, entry, result in zip(keys, program.results, results, strict=True):
        shown = f" = {np.asarray(result)}" if entry.spec.size <= 8 else ""
        print(f"{key}: {outputs[key]}{shown}")
    print(
        f"{seconds * 1e3:.3f} ms on {compiled.target.places}"
        + (f"; wrote {arguments.out}" if arguments.out else "")
    )
    return 0


def _is_compiled(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            return is_compiled(stream.read(64))
    except OSError:  # which reading it as a program tells
        return False
