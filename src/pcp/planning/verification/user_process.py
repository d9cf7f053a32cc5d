"""Running a kernel in a process like a user's, which nothing marks as one that verifies."""

import json
import os
import pickle
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pcp.backends import Device
from pcp.ir import TensorSpec
from pcp.kernels.candidate import Candidate
from pcp.kernels.problems import Problem
from pcp.planning.judging.distances import Scale, distance, scale_of
from pcp.planning.judging.tolerance import least_tolerance
from pcp.planning.measuring.measurement import Failed, Failure
from pcp.planning.measuring.site_case import FEWEST
from pcp.planning.verification.judging import SETS, examples
from pcp.processes.child import ChildProcess, Start, TookTooLong, printable
from pcp.temporary import LIKE_A_USERS, TemporaryFolder

Array = np.ndarray[Any, Any]

SECONDS, MANY_SECONDS = 60.0, 8.0
"""That the process may take, beside lowering, and the calls on one problem."""
FEW_CALLS, MANY_CALLS = 4, 5000
"""Calls on a problem, and on the smallest one, since some kernels are wrong in one call of thousands."""
_PROGRAM = Path(__file__).with_name("as_user.py")
_LONGEST_LOG = 4096


def run_as_user(
    candidate: Candidate,
    device: Device,
    problems: Sequence[Problem],
    lowered: Sequence[Problem],
    seed: int,
) -> tuple[list[tuple[list[float], list[float]]], list[str]]:
    """Run a kernel in python as a user's program would, and lower it there.

    Arguments:
        candidate: a kernel in python.
        problems: that it is run on, the first some thousand times, as counters only show then.
        lowered: problems that it is lowered for.
        seed: of the operands.

    Returns:
        For each problem the errors of the first call on each list of operands, and how far every call is from that; for each
        problem to lower the text, or why there is none.

    Raises:
        Failed: it did not end in time, ended without an answer, or raised an exception there.
        TemporaryFolderUnusable: the folder for temporary files is full, missing, or not to be written to.
    """
    with TemporaryFolder(LIKE_A_USERS) as temporary:
        folder = temporary.path
        known = [examples(each.reference(), SETS, seed) for each in problems]
        files = [folder / str(count) for count in range(len(problems))]
        settings = {
            "device": str(device),
            "file": candidate.folder / candidate.file,
            "function": candidate.function,
            "tasks": [
                (
                    _described(problem),
                    [operands for operands, _ in lists],
                    FEW_CALLS if count else MANY_CALLS,
                    file,
                )
                for count, (problem, lists, file) in enumerate(zip(problems, known, files, strict=True))
            ],
            "seconds": MANY_SECONDS,
            "texts": folder / "texts",
            "lowered": list(map(_described, lowered)),
        }
        with open(folder / "settings", "wb") as stream:
            pickle.dump([str(Path(__file__).parents[3])], stream)  # where the rest can be imported from
            pickle.dump(settings, stream)
        shutil.copyfile(_PROGRAM, folder / "train.py")
        said = _ended(folder, SECONDS + 2.0 * len(lowered))
        if "error" in said:
            raise Failed(Failure.process_dependent, f"in a user's process it raises {said['error']}")
        outcomes = []
        for problem, lists, file in zip(problems, known, files, strict=True):
            [spec] = problem.results
            flat = np.fromfile(file, spec.dtype.numpy)
            if flat.size < SETS * spec.size or flat.size % spec.size:
                words = (
                    f"in a user's process it returns {flat.size} elements; expected some times {spec.size}"
                )
                raise Failed(Failure.process_dependent, words)
            outcomes.append(_compared(flat.reshape(-1, *spec.shape), [right for _, [right] in lists]))
        return outcomes, [str(each) for each in json.loads((folder / "texts").read_text())]


def _compared(results: Array, right: Sequence[Array]) -> tuple[list[float], list[float]]:
    """The errors of the first calls, and how far each call lies from the first on the same operands."""
    scales = [scale_of(each) if each.size >= FEWEST else Scale.of_elements(1.0, each.shape) for each in right]
    first = results[: len(right)]
    errors = [distance(y, exact, scale) for y, exact, scale in zip(first, right, scales, strict=True)]
    noises = []
    for count, result in enumerate(results):
        which = count % len(right)
        same = result.tobytes() == first[which].tobytes()
        noises.append(0.0 if same else distance(result, first[which].astype(np.float64), scales[which]).error)
    return [least_tolerance(each.error, each.slice_error) for each in errors], noises


_NOT_THE_USERS = ("PYTEST", "XLA_PYTHON_CLIENT_PREALLOCATE")
"""How variables begin that are not the user's: the second is set where PCP makes a client of XLA, as in this process."""


def _described(problem: Problem) -> tuple[dict[str, Any], tuple[TensorSpec, ...]]:
    return problem.attributes, problem.specs


def _ended(folder: Path, seconds: float) -> dict[str, Any]:
    """What the program said. The shell that starts it is gone when it runs, so that its parent tells nothing either.

    It reads a file, while children that PCP asks read the null device: what a kernel becomes must not depend on that.
    """
    variables = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_THE_USERS)}
    command = 'cd "$1" && exec "$2" train.py <settings 2>&1 &'
    with ChildProcess(
        Start(["/bin/sh", "-c", command, "sh", str(folder), sys.executable], variables)
    ) as shell:
        log, ends = b"", time.monotonic() + seconds
        try:
            while line := shell.line(ends - time.monotonic()):
                log = (log + line)[-_LONGEST_LOG:]
        except TookTooLong:
            words = f"in a user's process it took more than {seconds:g} s and was killed"
            raise Failed(Failure.timeout, words) from None
    try:
        said: dict[str, Any] = json.loads((folder / "done").read_text())
    except (OSError, ValueError):
        last = " ".join(printable(log.decode(errors="replace")).split())[-300:]
        raise Failed(
            Failure.process_dependent, f"in a user's process it ends without a result: {last}"
        ) from None
    return said
