"""Paths of programs that are larger than the device on which they run."""

from dataclasses import replace

from pcp.backends import Device, Placement, Target
from pcp.ir import Program
from pcp.ir.expecting import expect_program
from pcp.planning.capacity import memory_limit
from pcp.planning.paths.path import Path
from pcp.planning.placing.operations import named


def streamed(program: Program, device: str | Device | Target, memory: int | str | None = None) -> Path:
    """A path on which a program runs on one device piece by piece, while values that a piece does not need lie elsewhere.

    Plan it for the device where arguments and results are to lie, most often the processor:

        path = pcp.streamed(program, "cuda:0", "8GiB")
        plan = pcp.plan(program, "cpu:0", path=path)

    Weights are copied to the device for the pieces that read them. Activations that do not fit are copied back until their
    gradients are computed. Which values make room, and when, is known before the first call. The program runs as it is written.

    Arguments:
        program: as the user wrote it.
        device: where all operations run, or a target.
        memory: bytes that a call may take there, as of `pcp.plan`; None for what the device has.

    Raises:
        UnknownBackend, UnknownDevice: the device is not here.
        InvalidMemoryLimit: as `pcp.plan`.
    """
    expect_program(program, "pcp.streamed")
    target = Target.of(device)
    limit = memory_limit(target.device, memory)
    return replace(Path.plain(program), placement=Placement((), (named(target), limit)))
