"""Norms of rows that no registers hold: found in group norms of images, interpreted beside float64, and lowered for a GPU."""

from typing import Any

import jax
import numpy as np
import pytest

import pcp
from pcp.kernels import features, sites_of
from pcp.kernels.normalisation.triton import Norm
from pcp.kernels.normalisation.wide import Wide
from pcp.planning.paths.preparation import prepared
from pcp.rewrite.raising import raised
from tests.kernels.gpu import lowers_for_gpus
from tests.kernels.gpu.emulated import interpreted


@pytest.mark.parametrize("centred", [True, False])
def test_it_computes_the_norm_and_its_gradient(centred: bool) -> None:
    rng = np.random.default_rng(1)
    shape = 3, 24_576
    x, g, earlier = (rng.normal(2, 3, shape).astype(np.float32) for _ in range(3))
    wide = np.float64(x) - (np.float64(x).mean(1, keepdims=True) if centred else 0)
    scale = 1 / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-5)
    normed = wide * scale
    of_x = g - normed * (g * normed).mean(1, keepdims=True) - (g.mean(1, keepdims=True) if centred else 0)
    for rounded, error in ((False, 1e-6), (True, 3e-3)):
        norm = Norm(1e-5, centred, rounded)
        for operands, exact in (
            ((x,), normed),
            ((x, g), of_x * scale),
            ((x, g, earlier), of_x * scale + earlier),
        ):
            (found,) = interpreted(Wide(norm))(*operands)
            assert found.dtype.name == ("bfloat16" if rounded else "float32")
            assert np.linalg.norm(np.float64(found) - exact) < error * np.linalg.norm(exact)


def test_what_is_no_number_reaches_its_row_alone() -> None:
    x = np.random.default_rng(0).normal(size=(3, 20_480)).astype(np.float32)
    x[1, 9] = np.nan
    (found,) = interpreted(Wide(Norm(1e-5, True)))(x)
    assert np.isnan(found[1]).all()
    assert np.isfinite(found[::2]).all()


@pytest.mark.parametrize(
    ("shape", "takes"),
    [((2, 24_576), True), ((2, 16_384), False), ((2, 24_577), False), ((2, 20_480, 2), False)],
)
def test_it_takes_what_is_too_wide_for_registers(
    shape: tuple[int, ...], takes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "_found", lambda platform: frozenset({platform, "sm_80"}))

    def loss(x: Any, g: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return (centred / pcp.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * g).sum()

    program = prepared(pcp.value_and_grad(raised(pcp.trace(loss, *[pcp.spec(shape, "f32")] * 2)), wrt=0))
    names = [name for site in sites_of(program, "cuda") for name in site.kernels]
    for name in ("normalisation.triton_wide:bf16", "normalisation_gradient.triton_wide"):
        assert (name in names) is takes


@lowers_for_gpus
@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
def test_triton_takes_it() -> None:
    x = jax.ShapeDtypeStruct((3, 24_576), np.float32)
    for count in (1, 2, 3):
        kernel = Wide(Norm(1e-5, True, rounded=True))
        jax.jit(lambda *each, kernel=kernel: kernel(*each)).trace(*[x] * count).lower(
            lowering_platforms=("cuda",)
        )
