"""The disposable child that lowers a kernel from outside, as seen by its parent: a file and shapes in, StableHLO text out."""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pcp.errors import PCPError
from pcp.ir import TensorSpec
from pcp.planning.measuring.process import environment
from pcp.planning.measuring.request import specs_to
from pcp.temporary import LOWERING, TemporaryFolder

log = logging.getLogger("pcp.planning.added")

SECONDS = 60.0
LONGEST_TEXT = 16 << 20
_MODULE = "pcp.planning.added.lowering_child"

Start = Callable[[str, Path, Path], tuple[Sequence[str], Mapping[str, str]]]
"""From a module, a folder that it may write to, and one that it may read, to a command that runs it, and its variables."""


class KernelNotLowered(PCPError):
    """An added kernel that does not become StableHLO for a problem."""


def as_the_user(module: str, writable: Path, readable: Path) -> tuple[Sequence[str], Mapping[str, str]]:  # noqa: ARG001
    """Start the child with all that the user may do."""
    return [sys.executable, "-P", "-m", module], os.environ | environment() | {"JAX_PLATFORMS": "cpu"}


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
) -> str:
    """The StableHLO text that a function of JAX arrays becomes.

    Arguments:
        name, what: the kernel, and for what it is lowered; for messages.
        file: python, which is executed in the child only.
        function: its name there.
        attributes: that it is told by keyword.
        specs: of its operands.
        platform: the kind of device that it is lowered for.
        start: how the child is started.
        seconds: after which it is killed.

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
            "answer": str(answer),
        }
        command, variables = start(_MODULE, folder.path, file.parent)
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=variables,
            start_new_session=True,
        )
        try:
            child.communicate(json.dumps(request).encode(), seconds)
        except subprocess.TimeoutExpired:
            raise KernelNotLowered(
                f"{name} took more than {seconds:g} s to be lowered for {what} and was killed"
            ) from None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        said = _answer(answer, name, what, child.returncode)
    if "text" not in said:
        raise KernelNotLowered(f"{name} cannot be lowered for {what}: {said.get('error')}")
    log.info("%s was lowered for %s", name, what)
    return str(said["text"])


def _answer(file: Path, name: str, what: object, code: int) -> dict[str, Any]:
    try:
        if file.stat().st_size > LONGEST_TEXT:
            raise KernelNotLowered(f"{name} becomes more than {LONGEST_TEXT} bytes for {what}")
        said = json.loads(file.read_text())
    except (OSError, ValueError):
        said = None
    return said if isinstance(said, dict) else {"error": f"the process ended with code {code}"}
