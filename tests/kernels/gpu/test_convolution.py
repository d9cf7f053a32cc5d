"""Convolutions by cuDNN: on a processor what is written for it, beside float64, and where it stands."""

import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pytest

import pcp
from pcp.autodiff.gradient import value_and_vjp
from pcp.ir import Program
from pcp.kernels import apply_kernels, kernel_named, sites_of
from pcp.kernels.features import features_of
from pcp.planning.paths.preparation import prepared
from tests.execution import exactly, run
from tests.kernels.gpu.emulated import emulate

ROUNDED, TF32 = "convolution.xla:bf16+result", "convolution.xla:tf32"
Case = tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]
CASES: dict[str, Case] = {
    "wide": ({"padding": "SAME"}, (2, 8, 7, 6), (5, 8, 3, 3)),
    "strided": ({"strides": 2, "padding": [(1, 1), (0, 1)]}, (2, 4, 9, 8), (6, 4, 3, 3)),
    "dilated": ({"kernel_dilation": 2, "padding": [(2, 2), (2, 2)]}, (1, 3, 8, 9), (4, 3, 3, 3)),
    "groups": ({"padding": "SAME", "groups": 4}, (2, 8, 6, 5), (12, 2, 3, 3)),
    "depthwise": ({"strides": 2, "padding": [(1, 1), (1, 1)], "groups": 6}, (2, 6, 7, 8), (6, 1, 3, 3)),
    "one axis": ({"padding": "SAME"}, (2, 4, 13), (6, 4, 3)),
    "three axes": ({"strides": 2, "padding": "SAME"}, (1, 3, 4, 5, 6), (4, 3, 3, 3, 3)),
}


def _program(cases: Sequence[Case]) -> Program:
    """Convolutions of images as PyTorch has them, and the cotangents of images and kernels."""

    def convolved(*operands: Any) -> Any:
        made = []
        for x, kernel, (settings, *_) in zip(operands[::2], operands[1::2], cases, strict=True):
            space = "DHW"[5 - x.ndim :]
            orders = (f"NC{space}", f"OI{space}", f"NC{space}")
            made.append(pcp.conv_general(x, kernel, **settings, orders=orders))
        return made

    specs = [pcp.spec(shape, "f32") for _, *shapes in cases for shape in shapes]
    return prepared(value_and_vjp(pcp.trace(convolved, *specs), tuple(range(len(specs)))))


def _by(program: Program, name: str) -> Program:
    sites = [site for site in sites_of(program, "cuda") if site.family == "convolution"]
    assert all({ROUNDED, TF32} == {*site.kernels} for site in sites)
    return apply_kernels(program, {site.key: kernel_named(name) for site in sites})


@pytest.fixture
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch)


@pytest.mark.usefixtures("_gpu")
def test_images_kernels_and_their_cotangents() -> None:
    program = _program([*CASES.values()])
    assert len([s for s in sites_of(program, "cuda") if s.family == "convolution"]) == 3 * len(CASES)
    rng = np.random.default_rng(3)
    operands = [rng.normal(size=entry.spec.shape).astype(np.float32) for entry in program.arguments]
    given = program.argument_tree.unflatten(operands)
    right = jax.tree.leaves(exactly(program, *given))
    found = {name: jax.tree.leaves(run(_by(program, name), *given)) for name in (ROUNDED, TF32)}
    for name, least, most in ((ROUNDED, 1e-4, 6e-3), (TF32, 0.0, 1e-5)):  # which no processor rounds to
        for x, y in zip(right, found[name], strict=True):
            error = float(np.linalg.norm(np.asarray(y, np.float64) - x) / np.linalg.norm(x))
            assert least <= error <= most, (name, x.shape, error)


@pytest.mark.usefixtures("_gpu")
def test_it_is_written_as_xla_finds_it() -> None:
    """Operands and results in bfloat16; a kernel is turned around as the last thing; TF32 is allowed and nothing else said."""
    program = _program([CASES["strided"]])
    text = _by(program, ROUNDED).text
    lines = [line for line in text.splitlines() if "stablehlo.convolution" in line]
    assert len(lines) == 3
    assert all(
        re.search(r": \(tensor<\S+bf16>, tensor<\S+bf16>\) -> tensor<\S+bf16>", line) for line in lines
    )
    (turned,) = re.findall(r"(%\w+) = stablehlo.reverse .*bf16", text)
    assert sum(f", {turned})" in line for line in lines) == 1
    allowed = _by(program, TF32).text
    assert allowed.count("precision HIGH>") == 2 * 3
    assert not sites_of(pcp.Program.parse(allowed), "cuda")  # what says how it is computed is left alone


@pytest.mark.usefixtures("_gpu")
def test_other_types_and_turned_windows_are_left_alone() -> None:
    def sites(dtype: str, shape: tuple[int, ...] = (1, 5, 5, 3)) -> list[Any]:
        specs = pcp.spec(shape, dtype), pcp.spec((3, 3, 3, 4), dtype)
        program = prepared(pcp.trace(lambda x, k: pcp.conv2d(x, k, 1, "SAME"), *specs))
        return [site for site in sites_of(program, "cuda") if site.family == "convolution"]

    assert len(sites("f32")) == 1
    assert not sites("f64")
    assert not sites("bf16")
    assert not sites("f32", (0, 5, 5, 3))
    assert not any(site.kernels == (ROUNDED, TF32) for site in sites_of(_program([CASES["wide"]]), "cpu"))
    assert "sm_80" in features_of("cuda")


def test_patches_are_products() -> None:
    """Where windows lie beside one another, forward and backward; what is left over at the ends is cut off."""
    cases: list[Case] = [
        ({"strides": 4}, (2, 3, 12, 8), (5, 3, 4, 4)),
        ({"strides": (2, 3)}, (2, 4, 7, 8), (6, 4, 2, 3)),
        ({"strides": (1, 2, 2)}, (1, 3, 2, 4, 6), (4, 3, 1, 2, 2)),
        ({"strides": 5}, (2, 2, 14), (3, 2, 5)),
    ]
    program = _program(cases)
    assert "stablehlo.convolution" not in program.text
    others: list[Case] = [
        ({"strides": 4, "padding": [(0, 1), (0, 0)]}, *cases[0][1:]),
        ({"strides": 3}, *cases[0][1:]),
        ({"strides": 2, "groups": 2}, (2, 4, 8, 8), (6, 2, 2, 2)),
    ]
    for case in others:
        assert "stablehlo.convolution" in _program([case]).text
    rng = np.random.default_rng(4)
    operands = [rng.normal(size=entry.spec.shape).astype(np.float32) for entry in program.arguments]
    y, cotangents = run(program, *program.argument_tree.unflatten(operands))

    def plain(*operands: Any) -> list[Any]:
        made = []
        for x, kernel, (settings, *_) in zip(operands[::2], operands[1::2], cases, strict=True):
            space, strides = "DHW"[5 - x.ndim :], settings["strides"]
            strides = strides if isinstance(strides, tuple) else (strides,) * len(space)
            orders = (f"NC{space}", f"OI{space}", f"NC{space}")
            made.append(jax.lax.conv_general_dilated(x, kernel, strides, "VALID", dimension_numbers=orders))
        return made

    leaves = operands[: 2 * len(cases)]
    expected, pull = jax.vjp(plain, *leaves)
    for a, b in zip([*y, *cotangents], [*expected, *pull(operands[2 * len(cases) :])], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
