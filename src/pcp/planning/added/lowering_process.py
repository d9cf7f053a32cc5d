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
        name, what: the kernel, and for what it is lowered; for messages.
        file: python, which is executed in the child only.
        function: its name there.
        attributes: that it is told by keyword.
        specs: of its operands.
        platform: the kind of device that it is lowered for.
        start: how the child is started.
        seconds: after which it is killed.
        triton: for a kernel in Triton, specs of its `results`, and the `capability` of the GPU.

    Raises:
        KernelNotLowered: it raised, crashed, took too long, or became too long a text.
    """
    with TemporaryFolder(LOWERING) as folder:
        answer = folder.path / "answer"
        request = {
            "file": str(file),
            "function": function,
            "attributes": dict(attributes),
            "specs": specs_to(specs),
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
                raise KernelNotLowered(f"{name} {reason} while it was lowered for {what}, and was killed")
        finally:
            end_group(child)
            child.wait()
        said = _answer(answer, name, what, child.returncode)
    if "text" not in said:
        raise KernelNotLowered(f"{name} cannot be lowered for {what}: {said.get('error')}")
    log.info("%s was lowered for %s", name, what)
    return str(said["text"])


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


def _answer(file: Path, name: str, what: object, code: int) -> dict[str, Any]:
    try:
        if file.stat().st_size > LONGEST_TEXT:
            raise KernelNotLowered(f"{name} becomes more than {LONGEST_TEXT} bytes for {what}")
        said = json.loads(file.read_text())
    except (OSError, ValueError):
        said = None
    return said if isinstance(said, dict) else {"error": f"the process ended with code {code}"}
