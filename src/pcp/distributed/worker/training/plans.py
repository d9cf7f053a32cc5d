"""From what a Worker was sent to what it calls: programs that are verified and compiled here, or artifacts of the owner."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from pcp.backends import Target
from pcp.distributed.job import Job
from pcp.distributed.round_arithmetic.replica import Runs
from pcp.distributed.verification import VerificationCancelled, admit
from pcp.distributed.worker.artifacts import loaded
from pcp.ir import Program
from pcp.planning import Plan, plan
from pcp.planning.compiled import Compiled
from pcp.planning.libraries import libraries_for
from pcp.planning.search.evidence import Progress
from pcp.training.planned_step import describe_path, planned_step

log = logging.getLogger("pcp.distributed.worker.training.trainer")

COMPILE_SECONDS = 600.0
MEMORY_BYTES = 16 << 30

Build = Callable[[Collection[str]], None]
"""Has native libraries built, by their names, before the step is planned; returns when that is done."""


def admitted(
    artifacts: Mapping[str, bytes],
    job: Job,
    device: str,
    cancelled: Callable[[], bool],
    plans: dict[str, Runs],
    only_artifacts: bool,
    build: Build,
) -> Mapping[str, Program]:
    """The programs of a run, and what calls them.

    Arguments:
        artifacts: programs, or artifacts, by name; their digests were checked.
        job: the run, narrowed to artifacts where only these are taken.
        device: where to compute.
        cancelled: asked again and again whether to give up.
        plans: receives what calls each.
        only_artifacts: whether nothing is compiled.
        build: asked for what the step may call, where a faster way to run it is searched for.

    Raises:
        ProgramRefused, VerificationCancelled: as `admit`.
        InvalidArtifact, ArtifactForeign, OutOfMemory: as `loaded`.
    """
    if only_artifacts:
        compiled = loaded(artifacts, next(iter(job.artifacts)), device)
        plans.update({name: _Ahead(each) for name, each in compiled.items()})
        return {name: each.program for name, each in compiled.items()}
    programs = admit(artifacts, device, MEMORY_BYTES, COMPILE_SECONDS, cancelled, job.sizes)
    if job.tolerance and "step" in programs:
        build(libraries_for(programs["step"], Target.of(device), job.tolerance))
    for name, program in programs.items():
        rare = _is_rare(name, programs)
        plans[name] = _Later(program, device) if rare else plan(program, device=device)
    return programs


def ready_on(device: str) -> Callable[[Any], Awaitable[None]]:
    """What waits until the step that leads to a loss is done, of steps that run on a device."""
    backend = Target.of(device).runner

    async def ready(loss: Any) -> None:
        backend.wait([loss])

    return ready


def planned_within(step: Program, job: Job, device: str, cancelled: Callable[[], bool]) -> Plan:
    """The step by the fastest way that is found within the tolerance of the run."""

    def look(_: Progress) -> None:
        if cancelled():
            raise VerificationCancelled("the worker was asked to stop while its step was planned")

    seconds = min(job.plan_seconds, COMPILE_SECONDS)
    planned = planned_step(step, device, job.tolerance, seconds, progress=look)
    log.info("%s", describe_path(planned))
    return planned


class _Later:
    """A program that is compiled when it is first run; that it can be was verified."""

    def __init__(self, program: Program, device: str) -> None:
        self._program, self._device = program, device
        self._plan: Plan | None = None

    def run(self, *arguments: Any) -> Any:
        """Its results."""
        if self._plan is None:
            self._plan = plan(self._program, device=self._device)
        return self._plan.run(*arguments)


class _Ahead:
    """A program that the owner compiled."""

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled

    def run(self, *arguments: Any) -> Any:
        """Its results."""
        return self._compiled.call(*arguments)


def _is_rare(name: str, programs: Mapping[str, Program]) -> bool:
    """Whether a program is only run after something was lost: `restart`, and `put` where fragments are mixed."""
    kind, _, fragment = name.partition(".")
    return kind == "restart" or (kind == "put" and f"mix.{fragment}" in programs)
