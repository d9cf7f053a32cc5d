"""The process that runs a kernel from outside on problems of its family: arrays in, arrays out, and typed failures."""

import math
from typing import Any

from pcp.backends import Device, Target
from pcp.ir import Program
from pcp.kernels.candidate import DERIVED, REFERENCE, Candidate
from pcp.kernels.problems import Problem
from pcp.planning.measuring.process import Apart, Away
from pcp.planning.measuring.process import VerificationFailed as VerificationFailed
from pcp.planning.measuring.request import ProgramText, PythonFunction, Request
from pcp.temporary import VERIFYING, TemporaryFolder

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
        self._apart.ask(self.seconds, "execute", [each for each in functions if each is not None])

    def compiled(
        self,
        candidate: Candidate,
        problem: Problem,
        program: Program,
        wrt: tuple[int, ...] | None = None,
        limit: float = math.inf,
        text: str | None = None,
    ) -> Away:
        """A loaded candidate, compiled for a problem.

        Arguments:
            problem: whose attributes it is told.
            program: what computes the same.
            wrt: None for the kernel itself, otherwise the operands that gradients are asked for.
            limit: seconds after which the process is killed, if that is to be sooner than usual.
            text: of a program that is run in the place of the candidate's function.

        Raises:
            Failed: it failed, or returns other shapes or element types.
        """
        made = _function(candidate, wrt, problem.attributes) if text is None else ProgramText(text, wrt)
        assert made is not None
        request = Request(program, made, candidate.name, target=self.target)
        limits = {"candidate": min(limit, self.seconds), "timing": self.seconds}
        return self._apart.compiled(request, limits)


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
