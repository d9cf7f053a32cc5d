"""Cross entropy by Triton: interpreted, beside float64; and lowered for a GPU, where the gradient takes the logits' memory."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas

import pcp
from pcp.ir.composites import composite_name
from pcp.ir.toolkit.walking import every_operation
from pcp.kernels import apply_kernels, kernel_named, sites_of
from pcp.kernels.cross_entropy import triton
from pcp.planning.paths.preparation import prepared
from tests.kernels.gpu import lowers_for_gpus
from tests.kernels.gpu.emulated import interpreted


@pytest.mark.parametrize("classes", [5, 64, 300])
def test_it_computes_normalisers_and_gradients(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOST", "LANES"):  # several chunks, the last of which is not whole
        monkeypatch.setattr(triton, name, 64)
    monkeypatch.setattr(triton, "TOGETHER", 2)
    rng = np.random.default_rng(classes)
    logits = rng.normal(0, 20, (6, classes)).astype(np.float32)
    logits[1, : classes - 1] = -np.inf
    targets = rng.integers(0, classes, 6).astype(np.int32)
    targets[1], targets[2] = classes - 1, -1
    factors = rng.normal(size=6).astype(np.float32)
    wide = logits.astype(np.float64)
    largest = wide.max(1, keepdims=True)
    normaliser = np.log(np.exp(wide - largest).sum(1, keepdims=True)) + largest
    found, above = interpreted(triton.normalisers)(logits, targets)
    assert np.abs(np.asarray(found) - normaliser[:, 0]).max() < 2e-6 * np.abs(normaliser).max()
    known = targets >= 0
    losses = normaliser[known, 0] - wide[known, targets[known]]
    assert np.abs(np.asarray(above)[known] - losses).max() < 2e-6 * np.abs(losses).max()
    exact = np.exp(wide - normaliser)
    exact[targets >= 0, targets[targets >= 0]] -= 1
    exact *= factors[:, None]
    for given in ((), (found,)):
        (gradient,) = interpreted(triton.Gradient())(logits, targets, factors, *given)
        assert gradient.dtype == jnp.bfloat16
        assert np.linalg.norm(np.asarray(gradient, np.float64) - exact) < 3e-3 * np.linalg.norm(exact)


def test_a_row_of_nothing_but_minus_infinity_is_no_number() -> None:
    for found in interpreted(triton.normalisers)(np.full((1, 5), -np.inf, np.float32), np.zeros(1, np.int32)):
        assert not np.isfinite(found[0])


def test_logits_far_from_zero_do_not_swallow_the_logarithm() -> None:
    rng = np.random.default_rng()
    near, targets = rng.normal(size=(6, 50)), rng.integers(0, 50, 6).astype(np.int32)
    logits = (np.float32(2.0**22) + np.round(near)).astype(np.float32)
    wide = logits.astype(np.float64) - 2.0**22
    losses = np.log(np.exp(wide).sum(1)) - wide[np.arange(6), targets]
    _, above = interpreted(triton.normalisers)(logits, targets)
    np.testing.assert_allclose(above, losses, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
def test_the_gradient_takes_the_memory_of_logits_in_bfloat16() -> None:
    def loss(x: pcp.Tensor, w: pcp.Tensor, targets: pcp.Tensor) -> pcp.Tensor:
        return pcp.nn.cross_entropy(x @ w, targets)

    specs = (pcp.spec((8, 16), "f32"), pcp.spec((16, 48), "f32"), pcp.spec((8,), "i32"))
    program = prepared(pcp.value_and_grad(pcp.trace(loss, *specs), wrt=(0, 1)))
    names = {
        "product": "product.xla:bf16+result",
        "cross_entropy": "cross_entropy.triton",
        "cross_entropy_gradient": "cross_entropy_gradient.triton:bf16",
    }
    chosen = {site.key: kernel_named(names[site.family]) for site in sites_of(program, "cuda")}
    text = apply_kernels(program, chosen).text
    calls = [line for line in text.splitlines() if "xla.gpu.triton" in line]
    assert len(calls) == 2
    assert all("tensor<8x48xbf16>" in line.rpartition(" : (")[2] for line in calls)
    assert [("output_operand_alias" in line) for line in calls] == [False, True]


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
def test_logits_that_the_program_was_given_are_not_written_over() -> None:
    def loss(x: pcp.Tensor, targets: pcp.Tensor) -> pcp.Tensor:
        return pcp.nn.cross_entropy(x.astype("f32"), targets)

    specs = pcp.spec((8, 48), "bf16"), pcp.spec((8,), "i32")
    program = prepared(pcp.value_and_grad(pcp.trace(loss, *specs)))
    (site,) = (each for each in sites_of(program, "cuda") if each.family == "cross_entropy_gradient")
    text = apply_kernels(program, {site.key: kernel_named("cross_entropy_gradient.triton:bf16")}).text
    assert "xla.gpu.triton" in text
    assert "output_operand_alias" not in text


@pytest.mark.parametrize(("rows", "takes"), [(0, False), (42_000, True), (43_000, True), (1 << 28, False)])
def test_no_more_programs_than_32_bits_number_and_no_fewer_logits_than_one(rows: int, takes: bool) -> None:
    specs = pcp.spec((rows, 50_304), "f32"), pcp.spec((rows,), "i32")
    program = prepared(pcp.trace(lambda x, t: pcp.nn.cross_entropy(x, t).sum(), *specs))
    module = program.module()
    every = every_operation(module.operation)
    found = [op for op in every if composite_name(op) == "pcp.cross_entropy"]
    assert [kernel_named("cross_entropy.triton").applies(op) for op in found] == [takes]


@lowers_for_gpus
@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
@pytest.mark.parametrize(("rows", "bits"), [(1 << 14, 64), (100, 32)])
def test_places_of_more_than_two_to_the_31_logits_have_64_bits(
    rows: int, bits: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logits = jax.ShapeDtypeStruct((rows, 151_936), np.float32)
    monkeypatch.setattr(pallas, "pallas_call", functools.partial(pallas.pallas_call, debug=True))
    jax.jit(lambda x: triton.normalisers(x, jnp.zeros(x.shape[0], jnp.int32))).trace(logits).lower(
        lowering_platforms=("cuda",)
    )
    assert re.search(rf"arith.muli .*: tensor<128xi{bits}>", capsys.readouterr().out)
