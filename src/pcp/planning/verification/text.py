"""The text that a kernel in python becomes for one problem, made as plans get it, so that it is what is judged."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from pcp.ir import Program
from pcp.ir.bindings import InvalidProgram
from pcp.kernels.candidate import REFERENCE, Candidate
from pcp.kernels.problems import Problem
from pcp.planning.added.lowering import KernelNeedsHandler, check
from pcp.planning.added.lowering_process import KernelNotLowered, lowered_by_child
from pcp.planning.verification.expected import Expectation, expected_results
from pcp.planning.verification.fault import Fault
from pcp.planning.verification.process import CandidateFailed, CandidateProcess
from pcp.temporary import VERIFYING, TemporaryFolder

Array = np.ndarray[Any, Any]
_FILE = "kernel.mlir"


def results_of_text(
    candidate: Candidate, process: CandidateProcess, seed: int
) -> Iterator[tuple[Problem, Expectation, list[list[Array]]]]:
    """The results of what a kernel in python is lowered to for two problems, the smallest and a middling one, on every kind of
    values; none where no plan can hold it.

    Arguments:
        process: where the text runs.
        seed: of the operands.

    Raises:
        CandidateFailed: it cannot be lowered in a process of its own, though it ran in another, or what it becomes fails.
    """
    every = sorted(candidate.problems, key=lambda problem: sum(spec.size for spec in problem.specs))
    for problem in dict.fromkeys((every[0], every[len(every) // 2])) if candidate.function else ():
        text = _text_of(candidate, problem)
        if text is None:
            return
        expected = expected_results(problem, seed)
        with TemporaryFolder(VERIFYING) as folder:
            (folder.path / _FILE).write_text(text, encoding="utf-8")
            process.load(
                replace(candidate, folder=folder.path, file=_FILE, function=None, gradient=REFERENCE)
            )
            order = list(range(len(expected.kinds)))
            results, _ = process.run(
                problem, expected.specs, expected.arguments, order, None, expected.results
            )
        yield problem, expected, results


def _text_of(candidate: Candidate, problem: Problem) -> str | None:
    """The text; None where it calls code that no plan holds."""
    assert candidate.function is not None
    try:
        text = lowered_by_child(
            candidate.name,
            problem,
            candidate.folder / candidate.file,
            candidate.function,
            problem.attributes,
            problem.specs,
        )
        check(candidate.name, Program.parse(text))
    except KernelNeedsHandler:
        return None
    except (KernelNotLowered, InvalidProgram) as error:
        raise CandidateFailed(Fault.process_dependent, str(error)) from None
    return text
