"""Losses in plain JAX, as its users write them, whose gradients are compared: GPT-2, a residual network, an LSTM."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.programs import gpt2_jax
from pcp.models import decoder
from pcp.models.published import CONFIGURATIONS, gpt2_config

Tree = Any


@dataclass(frozen=True)
class Workload:
    """A loss `(params, inputs, targets) -> scalar` with its arguments as NumPy arrays."""

    name: str
    loss: Callable[..., Any]
    params: Tree
    batch: tuple[Any, ...]


def _convolution(x: Any, weight: Any, stride: int = 1) -> Any:
    return jax.lax.conv_general_dilated(
        x, weight, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _batch_norm(x: Any, scale: Any, bias: Any) -> Any:
    mean = x.mean((0, 1, 2))
    variance = x.var((0, 1, 2))
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + bias


def resnet_loss(params: Tree, images: Any, labels: Any) -> Any:
    """The mean cross entropy of a residual network in the shape of ResNet-18 for images of 32 x 32."""
    x = jax.nn.relu(_batch_norm(_convolution(images, params["stem"]["weight"]), *params["stem"]["norm"]))
    for stage, blocks in enumerate(params["stages"]):
        for index, block in enumerate(blocks):
            stride = 2 if stage and not index else 1
            y = jax.nn.relu(_batch_norm(_convolution(x, block["first"], stride), *block["norm_1"]))
            y = _batch_norm(_convolution(y, block["second"]), *block["norm_2"])
            if "shortcut" in block:
                x = _batch_norm(_convolution(x, block["shortcut"], stride), *block["norm_3"])
            x = jax.nn.relu(x + y)
    logits = x.mean((1, 2)) @ params["head"]["weight"] + params["head"]["bias"]
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=-1)
    return -picked.mean()


def resnet(widths: tuple[int, ...], batch: int, seed: int = 0) -> Workload:
    """A residual network with two blocks for each width (ResNet-18: 64, 128, 256, 512)."""
    rng = np.random.default_rng(seed)

    def kernel(size: int, inputs: int, outputs: int) -> Any:
        scale = np.sqrt(2 / (size * size * inputs))
        return (rng.standard_normal((size, size, inputs, outputs)) * scale).astype(np.float32)

    def norm(width: int) -> tuple[Any, Any]:
        return (np.ones(width, np.float32), np.zeros(width, np.float32))

    stages, inputs = [], widths[0]
    for width in widths:
        blocks = []
        for _ in range(2):
            block = {
                "first": kernel(3, inputs, width),
                "norm_1": norm(width),
                "second": kernel(3, width, width),
                "norm_2": norm(width),
            }
            if inputs != width:
                block |= {"shortcut": kernel(1, inputs, width), "norm_3": norm(width)}
            blocks.append(block)
            inputs = width
        stages.append(blocks)
    params = {
        "stem": {"weight": kernel(3, 3, widths[0]), "norm": norm(widths[0])},
        "stages": stages,
        "head": {
            "weight": (rng.standard_normal((inputs, 10)) * 0.05).astype(np.float32),
            "bias": np.zeros(10, np.float32),
        },
    }
    images = rng.standard_normal((batch, 32, 32, 3)).astype(np.float32)
    name = f"resnet {'-'.join(map(str, widths))}, batch {batch}"
    return Workload(name, resnet_loss, params, (images, rng.integers(0, 10, batch, np.int32)))


def resnet50_loss(params: Tree, images: Any, labels: Any) -> Any:
    """The mean cross entropy of ResNet-50 with the stride in the wide convolution, for images of any size."""
    x = jax.nn.relu(_batch_norm(_convolution(images, params["stem"]["weight"], 2), *params["stem"]["norm"]))
    window, strides = (1, 3, 3, 1), (1, 2, 2, 1)
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, strides, "SAME")
    for stage, blocks in enumerate(params["stages"]):
        for index, block in enumerate(blocks):
            stride = 2 if stage and not index else 1
            y = jax.nn.relu(_batch_norm(_convolution(x, block["down"]), *block["norm_1"]))
            y = jax.nn.relu(_batch_norm(_convolution(y, block["wide"], stride), *block["norm_2"]))
            y = _batch_norm(_convolution(y, block["up"]), *block["norm_3"])
            if "shortcut" in block:
                x = _batch_norm(_convolution(x, block["shortcut"], stride), *block["norm_4"])
            x = jax.nn.relu(x + y)
    logits = x.mean((1, 2)) @ params["head"]["weight"] + params["head"]["bias"]
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=-1)
    return -picked.mean()


def resnet50(batch: int, size: int = 224, depths: tuple[int, ...] = (3, 4, 6, 3), seed: int = 0) -> Workload:
    """ResNet-50, or another depth of it.

    Source: He et al., "Deep Residual Learning for Image Recognition", 2016; the stride as in "v1.5".
    """
    rng = np.random.default_rng(seed)

    def kernel(size: int, inputs: int, outputs: int) -> Any:
        scale = np.sqrt(2 / (size * size * inputs))
        return (rng.standard_normal((size, size, inputs, outputs)) * scale).astype(np.float32)

    def norm(width: int) -> tuple[Any, Any]:
        return (np.ones(width, np.float32), np.zeros(width, np.float32))

    stages, inputs = [], 64
    for stage, depth in enumerate(depths):
        width = 64 << stage
        blocks = []
        for _ in range(depth):
            block = {
                "down": kernel(1, inputs, width),
                "norm_1": norm(width),
                "wide": kernel(3, width, width),
                "norm_2": norm(width),
                "up": kernel(1, width, 4 * width),
                "norm_3": norm(4 * width),
            }
            if inputs != 4 * width:
                block |= {"shortcut": kernel(1, inputs, 4 * width), "norm_4": norm(4 * width)}
            blocks.append(block)
            inputs = 4 * width
        stages.append(blocks)
    head = (rng.standard_normal((inputs, 1000)) / np.sqrt(inputs)).astype(np.float32)
    params = {
        "stem": {"weight": kernel(7, 3, 64), "norm": norm(64)},
        "stages": stages,
        "head": {"weight": head, "bias": np.zeros(1000, np.float32)},
    }
    images = rng.standard_normal((batch, size, size, 3)).astype(np.float32)
    name = f"ResNet with {3 * sum(depths) + 2} layers, batch {batch}, {size} x {size}"
    return Workload(name, resnet50_loss, params, (images, rng.integers(0, 1000, batch, np.int32)))


def lstm_loss(params: Tree, inputs: Any, targets: Any) -> Any:
    """The mean squared error of an LSTM that is scanned over the first axis of `(time, batch, width)`."""
    width = params["recurrent"].shape[0]
    start = jnp.zeros((inputs.shape[1], width), inputs.dtype)

    def step(carry: Any, x: Any) -> Any:
        hidden, cell = carry
        gates = x @ params["input"] + hidden @ params["recurrent"] + params["bias"]
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return (hidden, cell), hidden

    _, outputs = jax.lax.scan(step, (start, start), inputs)
    return jnp.mean((outputs @ params["head"] - targets) ** 2)


def lstm(width: int, batch: int, length: int, seed: int = 0) -> Workload:
    """An LSTM as wide as its inputs."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> Any:
        return (rng.standard_normal(shape) / np.sqrt(width)).astype(np.float32)

    params = {
        "input": normal(width, 4 * width),
        "recurrent": normal(width, 4 * width),
        "bias": np.zeros(4 * width, np.float32),
        "head": normal(width, width),
    }
    inputs, targets = (rng.standard_normal((length, batch, width)).astype(np.float32) for _ in range(2))
    return Workload(f"LSTM {width}, batch {batch}, {length} steps", lstm_loss, params, (inputs, targets))


def transformer(model: str, batch: int, context: int, seed: int = 0) -> Workload:
    """GPT-2 in one of its sizes."""
    known = CONFIGURATIONS[model]
    config = gpt2_config(known.layers, known.heads, known.width, context, known.vocabulary, known.bias)
    rng = np.random.default_rng(seed)
    tokens, targets = (rng.integers(0, config.vocabulary, (batch, context), np.int32) for _ in range(2))

    def loss(params: Tree, tokens: Any, targets: Any) -> Any:
        return gpt2_jax.loss(params, tokens, targets, config)

    params = decoder.initial_parameters(config, seed)
    return Workload(f"{model}, batch {batch}, context {context}", loss, params, (tokens, targets))
