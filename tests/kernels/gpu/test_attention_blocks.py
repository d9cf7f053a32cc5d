"""Attention in blocks by Triton: interpreted, beside float64 on sequences that are cut; and lowered for a GPU, which needs none."""

import dataclasses
import math
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import pcp
from pcp import nn
from pcp.autodiff.gradient import value_and_vjp
from pcp.ir import Program
from pcp.ir.composites import composite_name
from pcp.ir.toolkit.walking import every_operation
from pcp.kernels import Kernel, apply_kernels, features, kernel_named, sites_of
from pcp.kernels.artifact import Lowered
from pcp.kernels.attention import triton
from pcp.kernels.attention.blocks import Attention, Blocks, Forward
from pcp.kernels.attention.gradient_blocks import Backward
from pcp.kernels.attention.sight import Band, Sight
from pcp.planning.paths.preparation import prepared
from tests.conftest import PLATFORM
from tests.execution import run
from tests.kernels.gpu.emulated import interpreted
from tests.nn.padded_attention import attended, drawn, spoiled

pytestmark = pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
BLOCKS = (Blocks(16, 32, 4, 1), Blocks(32, 16, 4, 1), Blocks(16, 16, 4, 1))
ENDS = ([40, 0, 33], [50, 20, 0])


def _computed(attention: Attention, operands: list[Any], ends: Any, given: bool = True) -> list[Any]:
    """The result and the cotangents of query, key and value."""

    def both(q: Any, k: Any, v: Any, g: Any, *ends: Any) -> Any:
        y, *numbers = Forward(attention)(q, k, v, *ends)
        kept = (y, *numbers) if given else ()
        return y, *Backward(attention, given)(q, k, v, g, *kept, *ends)

    found = jax.jit(interpreted(both))(*operands, *(np.array(each, np.int32) for each in ends))
    return [np.asarray(each, np.float64) for each in found]


def _close(found: Any, expected: Any, error: float) -> None:
    for a, b in zip(found, expected, strict=True):
        assert np.linalg.norm(a - b) <= error * np.linalg.norm(b)


@pytest.mark.share(3, each="groups")
@pytest.mark.parametrize(
    ("keys", "groups", "width", "causal", "window", "cap", "ends"),
    [
        (40, 2, 16, False, None, None, ()),
        (73, 1, 12, True, None, 2.0, ()),
        (40, 2, 16, True, 2, None, ()),
        (70, 1, 12, True, 9, 2.0, ENDS),
        (70, 2, 24, False, None, 0.5, ENDS),
        (40, 1, 16, True, None, None, ([0, 40, 7], [0, 40, 7])),
    ],
)
def test_it_computes_attention_and_its_gradient(
    keys: int, groups: int, width: int, causal: bool, window: int | None, cap: float | None, ends: Any
) -> None:
    operands = drawn(40, keys, 2, groups, width, seed=1)
    lengths = (
        tuple(np.minimum(each, most) for each, most in zip(ends, (40, keys), strict=True)) if ends else ()
    )
    sight = Sight(40, keys, keys - 40 if causal else None, window, -math.inf, frozenset())
    attention = Attention(width**-0.5, cap, sight.band, *BLOCKS)
    given = spoiled(operands, lengths) if ends else operands
    found = _computed(attention, [x.astype(np.float32) for x in given], lengths)
    cut = lengths or ([40] * 3, [keys] * 3)
    _close(found, attended(*operands, cut, causal=causal, window=window, cap=cap), 1e-6)


def test_operands_in_bfloat16_and_a_gradient_without_residuals() -> None:
    operands = [x.astype(ml_dtypes.bfloat16) for x in drawn(24, 24, 2, 1, 16, seed=2)]
    attention = Attention(0.25, 2.0, Band(None, 1), *BLOCKS)
    found = _computed(attention, operands, ())
    for alone, beside in zip(_computed(attention, operands, (), given=False), found, strict=True):
        np.testing.assert_array_equal(alone, beside)
    _close(found, attended(*operands, ([24] * 3, [24] * 3), causal=True, cap=2.0), 1e-2)


def _program(**settings: Any) -> Program:
    """Attention of f32 with its gradient, operands (3, length, heads, 16) as given, then lengths."""
    ends = settings.pop("ends", True)

    def function(q: Any, k: Any, v: Any, *ends: Any) -> Any:
        named = dict(zip(("query_lengths", "key_lengths"), ends, strict=False))
        return nn.scaled_dot_product_attention(q, k, v, **settings, **named)

    specs = [pcp.spec((3, *shape, 16), "f32") for shape in ((40, 4), (70, 2), (70, 2))]
    lengths = [pcp.spec((3,), "i32")] * 2 if ends else []
    return prepared(value_and_vjp(pcp.trace(function, *specs, *lengths), (0, 1, 2)))


def _applied(program: Program, platform: str, kernels: dict[str, Kernel]) -> Program:
    chosen = {
        site.key: kernels[site.family] for site in sites_of(program, platform) if site.family in kernels
    }
    assert len(chosen) == 2
    return apply_kernels(program, chosen)


@pytest.mark.skipif(PLATFORM != "cpu", reason="it is interpreted")
@pytest.mark.parametrize(
    ("storage", "settings", "apart"),
    [
        ("bf16+result", {"causal": True, "cap": 3.0}, 1.0),
        ("bf16_centred", {"causal": True, "window": 9}, 0.02),
    ],
)
def test_it_stands_in_a_program(
    storage: str, settings: dict[str, Any], apart: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys and values that are nearly alike, and queries that see none of them, too."""
    made = triton.attention_of
    monkeypatch.setattr(
        triton,
        "attention_of",
        lambda layout: dataclasses.replace(
            made(layout), forward=BLOCKS[0], of_queries=BLOCKS[1], of_keys=BLOCKS[2]
        ),
    )
    kernels = {
        family: dataclasses.replace(
            kernel_named(f"{family}.triton:{storage}"), artifact=Lowered(build, "cpu"), requires=()
        )
        for family, build in (("attention", triton._attention), ("attention_gradient", triton._gradient))
    }
    operands = drawn(40, 70, 4, 2, 16, seed=4)
    if apart < 1:
        operands[1:3] = [x[:1, :1] + apart * x for x in operands[1:3]]
    given = [x.astype(np.float32) for x in spoiled(operands, ENDS)]
    program = interpreted(_applied)(_program(**settings), "cpu", kernels)
    y, cotangents = run(program, *given[:3], *(np.array(each, np.int32) for each in ENDS), given[3])
    _close([y, *cotangents], attended(*operands, ENDS, **settings), 1e-2)


def test_it_is_lowered_for_a_gpu_and_keeps_no_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "_found", lambda platform: frozenset({platform, "sm_80"}))
    kernels = {
        family: kernel_named(f"{family}.triton:bf16+result") for family in ("attention", "attention_gradient")
    }
    for settings in ({"causal": True, "cap": 3.0, "window": 5}, {"ends": False}):
        text = _applied(_program(**settings), "cuda", kernels).text.partition("func.func private")[0]
        assert text.count("__gpu$xla.gpu.triton") == 3  # once forward, for queries and for keys
        assert "40x70" not in text.replace("40x70x", "")
        assert "stablehlo.exponential" not in text
    stand = [site.kernels for site in sites_of(_program(cap=1.0), "cuda") if "attention" in site.family]
    assert len(stand) == 2
    for names in stand:
        assert any("triton" in name for name in names)
        assert not any("cudnn" in name for name in names)


def test_wide_heads_and_lengths_of_other_axes_are_left_alone() -> None:
    kernel = kernel_named("attention.triton:bf16+result")
    spec, lengths = pcp.spec((3, 40, 2, 16), "f32"), pcp.spec((3,), "i32")
    attention = nn.scaled_dot_product_attention
    mask, samples = pcp.spec((40, 40), "bool"), [pcp.spec((2, 3, 40, 2, 16), "f32")] * 3
    forms = {
        "capped": (lambda q, k, v: attention(q, k, v, cap=2.0), [spec] * 3, True),
        "masked": (lambda q, k, v, m: attention(q, k, v, mask=m, cap=2.0), [spec] * 3 + [mask], True),
        "wide": (lambda q, k, v: attention(q, k, v), [pcp.spec((3, 40, 2, 264), "f32")] * 3, False),
        "widest": (lambda q, k, v: attention(q, k, v), [pcp.spec((3, 40, 2, 256), "f32")] * 3, True),
        "queries that see no key": (
            lambda q, k, v: attention(q, k, v, causal=True), [pcp.spec((3, 50, 2, 16), "f32"), spec, spec], True
        ),
        "samples": (
            lambda q, k, v, n: pcp.vmap(lambda *x: attention(*x, key_lengths=n), 0)(q, k, v), [*samples, lengths], False
        ),
    }  # fmt: skip
    centred = kernel_named("attention.triton:bf16_centred")
    for name, (function, specs, takes) in forms.items():
        module = prepared(pcp.trace(function, *specs)).module()
        (op,) = [x for x in every_operation(module.operation) if composite_name(x) == "pcp.attention"]
        assert kernel.applies(op) is takes, name
        assert centred.applies(op) is (takes and name not in ("capped", "masked")), (
            name
        )  # which sees what all keys have in common


@pytest.mark.skipif(
    PLATFORM != "cuda" or bool(features.lacking(("sm_80",), "cuda")),
    reason="needs an NVIDIA GPU: PCP_TEST_PLATFORM=cuda",
)
@pytest.mark.parametrize("width", [12, 64, 128, 256])
@pytest.mark.parametrize(
    ("causal", "window", "cap"), [(True, None, 3.0), (True, 50, None), (False, None, 3.0)]
)
@pytest.mark.parametrize("padded", [False, True])
def test_a_gpu_computes_it(
    width: int, causal: bool, window: int | None, cap: float | None, padded: bool
) -> None:
    ends = ([200, 0, 133], [250, 20, 0]) if padded else ([200] * 3, [270] * 3)
    operands = drawn(200, 270, 4, 2, width, seed=5)
    given = [x.astype(np.float32) for x in (spoiled(operands, ends) if padded else operands)]
    settings = {"causal": causal, "window": window, "cap": cap}

    def attention(q: Any, k: Any, v: Any, *ends: Any) -> Any:
        named = dict(zip(("query_lengths", "key_lengths"), ends, strict=False))
        return nn.scaled_dot_product_attention(q, k, v, **settings, **named)

    lengths = [np.array(each, np.int32) for each in ends] if padded else []
    program = prepared(value_and_vjp(pcp.trace(attention, *given[:3], *lengths), (0, 1, 2)))
    kernels = {
        family: kernel_named(f"{family}.triton:bf16+result") for family in ("attention", "attention_gradient")
    }
    y, cotangents = run(_applied(program, "cuda", kernels), *given[:3], *lengths, given[3])
    _close([y, *cotangents], attended(*operands, ends, **settings), 1e-2)
