"""`pcp plan`: find the fastest way to run a program within a tolerance, and say what was chosen and why."""

import argparse
import json
from pathlib import Path
from typing import Any

from pcp.cli.arrays import add_sizes, arguments_from, read_at
from pcp.cli.search_progress import SearchProgress
from pcp.cli.words.sizes import size
from pcp.ir import Program
from pcp.ir.program_file import write_named
from pcp.planning import plan
from pcp.planning.conditions import BUDGET
from pcp.planning.pages import page
from pcp.planning.paths.path import Path as ExecutionPath
from pcp.training.data.array_file import read_array_file

DESCRIPTION = {
    "description": "Find the fastest way to run a program within a tolerance, and show what was chosen and why.",
    "epilog": """\
A program has sites (products, attention, softmax, ...) for which there are kernels. Equal sites are measured
once, alone; then the fastest kernels together in the whole program, against the plain program and a float64 evaluation. A path
is taken if its results are within the tolerance and it is faster than the plain program beyond noise. All that is measured is
kept (`pcp profile`), so the second time the answer is there at once. With the extra `equality` installed, other orders of
products and joined products are measured, too. Ctrl-C ends the search: the best known path is taken,
if one is known. What was measured is kept in any case.

The tolerance is the largest relative error ||y - y64|| / ||y64|| of any result; of a training step, of the loss and of what is
done to every parameter and moment. 0 asks for the bits of the plain program; without --tolerance nothing is searched.

examples:
  pcp plan step.pcp --tolerance 1e-2                                  search; no measurement begins after five minutes
  pcp plan step.pcp --tolerance 1e-2 --seconds 0                       use what is known, and what is predicted surely
  pcp plan step.pcp --tolerance 1e-2 --inputs batch.npz               measure on these arguments instead of random ones
  pcp plan step.pcp --tolerance 1e-2 --ignore 1.gradient_norm         leave a result out of what is judged
  pcp plan step.pcp --tolerance 1e-2 --out fast.json            save the chosen path
  pcp plan step.pcp --tolerance 1e-2 --device cpu:0,iree:llvm-cpu     measure the whole by IREE, too
  pcp plan step.pcp --memory 40GiB                                    in parts, and values again, where it takes more
  pcp plan step.pcp --path fast.json                                  use it: the same results, bit for bit
  pcp plan symbolic.pcp --at batch=8,length=512 --tolerance 1e-2      a symbolic program at these sizes
""",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument("program", type=Path, metavar="PROGRAM", help="file of the program")
    parser.add_argument("--tolerance", type=float, help="largest allowed error of any result, such as 1e-2")
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="RESULT",
        help="leave this result out of what is judged; may be given several times",
    )
    parser.add_argument(
        "--memory",
        type=size,
        metavar="8GiB",
        help="memory that a call may take; to fit, it is computed in parts, and values again",
    )
    add_search_arguments(parser)
    add_sizes(parser)
    parser.add_argument("--path", type=Path, help="use the path in this file instead of searching")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write what a notebook shows of the plan as a page"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the chosen path to this file")


def add_search_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of whatever searches."""
    parser.add_argument(
        "--seconds",
        type=float,
        default=BUDGET,
        metavar="S",
        help="how long to search: no measurement begins after this time",
    )
    parser.add_argument(
        "--inputs", type=Path, help=".npz file with arguments to measure with; random ones if not given"
    )
    parser.add_argument("--device", help="where the program runs, such as cpu:0")
    parser.add_argument(
        "--database", type=Path, help="file of measurements; the one in PCP's cache folder if not given"
    )


def example_of(arguments: argparse.Namespace, program: Program) -> tuple[Any, ...] | None:
    """The arguments to measure with; None for random ones."""
    if arguments.inputs is None:
        return None
    return arguments_from(program, read_array_file(arguments.inputs), arguments.inputs)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    program = read_at(arguments.program, arguments.at)
    with SearchProgress(quiet=arguments.json) as progress:
        planned = plan(
            program,
            places(arguments.device),
            arguments.tolerance,
            memory=arguments.memory,
            path=None if arguments.path is None else ExecutionPath.load(arguments.path),
            database=arguments.database,
            budget=arguments.seconds,
            example=example_of(arguments, program),
            progress=progress,
            judge=dict.fromkeys(arguments.ignore, "ignore"),
        )
    if arguments.out is not None:
        planned.path.save(arguments.out)
    if arguments.html is not None:
        write_named(arguments.html, page(arguments.program.name, planned._repr_html_()).encode())
    print(json.dumps(planned.to_json()) if arguments.json else planned)
    return 0


def places(named: str | None) -> str | list[str] | None:
    """One device, or several with commas between them."""
    return named.split(",") if named and "," in named else named
