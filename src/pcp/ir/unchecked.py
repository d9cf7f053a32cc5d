"""Modules in bytes that no checksum vouches for, read by a child process first.

A few flipped bytes make MLIR's own reader crash or hang. So a child reads and verifies them, within limits of time and memory,
and writes the module anew; only what it wrote is read here. It costs a third of a second. The child loads this package's
`ir` alone, and nothing else of it.
"""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from pcp.errors import PCPError
from pcp.ir import bindings
from pcp.ir.artifact import parse_artifact
from pcp.ir.bindings import InvalidProgram
from pcp.systems import leave_no_core, limit_address_space

SECONDS = 60.0
_MEMORY_BYTES = 4 << 30  # for any program, and then as many times its size as this:
_MEMORY_FACTOR = 64
_REFUSED = b"-"
_ACCEPTED = b"+"
_CHILD = """
import sys, types
package = types.ModuleType("pcp")
package.__path__ = [sys.argv[1]]
sys.modules["pcp"] = package
from pcp.ir import unchecked
unchecked.serve()
"""


class CorruptProgram(PCPError):
    """A program file that is cut off or changed."""


def reread(raw: bytes, seconds: float = SECONDS) -> bytes:
    """Bytecode of the module in untrusted bytes.

    Arguments:
        raw: MLIR bytecode or a portable StableHLO artifact.
        seconds: how long a child may take for it.

    Raises:
        InvalidProgram: it is no valid module, as far as MLIR can say.
        CorruptProgram: MLIR's reader crashed, hung or took all memory.
    """
    command = [sys.executable, "-P", "-c", _CHILD, str(Path(__file__).parent.parent)]
    try:
        child = subprocess.run(command, input=raw, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise CorruptProgram(
            f"the program is damaged: MLIR's reader did not finish within {seconds:g} s; copy it again, or export it again"
        ) from None
    if child.stdout.startswith(_REFUSED):
        raise InvalidProgram(child.stdout[1:].decode(errors="replace"))
    if child.returncode or not child.stdout.startswith(_ACCEPTED):
        raise CorruptProgram(
            f"the program is damaged: MLIR's reader ended with {_how(child.returncode)}; copy it again, or export it again"
        )
    return child.stdout[1:]


def serve() -> None:
    """The child: read a module from standard input, write it as bytecode, or what is wrong with it, to standard output."""
    raw = sys.stdin.buffer.read()
    _limit(_MEMORY_BYTES + _MEMORY_FACTOR * len(raw))
    try:
        module = parse_artifact(raw) if is_artifact(raw) else bindings.parse_module(raw)
        bindings.verify(module)
        bindings.check_strings(str(module.operation.get_asm(enable_debug_info=True, large_elements_limit=8)))
        answer = _ACCEPTED + bindings.bytecode_of(module)
        bindings.parse_module(answer[1:])
    except PCPError as error:
        answer = _REFUSED + str(error).encode()
    sys.stdout.buffer.write(answer)
    sys.stdout.flush()
    os._exit(0)  # without clean-up: damaged bytes may have left MLIR in a state in which that hangs


def is_artifact(raw: bytes) -> bool:
    """Whether MLIR bytecode is a portable artifact: StableHLO wrote it, at a version."""
    return b"StableHLO_v" in raw[:64]


def _how(code: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"exit code {code}"


def _limit(memory_bytes: int) -> None:
    leave_no_core()
    limit_address_space(memory_bytes)
