"""What a Worker makes sure of before it runs programs that came over the network.

The order matters, because MLIR's own reader crashes on damaged bytes. Length and digest were checked when the bytes arrived.
Then a disposable child process parses, verifies and compiles them, confined (see `sandbox`) and with limits on memory, time
and files; only then are the same bytes loaded by who asked. What the child compiled is machine code that its taker must
trust: only a process that is confined itself takes it.
"""

import contextlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import BinaryIO

from pcp.backends import needs_driver
from pcp.distributed.sandbox import Policy, is_confined, taken
from pcp.distributed.sandbox.limits import data_bytes, limit_memory
from pcp.errors import PCPError
from pcp.folders import cache_folder
from pcp.ir import Program
from pcp.ir.bindings import ir
from pcp.ir.composites import COMPOSITE, composite_name
from pcp.ir.toolkit.functions import main_of
from pcp.ir.toolkit.walking import every_operation, named_operations
from pcp.kernels import look_at
from pcp.kernels.native import is_admitted
from pcp.planning import plan
from pcp.symbolic.expressions import listed
from pcp.symbolic.file import MAGIC as SYMBOLIC
from pcp.symbolic.program import SymbolicProgram
from pcp.systems import end_group, exit_in_words
from pcp.temporary import CONFINED, TemporaryFolder

log = logging.getLogger("pcp.distributed.verification")

ALLOWED_DIALECTS = ("stablehlo", "chlo", "func", "builtin")
REFUSED_OPERATIONS = {
    "stablehlo.custom_call": "it would run native code",
    "stablehlo.infeed": "it reads from outside of the program",
    "stablehlo.outfeed": "it writes outside of the program",
    "stablehlo.send": "it speaks to other devices",
    "stablehlo.recv": "it speaks to other devices",
}
MAXIMUM_OPERATIONS = 1_000_000
MAXIMUM_ARTIFACT_BYTES = 64 << 20
MAXIMUM_SYMBOLIC_BYTES = 4 * MAXIMUM_ARTIFACT_BYTES
"""What the Programs of a symbolic program may take together, unpacked."""
MAXIMUM_COMPILED_BYTES = 4 << 30
"""What the child may write, all of it together."""

_REFUSED = 3
_FULL = -1000
_POLL_SECONDS = 0.02
_LONGEST_WORDS = 400
_LONGEST_REASON = 300
_CHILD = "pcp.distributed.verification"


class ProgramRefused(PCPError):
    """A program that this worker does not run; the message says why."""


class VerificationCancelled(PCPError):
    """The worker was asked to stop while a program was verified."""


def _is_refused(op: ir.Operation) -> bool:
    """Whether an operation reaches outside of the program; builds of native kernels that the Worker's user named do not."""
    return op.name in REFUSED_OPERATIONS and not (op.name == "stablehlo.custom_call" and is_admitted(op))


def check(program: Program) -> None:
    """Look at every operation of a program.

    Raises:
        ProgramRefused: an operation is of a foreign dialect or reaches outside of the program, or there are too many.
    """
    module = program.module()
    main_of(module)
    operations = every_operation(module.operation)
    names = Counter(op.name for op in operations)
    refused = {op.name for op in operations if _is_refused(op)}
    for name in sorted(names):
        if name in refused:
            raise ProgramRefused(f"the program holds {name}, which is refused: {REFUSED_OPERATIONS[name]}")
        if name.partition(".")[0] not in ALLOWED_DIALECTS:
            raise ProgramRefused(f"the program holds {name}; only {', '.join(ALLOWED_DIALECTS)} are accepted")
    if sum(names.values()) > MAXIMUM_OPERATIONS:
        raise ProgramRefused(
            f"the program holds {sum(names.values())} operations; at most {MAXIMUM_OPERATIONS} are accepted"
        )


def _check_named_sites(program: Program) -> None:
    """Look whether kernels can read what composites that name sites say of themselves; what they compute their functions say.

    Raises:
        ProgramRefused: attributes are missing or malformed.
    """
    module = program.module()  # operations do not outlive it
    for op in named_operations(module.operation, COMPOSITE):
        try:
            look_at(op)
        except Exception as error:  # whatever reading malformed attributes raises
            raise ProgramRefused(
                f"the program holds a composite {composite_name(op)!r} whose attributes are not those of that name: "
                f"{type(error).__name__}: {error}"
            ) from None


def _read(artifact: bytes, sizes: Mapping[str, int] | None) -> Program:
    """The program in an artifact; of a symbolic one that at some sizes.

    Raises:
        ProgramRefused: sizes are missing, are not those of all its symbols, or the program is not symbolic.
        PCPError: the bytes are no program, or there is none at these sizes.
    """
    if not artifact.startswith(SYMBOLIC):
        if sizes:
            raise ProgramRefused(f"sizes ({listed(sizes)}) are given for it, and it is no symbolic program")
        return Program.from_artifact(artifact)
    whole = SymbolicProgram.from_artifact(artifact, largest=MAXIMUM_SYMBOLIC_BYTES)
    if not sizes or set(sizes) != set(whole.symbols):
        raise ProgramRefused(
            f"it is a symbolic program of {', '.join(whole.symbols)}, and the sizes that are given for it are "
            f"({listed(sizes or {})}); expected one of each"
        )
    program: Program = whole.at(**sizes)
    return program


def admit(
    artifacts: Mapping[str, bytes],
    device: str,
    memory_bytes: int,
    seconds: float,
    cancelled: Callable[[], bool] = lambda: False,
    sizes: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
) -> dict[str, Program]:
    """Verify and compile artifacts in a child process, then load them.

    A GPU's driver begins in no process that a confined one starts. There the child does not compile; who asks does so next,
    and is as confined.

    Arguments:
        artifacts: by name, for messages; their digests were checked. One may be a symbolic program.
        device: where they will run.
        memory_bytes: address space that the child may take beyond what it has after start-up.
        seconds: time that the child may take for all of them.
        cancelled: asked again and again whether to give up.
        sizes: of each symbolic program, by name, the sizes at which it is verified and loaded.

    Returns:
        The programs, by the same names; a symbolic one at its sizes.

    Raises:
        ProgramRefused: one is too large, forbidden, crashed the child, or took too long.
        VerificationCancelled: `cancelled` said so.
    """
    for name, artifact in artifacts.items():
        if len(artifact) > MAXIMUM_ARTIFACT_BYTES:
            raise ProgramRefused(
                f"the program {name!r} has {len(artifact)} bytes; at most {MAXIMUM_ARTIFACT_BYTES} are accepted"
            )
    with (
        TemporaryFolder(CONFINED) as temporary,
        tempfile.TemporaryFile() as said,
        tempfile.TemporaryFile() as complaints,
    ):
        compiles = not (is_confined() and needs_driver(device))
        policy = Policy(
            temporary.path / "verification",
            device if compiles else "cpu:0",
            cache=cache_folder() if is_confined() else None,
            file_bytes=MAXIMUM_COMPILED_BYTES,
            cpu_seconds=seconds * (os.cpu_count() or 1),
        )
        policy.prepare()
        before = taken(policy.written)
        child = subprocess.Popen(
            policy.command(_CHILD),
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=complaints,
            env=policy.environment(),
            start_new_session=True,
        )

        def too_much() -> bool:
            return taken(policy.written, child.pid) - before > MAXIMUM_COMPILED_BYTES

        try:
            request = _request(artifacts, device if compiles else None, memory_bytes, sizes)
            code = _outcome(child, request, seconds, cancelled, too_much)
        finally:
            end_group(child)
            child.wait()
            assert child.stdin is not None
            with contextlib.suppress(OSError):  # what the child did not read is lost
                child.stdin.close()
        words, noise = (_text(file) for file in (said, complaints))
    if noise:
        log.info("the verification said: %s", noise)
    name, _, reason = words.rpartition("\n")[2].partition("\t")
    name = name or next(iter(artifacts))
    if code is None:
        raise ProgramRefused(f"verifying the program {name!r} took more than {seconds:.0f} s")
    if code == _FULL:
        raise ProgramRefused(f"verifying the program {name!r} wrote more than {MAXIMUM_COMPILED_BYTES} bytes")
    if code == _REFUSED:
        raise ProgramRefused(f"the program {name!r} is refused: {reason}")
    if code:
        allowed = min(memory_bytes, data_bytes() or memory_bytes)
        raise ProgramRefused(
            f"verifying the program {name!r} ended with {exit_in_words(code)}: it is damaged, or needs more than "
            f"{allowed} bytes to compile, which is what may be taken here; `pcp worker --memory` may offer more"
        )
    return {name: _read(artifact, sizes.get(name)) for name, artifact in artifacts.items()}


def _request(
    artifacts: Mapping[str, bytes],
    device: str | None,
    memory_bytes: int,
    sizes: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
) -> bytes:
    entries = {
        name: {"bytes": len(artifact), "sizes": dict(sizes.get(name, {}))}
        for name, artifact in artifacts.items()
    }
    header = json.dumps({"device": device, "memory_bytes": memory_bytes, "artifacts": entries})
    return b"".join([header.encode(), b"\n", *artifacts.values()])


def _outcome(
    child: subprocess.Popen[bytes],
    request: bytes,
    seconds: float,
    cancelled: Callable[[], bool],
    too_much: Callable[[], bool],
) -> int | None:
    """The exit code of a child, None if it took too long, `_FULL` if it wrote too much.

    Its input stays open, because it ends when that closes.
    """
    assert child.stdin is not None
    deadline = time.monotonic() + seconds
    # A child that hangs before it has read everything must not hang this process.
    writing = threading.Thread(target=_write, args=(child.stdin, request), daemon=True)
    writing.start()
    full = False
    while child.poll() is None and time.monotonic() < deadline and not (full := too_much()):
        if cancelled():
            raise VerificationCancelled("the worker stops, so the verification of its programs does too")
        try:
            child.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    code = _FULL if full else child.poll()
    end_group(child)
    writing.join()
    return code


def _write(file: BinaryIO, content: bytes) -> None:
    try:
        file.write(content)
        file.flush()
    except OSError as error:
        log.debug("the verification ended before it had read everything: %s", error)


def _text(file: BinaryIO) -> str:
    """The end of what a child wrote. It may have been taken over, so what it says is shortened and made printable."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _LONGEST_WORDS))
    text = file.read().decode(errors="replace").strip()
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def _main() -> int:
    """The child: verify programs, and compile them if there is a device; say the name of each, and what is wrong with it."""
    header = json.loads(sys.stdin.buffer.readline())
    entries = header["artifacts"]
    artifacts = {name: sys.stdin.buffer.read(entry["bytes"]) for name, entry in entries.items()}
    threading.Thread(target=_end_with_parent, daemon=True).start()
    device = header["device"]
    if device is None or not needs_driver(
        device
    ):  # a GPU's driver reserves far more address space than it uses
        limit_memory(header["memory_bytes"])
    for name, artifact in artifacts.items():
        print(name, end="", flush=True)
        try:
            program = _read(artifact, entries[name]["sizes"])
            check(program)
            _check_named_sites(program)
            if device is not None:
                plan(program, device=device)
        except (PCPError, MemoryError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            print(f"\t{reason[:_LONGEST_REASON]}", flush=True)
            return _REFUSED
        print(flush=True)
    return 0


def _end_with_parent() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os._exit(1)


if __name__ == "__main__":
    code = _main()
    # Without clean-up: a damaged program may have left the compiler in a state in which that hangs.
    sys.stdout.flush()
    os._exit(code)
