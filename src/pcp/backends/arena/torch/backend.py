"""The arena with PyTorch: programs planned as there, whose calls torch runs where it has a kernel for them."""

import logging
from importlib.metadata import version
from importlib.util import find_spec

from pcp.backends.arena.backend import ArenaBackend
from pcp.backends.arena.executable import ArenaExecutable
from pcp.backends.arena.lowerings.table import LOWERINGS
from pcp.backends.arena.recording import recorded
from pcp.backends.base import CompilationFailed
from pcp.ir import Program
from pcp.ir.bindings import ir

log = logging.getLogger("pcp.backends.arena")

if find_spec("torch") is None:
    raise ImportError(
        "it computes by PyTorch, which is not installed; install it as https://pytorch.org says for this machine"
    )


class TorchBackend(ArenaBackend):
    """Runs programs by PyTorch and NumPy in the memory of the host; torch is imported with the first program."""

    name = "torch"

    def planned(self, program: Program, main: ir.Operation) -> ArenaExecutable:
        """Torch's convolutions and narrow products are recorded as such; then it takes what is in its table.

        Raises:
            CompilationFailed: PyTorch is there, and cannot be imported.
        """
        try:
            from pcp.backends.arena.torch.convolutions import convolution
            from pcp.backends.arena.torch.kernels import BFLOAT16
            from pcp.backends.arena.torch.providing import provide
        except (ImportError, OSError) as error:
            raise CompilationFailed(
                f"PyTorch {version('torch')} cannot be imported: {error}; install one that fits this machine as "
                "https://pytorch.org says, or plan the program for the arena without it: pcp.Target.of('arena:cpu')"
            ) from error
        lowerings = {**LOWERINGS, "stablehlo.convolution": convolution}
        recording = recorded(program, main, lowerings, BFLOAT16)
        count = provide(recording.instructions)
        log.info(
            "torch runs %d instructions of program %s; the others run by NumPy", count, program.digest[:12]
        )
        return ArenaExecutable(recording, program, exact=not count)  # torch says not what a call takes

    @property
    def versions(self) -> str:
        """The versions of PyTorch and NumPy, which compute."""
        return f"torch {version('torch')}, {super().versions}"
