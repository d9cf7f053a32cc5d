"""What `pcp kernels` does with one region: exports it as a task, and asks a model for kernels."""

import argparse
import json
import re
from pathlib import Path

from pcp.backends import Target
from pcp.cli.kernels.confined import check_confined, confined
from pcp.cli.kernels.verifying import REFUSED, add_kernel
from pcp.errors import PCPError
from pcp.ir import Program
from pcp.ir.program import load
from pcp.planning.measuring.bench import Bench
from pcp.planning.profile.database import ProfileDatabase
from pcp.planning.workbench import (
    Endpoint,
    Limits,
    RegionNotFound,
    Round,
    proposals,
    region_in,
    region_measured,
    task_of,
    write_proposed,
    write_task,
)
from pcp.planning.workbench.exporting import check_new
from pcp.planning.workbench.teaching import FILES, TEMPLATES
from pcp.temporary import VERIFYING, TemporaryFolder

_HEX = re.compile("[0-9a-f]{4,64}")


class NoEndpoint(PCPError):
    """`pcp kernels propose` without the address of a model."""


def add_workbench_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of what is done with regions."""
    parser.add_argument("--out", type=Path, help="export, propose: folder to write; it must be new or empty")
    parser.add_argument(
        "--language", choices=TEMPLATES, default=TEMPLATES[0], help="export: that the template is in"
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        help="export, propose: largest error that is admitted; what another order of sums explains, if not given",
    )
    parser.add_argument("--endpoint", metavar="URL", help="propose: a model's address, up to /v1")
    parser.add_argument("--model", default="default", help="propose: its name there")
    parser.add_argument("--rounds", type=int, default=5, help="propose: answers that are asked for at most")
    parser.add_argument(
        "--answer-seconds", type=float, default=120.0, help="propose: time that one answer may take"
    )
    parser.add_argument("--bytes", type=int, default=1 << 20, help="propose: bytes that one answer may have")
    parser.add_argument(
        "--add",
        action="store_true",
        help="propose: keep the kernel that is admitted, as `pcp kernels add` does",
    )
    parser.add_argument(
        "--allow-unconfined",
        action="store_true",
        help="propose: go on where this machine cannot confine the process that executes answers",
    )


def export(arguments: argparse.Namespace) -> int:
    """Write a task."""
    target = Target.of(arguments.device)
    region, database = _region(arguments, target)
    folder = arguments.out if arguments.out is not None else Path(f"region-{region.digest[:8]}")
    check_new(folder)
    with Bench() as bench:
        task = task_of(region, target, bench, arguments.tolerance, database)
    files = write_task(task, folder, arguments.language)
    if arguments.json:
        print(json.dumps({"folder": str(folder), "files": files} | task.to_json()))
    else:
        print(
            f"wrote {folder}: {task.family}, {task.plain_seconds * 1e3:.3g} ms on {task.hardware}, errors up to "
            f"{task.tolerance:g}\ncomplete {folder / FILES.get(arguments.language, 'kernel.py')}, as "
            f"{folder / 'README.md'} says, then: pcp kernels add {folder}"
        )
    return 0


def propose(arguments: argparse.Namespace) -> int:
    """Ask a model for kernels; exit code 3 if none was admitted."""
    if arguments.endpoint is None:
        raise NoEndpoint(
            "`pcp kernels propose` needs --endpoint URL, such as http://127.0.0.1:8000/v1; none was given"
        )
    endpoint = Endpoint.of_environment(arguments.endpoint, arguments.model, arguments.bytes)
    target = Target.of(arguments.device)
    region, database = _region(arguments, target)
    folder = arguments.out if arguments.out is not None else Path(f"proposed-{region.digest[:8]}")
    check_new(folder)
    by = check_confined(arguments.allow_unconfined)
    seconds = 600.0 if arguments.seconds is None else arguments.seconds
    limits = Limits(arguments.rounds, seconds, arguments.answer_seconds)
    found: Round | None = None
    with TemporaryFolder(VERIFYING) as temporary, Bench() as bench:
        task = task_of(region, target, bench, arguments.tolerance, database)
        if not arguments.json:
            told = f"{task.plain_seconds * 1e3:.3g} ms, errors up to {task.tolerance:g}"
            print(f"{task.family}: {told}; answers are executed confined by {by}", flush=True)
        for found in proposals(task, endpoint, limits, bench, temporary.path, confined):
            _say(found, arguments.json)
    if found is None or not found.verdict.accepted:
        if not arguments.json:
            print("no kernel was admitted; nothing is written")
        return REFUSED
    write_proposed(task, found, folder)
    if arguments.add:
        arguments.what = folder
        return add_kernel(arguments)
    if not arguments.json:
        print(f"wrote {folder}; read it, then: pcp kernels add {folder}")
    return 0


def _say(found: Round, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"round": found.number} | found.verdict.to_json()), flush=True)
    else:
        print(f"{found.number}. {found.verdict}", flush=True)


def _region(arguments: argparse.Namespace, target: Target) -> tuple[Program, ProfileDatabase]:
    """The region that is named, and the database of measurements."""
    database = ProfileDatabase(arguments.database)
    named = str(arguments.what)
    if Path(named).exists():
        return region_in(load(Path(named)), "", target), database
    file, _, digits = named.rpartition(":")
    if file and _HEX.fullmatch(digits):
        return region_in(load(Path(file)), digits, target), database
    if not _HEX.fullmatch(named):
        raise RegionNotFound(
            f"{named!r} names no region; expected the file of a program, PROGRAM:DIGITS, or the first digits of a region that "
            "`pcp profile list` lists"
        )
    return region_measured(database, named), database
