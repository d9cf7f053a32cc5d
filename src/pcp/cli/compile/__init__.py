"""`pcp compile`: compile a program for a chip that need not be here."""

import argparse
import json
from pathlib import Path

from pcp.cli.arrays import add_sizes, read_at
from pcp.ir.program_file import writing
from pcp.planning.artifact import compile_ahead

DESCRIPTION = {
    "description": "Compile a program for a chip that need not be in this machine, by IREE, into a file that `pcp run` runs.",
    "epilog": """\
It needs IREE's compiler: pip install 'planetary-compute-protocol[iree]'. IREE's runtime is enough to run the file.
Targets: llvm-cpu:host, llvm-cpu:generic, vulkan, cuda:sm_80, cuda:sm_86, cuda:sm_89, rocm:gfx90a, rocm:gfx942, rocm:gfx1100,
metal.
The file is a ZIP archive: `unzip step.vmfb module.vmfb` takes out what IREE's own tools read.

examples:
  pcp compile step.pcp --target rocm:gfx942 --out step.vmfb
  pcp compile forward.mlir --target llvm-cpu:generic --out forward.vmfb
  pcp run forward.vmfb --inputs x.npz --out y.npz
""",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument("program", type=Path, metavar="PROGRAM", help="file of the program")
    parser.add_argument("--target", required=True, help="the chip, such as rocm:gfx942")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    add_sizes(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    program = read_at(arguments.program, arguments.at)
    artifact = compile_ahead(program, arguments.target)
    with writing(arguments.out):
        artifact.save(arguments.out)
    facts = {"target": artifact.chip, "file": str(arguments.out), "module_bytes": len(artifact.module)}
    if arguments.json:
        print(json.dumps({"program": program.digest} | facts))
    else:
        print(
            f"wrote {arguments.out}: {program.digest[:12]} for {artifact.chip}, {len(artifact.module)} bytes of module"
        )
    return 0
