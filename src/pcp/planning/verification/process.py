"""The process that runs a kernel from outside on problems of its family: arrays in, arrays out, and typed failures."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp.backends import Device, Target
from pcp.ir import Program
from pcp.kernels.candidate import DERIVED, REFERENCE, Candidate
from pcp.kernels.problems import Problem
from pcp.planning.measuring.process import Apart, Away
from pcp.planning.measuring.process import VerificationFailed as VerificationFailed
from pcp.planning.measuring.request import ProgramText, PythonFunction, Request
from pcp.planning.verification.expected import Expectation
from pcp.temporary import VERIFYING, TemporaryFolder

Array = np.ndarray[Any, Any]

SECONDS = 60.0
MEMORY_BYTES = 4 << 30


class CandidateProcess:
    """A process with time and memory limits that kernels from outside run in; a context manager.

    It is started when it is needed, kept for further candidates, and started anew where it died.

    Arguments:
        device: where kernels run.
        seconds: that the compilation of one problem may take, and all calls on it.
        memory_bytes: address space that it may take beyond what it has after start-up; for processors only.

    Raises:
        TemporaryFolderUnusable: the folder for temporary files is full, missing, or not to be written to.
    """

    def __init__(
        self,
        device: str | Device | None = None,
        *,
        seconds: float = SECONDS,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        self.target = Target.of(device)
        self.device = self.target.device
        self.seconds = seconds
        self._temporary = TemporaryFolder(VERIFYING)
        self._apart = Apart(self.target, self._temporary.path, memory_bytes)

    def __enter__(self) -> "CandidateProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self._apart.end()
        self._temporary.remove()

    def load(self, candidate: Candidate) -> None:
        """Have the files of a candidate in python executed.

        Raises:
            Failed: that failed.
        """
        functions = [_function(candidate), _function(candidate, (0,))]
        self._apart.execute([each for each in functions if each is not None], self.seconds)

    def run(
        self,
        candidate: Candidate,
        problem: Problem,
        expected: Expectation,
        order: Sequence[int],
        wrt: tuple[int, ...] | None = None,
        seconds: float = math.inf,
        limit: float = math.inf,
        text: str | None = None,
    ) -> tuple[list[list[Array]], list[int]]:
        """Run a loaded candidate on lists of arguments.

        Arguments:
            problem: whose attributes it is told.
            expected: with the lists.
            order: which list is taken in which call.
            wrt: None for the kernel itself, otherwise the operands that gradients are asked for.
            seconds: after which no further call is begun.
            limit: seconds after which the process is killed, if that is to be sooner than usual.
            text: of a program that is run in the place of the candidate's function.

        Returns:
            The results of every call that was made, and which lists were changed by one.

        Raises:
            Failed: it failed, or returned other shapes or element types.
        """
        away = self._compiled(candidate, problem, expected.program, wrt, limit, text)
        return away.calls(expected.arguments, order, seconds)

    def times(
        self,
        candidate: Candidate,
        problem: Problem,
        arguments: Sequence[Array],
        least: float,
        most: float,
        text: str | None = None,
    ) -> dict[str, list[float]]:
        """Seconds of calls of the plain program and of a loaded candidate; see `Away.times_repeated`.

        Arguments:
            text: as for `run`.

        Raises:
            Failed: the candidate failed.
        """
        away = self._compiled(candidate, problem, problem.reference(), None, math.inf, text)
        return away.times_repeated(arguments, least, most)

    def _compiled(
        self,
        candidate: Candidate,
        problem: Problem,
        program: Program,
        wrt: tuple[int, ...] | None,
        limit: float,
        text: str | None,
    ) -> Away:
        made = _function(candidate, wrt, problem.attributes) if text is None else ProgramText(text, wrt)
        assert made is not None
        seconds = min(limit, self.seconds)
        request = Request(program, made, candidate.name, target=self.target)
        return self._apart.compiled(request, {"candidate": seconds, "timing": self.seconds})


def _function(
    candidate: Candidate, wrt: tuple[int, ...] | None = None, attributes: Any = None
) -> PythonFunction | None:
    """A candidate's function, or that of its gradients, which may be its own; None where it is no python."""
    if candidate.function is None:
        return None
    file, function = candidate.file, candidate.function
    if wrt is not None and candidate.gradient not in (DERIVED, REFERENCE):
        (file, _, function), wrt = candidate.gradient.partition(":"), None
    return PythonFunction(str(candidate.folder / file), function, dict(attributes or {}), wrt)
