"""The fixed set of programs whose facts are recorded: the models that PCP ships, with gradients, training steps and decoding,
other networks, the rows of every derivative, examples, and a sample of the corpora."""

import functools
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import pcp
from pcp import nn, optimizers
from pcp.inference.readiness import Shape
from pcp.inference.runner import step_program
from pcp.ir import TensorSpec
from pcp.models import decoder
from pcp.models.decoder import empty_cache
from pcp.models.parameters import quantised
from pcp.models.published import gpt2_config, llama_config
from tests.autodiff.rows import ROWS
from tests.autodiff.rows.row import Row
from tests.autodiff.test_rules import drawn, in_a_graph
from tests.corpus import OF_JAX, sampled

GPT2 = gpt2_config(2, 2, 32, 16, 64, True)
LLAMA = llama_config(layers=2, heads=2, key_value_heads=1, width=32, hidden=64, context=16, vocabulary=64)
_CONFIGURATIONS: dict[str, Any] = {"gpt2": GPT2, "llama": LLAMA}
_REPOSITORY = Path(__file__).parents[2]
_WRITTEN_OUT = ("lgamma", "digamma", "polygamma")
Make = Callable[[], pcp.Program]


def _specs(**shapes: tuple[int, ...]) -> dict[str, TensorSpec]:
    return {name: pcp.spec(shape, "f32") for name, shape in shapes.items()}


def _loss_of(name: str) -> pcp.Program:
    config = _CONFIGURATIONS[name]
    params = pcp.specs_of(decoder.initial_parameters(config, 0))
    tokens = pcp.spec((2, 16), "i32")
    return pcp.trace(lambda p, x, y: decoder.loss(p, x, y, config), params, tokens, tokens)


def _convolutional(p: Any, x: Any, y: Any) -> Any:
    x = nn.relu(nn.group_norm(nn.conv(x, p["first"], padding="SAME"), 2, p["gain"], p["bias"]))
    x = nn.max_pool(x, (2, 2))
    x = nn.gelu(nn.conv(x, p["second"], padding="SAME")).mean((1, 2))
    return nn.cross_entropy(nn.linear(x, p["last"]), y).mean()


def _sequence(p: Any, x: Any, y: Any) -> Any:
    def step(state: Any, one: Any) -> Any:
        state = pcp.tanh(one @ p["in"] + state @ p["inner"])
        return state, state

    _, states = pcp.scan(step, pcp.ops.zeros((4, 8), "f32"), x)
    return nn.mse(nn.rms_norm(states, p["gain"]) @ p["out"], y)


@functools.cache
def loss(name: str) -> pcp.Program:
    """The loss of a model; parameters come first."""
    if name in _CONFIGURATIONS:
        return _loss_of(name)
    if name == "convolutional":
        shapes = _specs(first=(3, 3, 3, 8), gain=(8,), bias=(8,), second=(3, 3, 8, 8), last=(8, 5))
        images, classes = pcp.spec((4, 8, 8, 3), "f32"), pcp.spec((4,), "i32")
        return pcp.trace(_convolutional, shapes, images, classes)
    parts = _specs(**{"in": (6, 8), "inner": (8, 8), "gain": (8,), "out": (8, 3)})
    return pcp.trace(_sequence, parts, pcp.spec((5, 4, 6), "f32"), pcp.spec((5, 4, 3), "f32"))


MODELS = ("gpt2", "llama", "convolutional", "sequence")
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "adamw": lambda: optimizers.adamw(1e-3),
    "sgd": lambda: optimizers.sgd(1e-3),
    "muon": lambda: optimizers.muon(optimizers.adamw(1e-3)),
}


@functools.cache
def gradient(name: str) -> pcp.Program:
    """The loss of a model and its gradient."""
    return pcp.value_and_grad(loss(name), 0)


@functools.cache
def training_step(name: str, optimizer: str) -> pcp.Program:
    """A training step of a model."""
    return pcp.training_step(loss(name), OPTIMIZERS[optimizer](), clip_norm=1.0)


def inference(name: str) -> Iterator[tuple[str, Make]]:
    """What generating runs: the first tokens, and one more, with weights as they are trained and stored in fewer bits."""
    config = _CONFIGURATIONS[name]
    plain = decoder.initial_parameters(config, 0)
    cache = empty_cache(config, 5, 4)
    yield f"prefill of {name}", lambda: step_program(plain, config, cache, Shape(1, 8, 2))
    yield f"decode of {name}", lambda: step_program(plain, config, cache, Shape(2, 1, 2))
    for form in ("int8", "int4"):
        yield (
            f"decode of {name} in {form}",
            lambda form=form: step_program(quantised(plain, form), config, cache, Shape(2, 1, 2)),
        )


def rules() -> list[tuple[str, Row]]:
    """The rows of derivatives by names, but those that take long, and those that passes of jaxlib write out, each version of it
    otherwise."""
    kept = (row for row in ROWS if not row.long and not row.rule.endswith(_WRITTEN_OUT))
    return [(f"rule {index:03} {row.rule}", row) for index, row in enumerate(kept)]


def of_rule(row: Row) -> pcp.Program:
    """The program of a row: the function in the middle of a graph."""
    arguments, scales = drawn(row)
    return pcp.trace(in_a_graph(row.function), tuple(scales), tuple(arguments))


def _example(file: str) -> ModuleType:
    place = _REPOSITORY / "examples" / file
    found = importlib.util.spec_from_file_location(f"example_{place.stem}", place)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def examples() -> Iterator[tuple[str, Make]]:
    """Functions of the examples that are no model; `op by op` has one for each of its operations."""
    product = _example("01_operations_and_plans.py").scaled_product
    yield "example 01", lambda: pcp.trace(product, *map(_f32, ((4, 3), (3, 5), ())))
    linear = _example("02_network_by_hand.py").linear
    yield "example 02", lambda: pcp.trace(linear, *map(_f32, ((4, 2), (2, 8), (8,))))
    for name, (function, shapes) in _example("03_gradients_op_by_op.py").OPERATIONS.items():
        yield (
            f"example 03 {name}",
            lambda function=function, shapes=shapes: pcp.trace(function, *map(_f32, shapes)),
        )
    energy = _example("06_new_operation.py").energy_above
    yield "example 06", lambda: pcp.trace(lambda x: energy(x, 6), _f32((64,)))


def _f32(shape: tuple[int, ...]) -> TensorSpec:
    return pcp.spec(shape, "f32")


def corpus() -> Iterator[tuple[str, Make]]:
    """One program of every family of JAX's, as it is imported: the same in every run."""
    for family, case in sampled(tuple(each for each in OF_JAX if each != "refusals"), 1):
        yield f"corpus {family} {case.name}", lambda case=case: _imported(case.function, case.arguments)


def _imported(function: Callable[..., Any], arguments: Callable[[np.random.Generator], Any]) -> pcp.Program:
    import jax

    with jax.enable_x64(True):
        return pcp.from_jax(function, *arguments(np.random.default_rng(7)))


def files() -> Iterator[tuple[str, Make]]:
    """Programs that earlier versions wrote."""
    for file in sorted((_REPOSITORY / "tests" / "ir" / "saved").glob("*.pcp")):
        yield f"file {file.name}", lambda file=file: pcp.load(file)
