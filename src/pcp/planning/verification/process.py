"""The process that runs a kernel from outside, as seen by its parent: arrays in, arrays out, and typed faults."""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from pcp.backends import Device, Target
from pcp.ir import DType, Program, TensorSpec
from pcp.kernels.candidate import DERIVED, REFERENCE, Candidate
from pcp.kernels.problems import Problem
from pcp.planning.measuring.measurement import Failure
from pcp.planning.measuring.process import ChildEnded, KeptProcess
from pcp.planning.measuring.process import VerificationFailed as VerificationFailed
from pcp.planning.verification.expected import Expectation
from pcp.planning.verification.fault import Fault
from pcp.temporary import VERIFYING, TemporaryFolder

Array = np.ndarray[Any, Any]
T = TypeVar("T")

SECONDS = 60.0
TIMED = ("plain", "plain_again", "own", "own_again")
"""What is timed: on operands not seen before, and on the same again."""
MEMORY_BYTES = 4 << 30
_FAULTS = {
    Failure.crash: Fault.crash,
    Failure.timeout: Fault.timeout,
    Failure.out_of_memory: Fault.out_of_memory,
}


class CandidateFailed(Exception):
    """The candidate raised, crashed, hung, or took too much memory."""

    def __init__(self, fault: Fault, detail: str) -> None:
        super().__init__(detail)
        self.fault = fault


class CandidateProcess:
    """A process with time and memory limits that kernels from outside run in; a context manager.

    It is started when it is needed, kept for further candidates, and started anew where it died.

    Arguments:
        device: where kernels run.
        seconds: that one request may take: the problem's compilation, and all calls on it.
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
        self._folder = self._temporary.path
        self._process = KeptProcess(
            self.target, self._folder, memory_bytes, "pcp.planning.verification.child"
        )

    def __enter__(self) -> "CandidateProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.end()
        self._temporary.remove()

    def load(self, candidate: Candidate) -> None:
        """Have the file of a candidate in python executed.

        Raises:
            CandidateFailed: that failed.
        """
        own = candidate.gradient not in (DERIVED, REFERENCE)
        if candidate.function is None:
            return
        self._asked(
            "load",
            {
                "folder": str(candidate.folder),
                "file": candidate.file,
                "function": candidate.function,
                "gradient": candidate.gradient if own else None,
            },
            dict,
        )

    def run(
        self,
        problem: Problem,
        expected: Expectation,
        order: Sequence[int],
        wrt: Sequence[int] | None = None,
        seconds: float = math.inf,
        limit: float | None = None,
        text: str | None = None,
    ) -> tuple[list[list[Array]], list[int]]:
        """Run the loaded candidate on lists of arguments.

        Arguments:
            problem: whose attributes it is told.
            expected: with the lists, and specs of arguments and results.
            order: which list is taken in which call.
            wrt: None for the kernel itself, otherwise the operands that gradients are asked for.
            seconds: after which no further call is begun.
            limit: seconds after which the process is killed, if that is to be sooner than usual.
            text: of a program that is run in the place of the candidate's function.

        Returns:
            The results of every call that was made, and which lists were changed by one.

        Raises:
            CandidateFailed: it failed, or returned other shapes or element types.
        """
        results = self._folder / "results"

        def read(answer: dict[str, Any]) -> tuple[list[list[Array]], list[int]]:
            calls, changed = int(answer["calls"]), [int(which) for which in answer["changed"]]
            if not 0 < calls <= len(order) or not set(changed) <= set(order):
                raise ValueError(f"{calls} of {len(order)} calls, which changed the operands {changed}")
            _check(answer["results"], expected.results)
            arrays: list[list[Array]] = []
            for place, spec in enumerate(expected.results):
                flat = np.fromfile(f"{results}-{place}", spec.dtype.numpy)
                if flat.size != calls * spec.size:
                    raise CandidateFailed(
                        Fault.wrong_shape, f"it wrote {flat.size} elements of result {place}"
                    )
                arrays.append(list(flat.reshape(calls, *spec.shape)))
            return [list(each) for each in zip(*arrays, strict=True)], changed

        return self._asked(
            "run",
            {
                **_described(problem, expected.specs, wrt, text),
                "count": len(expected.arguments),
                "order": list(order),
                "inputs": self._written(expected.specs, expected.arguments),
                "results": str(results),
                "seconds": seconds,
            },
            read,
            limit,
        )

    def times(
        self,
        problem: Problem,
        arguments: Sequence[Array],
        plain: Program,
        least: float,
        most: float,
        text: str | None = None,
    ) -> dict[str, list[float]]:
        """Seconds of calls of the plain program and of the candidate, on operands not seen before and on the same again.

        Arguments:
            least, most: seconds to spend on it, unless a few calls take longer.
            text: as for `run`.

        Raises:
            CandidateFailed: the candidate failed.
        """

        def read(answer: dict[str, Any]) -> dict[str, list[float]]:
            times = {name: [float(each) for each in answer["times"][name]] for name in TIMED}
            if not all(each and min(each) > 0.0 and max(each) < math.inf for each in times.values()):
                raise ValueError(f"times of {min(map(min, times.values()), default=0.0):g} s")
            return times

        return self._asked(
            "time",
            {
                **_described(problem, problem.specs, None, text),
                "inputs": self._written(problem.specs, [arguments]),
                "plain": plain.bytecode,
                "seconds": (least, most),
            },
            read,
        )

    def _written(self, specs: Sequence[TensorSpec], arguments: Sequence[Sequence[Array]]) -> list[str]:
        paths = []
        for place, spec in enumerate(specs):
            path = self._folder / f"operand-{place}"
            with open(path, "wb") as file:
                for each in arguments:
                    file.write(np.ascontiguousarray(each[place].astype(spec.dtype.numpy)).tobytes())
            paths.append(str(path))
        return paths

    def _asked(
        self,
        what: str,
        request: dict[str, Any],
        read: Callable[[dict[str, Any]], T],
        limit: float | None = None,
    ) -> T:
        """What an answer says. Code from outside may have written it, so whatever is read of it may be none."""
        try:
            seconds = self.seconds if limit is None else min(limit, self.seconds)
            answer = self._process.ask(seconds, what, request)["trial"]
            if "fault" in answer:
                raise CandidateFailed(Fault(answer["fault"]), str(answer["detail"]))
            return read(answer)
        except ChildEnded as ended:
            raise CandidateFailed(_FAULTS[ended.failure], str(ended)) from None
        except (LookupError, TypeError, ValueError, OSError) as error:
            self._process.end()  # it may say more
            words = f"its process says what it must not: {type(error).__name__}: {str(error)[:200]}"
            raise CandidateFailed(Fault.crash, words) from None


def _described(
    problem: Problem, specs: Sequence[TensorSpec], wrt: Sequence[int] | None, text: str | None
) -> dict[str, Any]:
    return {"text": text, "attributes": dict(problem.attributes), "specs": list(specs), "wrt": wrt}


def _check(described: list[list[Any]], expected: Sequence[TensorSpec]) -> None:
    specs = [TensorSpec(tuple(shape), DType(dtype)) for shape, dtype in described]
    words = f"it returns {', '.join(map(str, specs)) or 'nothing'}; expected {', '.join(map(str, expected))}"
    if [each.shape for each in specs] != [each.shape for each in expected]:
        raise CandidateFailed(Fault.wrong_shape, words)
    if specs != list(expected):
        raise CandidateFailed(Fault.wrong_dtype, words)
