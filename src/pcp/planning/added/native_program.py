"""A kernel of machine code as a Program that calls it: built or compiled here, where the user allows it."""

import contextlib
import importlib.util
import json
from collections.abc import Callable, Sequence

from pcp.backends import Device
from pcp.errors import PCPError
from pcp.ir import Builder, Program, TensorSpec
from pcp.ir.bindings import Value
from pcp.ir.toolkit.functions import entry_block
from pcp.kernels.candidate import Candidate
from pcp.kernels.cuda_source import CUDANotBuilt, Launch, compiled, launched
from pcp.kernels.features import lacking
from pcp.kernels.native import Build, NativeUnavailable, built_from, call_build, discard
from pcp.kernels.native.building import OUTSIDE
from pcp.kernels.native.permission import refusal
from pcp.kernels.regions import region_program
from pcp.planning.added.lowering_process import KernelNotLowered, Starting, kept, lowered_by_child
from pcp.tensor import Tensor

Call = Callable[[Sequence[Tensor], Sequence[TensorSpec]], Sequence[Tensor]]
"""From operands and specs of the results to those."""


class NativeNotAllowed(PCPError):
    """A kernel of machine code, which nobody has allowed."""


def check_native(candidate: Candidate, allowed: bool) -> None:
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


def check_device(candidate: Candidate, device: Device) -> None:
    """Let no kernel pass that is for another device.

    Raises:
        KernelNotLowered: it is one.
    """
    if candidate.needs and device.kind not in candidate.needs:
        raise KernelNotLowered(f"it is for {candidate.device}, and this is {device}: name another --device")
    missing = lacking(candidate.needs, device.kind)
    if missing:
        raise KernelNotLowered(f"{missing}; write it for this device")


def discard_build(candidate: Candidate, digest: str) -> None:
    """Remove what was built of a kernel in C++."""
    if candidate.language == "cpp":
        with contextlib.suppress(NativeUnavailable):
            discard(_build(candidate, digest))


def native_program(candidate: Candidate, digest: str, start: Starting, seconds: float) -> Program:
    """A program that calls the handler of a native kernel, or launches it.

    Arguments:
        digest, start, seconds: as of `lowered`.

    Raises:
        KernelNotLowered: native code is not allowed in this process, or it cannot be built.
    """
    reason = refusal(f"{OUTSIDE}{digest[:16]}")
    if reason:
        raise KernelNotLowered(f"{candidate.name} is native code, and {reason}")
    make = {"cpp": _in_cpp, "cuda": _in_cuda, "triton": _in_triton}[candidate.language]
    try:
        emit_call = make(candidate, digest, start, seconds)
    except (NativeUnavailable, CUDANotBuilt) as error:
        raise KernelNotLowered(f"{candidate.name}: {error}") from None
    region = candidate.problems[0].reference()
    results = [entry.spec for entry in region.results]

    def emit(builder: Builder, arguments: Sequence[Value]) -> list[Value]:
        return [each.value for each in emit_call([Tensor(each, builder) for each in arguments], results)]

    module = region.module()  # its values do not outlive it
    return region_program(list(entry_block(module).arguments), emit)


def _build(candidate: Candidate, digest: str) -> Build:
    return built_from(candidate.folder / candidate.file, f"{OUTSIDE}{digest[:16]}", digest)


def _in_cpp(candidate: Candidate, digest: str, _: Starting, __: float) -> Call:
    build = _build(candidate, digest)
    return lambda operands, results: call_build(build, str(candidate.function), operands, results)


def _in_cuda(candidate: Candidate, digest: str, _: Starting, __: float) -> Call:
    ptx = kept(candidate, f"{digest}.ptx", lambda: compiled(candidate.folder / candidate.file))
    assert candidate.launch is not None
    return _launching(str(candidate.function), ptx, candidate.launch)


def _in_triton(candidate: Candidate, digest: str, start: Starting, seconds: float) -> Call:
    """Triton's own language, which is compiled once, in the child."""

    def lowered() -> str:
        if importlib.util.find_spec("triton") is None:
            raise KernelNotLowered(
                f"{candidate.name} is written in Triton, which is not here; install it (pip install triton, for Linux; PyTorch "
                "for CUDA brings it)"
            )
        return lowered_by_child(candidate, candidate.problems[0], start, seconds)

    text = kept(candidate, f"{digest}.json", lowered)
    try:
        description = json.loads(text)
        x, y, z = map(int, description["grid"])
        a, b, c = map(int, description["block"])
        scratch = tuple(map(int, description["scratch"]))
        launch = Launch((x, y, z), (a, b, c), int(description["shared_bytes"]), scratch)
        return _launching(str(description["name"]), str(description["ptx"]), launch)
    except (ValueError, LookupError, TypeError):
        raise KernelNotLowered(
            f"{candidate.name}: what Triton made of it cannot be read; `pcp kernels remove {candidate.name}`, and add it again"
        ) from None


def _launching(name: str, ptx: str, launch: Launch) -> Call:
    return lambda operands, results: launched(name, ptx, launch, operands, results)
