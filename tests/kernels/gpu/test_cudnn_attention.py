"""Attention by cuDNN: what is called is what JAX calls. No GPU is needed to make it; one is needed to run it."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.cudnn import fused_attention_stablehlo as theirs

import pcp
from pcp import nn
from pcp.autodiff.gradient import value_and_vjp
from pcp.ir import Program
from pcp.ir.composites import composite_name
from pcp.ir.toolkit.walking import every_operation
from pcp.kernels import apply_kernels, kernel_named, sites_of
from pcp.kernels.attention.cudnn import Calls
from pcp.kernels.features import lacking
from pcp.planning.judging.oracle import widened
from pcp.planning.paths.preparation import prepared
from pcp.rewrite.raising import raised
from tests.conftest import PLATFORM

SHAPE = (2, 64, 4, 64)


def _program(causal: bool, window: int | None = None, **others: Any) -> Program:
    """Attention with its gradient; further operands by their names, as specs."""

    def loss(q: pcp.Tensor, k: pcp.Tensor, v: pcp.Tensor, w: pcp.Tensor, *more: pcp.Tensor) -> pcp.Tensor:
        given = dict(zip(others, more, strict=True))
        return (pcp.nn.scaled_dot_product_attention(q, k, v, causal, window=window, **given) * w).sum()

    queries, of_keys = pcp.spec(SHAPE, "f32"), pcp.spec((2, 64, 2, 64), "f32")
    specs = (queries, of_keys, of_keys, queries, *others.values())
    return prepared(pcp.value_and_grad(pcp.trace(loss, *specs), wrt=(0, 1, 2)))


def _by_cudnn(program: Program, name: str = "cudnn") -> Program:
    families = {"attention", "attention_gradient"}
    sites = [site for site in sites_of(program, "cuda") if site.family in families]
    assert {site.family for site in sites} == families
    return apply_kernels(program, {site.key: kernel_named(f"{site.family}.{name}") for site in sites})


def _calls(text: str) -> list[str]:
    """The calls of cuDNN, without the names of values."""
    lines = [line.partition(" = ")[2] for line in text.splitlines() if "__cudnn$" in line]
    return [re.sub(r"%[\w#]+", "%", line) for line in lines]


ENDS = {kind: pcp.spec((2,), "i32") for kind in ("query_lengths", "key_lengths")}


@pytest.fixture
def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theirs, "check_cudnn_version", lambda: 91200)
    monkeypatch.setattr(theirs, "check_compute_capability", lambda _: True)
    monkeypatch.setattr(theirs, "is_cuda_compute_capability_equal", lambda _: False)


def _calls_of_jax(
    kind: str, window: int | None = None, *others: Any, takes: tuple[str, ...] = ()
) -> list[str]:
    """What JAX calls for the same, with further operands by these names."""

    def attention(q: Any, k: Any, v: Any, *more: Any) -> Any:
        given = dict(zip(takes, more, strict=True))
        mask_type = theirs.MaskType[kind]
        return theirs.dot_product_attention(
            q, k, v, scale=0.125, mask_type=mask_type, sliding_window_length=window, **given
        )

    def gradient(w: Any, *x: Any) -> Any:
        return jax.vjp(lambda *qkv: attention(*qkv, *x[3:]), *x[:3])[1](w)

    array, keys = (jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in (SHAPE, (2, 64, 2, 64)))
    traced = jax.jit(gradient).trace(array, array, keys, keys, *others)
    return _calls(traced.lower(lowering_platforms=("cuda",)).as_text())


@pytest.mark.usefixtures("_as_on_a_gpu")
@pytest.mark.parametrize(
    ("causal", "window"), [(True, None), (False, None), (True, 5), (True, 64), (True, 1)]
)
def test_the_calls_are_those_of_jax(causal: bool, window: int | None) -> None:
    hides = None if window == 64 else window  # a window of all keys is none
    expected = _calls_of_jax("CAUSAL" if causal else "NO_MASK", hides)
    found = _calls(_by_cudnn(_program(causal, window)).text)
    assert len(found) == 2
    assert found == expected


@pytest.mark.usefixtures("_as_on_a_gpu")
@pytest.mark.parametrize(("causal", "window"), [(False, None), (True, None), (True, 5)])
def test_lengths_are_those_of_jax(causal: bool, window: int | None) -> None:
    ends = [jax.ShapeDtypeStruct((2,), jnp.int32)] * 2
    kind = "PADDING_CAUSAL" if causal else "PADDING"
    expected = _calls_of_jax(kind, window, *ends, takes=("q_seqlen", "kv_seqlen"))
    found = _calls(_by_cudnn(_program(causal, window, **ENDS)).text)
    assert len(found) == 2
    assert found == expected
    for kind, spec in ENDS.items():  # the others are all there are
        assert _calls(_by_cudnn(_program(causal, window, **{kind: spec})).text) == found


@pytest.mark.usefixtures("_as_on_a_gpu")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(2, 1, 64, 64), (1, 4, 64, 64), (2, 4, 64, 64), (1, 1, 64, 64)])
def test_masks_are_added_as_by_jax(shape: tuple[int, ...], causal: bool) -> None:
    mask = jax.ShapeDtypeStruct(shape, jnp.bool_)
    expected = _calls_of_jax("CAUSAL" if causal else "NO_MASK", None, mask, takes=("mask",))
    found = _calls(_by_cudnn(_program(causal, mask=pcp.spec(shape, "bool"))).text)
    assert len(found) == 2
    if jax.__version_info__ < (0, 11):  # which asks for the gradient of a mask, too
        found[1], expected[1] = (
            call.partition(" : (")[0].rpartition("result_layouts")[0] for call in (found[1], expected[1])
        )
    assert found == expected


@pytest.mark.usefixtures("_as_on_a_gpu")
@pytest.mark.parametrize("causal", [False, True])
def test_the_gradient_of_a_bias_is_asked_for_as_by_jax(causal: bool) -> None:
    """Of a bias that all of the batch has; a batch with a bias of its own for each sample is computed by Triton."""

    def attention(q: Any, k: Any, v: Any, bias: Any) -> Any:
        kind = theirs.MaskType.CAUSAL if causal else theirs.MaskType.NO_MASK
        return theirs.dot_product_attention(q, k, v, bias, scale=0.125, mask_type=kind)

    def gradient(w: Any, *x: Any) -> Any:
        return jax.vjp(attention, *x)[1](w)

    shapes = (*[SHAPE] * 4, (1, 4, 64, 64))
    traced = jax.jit(gradient).trace(*(jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in shapes))
    expected = _calls(traced.lower(lowering_platforms=("cuda",)).as_text())
    program = _biased(causal, (1, 4, 64, 64))
    assert _calls(_by_cudnn(program).text) == expected
    own = {
        site.family: {*site.kernels, *site.lacks}
        for site in sites_of(_biased(causal, (2, 4, 64, 64)), "cuda")
    }["attention_gradient"]
    assert "attention_gradient.triton:bf16+result" in own
    assert not any("cudnn" in name for name in own)


def _biased(causal: bool, shape: tuple[int, ...]) -> Program:
    """Attention with a bias and the gradient of all operands."""

    def attention(q: pcp.Tensor, k: pcp.Tensor, v: pcp.Tensor, bias: pcp.Tensor) -> pcp.Tensor:
        scores = pcp.einsum("bqhd,bkhd->bhqk", q, k) * 0.125 + bias
        if causal:
            sees = pcp.iota((64, 64), 0) >= pcp.iota((64, 64), 1)
            scores = pcp.where(sees, scores, -jnp.inf)
        return pcp.einsum("bhqk,bkhd->bqhd", pcp.softmax(scores, -1), v)

    specs = [pcp.spec(each, "f32") for each in (SHAPE, SHAPE, SHAPE, shape)]
    return prepared(value_and_vjp(raised(pcp.trace(attention, *specs)), (0, 1, 2, 3)))


@pytest.mark.parametrize("biased", [True, False])
def test_the_mean_of_key_cotangents_is_taken_off_where_the_program_adds_them_up(biased: bool) -> None:
    def loss(x: pcp.Tensor, qkv: pcp.Tensor, bias: pcp.Tensor) -> pcp.Tensor:
        joined = (nn.linear(x, qkv, bias) if biased else x @ qkv).reshape(2, 64, 3, 2, 8)
        q, k, v = (joined[:, :, place] for place in range(3))
        return nn.scaled_dot_product_attention(q, k, v, causal=True).sum() + bias.sum()

    specs = [pcp.spec(shape, "f32") for shape in ((2, 64, 16), (16, 48), (48,))]
    program = prepared(pcp.value_and_grad(pcp.trace(loss, *specs), wrt=(1, 2)))
    assert ("stablehlo.is_finite" in _by_cudnn(program).text) is biased


def test_masks_and_widths_that_it_does_not_take_are_left_alone() -> None:
    kernel = kernel_named("attention.cudnn:bf16+result")
    odd = pcp.trace(
        lambda q, m: pcp.nn.scaled_dot_product_attention(q, q + 1, q, mask=m),
        pcp.spec((2, 63, 4, 64), "f32"),
        pcp.spec((63, 63), "bool"),
    )
    both = _program(False, mask=pcp.spec((64, 64), "bool"), **ENDS)
    capped = pcp.trace(
        lambda q: pcp.nn.scaled_dot_product_attention(q, q + 1, q, cap=5.0), pcp.spec(SHAPE, "f32")
    )
    narrow = pcp.trace(
        lambda q: pcp.nn.scaled_dot_product_attention(q, q, q), pcp.spec((2, 64, 4, 12), "f32")
    )

    def of_the_first_keys(q: pcp.Tensor, k: pcp.Tensor) -> pcp.Tensor:
        i, j = (pcp.iota((64, 80), axis) for axis in (0, 1))
        return pcp.nn.scaled_dot_product_attention(q, k, k + 1, mask=(j <= i) & (i - j < 5))

    more_keys = raised(pcp.trace(of_the_first_keys, pcp.spec(SHAPE, "f32"), pcp.spec((2, 80, 2, 64), "f32")))
    assert "window = 5" in more_keys.text
    for program, takes in (
        (odd, True),
        (both, False),
        (capped, False),
        (narrow, False),
        (more_keys, False),
        (_program(causal=True), True),
        (_program(causal=True, window=5), True),
    ):
        module = prepared(program).module()
        found = [op for op in every_operation(module.operation) if composite_name(op) == "pcp.attention"]
        assert [kernel.applies(op) for op in found] == [takes]


@pytest.mark.skipif(
    PLATFORM != "cuda" or bool(lacking(("sm_80",), "cuda")),
    reason="needs an NVIDIA GPU: PCP_TEST_PLATFORM=cuda",
)
@pytest.mark.parametrize("window", [None, 1, 5, 33])
@pytest.mark.parametrize("name", ["cudnn", "cudnn:bf16_centred"])
def test_it_computes_attention_and_its_gradient(window: int | None, name: str) -> None:
    program = _program(causal=True, window=window)
    arguments = _drawn(1.0)
    expected, found = (pcp.plan(each)(*arguments) for each in (program, _by_cudnn(program, name)))
    for right, y in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        right, y = np.asarray(right, np.float64), np.asarray(y, np.float64)
        assert np.linalg.norm(y - right) <= 1e-2 * max(np.linalg.norm(right), 1.0)


def _drawn(apart: float) -> list[Any]:
    """Queries, keys and values, which differ from one another in a head by a part of their size, and a cotangent."""
    rng = np.random.default_rng(6)
    shapes = (SHAPE, (2, 64, 2, 64), (2, 64, 2, 64), SHAPE)
    drawn = [rng.normal(size=shape) for shape in shapes]
    if apart < 1:
        drawn[:3] = [
            rng.normal(size=(shape[0], 1, *shape[2:])) + apart * x
            for x, shape in zip(drawn, shapes[:3], strict=False)
        ]
    return [x.astype(np.float32) for x in drawn]


def _emulated(patch: pytest.MonkeyPatch) -> None:
    """What cuDNN computes, as operations: operands, weights and their cotangents are bfloat16, sums float32."""

    def bf16(x: pcp.Tensor) -> pcp.Tensor:
        return x.astype("bf16").astype("f32")

    def operands(calls: Calls) -> tuple[list[pcp.Tensor], pcp.Tensor, pcp.Tensor]:
        q, k, v = (x.astype("f32") for x in calls.operands)
        k, v = (pcp.repeat(x, q.shape[2] // x.shape[2], 2) for x in (k, v))
        scores = pcp.einsum("bqhw,bkhw->bhqk", q, k) * calls.layout.heads.attributes["scale"]
        if calls.layout.heads.sight.offset is not None:
            length = scores.shape[-1]
            scores = pcp.where(pcp.iota((length, length), 0) >= pcp.iota((length, length), 1), scores, -1e30)
        return [q, k, v], scores, pcp.exp(scores - pcp.max(scores, -1, keepdims=True))

    def forward(calls: Calls) -> tuple[pcp.Tensor, pcp.Tensor]:
        (_, _, v), scores, e = operands(calls)
        y = pcp.einsum("bhqk,bkhw->bqhw", bf16(e), v) / pcp.transpose(e.sum(-1, keepdims=True), (0, 2, 1, 3))
        return y.astype("bf16"), scores.sum(-1)

    def backward(
        calls: Calls, cotangent: pcp.Tensor, y: pcp.Tensor, _: pcp.Tensor, **__: bool
    ) -> list[pcp.Tensor]:
        (q, k, v), _, e = operands(calls)
        cotangent, y = cotangent.astype("f32"), y.astype("f32")
        p = e / e.sum(-1, keepdims=True)
        inner = pcp.transpose((cotangent * y).sum(-1), (0, 2, 1))
        change = bf16(p * (pcp.einsum("bqhw,bkhw->bhqk", cotangent, v) - inner[..., None]))
        change = change * calls.layout.heads.attributes["scale"]
        of_keys = [
            pcp.einsum("bhqk,bqhw->bkhw", change, q),
            pcp.einsum("bhqk,bqhw->bkhw", bf16(p), cotangent),
        ]
        shape = (*k.shape[:2], -1, q.shape[2] // calls.operands[1].shape[2], k.shape[3])
        narrow = [pcp.reshape(x, shape).sum(3) for x in of_keys]
        return [x.astype("bf16") for x in (pcp.einsum("bhqk,bkhw->bqhw", change, k), *narrow)]

    patch.setattr(Calls, "forward", forward)
    patch.setattr(Calls, "backward", backward)


@pytest.mark.cpu
@pytest.mark.parametrize("causal", [False, True])
def test_keys_and_values_that_are_nearly_alike_lose_nothing_without_their_means(
    causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _emulated(monkeypatch)
    program = _program(causal)
    programs = {name: _by_cudnn(program, name) for name in ("cudnn", "cudnn:bf16_centred")}
    for apart, least, most in ((1.0, 0.0, 1e-2), (0.1, 0.5, 1e-2), (0.01, 50.0, 1e-2)):
        arguments = _drawn(apart)
        right = run_float64(program, arguments)
        errors = {
            name: max(
                float(np.linalg.norm(np.asarray(y, np.float64) - x) / np.linalg.norm(x))
                for x, y in zip(right[1:], jax.tree.leaves(pcp.plan(each)(*arguments))[1:], strict=True)
            )
            for name, each in programs.items()
        }
        assert errors["cudnn:bf16_centred"] <= most, (apart, errors)
        assert errors["cudnn"] >= least, (apart, errors)


def run_float64(program: Program, arguments: list[Any]) -> list[Any]:
    """The results in float64."""
    with jax.enable_x64(True):
        wide = [np.asarray(x, np.float64) for x in arguments]
        return [np.asarray(x) for x in jax.tree.leaves(pcp.plan(widened(program))(*wide))]
