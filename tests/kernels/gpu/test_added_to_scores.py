"""Masks and biases in Triton's attention, and the cotangents of biases: interpreted, or on a GPU, beside float64."""

import dataclasses
from typing import Any

import numpy as np
import pytest

import pcp
from pcp import Program, ops
from pcp.autodiff.gradient import value_and_vjp
from pcp.kernels import apply_kernels, kernel_named, sites_of
from pcp.kernels.artifact import Lowered
from pcp.kernels.attention import triton
from pcp.kernels.attention.blocks import Blocks
from pcp.nn.attention import named_attention
from pcp.planning.paths.preparation import prepared
from tests.execution import exactly, run
from tests.kernels.gpu import lowers_for_gpus
from tests.kernels.gpu.emulated import HERE, interpreted

pytestmark = pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
# Several blocks of queries and keys, the last of which are not whole.
BATCH, HEADS, QUERIES, KEYS, WIDTH = (2, 4, 200, 330, 64) if HERE else (2, 4, 24, 40, 16)
FAMILIES = {"attention": triton._attention, "attention_gradient": triton._gradient}

CASES: dict[str, tuple[dict[str, tuple[int, ...]], dict[str, Any]]] = {
    "padding, and a bias of all samples": (
        {"mask": (BATCH, 1, 1, KEYS), "bias": (1, HEADS, QUERIES, KEYS)},
        {"fill": -3e38},
    ),
    "a bias of each sample, safe": (
        {"mask": (BATCH, 1, 1, KEYS), "bias": (BATCH, 1, QUERIES, KEYS)},
        {"fill": -np.inf, "safe": True},
    ),
    "causal, as in the decoder of T5": (
        {"bias": (1, HEADS, QUERIES, KEYS)},
        {"fill": -3e38, "safe": True, "offset": KEYS - QUERIES},
    ),
    "causal, some queries see no key": ({"mask": (BATCH, 1, QUERIES, KEYS)}, {"fill": -np.inf, "offset": 3}),
    "one for each key, capped": ({"bias": (1, HEADS, 1, KEYS)}, {"cap": 2.0}),
}
"""Shapes of what is added, and settings. Padding hides all keys of the last sample."""


def _program(shapes: dict[str, tuple[int, ...]], settings: dict[str, Any]) -> Program:
    """Attention with its gradient, of query, key and value (batch, heads, length, width), then masks and biases."""

    def form(softmax: Any, q: Any, k: Any, v: Any, *more: Any) -> Any:
        added = dict(zip(shapes, more, strict=True))
        scores = ops.einsum("bhqd,bhkd->bhqk", q, k) * 0.25
        scores = ops.tanh(scores / settings["cap"]) * settings["cap"] if "cap" in settings else scores
        scores = scores + added["bias"] if "bias" in added else scores
        seen = [added["mask"]] if "mask" in added else []
        if "offset" in settings:
            seen.append(ops.iota((QUERIES, KEYS), 0) + settings["offset"] >= ops.iota((QUERIES, KEYS), 1))
        if seen:
            visible = ops.broadcast_to(seen[0] & seen[-1], scores.shape)
            scores = ops.where(visible, scores, settings["fill"])
            if settings.get("safe"):
                some = ops.any(visible, -1, keepdims=True)
                scores = ops.where(some, scores, 0.0)
                return ops.einsum("bhqk,bhkd->bhqd", ops.where(some, softmax(scores), 0.0), v)
        return ops.einsum("bhqk,bhkd->bhqd", softmax(scores), v)

    def attention(*operands: Any) -> Any:
        attributes: dict[str, Any] = {
            "query": (0, 1, 2, -1), "key": (0, 1, 3, -1), "value": (0, 1, 3, -2), "result": (0, 1, 2, -2), "axis": 3,
            "scale": 0.25, "causal": "offset" in settings, **settings,
            **{kind: tuple(axis if size > 1 else -3 for axis, size in enumerate(shape)) for kind, shape in shapes.items()},
        }  # fmt: skip
        if "offset" in settings:
            attributes["queries"] = 2
        return named_attention(form, operands[:3], operands[3:], attributes)

    lengths = (QUERIES, KEYS, KEYS)
    specs = [pcp.spec((BATCH, HEADS, length, WIDTH), "f32") for length in lengths]
    specs += [pcp.spec(shape, "f32" if kind == "bias" else "bool") for kind, shape in shapes.items()]
    wrt = (0, 1, 2, *([2 + len(shapes)] if "bias" in shapes else []))
    return prepared(value_and_vjp(pcp.trace(attention, *specs), wrt))


def _by_triton(program: Program, storage: str, monkeypatch: pytest.MonkeyPatch) -> Program:
    kernels = {family: kernel_named(f"{family}.triton:{storage}") for family in FAMILIES}
    made, blocks = triton.attention_of, (Blocks(16, 16, 4, 1), Blocks(16, 16, 4, 1), Blocks(16, 16, 4, 1))

    def attention_of(layout: Any) -> Any:
        names = ("forward", "of_queries", "of_keys")
        return dataclasses.replace(made(layout), **dict(zip(names, blocks, strict=True)))

    if not HERE:
        monkeypatch.setattr(triton, "attention_of", attention_of)
        kernels = {
            family: dataclasses.replace(kernels[family], artifact=Lowered(build, "cpu"), requires=())
            for family, build in FAMILIES.items()
        }
    sites = [site for site in sites_of(program, "cuda", bare=True) if site.family in FAMILIES]
    assert len(sites) == 2
    applied = apply_kernels if HERE else interpreted(apply_kernels)
    changed: Program = applied(program, {site.key: kernels[site.family] for site in sites})
    return changed


@pytest.mark.parametrize("case", CASES)
def test_masks_biases_and_their_cotangents(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes, settings = CASES[case]
    rng = np.random.default_rng()
    operands = [rng.normal(size=(BATCH, HEADS, length, WIDTH)) for length in (QUERIES, KEYS, KEYS)]
    for kind, shape in shapes.items():
        operands.append(rng.normal(size=shape) * 2 if kind == "bias" else rng.random(shape) < 0.5)
    if "mask" in shapes:
        operands[3][-1, ..., (slice(None) if shapes["mask"][2] == 1 else slice(5, 6)), :] = False
    operands.append(rng.normal(size=(BATCH, HEADS, QUERIES, WIDTH)))
    given = [x.astype(np.float32) if x.dtype == np.float64 else x for x in operands]
    program = _program(shapes, settings)
    right = exactly(program, *given)
    for storage in ("bf16+result", *([] if "cap" in settings else ["bf16_centred"])):
        found = run(_by_triton(program, storage, monkeypatch), *given)
        for exact, y in zip((right[0], *right[1]), (found[0], *found[1]), strict=True):
            exact, y = np.asarray(exact, np.float64), np.asarray(y, np.float64)
            assert not np.any(np.isnan(y) & ~np.isnan(exact))
            # Keys that a query does not look at get 0 of it instead of 0 NaN.
            assert "offset" in settings or np.array_equal(np.isnan(y), np.isnan(exact))
            error = np.linalg.norm(np.nan_to_num(y - exact))
            assert error <= 1.5e-2 * np.linalg.norm(np.nan_to_num(exact)), storage
        assert np.array_equal(np.isnan(found[0]), np.isnan(right[0]))


@lowers_for_gpus
def test_no_scores_are_in_memory_and_the_bias_is_read_where_it_lies() -> None:
    shapes, settings = CASES["padding, and a bias of all samples"]
    program = _program(shapes, settings)
    kernels = {family: kernel_named(f"{family}.triton:bf16+result") for family in FAMILIES}
    sites = [site for site in sites_of(program, "cuda", bare=True) if site.family in FAMILIES]
    text = apply_kernels(program, {site.key: kernels[site.family] for site in sites}).text
    text = text.partition("func.func private")[0]
    assert text.count("__gpu$xla.gpu.triton") == 4  # forward, for queries, for keys, and for the bias
    assert f"{BATCH}x{HEADS}x{QUERIES}x{KEYS}x" not in text
    assert f"{BATCH}x1x{QUERIES}x{KEYS}x" not in text
