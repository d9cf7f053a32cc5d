"""The plan of a training step: as it is written, or the fastest within a tolerance."""

import itertools
import logging
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from pcp.ir import Program
from pcp.ir.tree import map_tree
from pcp.kernels import UnknownKernel
from pcp.planning import Path, PathMismatch, Plan, plan
from pcp.planning.search.evidence import Progress
from pcp.planning.search.strategy import Strategy

log = logging.getLogger("pcp.training.planned_step")


def planned_step(
    step: Program,
    device: str,
    tolerance: float,
    seconds: float,
    stored: Path | None = None,
    progress: Callable[[Progress], object] | None = None,
    example: Callable[[], Sequence[Any]] | None = None,
    memory: str = "",
    over: tuple[str, str | None] | None = None,
) -> Plan:
    """Plan a training step.

    Arguments:
        tolerance: how far loss, moments and updates may be from exact ones, relative to their norm; 0 runs the step as it is
            written.
        seconds: that may be spent on measurements; what is known already takes none.
        stored: the path that a run followed before, which is followed again where that can be done exactly.
        example: gives the arguments of a call that is measured and judged, if one is; None takes random ones.
        memory: bytes that a call may take, as `40GiB`; empty for what the device has.
        over: the devices that compute the step together, and the layout, as of `pcp.plan`; None for one device.

    Raises:
        ToleranceUnreachable: no path is within the tolerance.
        InvalidMemoryLimit, OutOfMemory, UnknownDevice, CompilationFailed: as `pcp.plan`.
    """
    if over is not None:
        return plan(step, memory=memory or None, devices=over[0], layout=over[1])
    if stored is not None and (tolerance or memory):
        try:
            return plan(step, device=device, path=stored)
        except (PathMismatch, UnknownKernel) as error:
            log.warning("the path of the checkpoint is not used: %s; PCP looks for another one", error)
    arguments = example() if tolerance and example is not None else None
    return plan(
        step,
        device=device,
        tolerance=tolerance or None,
        memory=memory or None,
        budget=seconds,
        progress=progress,
        example=arguments,
    )


def warm_example(
    step: Program,
    device: str,
    state: Any,
    batches: Iterator[Any],
    memory: str = "",
    held: tuple[Any, ...] = (),
) -> Sequence[Any]:
    """What a run's own step is judged on: its state after a few steps as they are written, and the batch after those.

    In the first steps a moment is what one gradient gave, and an update is mostly the sign of it, where rounding is all that
    decides small elements.

    Arguments:
        state: of a run, which stays as it is.
        batches: that it trains on from there.
        memory: bytes that a call may take; empty for what the device has.
        held: what the step takes before its state, and leaves as it is.
    """
    plain = plan(step, device=device, memory=memory or None)
    plain = plain.bind(*held) if held else plain
    for batch in itertools.islice(batches, Strategy().warm_calls):
        state, _ = plain.run(state, batch)
    return *held, map_tree(np.asarray, state), next(batches)


def describe_path(planned: Plan) -> str:
    """What was chosen, in one line for people."""
    path, row = planned.path, planned.measurement
    if path.is_plain and planned.tolerance is None:
        return f"the step runs as it is written: {planned.fit}"
    if path.is_plain:
        return "the step runs as it is written: nothing faster is known within the tolerance"
    done = [f"other kernels at {len(path.choices)} places"] * bool(path.choices)
    line = f"path {path.digest[:12]}: {', '.join([*done, *([str(planned.fit)] if planned.fit else [])])}"
    if row is None or not row.seconds or not row.plain_seconds:
        return line
    error = "" if row.error is None else f", error {row.error:.1e}"
    ratio = statistics.median(row.seconds) / statistics.median(row.plain_seconds)
    return f"{line}, {ratio:.2f} of the plain time{error}"
