"""CUDA C++ from outside: compiled to PTX by NVRTC, or by nvcc where that is not here, and launched by XLA."""

import ctypes
import ctypes.util
import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcp.errors import PCPError
from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.tensor import Tensor, current_builder

TARGET = "__gpu$xla.gpu.ptx"
ARCHITECTURE = "compute_80"
"""What PTX is made for; the driver makes machine code of it for that GPU and all later ones."""
_SECONDS = 120.0
_LONGEST_WORDS = 600
_PACKAGES = ("nvidia.cuda_nvrtc", "nvidia.cu13")


class CUDANotBuilt(PCPError):
    """CUDA C++ that no compiler here takes, or a machine without one."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How a kernel is launched.

    Arguments:
        grid: blocks along each of three axes.
        block: threads of a block along each of three axes.
        shared_bytes: memory that the threads of a block share, beside what the source declares.
        scratch: bytes of arrays that the kernel takes behind its results, for itself.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    scratch: tuple[int, ...] = ()


def compiled(source: Path) -> str:
    """The PTX of a file.

    Raises:
        CUDANotBuilt: there is neither NVRTC nor nvcc, or the compiler refuses it.
    """
    library = _nvrtc()
    if library is not None:
        return _by_nvrtc(library, source)
    command = shutil.which("nvcc")
    if command is None:
        raise CUDANotBuilt(
            f"{source.name} cannot be compiled: there is neither NVRTC nor nvcc; install JAX for CUDA, which brings NVRTC "
            "(pip install 'jax[cuda13]'), or NVIDIA's CUDA toolkit"
        )
    return _by_nvcc(command, source)


def launched(
    name: str, ptx: str, launch: Launch, operands: Sequence[Tensor], results: Sequence[TensorSpec]
) -> list[Tensor]:
    """Launch a kernel on pointers to operands, then to results.

    Arguments:
        name: of the kernel in the PTX.
    """
    builder = current_builder()
    with builder.location:
        number = ir.IntegerType.get_signless(32)
        sizes = [
            (f"{what}_{axis}", size)
            for what, each in (("grid", launch.grid), ("block", launch.block))
            for axis, size in zip("xyz", each, strict=True)
        ]
        outputs = [*results, *(TensorSpec((size,), DType.u8) for size in launch.scratch)]
        places = range(len(operands), len(operands) + len(outputs))
        config: dict[str, ir.Attribute] = {
            "name": ir.StringAttr.get(name),
            "kernel_type": ir.StringAttr.get("ptx"),
            "kernel_data": ir.StringAttr.get(ptx),
            "shared_mem_bytes": ir.IntegerAttr.get(number, launch.shared_bytes),
            "output_indices": ir.ArrayAttr.get([ir.IntegerAttr.get(number, place) for place in places]),
        }
        config |= {key: ir.IntegerAttr.get(number, size) for key, size in sizes}
        op = builder.emit(
            "stablehlo.custom_call",
            [operand.value for operand in operands],
            outputs,
            {
                "call_target_name": TARGET,
                "backend_config": "",
                "mhlo.backend_config": ir.DictAttr.get(config),
                "operand_layouts": _layouts([operand.spec for operand in operands]),
                "result_layouts": _layouts(outputs),
            },
        )
    return [Tensor(value, builder) for value in list(op.results)[: len(results)]]


def _layouts(specs: Sequence[TensorSpec]) -> ir.Attribute:
    """Row by row."""
    each = (
        f"dense<{list(reversed(range(len(spec.shape))))}> : tensor<{len(spec.shape)}xindex>"
        if spec.shape
        else "dense<> : tensor<0xindex>"
        for spec in specs
    )
    return ir.Attribute.parse(f"[{', '.join(each)}]")


def _nvrtc() -> Any | None:
    for place in _places():
        try:
            return ctypes.CDLL(place)
        except OSError:
            continue
    return None


def _places() -> Iterator[str]:
    """Files that NVRTC may be: of the packages that JAX for CUDA brings, then of the system."""
    for package in _PACKAGES:
        try:
            spec = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            continue
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            yield from map(str, sorted(Path(folder, "lib").glob("libnvrtc.so*")))
    system = ctypes.util.find_library("nvrtc")
    if system is not None:
        yield system


def _by_nvrtc(library: Any, source: Path) -> str:
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    text = source.read_bytes()
    library.nvrtcCreateProgram(ctypes.byref(program), text, source.name.encode(), 0, None, None)
    options = [f"--gpu-architecture={ARCHITECTURE}".encode(), b"--std=c++17"]
    try:
        code = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        kind = "ProgramLog" if code else "PTX"
        getattr(library, f"nvrtcGet{kind}Size")(program, ctypes.byref(size))
        output = ctypes.create_string_buffer(max(1, size.value))
        getattr(library, f"nvrtcGet{kind}")(program, output)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
    words = output.value.decode(errors="replace")
    if code:
        raise CUDANotBuilt(f"NVRTC does not build {source.name}: {_short(words)}; mend it")
    return words


def _by_nvcc(command: str, source: Path) -> str:
    with tempfile.TemporaryDirectory() as folder:
        ptx = Path(folder) / "kernel.ptx"
        arguments = [command, "-ptx", f"-arch={ARCHITECTURE}", "-std=c++17", "-o", str(ptx), str(source)]
        try:
            said = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=_SECONDS)
        except (OSError, subprocess.SubprocessError) as error:
            raise CUDANotBuilt(f"nvcc does not run: {error}") from None
        if said.returncode or not ptx.exists():
            raise CUDANotBuilt(f"nvcc does not build {source.name}: {_short(said.stderr)}; mend it")
        return ptx.read_text()


def _short(words: str) -> str:
    return " ".join(words.split())[:_LONGEST_WORDS]
