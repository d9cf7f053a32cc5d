"""Options of XLA's compiler: by which programs run the fastest on a GPU, or are ready soonest, or compute what is written."""

from pcp.backends.base import CompileOptions
from pcp.backends.full_precision import (
    completes_products,
    is_of_full_precision,
    multiplies_eight_bits,
    with_full_precision,
)
from pcp.backends.target import Option
from pcp.ir import Program

QUICK: dict[str, CompileOptions] = {
    "cpu": {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True},
    "cuda": {"xla_gpu_autotune_level": 0},
}
AS_WRITTEN: dict[str, CompileOptions] = {"cuda": {"xla_allow_excess_precision": False}}
"""Without this, XLA leaves out conversions to fewer bits and back, which a program is written with for a reason."""
_BY_LIBRARIES: dict[str, Option] = {"xla_gpu_enable_triton_gemm": False}
"""XLA's own products of full precision are no faster than cuBLAS's on a GPU, and trying them takes most of compiling: 48 of
59 s for GPT-2's step on an H200, whose time they did not change. Of eight bits it has none, but would multiply what they are
widened to."""
_COMPLETED: dict[str, Option] = {
    **_BY_LIBRARIES,
    "xla_gpu_enable_cublaslt": True,
    "xla_gpu_dot_merger_threshold_mb": 0,
}
"""A bias in bfloat16 is added by cuBLASLt, and products that the program has in parts stay so; XLA would join them and cut the
result again."""


def suiting(program: Program) -> CompileOptions:
    """Options by which a program runs the fastest on a GPU, or as fast and is compiled sooner."""
    program = with_full_precision(program)
    by_libraries = is_of_full_precision(program) or multiplies_eight_bits(program)
    return (_BY_LIBRARIES if by_libraries else {}) | (_COMPLETED if completes_products(program) else {})
