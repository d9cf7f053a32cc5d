"""Programs of many equal layers, small enough to be compiled in a test."""

import functools
from collections.abc import Callable

import pcp
from pcp.models import decoder
from pcp.models.published import gpt2_config
from pcp.tensor import Tensor

Layer = Callable[[Tensor, Tensor], Tensor]


def layer(x: Tensor, w: Tensor) -> Tensor:
    """Some twenty operations."""
    mean = x.mean(axis=-1, keepdims=True)
    centred = x - mean
    scaled = centred / pcp.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5)
    return x + pcp.tanh(scaled @ w) * 0.5


@functools.cache
def stacked(layers: int, width: int = 8, apply: Layer = layer) -> pcp.Program:
    """A program that applies as many layers, each with its own weights."""

    def run(x: Tensor, weights: list[Tensor]) -> Tensor:
        for w in weights:
            x = apply(x, w)
        return x

    return pcp.trace(run, pcp.spec((4, width), "f32"), [pcp.spec((width, width), "f32")] * layers)


@functools.cache
def training_step(layers: int, width: int = 16) -> pcp.Program:
    """A training step of a GPT-2, which donates its state."""
    config = gpt2_config(layers, 2, width, 8, 20, True)
    tokens = pcp.spec((2, 8), "i32")
    params = pcp.specs_of(decoder.initial_parameters(config, 0))
    loss = pcp.trace(lambda p, x, y: decoder.loss(p, x, y, config), params, tokens, tokens)
    return pcp.training_step(loss, pcp.optimizers.adamw(1e-3, weight_decay=0.1), clip_norm=1.0)
