"""Runs whose programs the owner compiled ahead, and Workers that take nothing else (`pcp worker --artifact-only`).

Such a Worker compiles nothing and has no compiler. It runs machine code, which nobody can verify: so only what the run's owner
signed, in a process that may not start another.
"""

from collections.abc import Mapping
from dataclasses import replace

from pcp.backends import Target
from pcp.distributed.job import Job
from pcp.errors import PCPError
from pcp.planning.artifact import CompiledArtifact
from pcp.planning.compiled import Compiled


class ArtifactsMissing(PCPError):
    """A Worker takes compiled artifacts only, and the run has none for its device."""


class ChipUnclear(PCPError):
    """A run has artifacts for several chips of a device's kind, and the Worker did not say which it has."""


class ArtifactForeign(PCPError):
    """An artifact that was compiled for another chip than the run says."""


class NotForArtifacts(PCPError):
    """A device for which nothing is compiled ahead, or a chip whose code runs only where it was compiled."""


def chips_of(setting: str) -> tuple[str, ...]:
    """The chips that a run's setting `artifacts` names.

    Arguments:
        setting: `llvm-cpu:generic,vulkan`; empty for none.

    Raises:
        NotForArtifacts: one of them has no fixed code.
        InvalidTarget: IREE has no such target.
    """
    from pcp.backends.iree.chips import Chip

    named = [each.strip() for each in setting.split(",") if each.strip()]
    for name in named:
        if name in ("llvm-cpu", "llvm-cpu:host"):
            raise NotForArtifacts(
                f"artifacts names {name!r}, whose code suits the processor that compiles it; give llvm-cpu:generic, which runs "
                "on every processor of the same architecture"
            )
    return tuple(dict.fromkeys(str(Chip.of(name)) for name in named))


def check_device(device: str) -> None:
    """Make sure that a device can run artifacts at all.

    Raises:
        NotForArtifacts: it is not one of IREE's.
        UnknownBackend: IREE's runtime is not installed.
        UnknownDevice: there is no such device.
    """
    target = Target.of(device)
    if target.backend != "iree":
        raise NotForArtifacts(
            f"--artifact-only needs a device that runs compiled artifacts, and {device} does not; give one of IREE's: "
            "--device iree:llvm-cpu, iree:vulkan, iree:cuda or iree:rocm"
        )


def with_artifacts_for(job: Job, device: str, chip: str) -> Job:
    """The run as a Worker sees it that takes artifacts only: those of its chip stand for the programs, and for all others.

    Arguments:
        device: where the Worker computes.
        chip: which the Worker says that it has; empty for the only one of the device's kind.

    Raises:
        ArtifactsMissing: the run has none for the device.
        ChipUnclear: it has some for several chips of that kind.
    """
    kind = _kind(chip) if chip else Target.of(device).platform
    fit = sorted(each for each in job.artifacts if each == chip or (not chip and _kind(each) == kind))
    if not fit:
        there = ", ".join(sorted(job.artifacts)) or "none at all"
        raise ArtifactsMissing(
            f"this worker takes compiled artifacts only, and the run has none for {chip or device}; it has: {there}. Ask the "
            f'owner to begin a run with artifacts = "{chip or _example(kind)}", or leave out --artifact-only'
        )
    if len(fit) > 1:
        raise ChipUnclear(
            f"the run has artifacts for {', '.join(fit)}, and this worker did not say which of them is {device}; give one: "
            f"--artifact-only {fit[0]}"
        )
    return replace(job, programs=job.artifacts[fit[0]], artifacts={fit[0]: job.artifacts[fit[0]]})


def loaded(artifacts: Mapping[str, bytes], chip: str, device: str) -> dict[str, Compiled]:
    """What a Worker runs: artifacts by the names of the run's programs, whose digests were checked, ready to be called.

    Raises:
        InvalidArtifact: one is damaged, or not of the device's kind.
        ArtifactForeign: one was compiled for another chip than the run says.
        OutOfMemory: one does not fit in the device's memory.
    """
    compiled = {}
    for name, content in artifacts.items():
        artifact = CompiledArtifact.from_bytes(content, f"the artifact {name!r}")
        if artifact.chip != chip:
            raise ArtifactForeign(
                f"the artifact {name!r} was compiled for {artifact.chip}, and the run lists it for {chip}; the owner must "
                "begin the run anew"
            )
        compiled[name] = artifact.on(device)
    return compiled


def _kind(chip: str) -> str:
    return chip.partition(":")[0]


def _example(kind: str) -> str:
    return "llvm-cpu:generic" if kind == "llvm-cpu" else kind
