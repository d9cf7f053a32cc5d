"""Kernels are registered once and taken in several storages; what follows from those, and what kernels were called before."""

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest

import pcp
from pcp.kernels import (
    FAMILIES,
    InvalidKernel,
    Kernel,
    UnknownKernel,
    current_name,
    kernel_named,
    register_kernel,
    sites_of,
)
from pcp.kernels.artifact import StableHLO
from pcp.kernels.storage import BF16, BF16_X3, F32, FP8, STORAGES
from pcp.planning.paths.path import Path
from pcp.planning.search.everywhere import together
from pcp.rewrite.row import Effect
from pcp.tensor import Tensor, current_builder

OLD = [
    "gelu.native", "gelu.triton", "gelu.triton_bf16", "gelu_gradient.native", "gelu_gradient.triton",
    "gelu_gradient.triton_bf16", "gated_silu.triton", "gated_silu.triton_bf16", "gated_silu_gradient.triton",
    "gated_silu_gradient.triton_bf16", "attention.whole", "attention.whole_bf16", "attention.rows_64",
    "attention.rows_64_bf16", "attention.rows_128", "attention.rows_128_bf16", "attention.chunked",
    "attention.chunked_bf16", "attention.tiled", "attention.tiled_bf16", "attention.cudnn", "attention.native",
    "attention.native_bf16", "attention.triton_bf16", "attention_gradient.whole", "attention_gradient.whole_bf16",
    "attention_gradient.rows_64", "attention_gradient.rows_64_bf16", "attention_gradient.rows_128",
    "attention_gradient.rows_128_bf16", "attention_gradient.chunked", "attention_gradient.chunked_bf16",
    "attention_gradient.tiled", "attention_gradient.tiled_bf16", "attention_gradient.cudnn", "attention_gradient.native",
    "attention_gradient.native_bf16", "attention_gradient.triton_bf16", "normalisation.two_passes",
    "normalisation.by_products", "normalisation.one_pass", "normalisation.bf16", "normalisation.native",
    "normalisation.triton", "normalisation.triton_bf16", "normalisation_gradient.fused",
    "normalisation_gradient.by_products", "normalisation_gradient.native", "normalisation_gradient.triton",
    "normalisation_gradient.triton_bf16", "residual_normalisation.native", "residual_normalisation.triton",
    "residual_normalisation.triton_bf16", "residual_normalisation.triton_bf16_sum", "batch_normalisation.native",
    "batch_normalisation_gradient.native", "convolution.native", "convolution.native_bf16", "convolution.native_bf16_x3",
    "cross_entropy.gathered", "cross_entropy.chunked", "cross_entropy.native", "cross_entropy.triton",
    "cross_entropy_gradient.fused", "cross_entropy_gradient.chunked", "cross_entropy_gradient.native",
    "cross_entropy_gradient.triton_bf16", "dropout.native", "dropout.triton", "dropout.triton_bf16",
    "embedding_gradient.one_hot", "embedding_gradient.one_hot_bf16", "embedding_gradient.sorted", "joined.triton_bf16",
    "adamw.native", "max_pool_gradient.native", "product.bf16", "product.bf16_blocked", "product.bf16_x3",
    "product.bf16_x3_blocked", "product.bf16_x6", "product.bf16_x6_blocked", "product.tf32", "product.bf16_result",
    "product.native", "product.native_bf16", "product.native_bf16_x3", "product.native_int8", "product.fp8",
    "product_epilogue.native", "product_epilogue.native_bf16", "product_epilogue.native_bf16_x3",
    "product_epilogue.native_int8", "product_epilogue.bf16_result", "quantised_product.native",
    "quantised_product.native_int8", "quantised_product.native_many", "quantised_product.native_many_bf16",
    "quantised_product.native_many_int8", "softmax.reciprocal", "softmax_gradient.fused",
]  # fmt: skip
"""Every kernel as it was called when storages were words of names."""
SINCE = {
    "gated_silu.native", "gated_silu_gradient.native", "normalisation.triton_wide", "normalisation.triton_wide:bf16",
    "normalisation_gradient.triton_wide", "attention.cudnn:bf16_centred",
    "attention_gradient.cudnn:bf16_centred", "attention.triton:bf16_centred", "attention_gradient.triton:bf16_centred",
    "product.xla:bf16_centred", "product.native:bf16_centred", "convolution.xla:bf16+result", "convolution.xla:tf32",
    "embedding_gradient.few", "convolution.native_depthwise", "attention.triton_few",
    "product.triton", "product_epilogue.triton",
}  # fmt: skip
"""Those that were not there then."""
EVERY = [kernel for family in FAMILIES.values() for kernel in family.kernels.values() if not kernel.is_added]


def test_every_older_name_is_that_of_one_kernel() -> None:
    now = [current_name(name) for name in OLD]
    assert sorted(now) == sorted({kernel.name for kernel in EVERY} - SINCE)
    for old, new in zip(OLD, now, strict=True):
        assert kernel_named(old) is kernel_named(new)
        assert current_name(new) == new
        assert (old == new) == (kernel_named(new).storage is F32)


def test_kernels_are_registered_once() -> None:
    assert len({kernel.name.partition(":")[0] for kernel in EVERY}) == 70


@pytest.mark.parametrize(
    "name",
    ["product.native_bf17", "product.native_fp8", "product.native_bf16_x6", "attention.triton_int8", "product.xla", "product",
     "product.bf16_text", "product.native:", "product.native:f32", "sine.bf16", "normalisation.cudnn", "bf16", "", "."],
)  # fmt: skip
def test_what_is_no_name_is_taken_for_none(name: str) -> None:
    assert current_name(name) == name
    with pytest.raises(UnknownKernel, match=r"choose one of gelu\.native"):
        kernel_named(name)


def test_a_path_with_an_older_name_is_followed_and_written_with_the_one_of_now() -> None:
    program = pcp.trace(lambda x, y: x @ y, pcp.spec((4, 8), "f32"), pcp.spec((8, 4), "f32"))
    (site,) = sites_of(program, "cpu")
    path = Path.of(program, {site.key: kernel_named("product.xla:bf16_x3")})
    old = path.to_json().replace("product.xla:bf16_x3", "product.bf16_x3")
    assert old != path.to_json()
    read = Path.from_json(old)
    assert (read, read.digest, read.to_json()) == (path, path.digest, path.to_json())
    assert json.loads(read.to_json())["choices"] == [[site.key, "product.xla:bf16_x3", 1]]
    assert read.applied(program).digest == path.applied(program).digest != program.digest


@pytest.mark.parametrize("kernel", EVERY, ids=str)
def test_what_follows_from_a_storage(kernel: Kernel) -> None:
    storage = kernel.storage
    assert kernel.name.endswith(storage.suffix)
    assert (":" in kernel.name) == (storage is not F32)
    assert storage is F32 or kernel.effect is Effect.lowers_precision
    assert not storage.spreads or kernel.claims.nonfinite == "spreads"
    assert storage is F32 or (kernel.bits, storage.about in kernel.about) == (storage.bits, True)
    assert set(storage.requires(kernel.artifact.kind)) <= set(kernel.needs)


def test_storages_are_in_order_and_named() -> None:
    assert list(STORAGES.values()) == sorted(STORAGES.values(), key=lambda each: each.exactness, reverse=True)
    assert [each.name for each in STORAGES.values()] == list(STORAGES)


def test_a_builder_is_given_the_storage_if_there_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        FAMILIES, "product", FAMILIES["product"].__class__("product", "", FAMILIES["product"].matches)
    )
    given: list[Any] = []

    def build(op: Any, **kept: Any) -> list[Tensor]:
        given.append(kept)
        left, right = (Tensor(value, current_builder()) for value in op.operands)
        return [pcp.matmul(left, right)]

    def kernel(name: str, *storages: Any) -> Kernel:
        return Kernel(name, "for tests", lambda _: True, StableHLO(build), storages=storages, hands=("rest",))

    register_kernel(kernel("product.several", F32, BF16))
    register_kernel(kernel("product.one", FP8))
    names = ["product.several", "product.several:bf16", "product.one:fp8"]
    assert list(FAMILIES["product"].kernels) == names
    assert [kernel_named(name).hands for name in names] == [("rest",), ("rest:bf16",), ("rest",)]
    program = pcp.trace(lambda x, y: x @ y, pcp.spec((4, 8), "f32"), pcp.spec((8, 4), "f32"))
    (site,) = sites_of(program, "cpu")
    for name in site.kernels:
        pcp.kernels.replaced(site.region, kernel_named(name))
    assert given == [{"storage": F32}, {"storage": BF16}]
    with pytest.raises(InvalidKernel, match=r"'product.one:fp8' is registered already; choose another name"):
        register_kernel(kernel("product.one", FP8, BF16_X3))


LEVELS = {
    ("cpu", 0.0): [["native", "native"]],
    ("cpu", 2.0**-16): [["native:bf16_x3", "native"], ["native", "native"]],
    ("cpu", math.inf): [
        ["native:int8", "native:bf16"], ["native:bf16", "native:bf16"],
        ["native:bf16_centred", "native"], ["native:bf16_x3", "native"], ["native", "native"],
    ],
    ("cuda", 2.0**-8): [
        ["xla:bf16+result", "cudnn:bf16+result"], ["xla:bf16", "cudnn:bf16_centred"],
        ["xla:bf16_centred", "cudnn:bf16_centred"], ["xla:tf32", "triton_few"], ["triton", "triton_few"],
    ],
    ("cuda", math.inf): [
        ["xla:fp8", "cudnn:bf16+result"], ["xla:bf16+result", "cudnn:bf16+result"], ["xla:bf16", "cudnn:bf16_centred"],
        ["xla:bf16_centred", "cudnn:bf16_centred"], ["xla:tf32", "triton_few"], ["triton", "triton_few"],
    ],
}  # fmt: skip


@pytest.mark.parametrize(("platform", "rounding"), LEVELS)
def test_what_is_tried_together_follows_from_bits(platform: str, rounding: float) -> None:
    """The most exact last: at each level the kernel of every family that keeps the fewest bits of those that keep enough."""
    classes: Any = [
        SimpleNamespace(
            digest=name,
            estimate=1.0,
            kernels=[each for each in FAMILIES[name].kernels.values() if each.is_for(platform)],
        )
        for name in ("product", "attention", "gelu")
    ]
    levels = [
        [kernel.name.partition(".")[2] for digest, kernel in chosen.items() if digest != "gelu"]
        for chosen in together(classes, rounding)
    ]
    assert levels == LEVELS[platform, rounding]


def test_tf32_is_of_nvidia_gpus_alone_and_said_in_the_algorithm_of_the_product() -> None:
    program = pcp.trace(lambda a, b: a @ b, pcp.spec((32, 16), "f32"), pcp.spec((16, 8), "f32"))
    (there,), (here,) = sites_of(program, "cuda"), sites_of(program, "cpu")
    assert "product.xla:tf32" in there.kernels
    assert "product.xla:tf32" not in here.kernels
    text = pcp.kernels.replaced(there.region, kernel_named("product.xla:tf32")).text
    assert "lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32" in text
    assert not sites_of(pcp.Program.parse(text), "cuda")  # what says how it is computed is left alone
