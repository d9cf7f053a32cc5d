"""A machine that is the same everywhere: facts depend on the code alone, and on nothing that a processor or a compiler has.

A processor with every instruction set that kernels ask for and all native libraries, which are named and never built, or a bare
one without any; and a GPU of the generation that kernels are written for. The devices are those of `tests.replay.null_backend`.
What JAX lowers stays one call by its name: its text is another in each version of JAX.
"""

import contextlib
import functools
import hashlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pcp
from pcp.backends import registry
from pcp.ir import TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.types import dtype_of
from pcp.kernels import features, jax_lowering
from pcp.kernels.native import Build, building
from pcp.kernels.native.calling import TYPED
from pcp.tensor import Tensor, current_builder
from tests.replay.null_backend import NullBackend

PROCESSOR = frozenset(
    {"cpu", "sse4_2", "avx", "f16c", "fma", "avx2", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
    | {"avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8"}
)
BARE = frozenset({"cpu"})
GPU = frozenset({"cuda", "sm_70", "sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90"})
_LEFT_ALONE = ("PCP_MASK_FEATURES", "PCP_NATIVE_KERNELS", "PCP_MEMORY_LIMIT")


@contextlib.contextmanager
def machine(*, bare: bool = False) -> Iterator[None]:
    """This machine for as long as it is asked for.

    Arguments:
        bare: whether its processor has no instruction sets beside the oldest, and there is no compiler and no library.
    """
    found = {"cpu": BARE if bare else PROCESSOR, "cuda": GPU}

    def outcome(name: str, *_: object) -> Build | str:
        if bare:
            return "there is no C++ compiler"
        digest = hashlib.sha256(name.encode()).hexdigest()[:32]
        return Build(name, digest, Path(f"{digest}.so"), "", "", "", (), (), "")

    with pytest.MonkeyPatch.context() as patch:
        for variable in _LEFT_ALONE:
            patch.delenv(variable, raising=False)
        patch.setenv("PCP_DEVICE", "null:cpu:0")
        locations = {name: f"{NullBackend.__module__}:{kind}" for name, kind in _BACKENDS.items()}
        patch.setattr(registry, "_LOCATIONS", {**registry._LOCATIONS, **locations})
        patch.setattr(features, "_found", lambda platform: found.get(platform, frozenset({platform})))
        patch.setattr(features, "memory_of", lambda _: 80 << 30)
        patch.setattr(building, "_outcome", outcome)
        patch.setattr(jax_lowering, "lowered_program", lowered)
        yield


@functools.cache
def lowered(function: Callable[..., Any], specs: tuple[TensorSpec, ...], platform: str) -> pcp.Program:
    """A call that stands for what JAX makes of a function: of its name and all that it was made with."""
    import jax

    with jax.enable_x64(jax_lowering.has_wide(specs)):
        shapes = [jax.ShapeDtypeStruct(spec.shape, spec.dtype.numpy) for spec in specs]
        found = jax.eval_shape(function, *shapes)
    results = [
        TensorSpec(tuple(each.shape), dtype_of(each.dtype))
        for each in (found if isinstance(found, tuple | list) else [found])
    ]
    made_with = re.sub(r" at 0x\w+", "", repr(function))
    name = f"pcp.lowered.{platform}.{type(function).__qualname__}@{hashlib.sha256(made_with.encode()).hexdigest()}"

    def calls(*operands: Tensor) -> tuple[Tensor, ...]:
        builder = current_builder()
        attributes = {
            "call_target_name": name,
            "api_version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), TYPED),
        }
        op = builder.emit("stablehlo.custom_call", [each.value for each in operands], results, attributes)
        return tuple(Tensor(value, builder) for value in op.results)

    return pcp.trace(calls, *specs)


_BACKENDS = {"null": "NullBackend", "other": "OtherBackend"}


@contextlib.contextmanager
def without_egglog() -> Iterator[None]:
    """Equal programs are not looked for: some machines have what finds them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "egglog", None)
        yield
