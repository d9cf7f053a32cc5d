"""The native libraries that are named for a program are all that its search would call, and naming them builds nothing."""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.distributed.tiny_run import DILOCO, tiny_recipe
from tests.kernels.rows import batch_norm

import pcp
from pcp import nn
from pcp.backends import Target
from pcp.distributed.round_arithmetic.programs import inner_step
from pcp.ir import Program
from pcp.kernels import kernel_named, native, sites_of
from pcp.kernels.features import masked
from pcp.kernels.native import building
from pcp.models.published import configuration
from pcp.planning import libraries
from pcp.planning.libraries import libraries_for
from pcp.planning.paths.kinds import PARTS
from pcp.planning.paths.kinds.parts import NotInParts
from pcp.planning.search.whole import Whole
from pcp.rewrite.raising import raised
from pcp.tracing import call
from pcp.training.recipes.decoder_recipe import DecoderRecipe

CPU = Target.of("cpu:0")
ALL_OF_GPT2 = {
    "activations",
    "attention",
    "cross_entropy",
    "normalisation",
    "optimizers",
    "products",
}


def arrays(*shapes: tuple[int, ...]) -> list[Any]:
    return [pcp.spec(shape, "f32") for shape in shapes]


def gpt2_step(tmp_path: Path) -> Program:
    tiny = tiny_recipe(tmp_path, batch=12)
    model = dataclasses.replace(configuration("gpt2-nano"), layers=2, vocabulary=tiny.tokens.vocabulary_size)
    return inner_step(DecoderRecipe(tiny.config, model, tiny.tokens), DILOCO)


def resnet_step(_: Path) -> Program:
    """A block with batch normalisation and pooling, and its update."""

    def loss(kernel: Any, scale: Any, bias: Any, head: Any, x: Any) -> Any:
        made = nn.relu(batch_norm(nn.conv(x, kernel), scale, bias))
        return (nn.max_pool(made + x, (2, 2)).mean((1, 2)) @ head).sum()

    given = arrays((3, 3, 32, 32), (32,), (32,), (32, 16), (8, 16, 16, 32))
    gradient = pcp.value_and_grad(raised(pcp.trace(loss, *given)), wrt=(0, 1, 2, 3))

    def step(*given: Any) -> Any:
        value, found = call(gradient, *given)
        return value, [p - 0.1 * g for p, g in zip(given, found, strict=False)]

    return pcp.trace(step, *given)


def lstm_step(_: Path) -> Program:
    def loss(enter: Any, hidden: Any, x: Any) -> Any:
        return nn.lstm(x, {"input": enter, "hidden": hidden})[0].sum()

    return pcp.trace(pcp.value_and_grad(loss, wrt=(0, 1)), *arrays((48, 256), (64, 256), (16, 12, 48)))


def dropout_step(_: Path) -> Program:
    def loss(w: Any, x: Any, key: Any) -> Any:
        return (nn.dropout(nn.gelu(x @ w), key, 0.1) ** 2).sum()

    return pcp.trace(lambda *given: pcp.grad(loss)(*given), *arrays((64, 96), (128, 64)), pcp.random.key(3))


def int8_product(_: Path) -> Program:
    weights = nn.quantise(np.random.default_rng().normal(size=(96, 64)).astype("f4"), "int8")
    return pcp.trace(nn.quantised_product, pcp.spec((2, 64), "f32"), weights)


STEPS: list[tuple[Callable[[Path], Program], set[str]]] = [
    (gpt2_step, ALL_OF_GPT2),
    (resnet_step, {"batch_normalisation", "convolution", "pooling", "products"}),
    (lstm_step, {"products"}),
    (dropout_step, {"activations", "dropout", "products"}),
    (int8_product, {"quantised"}),
]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The libraries that somebody asks for; all are there then."""
    names = set[str]()
    monkeypatch.setattr(native, "missing", lambda name: names.add(name) or "")
    return names


@pytest.mark.parametrize(("make", "expected"), STEPS)
def test_all_that_the_search_would_call_is_named(
    make: Callable[[Path], Program], expected: set[str], asked: set[str], tmp_path: Path
) -> None:
    step = make(tmp_path)
    named = libraries_for(step, CPU, 1e-2)
    assert not asked
    assert expected <= named <= expected | {"products", "temporaries"}
    for forms in ((), (PARTS.move(2),)):
        try:
            searched = Whole(step, 1e-2, CPU, forms=forms).prepared
        except NotInParts:
            continue
        asked.clear()
        kernels = {name for site in sites_of(searched, "cpu", bare=True) for name in site.kernels}
        called = {library for name in kernels for library in kernel_named(name).libraries}
        assert called == asked & named - {"temporaries"}
        assert forms or called


def test_what_is_named_is_not_taken_for_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(building, "built", lambda library: pytest.fail(f"{library.name} is built"))
    monkeypatch.setattr(building, "kept", lambda library: pytest.fail(f"{library.name} is looked for"))
    building._outcome.cache_clear()
    assert libraries_for(dropout_step(tmp_path), CPU, 1e-2)
    assert not building._outcome.cache_info().currsize


def test_equal_programs_have_products_where_they_are_searched_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(libraries, "sites_of", lambda *_, **__: ())
    for here, named in ((True, {"products"}), (False, set[str]())):
        monkeypatch.setattr(libraries, "is_here", lambda here=here: here)
        assert libraries_for(lstm_step(tmp_path), CPU, 1e-2) - {"temporaries"} == named
    assert not libraries_for(pcp.trace(pcp.tanh, pcp.spec((3,), "f32")), CPU, 1e-2)


def test_only_what_the_machine_and_its_device_can_call_is_named(tmp_path: Path) -> None:
    step = dropout_step(tmp_path)
    with masked("library:dropout"):
        assert libraries_for(step, CPU, 1e-2) == {"activations", "products", "temporaries"}
    assert "steps" in libraries_for(step, Target.of("arena:cpu"), 1e-2)


def test_what_is_not_built_is_built_before_the_budget_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Began(Exception):
        """The seconds of the search."""

    def begin(_: object) -> None:
        raise Began

    asked = set[str]()
    monkeypatch.setattr(sys.modules["pcp.planning.plan"], "evidence_of", begin)
    monkeypatch.setattr(native, "is_unbuilt", lambda name: name != "dropout")
    monkeypatch.setattr(native, "missing", lambda name: asked.add(name) or "")
    step = dropout_step(tmp_path)
    for budget, built in ((0.0, set[str]()), (5.0, {"activations", "products", "temporaries"})):
        with pytest.raises(Began):
            pcp.plan(step, tolerance=1e-2, budget=budget)
        assert asked == built


def test_a_library_is_unbuilt_until_it_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(building, "folder", lambda: tmp_path)
    monkeypatch.setattr(building, "kept", lambda _: None)
    assert native.is_unbuilt("products")
    monkeypatch.setattr(building, "kept", lambda library: library)
    assert not native.is_unbuilt("products")

    def no_compiler(_: object) -> None:
        raise native.NoCompiler("there is none")

    monkeypatch.setattr(building, "kept", no_compiler)
    assert not native.is_unbuilt("activations")
