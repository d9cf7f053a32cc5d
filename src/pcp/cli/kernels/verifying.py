"""What `pcp kernels` does with a kernel from outside: says whether it is sound, and keeps it."""

import argparse
import json
import sys

from pcp.backends import Target
from pcp.kernels.candidate import Candidate
from pcp.planning.added import Store
from pcp.planning.added.lowering import discard, lowered
from pcp.planning.added.lowering_process import KernelNotLowered
from pcp.planning.added.native_program import check_device, check_native
from pcp.planning.measuring.bench import Bench
from pcp.planning.measuring.hardware import hardware_of, versions
from pcp.planning.measuring.measurement import Failure
from pcp.planning.profile.database import ProfileDatabase
from pcp.planning.profile.file import DatabaseUnusable
from pcp.planning.profile.rows import Region
from pcp.planning.verification import Verdict, refused, verify
from pcp.planning.verification.record import rows_of
from pcp.temporary import LIKE_A_USERS, TemporaryFolder

REFUSED = 3
"""The exit code where a kernel is refused."""


def verify_kernel(arguments: argparse.Namespace) -> int:
    """Say whether a kernel would be accepted."""
    with TemporaryFolder(LIKE_A_USERS) as temporary:  # a kernel sees where its file lies
        store = Store(temporary.path / "kernels")
        with store.staged(arguments.what) as (candidate, digest):
            check_native(candidate, arguments.allow_native)
            try:
                verdict = _verdict_on(candidate, digest, arguments)
            finally:
                if Store().recorded(digest) is None:
                    discard(candidate, digest)
    print(json.dumps(verdict.to_json()) if arguments.json else verdict)
    return 0 if verdict.accepted else REFUSED


def add_kernel(arguments: argparse.Namespace) -> int:
    """Verify a kernel, unless the same content was verified before, and keep it if it is accepted."""
    store = Store()
    with store.staged(arguments.what) as (candidate, digest):
        check_native(candidate, arguments.allow_native)
        conditions = f"{hardware_of(Target.of(arguments.device)).digest} {versions()}"
        known = store.recorded(digest)
        if known is None or known.get("conditions") != conditions:
            if candidate.region is None:
                lowered(candidate, digest)  # what no plan can hold is not verified
            verdict = _verdict_on(candidate, digest, arguments)
            if not verdict.accepted or not arguments.json:
                print(json.dumps(verdict.to_json()) if arguments.json else verdict)
            if not verdict.accepted:
                discard(candidate, digest)
                return REFUSED
            known = verdict.to_json() | {"conditions": conditions}
            store.record(digest, known)
        added = store.enter(candidate, digest, known)
    if arguments.json:
        print(json.dumps({"name": candidate.name, "added": digest, "verdict": known}))
    else:
        region = candidate.region
        where = f" for region {region.digest[:12]}" if region else ", after verifying it at their sites"
        print(f"added {added.name}: plans with a tolerance may choose it{where}")
    return 0


def _verdict_on(candidate: Candidate, digest: str, arguments: argparse.Namespace) -> Verdict:
    """Verify a staged kernel, and keep what was measured."""
    target, program, label = Target.of(arguments.device), None, ""
    if candidate.region is not None:
        try:
            check_device(candidate, target.device)
            program = lowered(candidate, digest)
        except KernelNotLowered as error:
            return refused(candidate.name, Failure.not_lowered, str(error))
        label = f"{candidate.called(digest)}@{candidate.version}"
    memory = None if program is not None else arguments.memory
    with Bench(seconds=arguments.seconds, memory_bytes=memory) as bench:
        verdict = verify(
            candidate, bench, target, program=program, label=label, seed=arguments.seed, progress=_progress
        )
    progress_line("")
    region = None if candidate.region is None else Region.of(candidate.region)
    try:
        database = ProfileDatabase(arguments.database)
        for row, about in rows_of(verdict, candidate, target):
            database.add(row, hardware=hardware_of(target), about=about, region=region)
        print(f"kept in {database.file}", file=sys.stderr)
    except DatabaseUnusable as error:
        print(f"what was measured is not kept: {error}", file=sys.stderr)
    return verdict


def _progress(done: int, count: int, what: str) -> None:
    progress_line(f"{done + 1}/{count} {what}")


def progress_line(text: str) -> None:
    """What is being done, on one line of a terminal that the next one overwrites."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text[:100]}", end="", file=sys.stderr, flush=True)
