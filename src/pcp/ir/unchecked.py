"""Modules in bytes that no checksum vouches for, read by a child process first.

A few flipped bytes make MLIR's own reader crash or hang. So a child reads and verifies them, within limits of time and memory,
and writes the module anew; only what it wrote is read here. It costs a third of a second. The child loads this package's
`ir` alone, and nothing else of it.
"""

import base64
import os
import sys
from pathlib import Path

from pcp.errors import PCPError
from pcp.ir import bindings
from pcp.ir.artifact import parse_artifact
from pcp.ir.bindings import InvalidProgram
from pcp.processes.child import ChildProcess, Start, TookTooLong, said_in
from pcp.processes.parent import Parent
from pcp.systems import exit_in_words, leave_no_core, limit_address_space

SECONDS = 60.0
_MEMORY_BYTES = 4 << 30  # for any program, and then as many times its size as this:
_MEMORY_FACTOR = 64
_LONGEST_ANSWER = 1 << 40
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
    start = Start([sys.executable, "-P", "-c", _CHILD, str(Path(__file__).parent.parent)])
    with ChildProcess(start, longest_line=_LONGEST_ANSWER) as child:
        child.send(raw)
        try:
            line = child.line(seconds)
        except TookTooLong:
            raise CorruptProgram(
                f"the program is damaged: MLIR's reader did not finish within {seconds:g} s; copy it again, or export it again"
            ) from None
        match said_in(line):
            case {"accepted": str(bytecode)}:
                return base64.b64decode(bytecode)
            case {"refused": str(reason)}:
                raise InvalidProgram(reason)
        how = exit_in_words(child.death().code)
        raise CorruptProgram(
            f"the program is damaged: MLIR's reader ended with {how}; copy it again, or export it again"
        )


def serve() -> None:
    """The child: read a module, and say its bytecode, or what is wrong with it."""
    parent = Parent()
    [raw] = parent.asks()
    leave_no_core()
    limit_address_space(_MEMORY_BYTES + _MEMORY_FACTOR * len(raw))
    try:
        module = parse_artifact(raw) if is_artifact(raw) else bindings.parse_module(raw)
        bindings.verify(module)
        bindings.check_strings(str(module.operation.get_asm(enable_debug_info=True, large_elements_limit=8)))
        bytecode = bindings.bytecode_of(module)
        bindings.parse_module(bytecode)
        parent.say(accepted=base64.b64encode(bytecode).decode())
    except PCPError as error:
        parent.say(refused=str(error))
    os._exit(0)  # without clean-up: damaged bytes may have left MLIR in a state in which that hangs


def is_artifact(raw: bytes) -> bool:
    """Whether MLIR bytecode is a portable artifact: StableHLO wrote it, at a version."""
    return b"StableHLO_v" in raw[:64]
