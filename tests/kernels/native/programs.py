"""Programs with native kernels in them."""

from typing import Any

import numpy as np

import pcp
from pcp import kernels, nn
from pcp.ir import DType, Program, TensorSpec
from pcp.kernels.native import LIBRARIES, native_call
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared
from pcp.rewrite.raising import raised

LIBRARY = LIBRARIES["normalisation"]


def normed(rows: int = 40, width: int = 77, norm: str = "layer_norm") -> Program:
    """A norm and its gradient; a RMS norm has no bias."""
    x, vector = pcp.spec((rows, width), "f32"), pcp.spec((width,), "f32")
    if norm == "rms_norm":
        loss = pcp.trace(lambda x, s, g: (nn.rms_norm(x, s) * g).sum(), x, vector, x)
        return pcp.value_and_grad(raised(loss), wrt=(0, 1))
    loss = pcp.trace(lambda x, s, b, g: (nn.layer_norm(x, s, b) * g).sum(), x, vector, vector, x)
    return pcp.value_and_grad(raised(loss), wrt=(0, 1, 2))


def native_path(program: Program) -> Path:
    """The path that computes everything by native kernels for which there is one."""
    found = kernels.sites_of(prepared(program), "cpu")
    native = [site for site in found if f"{site.family}.native" in site.kernels]
    chosen = {site.key: kernels.kernel_named(f"{site.family}.native") for site in kernels.cover(native)}
    return Path.of(program, chosen)


def arguments_of(program: Program, seed: int = 0) -> list[Any]:
    """Normal numbers."""
    random = np.random.default_rng(seed)
    return [random.normal(size=entry.spec.shape).astype(np.float32) for entry in program.arguments]


def calling(
    handler: str,
    takes: list[tuple[int, ...]],
    makes: list[tuple[int, ...]],
    types: tuple[str, str] = ("f32", "f32"),
    **attributes: Any,
) -> Program:
    """A program that calls a handler on arrays of any shapes; `types` are those of what it takes and makes."""
    library = next(each for each in LIBRARIES.values() if handler in each.handlers)
    results = [TensorSpec(shape, DType(types[1])) for shape in makes]
    return pcp.trace(
        lambda *arrays: tuple(native_call(library, handler, arrays, results, attributes)),
        *(pcp.spec(shape, types[0]) for shape in takes),
    )
