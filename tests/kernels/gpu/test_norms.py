"""Norms by Triton: interpreted, beside float64; and lowered for a GPU, which needs none."""

from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import pcp
from pcp.ir import Program
from pcp.kernels import apply_kernels, kernel_named, sites_of
from pcp.kernels.normalisation.triton import ROWS, Backward, Forward, Norm
from pcp.kernels.pallas import Rows
from pcp.planning.paths.preparation import prepared
from tests.execution import QUICK, run
from tests.kernels.gpu.emulated import HERE, emulate, interpreted

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
    # What cancels, as the gradient of a row of three, is judged beside its terms. One element among many is not to hide.
    wrong = np.asarray(found, np.float64) - exact
    assert np.linalg.norm(wrong) <= error * max(np.linalg.norm(exact), 0.05)
    assert np.abs(wrong).max() <= 4 * error * max(np.abs(exact).max(), 0.05)


def _sums(found: Any, count: int) -> Any:
    """So many sums, of which every program gave a part."""
    return np.asarray(found[1]).reshape(-1, count, found[1].shape[1]).sum(0)


@pytest.mark.share(5, each="centred")
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize(
    ("rows", "width"), [(1, 3), (ROWS + 5, 48), (ROWS + 2, 2**6 + 7), (2 * ROWS, 64), (2 * ROWS, 1000)]
)
def test_they_compute_norms_and_gradients(centred: bool, rows: int, width: int) -> None:
    rng = np.random.default_rng(rows + width)
    x, residual, g, added = (rng.normal(1.0, 2.0, (rows, width)).astype(np.float32) for _ in range(4))
    scale, bias = (rng.normal(size=width).astype(np.float32) for _ in range(2))
    norm, vectors = Norm(EPSILON, centred), (scale[None], bias[None])
    y, of_x, of_scale, of_bias = _exact(x, scale, bias, g, centred)
    shift = rng.normal(size=(1, width)).astype(np.float32)

    def every(x: Any, residual: Any, shift: Any, scale: Any, bias: Any, g: Any, added: Any) -> Any:
        return (
            Forward(norm)(x, scale, bias),
            Forward(norm, "float32")(x, residual, shift, scale, bias),
            Backward(norm)(x, scale, g),
            Backward(norm, summed=True)(x, scale, g, added),
            Backward(norm, shifted=False)(x, scale, g),
        )

    forward, (total, normed), found, with_sums, without = jax.jit(interpreted(every), compiler_options=QUICK)(
        x, residual, shift, *vectors, g, added
    )
    _close(forward[0], y)
    _close(total, x + residual + shift)
    _close(normed, _exact(x + residual + shift, scale, bias, g, centred)[0])
    for one, exact in zip((found[0], *_sums(found, 2)), (of_x, of_scale, of_bias), strict=True):
        _close(one, exact, 1e-5)
    _close(with_sums[0], of_x + added, 1e-5)
    for one, exact in zip(_sums(with_sums, 3), (of_scale, of_bias, (of_x + added).sum(0)), strict=True):
        _close(one, exact, 2e-5)
    assert np.array_equal(without[0], found[0])
    assert np.array_equal(_sums(without, 1)[0], _sums(found, 2)[0])


def test_a_result_may_be_kept_in_bfloat16() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(7, 24)).astype(np.float32)
    ones, zeros = np.ones((1, 24), np.float32), np.zeros((1, 24), np.float32)
    (y,) = interpreted(Forward(Norm(EPSILON, True, rounded=True)))(x, ones, zeros)
    assert y.dtype.name == "bfloat16"
    _close(y, _exact(x, ones, zeros, x, True)[0], 4e-3)


@pytest.mark.share(2)
@pytest.mark.parametrize("centred", [True, False])
def test_a_residual_stream_may_be_kept_in_bfloat16(centred: bool) -> None:
    rng = np.random.default_rng(6)
    x, residual = (rng.normal(1.0, 2.0, (5, 24)).astype(ml_dtypes.bfloat16) for _ in range(2))
    g, added = (rng.normal(size=(5, 24)).astype(ml_dtypes.bfloat16) for _ in range(2))
    shift, scale, bias = (rng.normal(size=24).astype(np.float32) for _ in range(3))
    norm = Norm(EPSILON, centred, rounded=True)
    total, y = interpreted(Forward(norm, "bfloat16"))(x, residual, shift[None], scale[None], bias[None])
    assert total.dtype.name == y.dtype.name == "bfloat16"
    _close(total, x.astype(np.float64) + residual + shift, 4e-3)
    kept = np.asarray(total)
    right, of_x, of_scale, _ = _exact(kept, scale, bias, g, centred)
    _close(y, right, 4e-3)  # of the sum as the gradient will read it
    found = interpreted(Backward(norm))(kept, scale[None], g, added)
    assert [each.dtype.name for each in found] == ["bfloat16", "float32"]
    _close(found[0], of_x + added, 4e-3)
    _close(_sums(found, 2)[0], of_scale, 1e-5)
    in_terms = interpreted(Backward(norm, terms=2))(kept, scale[None], g, added)
    _, of_x, of_scale, _ = _exact(kept, scale, bias, g.astype(np.float64) + added.astype(np.float64), centred)
    _close(in_terms[0], of_x, 6e-3)
    _close(_sums(in_terms, 2)[0], of_scale, 1e-5)


def test_cotangents_in_bfloat16_keep_what_many_rows_add() -> None:
    rows, width, small = 40 * ROWS, 32, 2.0**-12
    rng = np.random.default_rng(9)
    x = rng.normal(size=(rows, width)).astype(np.float32)
    scale, g = np.ones((1, width), np.float32), (small * rng.normal(size=(rows, width))).astype(np.float32)
    of_norm = _exact(x, scale[0], scale[0], g, True)[1]
    added = np.sign(of_norm).astype(
        ml_dtypes.bfloat16
    )  # on bfloat16's grid, whose steps are wider than what is added
    (kept, *_) = interpreted(Backward(Norm(EPSILON, True, rounded=True)))(x, scale, g, added)
    gained = np.abs(np.asarray(kept, np.float64)).mean() - 1
    assert abs(gained / np.abs(of_norm).mean() - 1) < 0.1  # nothing at all, if they were rounded to nearest
    again, *_ = interpreted(Backward(Norm(EPSILON, True, rounded=True)))(x, scale, g, added)
    assert np.array_equal(np.asarray(again), np.asarray(kept))


def test_stochastic_rounding_leaves_what_bfloat16_holds() -> None:
    numbers = [0.0, -0.0, 1.0, -2.5, 2.0**-130, 3.3895e38, np.inf, -np.inf, np.nan]
    x = np.array([numbers], ml_dtypes.bfloat16).astype(np.float32)
    x = np.concatenate([x, x, np.full(x.shape, 0x7FFFFFFF, np.uint32).view(np.float32)])  # a NaN of all bits
    found = np.asarray(Rows(0, 4, 3, len(numbers)).stochastically_rounded(x))
    assert np.array_equal(found.astype(np.float32), x, equal_nan=True)
    assert np.array_equal(np.signbit(found[:2]), np.signbit(x[:2]))


def _stream(names: dict[str, str]) -> Program:
    """Two products with biases, each added to a residual and normalised; and the gradients of all."""

    def loss(x: pcp.Tensor, w: pcp.Tensor, v: pcp.Tensor, scale: pcp.Tensor, bias: pcp.Tensor) -> pcp.Tensor:
        for _ in range(2):
            x = x + ((pcp.nn.layer_norm(x, scale, bias) @ w) @ v + bias)
        return (pcp.nn.layer_norm(x, scale, bias) ** 2).sum()

    specs = [pcp.spec(shape, "f32") for shape in ((40, 48), (48, 64), (64, 48), (48,), (48,))]
    program = prepared(pcp.value_and_grad(pcp.trace(loss, *specs), wrt=(0, 1, 2, 3, 4)))
    chosen = {
        site.key: kernel_named(names[site.family])
        for site in sites_of(program, "cuda")
        if site.family in names
    }
    return apply_kernels(program, chosen)


def test_the_stream_is_nowhere_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    from pcp.kernels import features

    monkeypatch.setattr(features, "_found", lambda platform: frozenset({platform, "sm_80"}))
    names = {
        "product": "product.xla:bf16+result",
        "residual_normalisation": "residual_normalisation.triton:bf16+sum",
        "normalisation_gradient": "normalisation_gradient.triton:bf16+sum",
    }
    calls = [line for line in _stream(names).text.splitlines() if "__gpu$xla.gpu.triton" in line]
    types = [line.rpartition(" : (")[2].partition(") -> ") for line in calls]
    rows = "tensor<40x48xf32>"
    # In float32 are x as it is given, which the first sum and the last gradient read, and the cotangent of the result, which
    # no product makes. Biases are added in the kernel: their sums with products are not written.
    assert [given.count(rows) for given, _, _ in types] == [1, 0, 1, 0, 1]
    assert all(rows not in made for _, _, made in types)


@pytest.mark.share(3)
@pytest.mark.parametrize("biased", [(True, False), (False, True), (True, True)])
def test_the_bias_of_either_term_is_added(biased: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    if not HERE:
        emulate(monkeypatch)

    def normed(
        x: pcp.Tensor, w: pcp.Tensor, b: pcp.Tensor, scale: pcp.Tensor, bias: pcp.Tensor
    ) -> pcp.Tensor:
        terms = [x @ w[0], x @ w[1]]
        one, other = (term + b[k] if biased[k] else term for k, term in enumerate(terms))
        return pcp.nn.layer_norm(one + other, scale, bias)

    shapes = ((40, 32), (2, 32, 48), (2, 48), (48,), (48,))
    program = prepared(pcp.trace(normed, *[pcp.spec(shape, "f32") for shape in shapes]))
    names = {
        "product": "product.xla:bf16+result",
        "residual_normalisation": "residual_normalisation.triton:bf16+sum",
    }
    chosen = {
        site.key: kernel_named(names[site.family])
        for site in sites_of(program, "cuda")
        if site.family in names
    }
    assert {kernel.family for kernel in chosen.values()} == set(names)
    rng = np.random.default_rng(3)
    given = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    _close(run(apply_kernels(program, chosen), *given), run(program, *given), 1e-2)


def test_a_bias_before_the_stream_needs_no_reading_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from pcp.kernels import features

    monkeypatch.setattr(features, "_found", lambda platform: frozenset({platform, "sm_80"}))
    names = {"normalisation_gradient": "normalisation_gradient.triton:bf16+sum"}
    plain, text = (_stream(each).text.partition("func.func private")[0] for each in ({}, names))
    read = "across dimensions = [0] : (tensor<40x48xf32>"
    # Of each of two blocks: the sums for the bias of its product. Those for scale and bias are the composite's own.
    assert plain.count(read) == 2
    assert text.count(read) == 0
    assert text.count("tensor<2x144xf32>, tensor<f32>") == 2  # two programs of three sums each
    assert (
        text.count("tensor<2x96xf32>, tensor<f32>") == 1
    )  # nothing is added to x, so its cotangent is not added up


def test_the_gradient_adds_what_several_products_give(monkeypatch: pytest.MonkeyPatch) -> None:
    from pcp.kernels import features

    monkeypatch.setattr(features, "_found", lambda platform: frozenset({platform, "sm_80"}))

    def loss(x: pcp.Tensor, w: pcp.Tensor, v: pcp.Tensor, u: pcp.Tensor, scale: pcp.Tensor) -> pcp.Tensor:
        y = pcp.nn.rms_norm(x, scale)
        return ((y @ w) * (y @ v) * (y @ u)).sum()

    specs = [pcp.spec(shape, "f32") for shape in ((2, 20, 48), (48, 64), (48, 64), (48, 64), (48,))]
    program = prepared(pcp.value_and_grad(pcp.trace(loss, *specs), wrt=(0, 1, 2, 3, 4)))
    names = {
        "product": "product.xla:bf16+result",
        "normalisation_gradient": "normalisation_gradient.triton:bf16+sum",
    }
    chosen = {
        site.key: kernel_named(names[site.family])
        for site in sites_of(program, "cuda")
        if site.family in names
    }
    text = apply_kernels(program, chosen).text
    (call,) = (line for line in text.splitlines() if "__gpu$xla.gpu.triton" in line)
    given = call.rpartition(" : (")[2].partition(") -> ")[0]
    assert given.count("tensor<40x48xbf16>") == 3  # and x, in float32
    assert given.count("tensor<40x48xf32>") == 1


def test_they_are_lowered_for_a_gpu_and_read_what_was_kept_in_bfloat16() -> None:
    def loss(x: pcp.Tensor, w: pcp.Tensor, scale: pcp.Tensor, bias: pcp.Tensor) -> pcp.Tensor:
        y = pcp.nn.layer_norm(pcp.nn.layer_norm(x, scale, bias) @ w, scale, bias)
        return (y * y).sum()

    specs = [pcp.spec(shape, "f32") for shape in ((40, 48), (48, 48), (48,), (48,))]
    program = prepared(pcp.value_and_grad(pcp.trace(loss, *specs), wrt=(0, 1, 2, 3)))
    chosen = {}
    for site in sites_of(program, "cuda"):
        name = {
            "product": "product.xla:bf16+result",
            "normalisation": "normalisation.triton:bf16",
            "normalisation_gradient": "normalisation_gradient.triton",
        }.get(site.family)
        if name:
            chosen[site.key] = kernel_named(name)
    text = apply_kernels(program, chosen).text
    calls = [line for line in text.splitlines() if "__gpu$xla.gpu.triton" in line]
    assert len(calls) == 4
    # x of the second norm's gradient and the cotangent of the first one come from products.
    assert sum("bf16>" in line.rpartition(" : (")[2].partition(") -> ")[0] for line in calls) >= 2
