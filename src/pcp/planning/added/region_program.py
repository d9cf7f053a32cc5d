"""A kernel for one region as a Program: StableHLO text, python that is lowered once in a disposable child, or native code.

What a kernel becomes is kept beside it. From then on its python is not executed: what is measured, verified and run is that
text.
"""

import contextlib
import hashlib
import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pcp.backends import Device
from pcp.errors import PCPError
from pcp.ir import Builder, Program
from pcp.ir.bindings import InvalidProgram, Value, ir
from pcp.ir.program_file import write_atomically
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.tensor_types import spec_if_tensor
from pcp.kernels.cuda_source import CUDANotBuilt, Launch, compiled, launched
from pcp.kernels.features import lacking
from pcp.kernels.native import Build, NativeUnavailable, built_from, call_build, discard
from pcp.kernels.native.building import OUTSIDE
from pcp.kernels.native.permission import refusal
from pcp.kernels.region_candidate import NATIVE, RegionCandidate
from pcp.kernels.regions import region_of
from pcp.kernels.regions import region_program as alone
from pcp.planning.added.lowering import check
from pcp.planning.added.lowering_process import (
    SECONDS,
    KernelNotLowered,
    Starting,
    as_the_user,
    lowered_by_child,
)
from pcp.planning.measuring.hardware import versions
from pcp.tensor import Tensor


class NativeNotAllowed(PCPError):
    """A kernel of machine code, which nobody has allowed."""


def check_native(candidate: RegionCandidate, allowed: bool) -> None:
    """Let no native kernel pass that the user has not allowed.

    Raises:
        NativeNotAllowed: it is one.
    """
    if candidate.is_native and not allowed:
        raise NativeNotAllowed(
            f"{candidate.name} is written in {candidate.language} for {candidate.device} ({candidate.file}): it would be "
            "compiled here and run as you, with all that you may do, and nothing confines it; read it, and give "
            "--allow-native if you trust it"
        )


def check_device(candidate: RegionCandidate, device: Device) -> None:
    """Let no kernel pass that is for another device.

    Raises:
        KernelNotLowered: it is one.
    """
    if candidate.needs and device.kind not in candidate.needs:
        raise KernelNotLowered(f"it is for {candidate.device}, and this is {device}: name another --device")
    missing = lacking(candidate.needs, device.kind)
    if missing:
        raise KernelNotLowered(f"{missing}; write it for this device")


def region_program(
    candidate: RegionCandidate,
    digest: str,
    start: Starting = as_the_user,
    seconds: float = SECONDS,
) -> Program:
    """What a kernel becomes.

    Arguments:
        candidate: in its folder; what python becomes is kept beside that folder.
        digest: of the content of the folder.
        start: how the child is started that executes python.
        seconds: that the child may take.

    Raises:
        KernelNeedsHandler: it calls native code or python, by these names.
        KernelNotLowered: it cannot be lowered or built, or takes or returns something else than the region.
    """
    if digest not in _known:
        try:
            made = (
                _calling(candidate, digest, start, seconds)
                if candidate.language in NATIVE
                else _parsed(candidate, _text(candidate, digest, start, seconds))
            )
            _known[digest] = _checked(candidate, made)
        except KernelNotLowered as error:
            _known[digest] = error
    found = _known[digest]
    if isinstance(found, KernelNotLowered):
        raise found
    return found


_known: dict[str, Program | KernelNotLowered] = {}
"""By content; what failed once is not tried again."""


def discard_build(candidate: RegionCandidate, digest: str) -> None:
    """Remove what was built of a native kernel that is not kept."""
    _known.pop(digest, None)
    if candidate.language == "cpp":
        with contextlib.suppress(NativeUnavailable):
            discard(_build(candidate, digest))


def _build(candidate: RegionCandidate, digest: str) -> Build:
    return built_from(candidate.folder / candidate.file, f"{OUTSIDE}{digest[:16]}", digest)


def _calling(candidate: RegionCandidate, digest: str, start: Starting, seconds: float) -> Program:
    """A program that calls the handler of a native kernel, or launches it."""
    assert candidate.function is not None
    handler, name = candidate.function, f"{OUTSIDE}{digest[:16]}"
    reason = refusal(name)
    if reason:
        raise KernelNotLowered(f"{candidate.name} is native code, and {reason}")
    if candidate.language == "cuda":
        assert candidate.launch is not None
        ptx = _kept(candidate, f"{digest}.ptx", lambda: _by_nvrtc(candidate))
        return _launching(candidate, handler, ptx, candidate.launch)
    if candidate.language == "triton":
        return _in_triton(candidate, digest, start, seconds)
    try:
        build = _build(candidate, digest)
    except NativeUnavailable as error:
        raise KernelNotLowered(f"{candidate.name}: {error}") from None
    region = candidate.region
    results = [entry.spec for entry in region.results]

    def emit(builder: Builder, arguments: Sequence[Value]) -> list[Value]:
        made = call_build(build, handler, [Tensor(each, builder) for each in arguments], results)
        return [each.value for each in made]

    module = region.module()  # its values do not outlive it
    return alone(list(entry_block(module).arguments), emit)


def _by_nvrtc(candidate: RegionCandidate) -> str:
    try:
        return compiled(candidate.folder / candidate.file)
    except CUDANotBuilt as error:
        raise KernelNotLowered(f"{candidate.name}: {error}") from None


def _in_triton(candidate: RegionCandidate, digest: str, start: Starting, seconds: float) -> Program:
    """A program that launches a kernel in Triton's own language, which is compiled once, in the child."""
    results = [entry.spec for entry in candidate.region.results]
    asked = {"results": results, "capability": candidate.capability}

    def made() -> str:
        if importlib.util.find_spec("triton") is None:
            raise KernelNotLowered(
                f"{candidate.name} is written in Triton, which is not here; install it (pip install triton, for Linux; PyTorch "
                "for CUDA brings it)"
            )
        return _by_child(candidate, {}, start, seconds, asked)

    text = _kept(candidate, f"{digest}.json", made)
    try:
        found = json.loads(text)
        x, y, z = map(int, found["grid"])
        a, b, c = map(int, found["block"])
        scratch = tuple(map(int, found["scratch"]))
        launch = Launch((x, y, z), (a, b, c), int(found["shared_bytes"]), scratch)
        name, ptx = str(found["name"]), str(found["ptx"])
    except (ValueError, LookupError, TypeError):
        raise KernelNotLowered(
            f"{candidate.name}: what Triton made of it cannot be read; `pcp kernels remove {candidate.name}`, and add it again"
        ) from None
    return _launching(candidate, name, ptx, launch)


def _launching(candidate: RegionCandidate, name: str, ptx: str, launch: Launch) -> Program:
    """A program that launches a kernel of machine code for GPUs."""
    results = [entry.spec for entry in candidate.region.results]

    def emit(builder: Builder, arguments: Sequence[Value]) -> list[Value]:
        made = launched(name, ptx, launch, [Tensor(each, builder) for each in arguments], results)
        return [each.value for each in made]

    module = candidate.region.module()  # its values do not outlive it
    return alone(list(entry_block(module).arguments), emit)


def _parsed(candidate: RegionCandidate, text: str) -> Program:
    try:
        program = Program.parse(text)
    except InvalidProgram as error:
        raise KernelNotLowered(f"{candidate.name}: {error}") from None
    check(candidate.name, program, candidate.calls)
    return program


def _checked(candidate: RegionCandidate, program: Program) -> Program:
    wanted, found = _types(candidate.region), _types(program)
    if wanted != found:
        raise KernelNotLowered(
            f"{candidate.name} takes {found[0]} and returns {found[1]}; the region takes {wanted[0]} and returns {wanted[1]}"
        )
    return program


def _text(candidate: RegionCandidate, digest: str, start: Starting, seconds: float) -> str:
    place = candidate.folder / candidate.file
    if candidate.function is None:
        return place.read_text(encoding="utf-8")
    parts = (digest, candidate.device, versions())
    name = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    told = {"interpret": candidate.device == "cpu"} if candidate.language == "pallas" else {}
    return _kept(candidate, f"{name}.mlir", lambda: _by_child(candidate, told, start, seconds))


def _by_child(
    candidate: RegionCandidate,
    told: Mapping[str, Any],
    start: Starting,
    seconds: float,
    triton: Mapping[str, Any] | None = None,
) -> str:
    assert candidate.function is not None
    return lowered_by_child(
        candidate.name,
        "its region",
        candidate.folder / candidate.file,
        candidate.function,
        told,
        [entry.spec for entry in candidate.region.arguments],
        candidate.device,
        start,
        seconds,
        triton,
    )


def _kept(candidate: RegionCandidate, name: str, make: Callable[[], str]) -> str:
    """What a kernel became, from the folder beside it; made where it is not there yet."""
    kept = candidate.folder.parent / "lowered" / name
    with contextlib.suppress(OSError):
        return kept.read_text(encoding="utf-8")
    text = make()
    with contextlib.suppress(OSError):  # it is made again
        kept.parent.mkdir(exist_ok=True)
        write_atomically(kept, text.encode())
    return text


def _types(program: Program) -> tuple[str, str]:
    return (
        ", ".join(str(entry.spec) for entry in program.arguments) or "nothing",
        ", ".join(str(entry.spec) for entry in program.results),
    )


def is_region(candidate: RegionCandidate, op: ir.Operation) -> bool:
    """Whether an operation is what a kernel computes: the same operation, of the same shapes and attributes."""
    if [spec_if_tensor(each.type) for each in op.results] != [each.spec for each in candidate.region.results]:
        return False
    return region_of(op).digest == candidate.region.digest
