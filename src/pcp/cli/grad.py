"""`pcp grad`: the gradient of a program as a program."""

import argparse
import json
from pathlib import Path

from pcp.autodiff import vjp
from pcp.errors import PCPError
from pcp.ir import Program
from pcp.ir.program import load
from pcp.ir.program_file import write_atomically, writing
from pcp.rewrite.vanishing.gradients import grad, value_and_grad
from pcp.symbolic.constraints import SizesRefused
from pcp.symbolic.program import SymbolicProgram

DESCRIPTION = {
    "description": "Write the gradient of a program as a new program.",
    "epilog": """\
PROGRAM is StableHLO as text or bytecode, a portable artifact, or a file that Program.save wrote. The output is MLIR
text if its name ends in .mlir, and otherwise a checksummed file that PCP reads.

examples:
  pcp grad loss.mlir --wrt 0 --out gradient.mlir            of the first argument
  pcp grad loss.mlir --wrt 0,2 --value --out both.pcp       the loss, and the gradients of two arguments
  pcp grad forward.mlir --vjp --wrt 0 --out vjp.pcp         for a result that is no scalar; it takes a cotangent, too
""",
}


class InvalidWrt(PCPError):
    """A `--wrt` that is no list of numbers."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument("program", type=Path, metavar="PROGRAM", help="file of the program")
    parser.add_argument(
        "--wrt", default="0", help="arguments to differentiate for, counted from 0, such as 0 or 0,2"
    )
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    parser.add_argument("--value", action="store_true", help="return the value and the gradient")
    parser.add_argument(
        "--vjp", action="store_true", help="the vector-Jacobian product instead of a gradient"
    )
    parser.add_argument(
        "--remat",
        help="what the backward pass keeps: a policy like dots_saveable (default: everything)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    wrt = _positions(arguments.wrt)
    if arguments.vjp and arguments.value:
        raise InvalidWrt(
            "--vjp and --value were both given; a vector-Jacobian product does not return the value; leave out one of them"
        )
    transform = vjp if arguments.vjp else value_and_grad if arguments.value else grad
    gradient: Program = transform(load(arguments.program), wrt=wrt, remat=arguments.remat)
    if isinstance(gradient, SymbolicProgram) and arguments.out.suffix == ".mlir":
        raise SizesRefused(
            f"{arguments.out} is to be MLIR, but the program has the symbols {', '.join(gradient.symbols)}; expected a name "
            "that ends otherwise, as gradient.pcp: PCP's own form holds symbols"
        )
    with writing(arguments.out):
        if arguments.out.suffix == ".mlir":
            write_atomically(arguments.out, gradient.text.encode())
        else:
            gradient.save(arguments.out)
    if arguments.json:
        facts = {
            "file": str(arguments.out),
            "digest": gradient.digest,
            "arguments": {entry.name: str(entry.spec) for entry in gradient.arguments},
            "results": {entry.name or str(i): str(entry.spec) for i, entry in enumerate(gradient.results)},
        }
        print(json.dumps(facts))
    else:
        print(f"{arguments.out}: {gradient}")
    return 0


def _positions(text: str) -> int | tuple[int, ...]:
    """One position, or several for several gradients."""
    try:
        positions = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidWrt(
            f"--wrt {text!r} is not a list of argument positions; give one like 0 or 0,2"
        ) from None
    return positions[0] if len(positions) == 1 else positions
