"""What a Worker makes sure of before it runs a program that came over the network.

The order matters, because MLIR's own reader crashes on damaged bytes: length and digest were checked when the blob arrived;
then a disposable child process parses, verifies and compiles it, with limits on memory and time; only then is it loaded here,
from the same bytes, the compiled form from the cache that the child filled.
"""

import argparse
import resource
import subprocess
import sys
from pathlib import Path

from pcp.errors import PCPError
from pcp.ir import Program
from pcp.ir.bindings import ir
from pcp.ir.program import main_of
from pcp.planning import plan

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


class ProgramRefused(PCPError):
    """A program that this worker does not run; the message says why."""


def check(program: Program) -> None:
    """Look at every operation of a program.

    Raises:
        ProgramRefused: an operation is of a foreign dialect or reaches outside of the program, or there are too many.
    """
    module = program.module()
    names: dict[str, int] = {}

    def visit(op: ir.Operation) -> ir.WalkResult:
        names[op.name] = names.get(op.name, 0) + 1
        return ir.WalkResult.ADVANCE

    main_of(module)
    module.operation.walk(visit)
    for name in sorted(names):
        if name in REFUSED_OPERATIONS:
            raise ProgramRefused(f"the program holds {name}, which is refused: {REFUSED_OPERATIONS[name]}")
        if name.partition(".")[0] not in ALLOWED_DIALECTS:
            raise ProgramRefused(f"the program holds {name}; only {', '.join(ALLOWED_DIALECTS)} are accepted")
    if sum(names.values()) > MAXIMUM_OPERATIONS:
        raise ProgramRefused(
            f"the program holds {sum(names.values())} operations; at most {MAXIMUM_OPERATIONS} are accepted"
        )


def admit(artifact: Path, device: str, memory_bytes: int, seconds: float) -> Program:
    """Verify and compile an artifact in a child process, then load it.

    Arguments:
        artifact: a file whose digest was checked.
        device: where it will run.
        memory_bytes: address space that the child may take beyond what it has after start-up.
        seconds: time that the child may take.

    Raises:
        ProgramRefused: it is too large, forbidden, crashed the child, or took too long.
    """
    size = artifact.stat().st_size
    if size > MAXIMUM_ARTIFACT_BYTES:
        raise ProgramRefused(f"the program has {size} bytes; at most {MAXIMUM_ARTIFACT_BYTES} are accepted")
    command = [sys.executable, "-m", "pcp.distributed.verification", str(artifact)]
    command += ["--device", device, "--memory", str(memory_bytes)]
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise ProgramRefused(f"verifying the program took more than {seconds:.0f} s") from None
    if child.returncode:
        said = (child.stderr or child.stdout).strip().splitlines()
        how = "crashed" if child.returncode < 0 else "refused"
        raise ProgramRefused(
            f"verifying the program {how} (code {child.returncode}): {said[-1] if said else 'no word'}"
        )
    return Program.from_artifact(artifact.read_bytes())


def _main() -> None:
    """The child: verify and compile one artifact."""
    parser = argparse.ArgumentParser()
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--device", required=True)
    parser.add_argument("--memory", type=int, required=True)
    arguments = parser.parse_args()
    if arguments.device.startswith("cpu"):  # a GPU's driver reserves far more address space than it uses
        resource.setrlimit(resource.RLIMIT_AS, (arguments.memory, arguments.memory))
    try:
        program = Program.from_artifact(arguments.artifact.read_bytes())
        check(program)
        plan(program, device=arguments.device)
    except (PCPError, MemoryError) as error:
        print(str(error).replace("\n", " "), file=sys.stderr)
        sys.exit(3)


if __name__ == "__main__":
    _main()
