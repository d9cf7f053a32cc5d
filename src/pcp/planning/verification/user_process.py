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
from pcp.planning.measuring.measurement import Failed, Failure
from pcp.processes.child import ChildProcess, Start, TookTooLong, printable
from pcp.temporary import LIKE_A_USERS, TemporaryFolder

Array = np.ndarray[Any, Any]
_PROGRAM = Path(__file__).with_name("as_user.py")
_LONGEST_LOG = 4096


def run_as_user(
    candidate: Candidate,
    device: Device,
    tasks: Sequence[tuple[Problem, Sequence[Sequence[Array]], TensorSpec]],
    lowered: Sequence[Problem],
    seconds: float,
) -> tuple[list[list[Array]], list[str]]:
    """Run a kernel in python as a user's program would, and lower it there.

    Arguments:
        candidate: a kernel in python.
        tasks: for each problem the lists of arguments to call it on, and the spec of the result.
        lowered: problems that it is lowered for.
        seconds: that the process may take.

    Returns:
        For each task the result of every call, and for each problem to lower the text, or why there is none.

    Raises:
        Failed: it did not end in time, ended without an answer, or raised an exception there.
        TemporaryFolderUnusable: the folder for temporary files is full, missing, or not to be written to.
    """
    with TemporaryFolder(LIKE_A_USERS) as temporary:
        folder = temporary.path
        settings = {
            "device": str(device),
            "file": candidate.folder / candidate.file,
            "function": candidate.function,
            "tasks": [
                (_described(problem), arguments, folder / str(count))
                for count, (problem, arguments, _) in enumerate(tasks)
            ],
            "texts": folder / "texts",
            "lowered": list(map(_described, lowered)),
        }
        with open(folder / "settings", "wb") as file:
            pickle.dump([str(Path(__file__).parents[3])], file)  # where the rest can be imported from
            pickle.dump(settings, file)
        shutil.copyfile(_PROGRAM, folder / "train.py")
        said = _ended(folder, seconds)
        if "error" in said:
            raise Failed(Failure.process_dependent, f"in a user's process it raises {said['error']}")
        results = []
        for count, (_, arguments, spec) in enumerate(tasks):
            flat = np.fromfile(folder / str(count), spec.dtype.numpy)
            if flat.size != len(arguments) * spec.size:
                words = f"in a user's process it returns {flat.size // len(arguments)} elements"
                raise Failed(Failure.process_dependent, words)
            results.append(list(flat.reshape(len(arguments), *spec.shape)))
        return results, [str(each) for each in json.loads((folder / "texts").read_text())]


def _described(problem: Problem) -> tuple[dict[str, Any], tuple[TensorSpec, ...]]:
    return problem.attributes, problem.specs


def _ended(folder: Path, seconds: float) -> dict[str, Any]:
    """What the program said. The shell that starts it is gone when it runs, so that its parent tells nothing either.

    It reads a file, while children that PCP asks read the null device: what a kernel becomes must not depend on that.
    """
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
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
