"""The texts that a kernel becomes, made as plans get them, so that they are what is judged."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from pcp.ir import Program
from pcp.ir.bindings import InvalidProgram
from pcp.kernels.candidate import Candidate
from pcp.kernels.problems import Problem
from pcp.planning.added.lowering import KernelNeedsHandler, check
from pcp.planning.added.lowering_process import (
    SECONDS,
    KernelNotLowered,
    LoweringTookTooMuch,
    lowered_in_turn,
)
from pcp.planning.measuring.measurement import Failed, Failure


@dataclass(frozen=True, slots=True)
class Texts:
    """What a kernel becomes, by problem, in a process that lowers for plans.

    Arguments:
        made: the texts; none where it calls code that no plan holds, and its function is judged instead.
        failed: why it becomes no text.
    """

    made: Mapping[Problem, str]
    failed: Mapping[Problem, str]

    def differs(self, problem: Problem, text: str) -> str:
        """What is different in what it became for a problem in another process, for people; empty for nothing."""
        own = self.made.get(problem)
        if own is None or own == text:
            return ""
        pairs = itertools.zip_longest(own.splitlines(), text.splitlines(), fillvalue="")
        a, b = next(((a, b) for a, b in pairs if a != b), ("", ""))
        return f"it becomes another program: {b.strip()[:200]!r} instead of {a.strip()[:200]!r}"


NONE = Texts({}, {})


def texts_of(candidate: Candidate) -> Texts:
    """Lower a kernel in python for every problem, in a process of its own; StableHLO is its own text.

    Raises:
        Failed: its file cannot be executed there, though it was in another process, or it took too long.
    """
    problems = candidate.problems
    if candidate.function is None:
        try:
            return Texts({problems[0]: (candidate.folder / candidate.file).read_text(encoding="utf-8")}, {})
        except (OSError, UnicodeDecodeError) as error:
            raise Failed(Failure.compile_error, f"{candidate.file} cannot be read: {error}") from None
    try:
        outcomes = lowered_in_turn(candidate, problems, seconds=SECONDS + 2.0 * len(problems))
    except LoweringTookTooMuch as error:
        raise Failed(Failure.timeout, str(error)) from None
    except KernelNotLowered as error:
        raise Failed(Failure.process_dependent, str(error)) from None
    texts, failed = {}, {}
    for problem, each in zip(problems, outcomes, strict=True):
        try:
            if isinstance(each, KernelNotLowered):
                raise each
            check(candidate, Program.parse(each))
            texts[problem] = each
        except KernelNeedsHandler:
            continue
        except (KernelNotLowered, InvalidProgram) as error:
            failed[problem] = str(error)
    return Texts(texts, failed)
