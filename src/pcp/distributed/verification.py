"""What a Worker makes sure of before it runs programs that came over the network.

The order matters, because MLIR's own reader crashes on damaged bytes. Length and digest were checked when the bytes arrived.
Then a disposable child process parses, verifies and compiles them, confined (see `sandbox`) and with limits on memory, time
and files; only then are the same bytes loaded by who asked. What the child compiled is machine code that its taker must
trust: only a process that is confined itself takes it.
"""

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType

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
from pcp.processes.child import ChildProcess, TookTooLong, WroteTooMuch, printable, said_in
from pcp.processes.parent import Parent
from pcp.symbolic.expressions import listed
from pcp.symbolic.file import MAGIC as SYMBOLIC
from pcp.symbolic.program import SymbolicProgram
from pcp.systems import exit_in_words
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

_LONGEST_ANSWER = 1 << 16
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
    with TemporaryFolder(CONFINED) as temporary:
        compiles = not (is_confined() and needs_driver(device))
        policy = Policy(
            temporary.path / "verification",
            device if compiles else "cpu:0",
            cache=cache_folder() if is_confined() else None,
            file_bytes=MAXIMUM_COMPILED_BYTES,
            cpu_seconds=seconds * (os.cpu_count() or 1),
        )
        policy.prepare()
        most_written = taken(policy.written) + MAXIMUM_COMPILED_BYTES
        with ChildProcess(
            policy.start(_CHILD), longest_line=_LONGEST_ANSWER, most_written=most_written
        ) as child:
            sizes_sent = {name: dict(each) for name, each in sizes.items()}
            child.send(device if compiles else None, memory_bytes, dict(artifacts), sizes_sent)
            try:
                _hear(child, list(artifacts), memory_bytes, seconds, cancelled)
            finally:
                child.end()
                if said := child.death().said:
                    log.info("the verification said: %s", said)
    return {name: _read(artifact, sizes.get(name)) for name, artifact in artifacts.items()}


def _hear(
    child: ChildProcess, names: list[str], memory_bytes: int, seconds: float, cancelled: Callable[[], bool]
) -> None:
    """Wait until a child has admitted all. It may have been taken over, so what it says is shortened and made printable.

    Raises:
        ProgramRefused, VerificationCancelled: as `admit`.
    """

    def look() -> None:
        if cancelled():
            raise VerificationCancelled("the worker stops, so the verification of its programs does too")

    name, ends = names[0], time.monotonic() + seconds
    try:
        while (line := child.line(ends - time.monotonic(), look)) is not None:
            match said_in(line):
                case {"verifies": str(each)} if each in names:
                    name = each
                case {"refused": str(reason)}:
                    raise ProgramRefused(
                        f"the program {name!r} is refused: {printable(reason, _LONGEST_REASON)}"
                    )
                case {"admitted": True}:
                    return
    except TookTooLong:
        raise ProgramRefused(f"verifying the program {name!r} took more than {seconds:.0f} s") from None
    except WroteTooMuch:
        raise ProgramRefused(
            f"verifying the program {name!r} wrote more than {MAXIMUM_COMPILED_BYTES} bytes"
        ) from None
    allowed = min(memory_bytes, data_bytes() or memory_bytes)
    raise ProgramRefused(
        f"verifying the program {name!r} ended with {exit_in_words(child.death().code)}: it is damaged, or needs more than "
        f"{allowed} bytes to compile, which is what may be taken here; `pcp worker --memory` may offer more"
    )


def _main() -> None:
    """The child: verify programs, and compile them if there is a device; say the name of each, and what is wrong with it."""
    parent = Parent()
    device, memory_bytes, artifacts, sizes = parent.asks()
    # A GPU's driver reserves far more address space than it uses.
    if device is None or not needs_driver(device):
        limit_memory(memory_bytes)
    for name, artifact in artifacts.items():
        parent.say(verifies=name)
        try:
            program = _read(artifact, sizes.get(name))
            check(program)
            _check_named_sites(program)
            if device is not None:
                plan(program, device=device)
        except (PCPError, MemoryError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            parent.say(refused=reason[:_LONGEST_REASON])
            return
    parent.say(admitted=True)


if __name__ == "__main__":
    _main()
    # Without clean-up: a damaged program may have left the compiler in a state in which that hangs.
    os._exit(0)
