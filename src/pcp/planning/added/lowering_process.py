"""The disposable child that lowers a kernel from outside, as seen by its parent: a file and shapes in, StableHLO text out."""

import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pcp.errors import PCPError
from pcp.ir.program_file import write_atomically
from pcp.kernels.candidate import Candidate
from pcp.kernels.problems import Problem
from pcp.processes.child import ChildProcess, Start, TookTooLong, WroteTooMuch, said_in
from pcp.temporary import LOWERING, TemporaryFolder

log = logging.getLogger("pcp.planning.added")

SECONDS = 60.0
LONGEST_TEXT = 16 << 20
MOST_TEXTS = 8
"""How many texts of that length one child may write."""
_MODULE = "pcp.planning.added.lowering_child"

MEMORY_BYTES = 8 << 30
"""Address space that the child may take beyond what it has when it begins."""
MOST_WRITTEN = 128 << 20
"""Bytes of files that a child may write whose files are counted."""

Starting = Callable[[str, Path, Path], Start]
"""From a module, a folder that it may write to, and one that it may read, to how it is started."""


class KernelNotLowered(PCPError):
    """An added kernel that does not become StableHLO for a problem."""


class LoweringTookTooMuch(KernelNotLowered):
    """One that was killed while it was lowered."""


def as_the_user(module: str, writable: Path, readable: Path) -> Start:  # noqa: ARG001  (as all)
    """Start the child with all that the user may do; what it writes is not counted."""
    return Start.of(module, JAX_PLATFORMS="cpu")


def lowered_by_child(candidate: Candidate, problem: Problem, start: Starting, seconds: float) -> str:
    """The StableHLO text that a function of JAX arrays becomes for a problem, or what a kernel in Triton does, as JSON.

    Arguments:
        start, seconds: as of `lowered_in_turn`.

    Raises:
        KernelNotLowered: it raised, crashed, took too long, or became too long a text.
    """
    [outcome] = lowered_in_turn(candidate, [problem], start, seconds)
    if isinstance(outcome, KernelNotLowered):
        raise outcome
    log.info("%s was lowered for %s", candidate.name, problem)
    return outcome


def lowered_in_turn(
    candidate: Candidate,
    problems: Sequence[Problem],
    start: Starting = as_the_user,
    seconds: float = SECONDS,
) -> list[str | KernelNotLowered]:
    """What one function becomes for several problems, in one child, one after the other.

    Arguments:
        candidate: whose python is executed in the child only.
        start: how the child is started.
        seconds: after which it is killed.

    Raises:
        KernelNotLowered: its file raised, crashed, took too long, or what it became is too long.
    """
    name, count = candidate.name, len(problems)
    what = problems[0] if count == 1 else f"{count} problems"
    file = candidate.folder / candidate.file
    more = {"interpret": candidate.device == "cpu"} if candidate.language == "pallas" else {}
    asked = {
        "file": str(file),
        "function": candidate.function,
        "tasks": [(each.attributes | more, each.specs, each.results) for each in problems],
        "platform": candidate.device,
        "capability": candidate.capability if candidate.language == "triton" else None,
        "memory_bytes": MEMORY_BYTES,
    }
    longest = min(count, MOST_TEXTS) * LONGEST_TEXT
    with (
        TemporaryFolder(LOWERING) as folder,
        ChildProcess(
            start(_MODULE, folder.path, file.parent), longest_line=longest, most_written=MOST_WRITTEN
        ) as child,
    ):
        child.send(asked | {"folder": str(folder.path)})
        try:
            line = child.line(seconds)
        except (TookTooLong, WroteTooMuch) as error:
            took = f"took more than {seconds:g} s"
            wrote = f"wrote more than {MOST_WRITTEN >> 20} MiB"
            reason = took if isinstance(error, TookTooLong) else wrote
            words = f"{name} {reason} while it was lowered for {what}, and was killed"
            raise LoweringTookTooMuch(words) from None
        if line is not None and len(line) >= longest:
            raise KernelNotLowered(f"{name} becomes more than {longest} bytes for {what}")
        said = {"error": f"the process ended with {child.death()}"} if line is None else said_in(line)
    answers = said.get("made")
    if not isinstance(answers, list) or len(answers) != count:
        raise KernelNotLowered(
            f"{name} cannot be lowered for {what}: {said.get('error', 'nothing was said')}"
        )
    return [_text(name, *each) for each in zip(problems, answers, strict=True)]


def kept(candidate: Candidate, name: str, make: Callable[[], str]) -> str:
    """What a kernel became, from the folder beside it; made where it is not there yet."""
    file = candidate.folder.parent / "lowered" / name
    with contextlib.suppress(OSError):
        return file.read_text(encoding="utf-8")
    text = make()
    with contextlib.suppress(OSError):  # it is made again
        file.parent.mkdir(exist_ok=True)
        write_atomically(file, text.encode())
    return text


def _text(name: str, what: Problem, said: Any) -> str | KernelNotLowered:
    """What a child said of one task."""
    answer = said if isinstance(said, dict) else {}
    if isinstance(answer.get("text"), str) and len(answer["text"]) <= LONGEST_TEXT:
        return str(answer["text"])
    error = f"it becomes more than {LONGEST_TEXT} bytes" if "text" in answer else answer.get("error")
    return KernelNotLowered(f"{name} cannot be lowered for {what}: {error}")
