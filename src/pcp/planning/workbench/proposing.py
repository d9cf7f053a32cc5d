"""Asking an endpoint for kernels again and again: each answer is lowered and measured, and what came of it is asked about."""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pcp.ir import Program
from pcp.kernels.candidate import read_candidate
from pcp.planning.added.lowering import lowered
from pcp.planning.added.lowering_process import SECONDS, KernelNotLowered, Starting
from pcp.planning.added.store import content_digest
from pcp.planning.measuring.bench import Bench
from pcp.planning.measuring.measurement import Failure
from pcp.planning.verification import Verdict, refused, verify
from pcp.planning.workbench.endpoint import Endpoint, EndpointFailed
from pcp.planning.workbench.exporting import new_folder
from pcp.planning.workbench.task import Task
from pcp.planning.workbench.teaching import manifest, readme

FAILURES = 3
"""Failures of the endpoint in a row after which it is not asked again."""
MOST_CODE = 1 << 16
"""Characters of code in an answer that are looked at."""
_LEAST_SECONDS = 1.0
_CODE = re.compile(r"```(?:python|py)?[ \t]*\r?\n(.*?)```", re.DOTALL)
_SYSTEM = (
    "You write fast numerical kernels in JAX. Answer with one block of python code and nothing else: a whole file that defines "
    "`kernel`. It may import jax, jax.numpy and jax.lax only. No callbacks, no custom calls, no files, no network."
)
_AGAIN = "Write the whole file again, better."


@dataclass(frozen=True, slots=True)
class Limits:
    """What asking may take.

    Arguments:
        rounds: answers that are asked for at most.
        seconds: for all of it; no round begins after that, and none is waited for longer.
        answer_seconds: for one answer.
    """

    rounds: int = 5
    seconds: float = 600.0
    answer_seconds: float = 120.0


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """One question and what came of its answer.

    Arguments:
        number: from 1.
        verdict: what came of it; the fault of an answer that holds no kernel is said there, too.
        code: the python of the answer; empty where there was none.
        program: what it became; None where it became nothing.
    """

    number: int
    verdict: Verdict
    code: str = ""
    program: Program | None = None


def proposals(
    task: Task, endpoint: Endpoint, limits: Limits, bench: Bench, folder: Path, start: Starting
) -> Iterator[Round]:
    """Ask until a kernel is admitted, or a limit is reached; each round as it ends.

    Arguments:
        task: for which region, within which tolerance.
        endpoint: that is asked.
        limits: of rounds and seconds.
        bench: that measures.
        folder: for the files of answers; nothing else is written to.
        start: how the process is started that executes an answer's python, once, to lower it.

    Raises:
        EndpointFailed: it failed some times in a row.
        PlainProgramFailed: the region itself does not run.
    """
    ends = time.monotonic() + limits.seconds
    question = f"{readme(task, 'jax')}\nWrite `kernel.py`."
    talk = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": question}]
    failures = 0
    for number in range(1, limits.rounds + 1):
        left = ends - time.monotonic()
        if left < _LEAST_SECONDS:
            return
        try:
            said = endpoint.ask(talk[:2] + talk[2:][-4:], min(limits.answer_seconds, left))
            failures = 0
        except EndpointFailed as error:
            failures += 1
            yield Round(number, refused(task.default_name, Failure.no_answer, str(error)))
            if failures >= FAILURES:
                raise EndpointFailed(
                    f"the endpoint failed {failures} times in a row; at last: {error}"
                ) from None
            continue
        turn = _tried(number, said, task, bench, folder / str(number), start, ends)
        yield turn
        if turn.verdict.accepted:
            return
        talk += [
            {"role": "assistant", "content": said[:MOST_CODE]},
            {"role": "user", "content": f"{turn.verdict}\n{_AGAIN}"},
        ]


def code_in(said: str) -> str:
    """The python of an answer: that of its last block, or all of it where it has no blocks but defines a kernel."""
    blocks = [block for block in _CODE.findall(said[: 2 * MOST_CODE]) if "def kernel" in block]
    if blocks:
        return str(blocks[-1])[:MOST_CODE]
    return said[:MOST_CODE] if "def kernel" in said and "```" not in said else ""


def _tried(
    number: int, said: str, task: Task, bench: Bench, folder: Path, start: Starting, ends: float
) -> Round:
    code = code_in(said)
    if not code:
        words = "the answer holds no block of python that defines `kernel`"
        return Round(number, refused(task.default_name, Failure.no_kernel, words))
    content = folder / "content"
    _write(content, task, "jax", {"kernel.py": code})
    candidate = read_candidate(content)
    seconds = max(_LEAST_SECONDS, min(SECONDS, ends - time.monotonic()))
    try:
        program = lowered(candidate, content_digest(content), None, start, seconds)
    except KernelNotLowered as error:
        return Round(number, refused(candidate.name, Failure.not_lowered, str(error)), code)
    verdict = verify(candidate, bench, task.target, program=program, label=f"proposed@{number}")
    return Round(number, verdict, code, program)


def write_proposed(task: Task, proposed: Round, folder: Path) -> None:
    """Write an answer as a kernel of StableHLO text, with the python that it came from beside it, which nothing executes.

    Arguments:
        folder: that is made, or empty.

    Raises:
        CannotExport: it holds something, or cannot be written.
    """
    assert proposed.program is not None
    files = {"kernel.mlir": proposed.program.text, "proposed.py": proposed.code}
    with new_folder(folder) as draft:
        _write(draft, task, "stablehlo", files)


def _write(folder: Path, task: Task, language: str, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    described = manifest(task, language, "Proposed by a model.")
    for name, text in (files | {"region.mlir": task.region.text, "kernel.toml": described}).items():
        (folder / name).write_text(text, encoding="utf-8")
