"""`pcp kernels`: what there is to compute operations with, how fast it is here, and whether a kernel from outside is sound."""

import argparse
import json
from pathlib import Path

from pcp.backends import Target
from pcp.cli.kernels.regions import add_workbench_arguments, export, propose
from pcp.cli.kernels.verifying import REFUSED, add_kernel, progress_line, verify_kernel
from pcp.cli.words.sizes import size
from pcp.errors import PCPError
from pcp.kernels import FAMILIES, kernels_of, missing_here
from pcp.kernels.native import LIBRARIES, NativeUnavailable, built
from pcp.planning.added import Added, Store
from pcp.planning.measuring.bench import Bench
from pcp.planning.profile.database import ProfileDatabase
from pcp.planning.verification.family_bench import Row, bench_family, family_named, reach

DESCRIPTION = {
    "description": "List and measure PCP's kernels (ways to compute an operation), or verify a kernel from outside.",
    "epilog": """\
REGION is the file of a program and, if it has several regions, a colon and the first digits of one (`pcp kernels export
step.pcp` names them); or the first digits of one that `pcp profile list` lists. docs/outside/workbench.md leads through both.

A kernel from outside is a folder with a manifest, kernel.toml, and either a Python file with a function of JAX arrays or a
file of StableHLO text; see docs/outside/kernels_from_outside.md. PCP runs its code only in a separate process, with limits
on time and memory. It tries the kernel several times on sizes and values that often reveal errors, with new random numbers
each time, and compares each element of the result and of the gradient with float64. A correct kernel is accepted with the
smallest tolerance that all its errors stay below. If a kernel is refused, the message names the reasons, and the sizes and
values that showed them.

actions:
  list               every kernel: its effect on accuracy, and for how many problems of its family it can be used
  verify FOLDER      verify a kernel from outside; exit code 3 if it is refused
  add FOLDER         verify it, unless the same content was verified before, and keep it, so that plans may choose it
  remove NAME        forget a kernel that was added
  export REGION      write a region as a task: what it computes, inputs, float64 results, times, and how to write a kernel
  propose REGION     ask a model for kernels, round by round, until one is right and faster
  build              build PCP's own native kernels now; otherwise the first plan that may use them does
  bench FAMILY       measure every kernel of a family on this device, and keep the measurements in the database

examples:
  pcp kernels list --family product
  pcp kernels verify examples/kernels/softmax_bf16
  pcp kernels verify my_kernel --seed 7            the same random numbers again
  pcp kernels add examples/kernels/softmax_bf16
  pcp kernels export step.pcp:3f2a91 --out faster       then complete faster/kernel.py as faster/README.md says
  pcp kernels export step.pcp:3f2a91 --out faster --language cpp
  pcp kernels add faster --allow-native
  pcp kernels propose step.pcp:3f2a91 --endpoint http://127.0.0.1:8000/v1 --rounds 8 --out proposed
  pcp kernels build
  pcp kernels bench softmax                        then: pcp profile list
""",
}


class InvalidRequest(PCPError):
    """Something that an action of `pcp kernels` needs and was not given, or does not take."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument(
        "action",
        choices=("list", "verify", "add", "remove", "export", "propose", "build", "bench"),
        help="what to do; see the list below",
    )
    parser.add_argument(
        "what",
        nargs="?",
        metavar="FOLDER|NAME|REGION|FAMILY",
        help="the folder for verify and add, the name for remove, the region for export and propose, the family for bench",
    )
    parser.add_argument("--family", help="list: only kernels of this family")
    parser.add_argument("--seed", type=int, help="verify: seed of the random numbers; a new one if not given")
    parser.add_argument(
        "--seconds",
        type=float,
        help="verify: limit of one request (default: 60); bench: time for one kernel (default: 1); "
        "propose: time for all of it (default: 600)",
    )
    parser.add_argument(
        "--memory", type=size, default="4GiB", metavar="4GiB", help="verify: memory that the process may take"
    )
    parser.add_argument(
        "--database", type=Path, help="file of measurements; the one in PCP's cache folder if not given"
    )
    parser.add_argument("--device", help="where kernels run, such as cpu:0")
    parser.add_argument(
        "--allow-native",
        action="store_true",
        help="verify, add: build and run a kernel of machine code, which nothing confines",
    )
    add_workbench_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.action == "list":
        if arguments.what is not None:
            raise InvalidRequest(
                f"`pcp kernels list` takes no {arguments.what!r}; name a family with --family"
            )
        return _list(arguments)
    if arguments.action == "build":
        if arguments.what is not None:
            raise InvalidRequest(f"`pcp kernels build` takes no {arguments.what!r}; it builds all there are")
        return _build(arguments)
    if arguments.what is None:
        what = _NEEDED[arguments.action]
        raise InvalidRequest(f"`pcp kernels {arguments.action}` needs {what}; none was given")
    for name in ("seconds", "answer_seconds", "memory", "rounds", "bytes"):
        value = getattr(arguments, name)
        if value is not None and not value > 0:
            raise InvalidRequest(f"--{name.replace('_', '-')} {value:g} was given; expected a number above 0")
    if arguments.tolerance is not None and not 0 < arguments.tolerance < 1:
        raise InvalidRequest(
            f"--tolerance {arguments.tolerance:g} was given; expected a number between 0 and 1"
        )
    return _ACTIONS[arguments.action](arguments)


def _list(arguments: argparse.Namespace) -> int:
    platform = Target.of(arguments.device).platform
    of_groups = {
        name for name, family in FAMILIES.items() if family.pattern is not None
    }  # there are no problems of them
    if arguments.family is not None and arguments.family not in of_groups:
        family_named(arguments.family)
    missing, added = missing_here(platform, arguments.family), Store().all()
    for name in FAMILIES if arguments.family is None else [arguments.family]:
        family = FAMILIES[name]
        counts, problems = (
            (dict.fromkeys(family.kernels, 0), 0) if name in of_groups else reach(name, platform)
        )
        if not arguments.json:
            print(f"{name}: {family.about}")
        for kernel in family.kernels.values():
            facts = {
                "name": kernel.name,
                "family": name,
                "storage": str(kernel.storage),
                "effect": kernel.effect.value,
                "about": kernel.about,
                "version": kernel.version,
                "applies_to": counts[kernel.name],
                "problems": problems,
                "device": platform,
                "missing": missing.get(kernel.name, ""),
            }
            if arguments.json:
                print(json.dumps(facts))
                continue
            where = (
                "everywhere" if counts[kernel.name] == problems else f"{counts[kernel.name]} of {problems}"
            )
            where = "missing" if kernel.name in missing else "groups" if name in of_groups else where
            print(f"  {kernel.name + '@' + str(kernel.version):42}{kernel.effect:18}{where:12}{kernel.about}")
            if kernel.name in missing:
                print(f"      {missing[kernel.name]}")
        for each in added:
            if each.candidate.family == name:
                _list_added(each, arguments.json)
    return 0


def _list_added(added: Added, as_json: bool) -> None:
    candidate = added.candidate
    tolerances = dict(added.verdict.get("tolerances", {}))
    if as_json:
        facts = {
            "name": candidate.name,
            "family": candidate.family,
            "effect": candidate.effect.value,
            "about": candidate.about,
            "version": candidate.version,
            "added": added.digest,
            "tolerances": tolerances,
            "tried": added.verdict.get("tried"),
        }
        print(json.dumps(facts))
        return
    told = ", ".join(f"{dtype} {tolerance:g}" for dtype, tolerance in tolerances.items())
    where = f"added {added.digest[:12]}, tolerance {told}; "
    print(
        f"  {candidate.name + '@' + str(candidate.version):42}{candidate.effect:18}{where}{candidate.about}"
    )


def _remove(arguments: argparse.Namespace) -> int:
    for gone in Store().remove(arguments.what):
        print(json.dumps({"removed": gone.name}) if arguments.json else f"removed {gone.name}")
    return 0


def _build(arguments: argparse.Namespace) -> int:
    """Build every native library; the exit code is that of a refusal if one cannot be built."""
    failed = False
    for library in LIBRARIES.values():
        facts: dict[str, object] = {
            "library": library.name,
            "kernels": [each.name for each in kernels_of(library)],
        }
        try:
            build = built(library)
            facts |= {"digest": build.digest, "file": str(build.file), "compiler": build.compiler}
            line = f"{library.name}@{build.digest}: {build.file}, by {build.compiler}"
        except NativeUnavailable as error:
            failed = True
            facts["missing"] = str(error)
            line = f"{library.name} is missing: {error}"
        print(json.dumps(facts) if arguments.json else line)
    return REFUSED if failed else 0


def _bench(arguments: argparse.Namespace) -> int:
    database = ProfileDatabase(arguments.database)
    seconds = 1.0 if arguments.seconds is None else arguments.seconds
    family_named(arguments.what)
    shown = ""
    target = Target.of(arguments.device)
    with Bench() as bench:
        for row in bench_family(arguments.what, bench, target, database, seconds, progress_line):
            progress_line("")
            if arguments.json:
                print(json.dumps(_facts(row)), flush=True)
                continue
            if str(row.problem) != shown:
                shown = str(row.problem)
                print(shown)
            print(f"  {row.kernel:34}{_described(row)}", flush=True)
    if not arguments.json:
        print(f"kept in {database.file}")
    return 0


def _facts(row: Row) -> dict[str, object]:
    measured = row.measurement
    return {
        "kernel": row.kernel,
        "problem": str(row.problem),
        "subject": measured.subject,
        "ratio": None if measured.failure else measured.ratio,
        "seconds": None if measured.failure else measured.typical,
        "error": measured.error,
        "plain_error": measured.plain_error,
        "failure": measured.failure,
        "detail": measured.detail,
    }


def _described(row: Row) -> str:
    measured = row.measurement
    if measured.failure is not None:
        return f"{measured.failure}: {measured.detail[:80]}"
    error = "" if measured.error is None else f"   error {measured.error:.1e}"
    plain = "" if measured.plain_error is None else f" (plain {measured.plain_error:.1e})"
    return f"{measured.typical * 1e3:10.3f} ms {measured.ratio:8.2f} of plain{error}{plain}"


_ACTIONS = {
    "verify": verify_kernel,
    "add": add_kernel,
    "remove": _remove,
    "export": export,
    "propose": propose,
    "bench": _bench,
}
_NEEDED = {
    "verify": "a folder with a kernel.toml",
    "add": "a folder with a kernel.toml",
    "remove": "the name of a kernel",
    "export": "a region: PROGRAM, PROGRAM:DIGITS or DIGITS",
    "propose": "a region: PROGRAM, PROGRAM:DIGITS or DIGITS",
    "bench": "a family",
}
