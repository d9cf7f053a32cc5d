"""A kernel in Triton's own language as PTX, with how it is launched: what the child does that executes somebody else's file.

No GPU need be here: Triton brings the compiler and the assembler, which looks at what was made.
"""

import inspect
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pcp.errors import PCPError
from pcp.ir import TensorSpec

_SHARED_BYTES = {80: 163 << 10, 86: 99 << 10, 89: 99 << 10, 90: 227 << 10}
"""The most memory that threads of a block share on GPUs of these compute capabilities."""
_POINTERS = {
    "bool": "*u1",
    "i8": "*i8", "i16": "*i16", "i32": "*i32", "i64": "*i64",
    "u8": "*u8", "u16": "*u16", "u32": "*u32", "u64": "*u64",
    "bf16": "*bf16", "f16": "*fp16", "f32": "*fp32", "f64": "*fp64",
    "f8E4M3FN": "*fp8e4nv", "f8E5M2": "*fp8e5",
}  # fmt: skip
"""What Triton calls pointers to elements of a type."""
_ALIGNED = [["tt.divisibility", 16]]
"""XLA's arrays begin at multiples of more bytes; told, Triton reads several numbers at once."""
_PTX_VERSION = {90: 86}
_OLDER_PTX = 83
"""The least that have all that Triton writes, of CUDA 12.8 and 12.3: drivers refuse later versions than their own."""
_LEAST_SCRATCH = 128
_EXAMPLE = "grid = (625,), or a function of the constants, as grid = lambda meta: (triton.cdiv(160000, meta['BLOCK']),)"


class NotTriton(PCPError):
    """A file that holds no kernel in Triton, or not how it is launched."""


def compiled_kernel(
    module: Any,
    name: str,
    operands: Sequence[TensorSpec],
    results: Sequence[TensorSpec],
    capability: int,
    folder: Path,
) -> dict[str, Any]:
    """Compile a kernel.

    Arguments:
        module: with the kernel, `grid`, and `config` where one is needed.
        name: of the kernel.
        operands, results: that it takes pointers to, in this order.
        capability: of the GPU, of `candidate.CAPABILITIES`.
        folder: for Triton's own files.

    Returns:
        For JSON: `name` in `ptx`, `grid`, `block`, `shared_bytes`, and `scratch`, bytes of arrays that it takes behind those.

    Raises:
        NotTriton: the file does not say what it should.
        Exception: whatever Triton raises.
    """
    for variable in [
        each for each in os.environ if each.startswith("TRITON_") and not each.endswith("_PATH")
    ]:
        del os.environ[variable]
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")  # these are read when a kernel is compiled
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # which names the folder that the file happens to lie in
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = getattr(module, name, None)
    if not isinstance(kernel, triton.JITFunction):
        raise NotTriton(
            f"{name} is {_kind(kernel)}; expected a function below @triton.jit alone: block sizes stand in `config`, one "
            "choice of them"
        )
    config = getattr(module, "config", None) or triton.Config({})
    if not isinstance(config, triton.Config):
        raise NotTriton(f"config is {config!r}; expected as triton.Config({{'BLOCK': 256}}, num_warps=4)")
    if config.num_ctas != 1 or config.pre_hook is not None:
        raise NotTriton(
            "config has num_ctas or a pre_hook, which are not taken; expected block sizes, num_warps, num_stages"
        )
    constants = _constants(kernel, config.kwargs)
    pointers = [each for each in kernel.arg_names if each not in constants]
    specs = [*operands, *results]
    if len(pointers) != len(specs):
        raise NotTriton(
            f"{name} takes {len(pointers)} pointers ({', '.join(pointers) or 'none'}); expected {len(operands)} to the "
            f"region's operands, then {len(results)} to its results; sizes are constants: give them values in `config`"
        )
    grid = _grid(getattr(module, "grid", None), constants)
    signature = dict.fromkeys(kernel.arg_names, "constexpr")
    signature |= {each: _pointer(spec) for each, spec in zip(pointers, specs, strict=True)}
    places = [place for place, each in enumerate(kernel.arg_names) if each in pointers]
    source = ASTSource(kernel, signature, constants, {(place,): _ALIGNED for place in places})
    told = {
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
        "maxnreg": config.maxnreg,
        "ptx_version": _PTX_VERSION.get(capability, _OLDER_PTX),
        "enable_fp_fusion": True,
    }
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=told)
    facts = compiled.metadata
    if facts.shared > _SHARED_BYTES[capability]:
        raise NotTriton(
            f"its threads share {facts.shared} bytes, and a GPU of compute capability {capability / 10} has "
            f"{_SHARED_BYTES[capability]}; choose smaller blocks or a smaller num_stages"
        )
    ptx = compiled.asm["ptx"]
    scratch = [facts.global_scratch_size, getattr(facts, "profile_scratch_size", 0)]
    more = _parameters(ptx, facts.name) - len(specs)
    if not 0 <= more <= len(scratch):
        raise NotTriton(
            f"Triton {triton.__version__} made a kernel of {len(specs) + more} parameters for {len(specs)} arrays, which PCP "
            "cannot launch; install another version of Triton (3.6 and 3.9 are known)"
        )
    programs = grid[0] * grid[1] * grid[2]
    return {
        "name": facts.name,
        "ptx": ptx,
        "grid": grid,
        "block": [32 * facts.num_warps, 1, 1],
        "shared_bytes": facts.shared,
        "scratch": [max(_LEAST_SCRATCH, size * programs) for size in scratch[:more]],
    }


def said_by(error: Exception) -> str:
    """What an exception says, for people; of the compiler's, which repeat the source, the line and the reason."""
    node, reason, source = (getattr(error, name, None) for name in ("node", "error_message", "src"))
    number = getattr(node, "lineno", None)
    if reason and isinstance(source, str) and isinstance(number, int):
        line = source.split("\n")[number - 1].strip()
        return f"{type(error).__name__} at line {number} of the kernel, `{line}`: {reason}"
    return f"{type(error).__name__}: {error}"


def _constants(kernel: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    """The values of parameters that are constants: the configuration's, and defaults."""
    unknown = [each for each in config if each not in kernel.arg_names]
    if unknown:
        raise NotTriton(
            f"config gives {unknown[0]} a value, and the kernel takes {', '.join(kernel.arg_names)}"
        )
    constants = dict(config)
    for each in kernel.params:
        if each.name in constants:
            continue
        if each.default is not inspect.Parameter.empty:
            constants[each.name] = each.default
        elif each.is_constexpr:
            raise NotTriton(
                f"{each.name} is a tl.constexpr without a value; give it one: config = triton.Config({{'{each.name}': 256}})"
            )
    return constants


def _grid(grid: Any, constants: Mapping[str, Any]) -> list[int]:
    """How many programs there are along each of three axes."""
    shape = grid(constants) if callable(grid) else grid
    sizes = list(shape) if isinstance(shape, tuple | list) else [shape]
    if not 1 <= len(sizes) <= 3 or any(type(size) is not int or size < 1 for size in sizes):
        raise NotTriton(f"grid is {shape!r}; expected one to three positive integers: {_EXAMPLE}")
    return [*sizes, 1, 1][:3]


def _pointer(spec: TensorSpec) -> str:
    if spec.dtype not in _POINTERS:
        raise NotTriton(
            f"the region has an array of {spec.dtype}, which Triton has no pointers to; write it in another language"
        )
    return _POINTERS[spec.dtype]


def _parameters(ptx: str, name: str) -> int:
    entry = re.search(rf"\.entry\s+{re.escape(name)}\s*\((.*?)\)", ptx, re.DOTALL)
    return entry[1].count(".param") if entry is not None else -1


def _kind(value: object) -> str:
    return "not there" if value is None else f"of the type {type(value).__name__}"
