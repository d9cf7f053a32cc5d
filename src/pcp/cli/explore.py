"""`pcp explore`: measure one path of a program after another, so that later plans are answered from the database."""

import argparse
import json
from pathlib import Path
from typing import Any

from pcp.backends.registry import DEFAULT
from pcp.cli.arrays import add_sizes, read_at
from pcp.cli.plan import add_search_arguments, example_of, places
from pcp.cli.search_progress import SearchProgress
from pcp.planning.exploration.exploration import Explored, explore
from pcp.planning.report import seconds

DESCRIPTION = {
    "description": "Measure many ways to run a program (paths), so that later plans are answered from the database.",
    "epilog": """\
The database and a cost model say which paths are probably fastest; these are measured first. Paths that were
measured before are not measured again, so you can stop this command (Ctrl-C) and start it again at any time. It alternates
between each path and the plain program, so other work on the machine disturbs both alike. `pcp profile curve` plots what is
known, and `pcp plan --tolerance` chooses from it.

examples:
  pcp explore step.pcp --seconds 3600
  pcp explore step.pcp --device cpu:0,arena:cpu --seconds 3600         some operations elsewhere, too
  nohup nice pcp explore step.pcp --seconds 36000 --json > explored.jsonl &
""",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument("program", type=Path, metavar="PROGRAM", help="file of the program")
    add_search_arguments(parser)
    add_sizes(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    program = read_at(arguments.program, arguments.at)
    known = new = 0
    try:
        with SearchProgress(quiet=arguments.json) as progress:
            for explored in explore(
                program,
                places(arguments.device),
                database=arguments.database,
                budget=arguments.seconds,
                example=example_of(arguments, program),
                progress=progress,
            ):
                known, new = known + (not explored.is_new), new + explored.is_new
                print(json.dumps(_json(explored)) if arguments.json else _line(explored), flush=True)
    finally:  # what was measured is kept, also after Ctrl-C
        if not arguments.json:
            print(f"{new} paths were measured now, {known} were known")
    return 0


def _json(explored: Explored) -> dict[str, Any]:
    row = explored.measurement
    return {
        "path": explored.path.digest,
        "plain": explored.path.is_plain,
        "sites": len(explored.path.choices),
        "backend": explored.path.backend,
        "elsewhere": str(explored.path.placement or ""),
        "seconds": row.typical if row.seconds else None,
        "ratio": row.ratio if row.seconds else None,
        "error": row.error,
        "failure": row.failure,
        "detail": row.detail,
        "new": explored.is_new,
    }


def _line(explored: Explored) -> str:
    row = explored.measurement
    name = "plain       " if explored.path.is_plain else explored.path.digest[:12]
    moved = explored.path.placement or (
        "" if explored.path.backend == DEFAULT else f"all by {explored.path.backend}"
    )
    what = f"{name}  {len(explored.path.choices):4d} sites{f', {moved}' if moved else ''}"
    if row.failure is not None:
        return f"{what}  {row.failure}: {row.detail[:80]}"
    error = "unknown" if row.error is None else f"{row.error:.2e}"
    return f"{what}  {seconds(row.typical):>8}, {row.ratio:.3f} of plain, error {error}{'' if explored.is_new else '  (known)'}"
