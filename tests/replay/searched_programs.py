"""Small programs whose searches are recorded: each has what one kind of search needs."""

import functools
from typing import Any

import pcp
from pcp import nn

LAYERS = 6


@functools.cache
def layers() -> pcp.Program:
    """Two blocks of a feed-forward network with norms, between a product and a softmax."""

    def function(p: Any, x: Any) -> Any:
        for each in p["blocks"]:
            x = x + nn.gelu(nn.layer_norm(x, each["gain"], each["bias"]) @ each["up"]) @ each["down"]
        return pcp.softmax(x @ p["head"], -1)

    shapes = {"gain": (128,), "bias": (128,), "up": (128, 256), "down": (256, 128)}
    block = {name: pcp.spec(shape, "f32") for name, shape in shapes.items()}
    params = {"blocks": [block, block], "head": pcp.spec((128, 96), "f32")}
    return pcp.trace(function, params, pcp.spec((64, 128), "f32"))


@functools.cache
def wide_layers() -> pcp.Program:
    """The same kinds of operations at other sizes."""

    def function(p: Any, x: Any) -> Any:
        x = x + nn.gelu(nn.layer_norm(x, p["gain"], p["bias"]) @ p["up"]) @ p["down"]
        return pcp.softmax(x, -1)

    shapes = {"gain": (160,), "bias": (160,), "up": (160, 320), "down": (320, 160)}
    return pcp.trace(
        function, {name: pcp.spec(shape, "f32") for name, shape in shapes.items()}, pcp.spec((96, 160), "f32")
    )


@functools.cache
def token() -> pcp.Program:
    """One row through matrices that are given once: what takes the time is to read these."""

    def function(weights: Any, x: Any) -> Any:
        for each in weights["blocks"]:
            x = x + nn.gelu(nn.layer_norm(x, each["gain"], each["bias"]) @ each["up"]) @ each["down"]
        return pcp.softmax(x @ weights["head"].T, -1)

    shapes = {"gain": (128,), "bias": (128,), "up": (128, 256), "down": (256, 128)}
    block = {name: pcp.spec(shape, "f32") for name, shape in shapes.items()}
    weights = {"blocks": [block, block], "head": pcp.spec((160, 128), "f32")}
    return pcp.trace(function, weights, pcp.spec((1, 128), "f32"))


@functools.cache
def long() -> pcp.Program:
    """A loop whose body has sites, so that a call should take seconds."""

    def function(x: Any, weight: Any, gain: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            return pcp.softmax(nn.rms_norm(state @ weight, gain), -1), None

        return pcp.scan(step, x, pcp.ops.zeros((4000, 1), "f32"))[0]

    return pcp.trace(function, *(pcp.spec(shape, "f32") for shape in ((64, 512), (512, 512), (512,))))


@functools.cache
def there_and_back() -> pcp.Program:
    """Values that are made on the way there and read on the way back."""

    def function(x: Any, w: Any) -> Any:
        made = []
        for _ in range(LAYERS):
            x = pcp.tanh(pcp.sort(x) @ w)
            made.append(x)
        for value in reversed(made):
            x = pcp.sort(x) * value
        return pcp.softmax(x, -1).sum()

    return pcp.trace(function, pcp.spec((512, 64), "f32"), pcp.spec((64, 64), "f32"))


@functools.cache
def residual_gradient() -> pcp.Program:
    """A gradient whose values may be made again, of a prime number of rows, which cannot be cut into parts."""

    def function(x: Any, w: Any) -> Any:
        for _ in range(3):
            x = x + nn.gelu(x @ w)
        return (x**2).sum()

    return pcp.value_and_grad(pcp.trace(function, pcp.spec((67, 32), "f32"), pcp.spec((32, 32), "f32")), 1)


@functools.cache
def chain() -> pcp.Program:
    """(A B) x, which is A (B x), and two products of one operand, which are one of joined matrices."""

    def function(a: Any, b: Any, x: Any, left: Any, right: Any) -> Any:
        return a @ b @ x, a @ left, a @ right

    shapes = ((256, 192), (192, 128), (128,), (192, 64), (192, 64))
    return pcp.trace(function, *(pcp.spec(shape, "f32") for shape in shapes))


@functools.cache
def mixed() -> pcp.Program:
    """Operations of several kinds one after another, of which one place may compute some faster than another."""
    return pcp.trace(
        lambda x, w: pcp.log1p(pcp.softmax(pcp.sort(pcp.log1p(x @ w)), -1) @ w),
        pcp.spec((256, 256), "f32"),
        pcp.spec((256, 256), "f32"),
    )


@functools.cache
def stack(layers: int = 8) -> pcp.Program:
    """Weights that do not fit in a small memory together."""

    def function(x: Any, gain: Any, weights: Any) -> Any:
        for each in weights:
            x = pcp.tanh(nn.rms_norm(x @ each, gain))
        return x

    shapes = (32, 64), (64,)
    weights = [pcp.spec((64, 64), "f32")] * layers
    return pcp.trace(function, *(pcp.spec(shape, "f32") for shape in shapes), weights)


@functools.cache
def of_any_size() -> Any:
    """A program whose number of rows is a symbol."""
    return pcp.trace(
        lambda x, w: pcp.softmax(nn.gelu(x @ w), -1), pcp.spec(("n", 64), "f32"), pcp.spec((64, 96), "f32")
    )
