"""The disposable child that lowers a kernel from outside, as seen by its parent: a file and shapes in, StableHLO text out."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pcp.errors import PCPError
from pcp.ir import TensorSpec
from pcp.processes.child import ChildProcess, Start, TookTooLong, WroteTooMuch, said_in
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

Starting = Callable[[str, Path, Path], Start]
"""From a module, a folder that it may write to, and one that it may read, to how it is started."""


class KernelNotLowered(PCPError):
    """An added kernel that does not become StableHLO for a problem."""


class LoweringTookTooMuch(KernelNotLowered):
    """One that was killed while it was lowered."""


def as_the_user(module: str, writable: Path, readable: Path) -> Start:  # noqa: ARG001  (as all)
    """Start the child with all that the user may do; what it writes is not counted."""
    return Start.of(module, JAX_PLATFORMS="cpu")


def lowered_by_child(
    name: str,
    what: object,
    file: Path,
    function: str,
    attributes: Mapping[str, Any],
    specs: Sequence[TensorSpec],
    platform: str = "cpu",
    start: Starting = as_the_user,
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
    start: Starting = as_the_user,
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
    asked = {
        "file": str(file),
        "function": function,
        "tasks": [(dict(attributes), list(specs)) for _, attributes, specs in tasks],
        "platform": platform,
        "triton": None if triton is None else dict(triton),
        "memory_bytes": MEMORY_BYTES,
    }
    longest = min(len(tasks), MOST_TEXTS) * LONGEST_TEXT
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
    made = said.get("made")
    if not isinstance(made, list) or len(made) != len(tasks):
        raise KernelNotLowered(
            f"{name} cannot be lowered for {what}: {said.get('error', 'nothing was said')}"
        )
    return [_text(name, *each) for each in zip((task[0] for task in tasks), made, strict=True)]


def _text(name: str, what: str, said: Any) -> str | KernelNotLowered:
    """What a child said of one task."""
    found = said if isinstance(said, dict) else {}
    if isinstance(found.get("text"), str) and len(found["text"]) <= LONGEST_TEXT:
        return str(found["text"])
    error = f"it becomes more than {LONGEST_TEXT} bytes" if "text" in found else found.get("error")
    return KernelNotLowered(f"{name} cannot be lowered for {what}: {error}")
