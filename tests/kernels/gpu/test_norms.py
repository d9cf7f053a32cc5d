"""Norms by Triton: interpreted, beside float64; and lowered for a GPU, which needs none."""

from typing import Any

import numpy as np
import pytest

import pcp
from pcp.kernels import apply_kernels, kernel_named, sites_of
from pcp.kernels.normalisation.triton import ROWS, Backward, Forward, Norm
from pcp.planning.paths.preparation import prepared

pytestmark = pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
EPSILON = 1e-5


def _exact(x: Any, scale: Any, bias: Any, g: Any, centred: bool) -> tuple[Any, Any, Any, Any]:
    x, scale, bias, g = (each.astype(np.float64) for each in (x, scale, bias, g))
    away = x - x.mean(-1, keepdims=True) if centred else x
    reciprocal = 1 / np.sqrt((away**2).mean(-1, keepdims=True) + EPSILON)
    normed, h = away * reciprocal, g * scale
    of_x = h - normed * (h * normed).mean(-1, keepdims=True)
    if centred:
        of_x = of_x - h.mean(-1, keepdims=True)
    return normed * scale + bias, of_x * reciprocal, (g * normed).sum(0), g.sum(0)


def _close(found: Any, exact: Any, error: float = 3e-6) -> None:
    assert np.linalg.norm(np.asarray(found, np.float64) - exact) <= error * np.linalg.norm(exact)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize(("rows", "width"), [(1, 3), (ROWS + 5, 48), (2 * ROWS, 64)])
def test_they_compute_norms_and_gradients(centred: bool, rows: int, width: int) -> None:
    rng = np.random.default_rng(rows + width)
    x, residual, g, added = (rng.normal(1.0, 2.0, (rows, width)).astype(np.float32) for _ in range(4))
    scale, bias = (rng.normal(size=width).astype(np.float32) for _ in range(2))
    norm, vectors = Norm(EPSILON, centred, interpreted=True), (scale[None], bias[None])
    y, of_x, of_scale, of_bias = _exact(x, scale, bias, g, centred)
    _close(Forward(norm)(x, *vectors)[0], y)
    total, normed = Forward(norm, residual=True)(x, residual, *vectors)
    _close(total, x + residual)
    _close(normed, _exact(x + residual, scale, bias, g, centred)[0])
    found = Backward(norm)(x, vectors[0], g)
    for one, exact in zip(
        (found[0], *(each.sum(0) for each in found[1:])), (of_x, of_scale, of_bias), strict=True
    ):
        _close(one, exact, 1e-5)
    _close(Backward(norm)(x, vectors[0], g, added)[0], of_x + added, 1e-5)


def test_a_result_may_be_kept_in_bfloat16() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(7, 24)).astype(np.float32)
    ones, zeros = np.ones((1, 24), np.float32), np.zeros((1, 24), np.float32)
    (y,) = Forward(Norm(EPSILON, True, rounded=True, interpreted=True))(x, ones, zeros)
    assert y.dtype.name == "bfloat16"
    _close(y, _exact(x, ones, zeros, x, True)[0], 4e-3)


def test_they_are_lowered_for_a_gpu_and_read_what_was_kept_in_bfloat16() -> None:
    def loss(x: pcp.Tensor, w: pcp.Tensor, scale: pcp.Tensor, bias: pcp.Tensor) -> pcp.Tensor:
        y = pcp.nn.layer_norm(pcp.nn.layer_norm(x, scale, bias) @ w, scale, bias)
        return (y * y).sum()

    specs = [pcp.spec(shape, "f32") for shape in ((40, 48), (48, 48), (48,), (48,))]
    program = prepared(pcp.value_and_grad(pcp.trace(loss, *specs), wrt=(0, 1, 2, 3)))
    chosen = {}
    for site in sites_of(program, "cuda"):
        name = {
            "product": "product.bf16_result",
            "normalisation": "normalisation.triton_bf16",
            "normalisation_gradient": "normalisation_gradient.triton",
        }.get(site.family)
        if name:
            chosen[site.key] = kernel_named(name)
    text = apply_kernels(program, chosen).text
    calls = [line for line in text.splitlines() if "__gpu$xla.gpu.triton" in line]
    assert len(calls) == 4
    # x of the second norm's gradient and the cotangent of the first one come from products.
    assert sum("bf16>" in line.rpartition(" : (")[2].partition(") -> ")[0] for line in calls) >= 2
