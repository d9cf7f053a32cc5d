"""The disposable child that lowers a kernel from outside, as seen by its parent: a file and shapes in, StableHLO text out."""

import contextlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pcp.errors import PCPError
from pcp.ir import TensorSpec
from pcp.planning.measuring.process import environment
from pcp.planning.measuring.request import specs_to
from pcp.systems import end_group
from pcp.temporary import LOWERING, TemporaryFolder

log = logging.getLogger("pcp.planning.added")

SECONDS = 60.0
LONGEST_TEXT = 16 << 20
MOST_TEXTS = 8
"""How many of such length one child may write."""
_MODULE = "pcp.planning.added.lowering_child"

MEMORY_BYTES = 8 << 30
"""Address space that the child may take beyond what it has when it begins."""
MOST_WRITTEN = 128 << 20
"""Bytes of files that a child may write whose files are counted."""
_POLL_SECONDS = 0.05

Start = Callable[[str, Path, Path], tuple[Sequence[str], Mapping[str, str], Callable[[int], int]]]
"""From a module, a folder that it may write to, and one that it may read, to a command that runs it, its variables, and what
counts the bytes that the process of a number has written."""


class KernelNotLowered(PCPError):
    """An added kernel that does not become StableHLO for a problem."""


class LoweringTookTooMuch(KernelNotLowered):
    """One that was killed while it was lowered."""


def as_the_user(
    module: str,
    writable: Path,  # noqa: ARG001  (as all)
    readable: Path,  # noqa: ARG001
) -> tuple[Sequence[str], Mapping[str, str], Callable[[int], int]]:
    """Start the child with all that the user may do; what it writes is not counted."""
    variables = os.environ | environment() | {"JAX_PLATFORMS": "cpu"}
    return [sys.executable, "-P", "-m", module], variables, lambda _: 0


def lowered_by_child(
    name: str,
    what: object,
    file: Path,
    function: str,
    attributes: Mapping[str, Any],
    specs: Sequence[TensorSpec],
    platform: str = "cpu",
    start: Start = as_the_user,
    seconds: float = SECONDS,
    triton: Mapping[str, Any] | None = None,
) -> str:
    """The StableHLO text that a function of JAX arrays becomes, or what a kernel in Triton does, as JSON.

    Arguments:
        what: for which it is lowered, for messages.
        attributes: that it is told by keyword.
        specs: of its operands.
        name, file, function, platform, start, seconds, triton: as for `lowered_in_turn`.

    Raises:
        KernelNotLowered: it raised, crashed, took too long, or became too long a text.
    """
    [made] = lowered_in_turn(
        name, file, function, [(str(what), attributes, specs)], platform, start, seconds, triton
    )
    if isinstance(made, KernelNotLowered):
        raise made
    log.info("%s was lowered for %s", name, what)
    return made


def lowered_in_turn(
    name: str,
    file: Path,
    function: str,
    tasks: Sequence[tuple[str, Mapping[str, Any], Sequence[TensorSpec]]],
    platform: str = "cpu",
    start: Start = as_the_user,
    seconds: float = SECONDS,
    triton: Mapping[str, Any] | None = None,
) -> list[str | KernelNotLowered]:
    """What one function becomes for several lists of operands, in one child, one after the other.

    Arguments:
        name: of the kernel, for messages.
        file: python, which is executed in the child only.
        function: its name there.
        tasks: for what it is lowered, the attributes that it is told by keyword, and the specs of its operands.
        platform: the kind of device that it is lowered for.
        start: how the child is started.
        seconds: after which it is killed.
        triton: for a kernel in Triton, specs of its `results`, and the `capability` of the GPU.

    Raises:
        KernelNotLowered: its file raised, crashed, took too long, or what it became is too long.
    """
    what = tasks[0][0] if len(tasks) == 1 else f"{len(tasks)} problems"
    with TemporaryFolder(LOWERING) as folder:
        answer = folder.path / "answer"
        request = {
            "file": str(file),
            "function": function,
            "tasks": [[dict(attributes), specs_to(specs)] for _, attributes, specs in tasks],
            "platform": platform,
            "triton": None if triton is None else dict(triton),
            "answer": str(answer),
            "memory_bytes": MEMORY_BYTES,
        }
        command, variables, written = start(_MODULE, folder.path, file.parent)
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=variables,
            start_new_session=True,
        )
        try:
            reason = _waited(child, json.dumps(request).encode(), seconds, written)
            if reason:
                raise LoweringTookTooMuch(f"{name} {reason} while it was lowered for {what}, and was killed")
        finally:
            end_group(child)
            child.wait()
        said = _answer(answer, name, what, child.returncode, min(len(tasks), MOST_TEXTS) * LONGEST_TEXT)
    made = said.get("made")
    if not isinstance(made, list) or len(made) != len(tasks):
        raise KernelNotLowered(f"{name} cannot be lowered for {what}: {said.get('error')}")
    return [_text(name, *each) for each in zip((task[0] for task in tasks), made, strict=True)]


def _text(name: str, what: str, said: Any) -> str | KernelNotLowered:
    """What a child said of one task."""
    found = said if isinstance(said, dict) else {}
    if isinstance(found.get("text"), str) and len(found["text"]) <= LONGEST_TEXT:
        return str(found["text"])
    error = f"it becomes more than {LONGEST_TEXT} bytes" if "text" in found else found.get("error")
    return KernelNotLowered(f"{name} cannot be lowered for {what}: {error}")


def _waited(
    child: subprocess.Popen[bytes], request: bytes, seconds: float, written: Callable[[int], int]
) -> str:
    """Hand a child its request, which fits a pipe, and wait for its end; what it took too much of, empty for nothing."""
    assert child.stdin is not None
    deadline = time.monotonic() + seconds
    with contextlib.suppress(BrokenPipeError), child.stdin:
        child.stdin.write(request)
    while True:
        try:
            child.wait(_POLL_SECONDS)
            return ""
        except subprocess.TimeoutExpired:
            if time.monotonic() > deadline:
                return f"took more than {seconds:g} s"
            if written(child.pid) > MOST_WRITTEN:
                return f"wrote more than {MOST_WRITTEN >> 20} MiB"


def _answer(file: Path, name: str, what: object, code: int, most: int) -> dict[str, Any]:
    try:
        if file.stat().st_size > most:
            raise KernelNotLowered(f"{name} becomes more than {most} bytes for {what}")
        said = json.loads(file.read_text())
    except (OSError, ValueError):
        said = None
    return said if isinstance(said, dict) else {"error": f"the process ended with code {code}"}
