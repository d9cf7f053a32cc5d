"""Dropout by Triton, interpreted: the same numbers are dropped as by the program, whose key it is given."""

from typing import Any

import numpy as np
import pytest

import pcp
from pcp import nn
from pcp.ir.toolkit.walking import named_operations
from pcp.kernels import apply_kernels, kernel_named, sites_of
from pcp.kernels.dropout.native import Draw
from pcp.kernels.dropout.triton import Dropout
from pcp.ops.dropping import dropped
from pcp.planning.paths.preparation import prepared
from tests.execution import run
from tests.kernels.gpu import lowers_for_gpus
from tests.kernels.gpu.emulated import interpreted

RNG = np.random.default_rng()
pytestmark = pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")


def draw_of(program: pcp.Program) -> Draw:
    module = program.module()
    (op,) = named_operations(module.operation, "stablehlo.composite")
    return Draw.of(op)


@pytest.mark.share(3, each="size")
@pytest.mark.parametrize(("rate", "divides"), [(0.1, True), (0.5, False), (0.9, True)])
@pytest.mark.parametrize("size", [128, 384, 3072])
def test_it_drops_what_the_program_drops(size: int, rate: float, divides: bool) -> None:
    x, key = RNG.normal(size=size).astype("f4"), pcp.random.key(int(RNG.integers(1 << 62)))
    program = pcp.trace(lambda x, k: dropped(x, k, rate, divides), x, key)
    plain = run(program, x, key)
    for rounded, error in ((False, 1e-6), (True, 4e-3)):
        (found,) = interpreted(Dropout(draw_of(program), rounded))(key, x)
        assert found.dtype.name == ("bfloat16" if rounded else "float32")
        np.testing.assert_array_equal(np.asarray(found == 0), plain == 0)
        np.testing.assert_allclose(np.asarray(found, "f4"), plain, rtol=error)


@lowers_for_gpus
def test_it_is_lowered_at_its_sites_forward_and_backward() -> None:
    """What reads and writes nothing but x, the cotangent and what they become: no mask, no random words."""

    def gradient(x: Any, key: Any) -> Any:
        return pcp.grad(lambda x: (nn.dropout(pcp.tanh(x), key, 0.1) ** 2).sum())(x)

    program = prepared(pcp.trace(gradient, pcp.spec((16, 384), "f32"), pcp.spec((2,), "u32")))
    sites = sites_of(program, "cpu")
    assert [site.family for site in sites] == ["dropout"] * 2
    for name in ("dropout.triton", "dropout.triton:bf16"):
        changed = apply_kernels(program, {site.key: kernel_named(name) for site in sites})
        assert changed.text.count("xla.gpu.triton") == 2
        main = changed.text.partition("func.func private @pcp.dropout")[0]
        assert "xi1>" not in main
        assert main.count("ui32>") <= 4 * 2 + 1


@pytest.mark.parametrize(
    ("shape", "dtype", "takes"), [((3, 128), "f32", True), ((3, 127), "f32", False), ((3, 128), "f64", False)]
)
def test_it_takes_whole_blocks_of_float32_alone(shape: tuple[int, ...], dtype: str, takes: bool) -> None:
    program = pcp.trace(lambda x, k: nn.dropout(x, k, 0.1), pcp.spec(shape, dtype), pcp.spec((2,), "u32"))
    module = program.module()
    (op,) = named_operations(module.operation, "stablehlo.composite")
    assert kernel_named("dropout.triton").applies(op) is takes
