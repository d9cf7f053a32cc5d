"""Gradients of attention and cross entropy that compute again what is inside: the same numbers in less memory."""

import math
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.autodiff.rematerialisation.apart import with_casts_apart, with_gradients_apart
from pcp.backends import Device, Target
from pcp.backends.full_precision import with_full_precision
from pcp.backends.xla import XLABackend
from pcp.ir.tree import flatten
from pcp.kernels import apply_kernels, kernel_named, sites_of
from pcp.nn import scaled_dot_product_attention
from pcp.rewrite.canonical import canonical
from tests.execution import run

RANDOM = np.random.default_rng(0)


def attention(q: Any, k: Any, v: Any) -> Any:
    for _ in range(3):
        q = q + scaled_dot_product_attention(q, k, v, causal=True)
    return pcp.mean(q * q)


def cross_entropy(logits: Any, targets: Any) -> Any:
    return pcp.mean(pcp.nn.cross_entropy(logits * 2.0, targets))


def heads(*shape: int) -> Any:
    return RANDOM.normal(size=shape)


CASES = {
    "attention": (attention, [heads(2, 96, 2, 8) for _ in range(3)]),
    "cross entropy": (cross_entropy, [heads(64, 300), RANDOM.integers(0, 300, 64).astype(np.int32)]),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_the_same(case: str) -> None:
    function, given = CASES[case]
    program = pcp.value_and_grad(pcp.trace(function, *given))
    apart = with_gradients_apart(program)
    assert apart.digest != program.digest
    for found, expected in zip(flatten(run(apart, *given))[0], flatten(run(program, *given))[0], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.cpu
def test_scores_are_not_kept() -> None:
    function, given = CASES["attention"]
    program = pcp.value_and_grad(pcp.trace(function, *given))
    scores = 2 * 2 * 96 * 96 * 8
    kept, apart = (
        pcp.plan(each).memory["cpu:0"].temporaries for each in (program, with_gradients_apart(program))
    )
    assert kept - apart > 2 * scores  # of three attentions, those of one at a time are left


def test_what_has_no_such_gradient_is_left_as_it_is() -> None:
    program = pcp.trace(attention, *CASES["attention"][1])
    assert with_gradients_apart(program) is program
    other = pcp.grad(pcp.trace(lambda x: pcp.mean(pcp.nn.layer_norm(x)), heads(4, 8)))
    assert with_gradients_apart(other) is other


def test_a_gpu_gets_them_apart_and_a_processor_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    program = pcp.value_and_grad(pcp.trace(attention, *CASES["attention"][1]))
    compiled: list[pcp.Program] = []
    monkeypatch.setattr(XLABackend, "_compiled", lambda _, each, *__: compiled.append(each))
    for kind in ("cuda", "cpu"):
        Target("xla", (Device(kind, 0, 2**40),)).compile(program, cache=False)
    on_gpu, *on_processor = compiled
    assert on_gpu.digest == with_gradients_apart(with_full_precision(program)).digest
    assert all(each.digest == program.digest for each in on_processor)


WIDE = 2048


def perceptrons(x: Any, weights: Any) -> Any:
    for up, down in weights:
        x = x + pcp.nn.gelu(pcp.nn.layer_norm(x) @ up, approximate=False) @ down
    return pcp.mean(x * x)


@pytest.mark.cpu
def test_what_activations_and_norms_make_is_not_kept() -> None:
    """Of each layer x and the first product are kept, and no error function nor distances from means."""
    x = RANDOM.normal(size=(512, 512)).astype(np.float32)
    layer = tuple((RANDOM.normal(size=shape) / 30).astype(np.float32) for shape in ((512, WIDE), (WIDE, 512)))
    peaks = []
    for layers in (2, 4):
        program = pcp.value_and_grad(canonical(pcp.trace(perceptrons, x, (layer,) * layers)), wrt=0)
        peaks.append(pcp.plan(program, cache=False).memory["cpu:0"].temporaries)
    kept = 4 * 512 * (512 + WIDE)
    assert peaks[1] - peaks[0] < 2 * 1.1 * kept


@pytest.mark.cpu
def test_what_blocks_are_put_into_is_not_there_early() -> None:
    """Of each attention less than one more of its operands is kept: no zeros that blocks of its gradient will be put into."""
    shape = 5, 512, 4, 32  # scores take 20 MiB
    q, k, v = (pcp.spec(shape, "f32") for _ in range(3))

    def chain(layers: int) -> Any:
        def loss(q: Any, k: Any, v: Any) -> Any:
            for _ in range(layers):
                q = q + scaled_dot_product_attention(q, k, v)
            return pcp.mean(q * q)

        return pcp.value_and_grad(pcp.trace(loss, q, k, v))

    peaks = [pcp.plan(chain(layers), cache=False).memory["cpu:0"].temporaries for layers in (2, 4)]
    assert peaks[1] - peaks[0] < 2 * 4 * math.prod(shape)


def _products(x: Any, weights: Any) -> Any:
    for weight in weights:
        x = x + x @ weight
    return pcp.mean(x * x)


def test_a_weight_in_fewer_bits_is_not_kept_for_the_gradient() -> None:
    given = [RANDOM.normal(size=shape).astype(np.float32) for shape in ((3, 16), *[(16, 16)] * 3)]
    x, weights = given[0], tuple(given[1:])
    program = pcp.value_and_grad(pcp.trace(_products, x, weights), wrt=(0, 1))
    kernel = kernel_named("product.xla:bf16+result")
    rounded = apply_kernels(program, {site.key: kernel for site in sites_of(program, "cuda")})
    apart = with_casts_apart(rounded, 1024)
    # Three for products of the forward pass, and three for the cotangents of what these take, each behind its own cotangent.
    conversions = "(tensor<16x16xf32>) -> tensor<16x16xbf16>"
    assert apart.text.count(conversions) == 6
    assert apart.text.count("stablehlo.select") == 3
    results = (flatten(run(each, x, weights))[0] for each in (apart, rounded))
    assert all(map(np.array_equal, *results))
    assert with_casts_apart(rounded, 1025) is rounded
    assert with_casts_apart(program, 1024) is program
