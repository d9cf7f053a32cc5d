"""Paths of programs that are larger than the device on which they run."""

import logging
from dataclasses import replace

from pcp.backends import Device, Placement, Target
from pcp.ir import Program
from pcp.ir.expecting import expect_program
from pcp.planning.capacity import memory_limit
from pcp.planning.paths.path import Path, PathMismatch, expect_path
from pcp.planning.placing.operations import named

log = logging.getLogger("pcp.planning")

AT_ONCE = 0.5
"""The part of the memory that operands and results of a kernel may take; the rest is for what is fetched meanwhile."""


def streamed(
    program: Program,
    device: str | Device | Target,
    memory: int | str | None = None,
    path: Path | None = None,
) -> Path:
    """A path on which a program runs on one device piece by piece, while values that a piece does not need lie elsewhere.

    Plan it for the place where arguments and results are to lie, most often the processor:

        path = pcp.streamed(program, "cuda:0", "8GiB")
        plan = pcp.plan(program, "cpu:0", path=path)

    Weights are copied to the device for the pieces that read them. Activations that do not fit are copied back until their
    gradients are computed. Which values make room, and when, is known before the first call. Copies go on while pieces run.

    Arguments:
        program: as the user wrote it.
        device: where all operations run, or a target.
        memory: bytes that a call may take there, as of `pcp.plan`; None for what the device has.
        path: how they run, with which kernels and roundings: of a plan for such a device, as `Plan.path` or a file has it.
            Kernels that need more than half of the memory at once are left out. None runs the program as it is written.

    Raises:
        UnknownBackend, UnknownDevice: the device is not here.
        InvalidMemoryLimit: as `pcp.plan`.
        NotAPath: `path` is none.
        PathMismatch: it belongs to another program, another backend, or other options than those of the target.
    """
    expect_program(program, "pcp.streamed")
    target = Target.of(device)
    limit = memory_limit(target.device, memory)
    if path is None:
        path = Path.plain(program, dict(target.options), target.backend)
    expect_path(path)
    path.check_program(program)
    if path.backend != target.backend or target.options not in ((), path.options):
        raise PathMismatch(
            f"the path was made for backend {path.backend!r} with options {dict(path.options)}; {target} has "
            f"{dict(target.options)}: give a device of that backend, or plan for {named(target)}"
        )
    made = _in_pieces(path, program, target, limit)
    return replace(made.made_on("", ""), placement=Placement((), (named(target), limit)))


def _in_pieces(path: Path, program: Program, target: Target, limit: int) -> Path:
    """The path without kernels that take too much at once, as one that updates all parameters."""
    if not path.choices:
        return path
    sites = path.sites(program, target.device.kind)
    large = {
        key
        for key, site in sites.items()
        if sum(each.spec.bytes for each in (*site.region.arguments, *site.region.results)) > AT_ONCE * limit
    }
    for choice in path.choices:
        if choice.site in large:
            log.info(
                "kernel %s is left out, whose operands and results take more than half of %d bytes",
                choice.kernel,
                limit,
            )
    return replace(path, choices=tuple(choice for choice in path.choices if choice.site not in large))
