"""What models of images are made of: parameters by the names that diffusers gives them, and the blocks that they share.

A model is written once, as a function that asks a `Parts` for its parameters by name. Run on parameters it computes;
run without them it tells which there are, and of which shapes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pcp import nn
from pcp.models.parameters import DEVIATION
from pcp.ops.elementwise import convert, cos, sin
from pcp.ops.movement import broadcast_to, concatenate, reshape
from pcp.ops.movement.filling import zeros
from pcp.ops.windows.geometry import Padding
from pcp.tensor import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": nn.silu,
    "swish": nn.silu,
    "mish": nn.mish,
    "relu": nn.relu,
    "gelu": lambda x: nn.gelu(x, approximate=False),
}
_LONGEST_PERIOD = 10000


@dataclass(frozen=True)
class Parameter:
    """A parameter before it is drawn: its shape, and the deviation and mean that it begins with."""

    shape: tuple[int, ...]
    deviation: float
    mean: float


@dataclass(frozen=True)
class Parts:
    """The parameters below a name.

    Arguments:
        parameters: by name; None to be told which there are.
        told: where these are told, in the order in which they are asked for.
        name: of the part, with a dot behind; empty for the whole.
    """

    parameters: dict[str, Tensor] | None
    told: dict[str, Parameter] = field(default_factory=dict)
    name: str = ""

    def __getitem__(self, name: str | int) -> "Parts":
        """A part by its name, or its number in a list."""
        return Parts(self.parameters, self.told, f"{self.name}{name}.")

    def parameter(self, name: str, shape: tuple[int, ...], deviation: float, mean: float = 0.0) -> Tensor:
        """A parameter of this part."""
        full = self.name + name
        if self.parameters is not None:
            return self.parameters[full]
        self.told[full] = Parameter(shape, deviation, mean)
        return zeros(shape)

    def linear(self, x: Tensor, outputs: int, bias: bool = True, deviation: float | None = None) -> Tensor:
        """x @ weight + bias; the weight is (inputs, outputs) and begins normal with deviation sqrt(1 / inputs)."""
        inputs = x.shape[-1]
        begun = math.sqrt(1 / inputs) if deviation is None else deviation
        weight = self.parameter("weight", (inputs, outputs), begun)
        return nn.linear(x, weight, self.parameter("bias", (outputs,), 0) if bias else None)

    def conv(
        self,
        x: Tensor,
        outputs: int,
        size: int = 3,
        strides: int = 1,
        padding: Padding = "SAME",
        deviation: float | None = None,
    ) -> Tensor:
        """A convolution of images (batch, height, width, channels); the weight is (size, size, channels, outputs)."""
        shape = (size, size, x.shape[-1], outputs)
        begun = math.sqrt(1 / math.prod(shape[:3])) if deviation is None else deviation
        weight, bias = self.parameter("weight", shape, begun), self.parameter("bias", (outputs,), 0)
        return nn.conv(x, weight, bias, strides, padding)

    def group_norm(self, x: Tensor, groups: int, epsilon: float) -> Tensor:
        """Normalised over groups of channels."""
        channels = x.shape[-1]
        scale, bias = self.parameter("weight", (channels,), 0, 1), self.parameter("bias", (channels,), 0)
        return nn.group_norm(x, groups, scale, bias, epsilon)

    def table(self, numbers: Tensor, rows: int, width: int) -> Tensor:
        """A row of a table for each number."""
        return nn.embedding(numbers, self.parameter("weight", (rows, width), DEVIATION))

    def two_layers(self, x: Tensor, width: int, activation: str = "silu") -> Tensor:
        """The network that a time goes through."""
        return self["linear_2"].linear(ACTIVATIONS[activation](self["linear_1"].linear(x, width)), width)


def of_times(times: Tensor, width: int, cosines_first: bool, shift: float) -> Tensor:
    """Times as sines and cosines of angles from t down to t / 10000.

    Arguments:
        times: float numbers of shape (batch,).
        width: of the result, even.
        cosines_first: whether cosines stand before sines.
        shift: how many frequencies less the exponents are shared by.

    Returns:
        f32 of shape (batch, width).

    Source: Vaswani et al., "Attention Is All You Need", 2017, section 3.5.
    """
    half = width // 2
    exponents = -math.log(_LONGEST_PERIOD) * np.arange(half, dtype=np.float32) / (half - shift)
    angles = reshape(convert(times, "f32"), (-1, 1)) * np.exp(exponents)[None]
    parts = [cos(angles), sin(angles)] if cosines_first else [sin(angles), cos(angles)]
    return concatenate(parts, 1)


@dataclass(frozen=True)
class Residual:
    """What all residual and attention blocks of a network of convolutions share.

    Arguments:
        groups: of the norms.
        epsilon: of the norms.
        activation: a name of `ACTIVATIONS`.
        head_width: numbers of a head of attention; None: one head of all channels.
        scale_shift: whether a time scales and shifts behind the second norm, or is added before it.
        divisor: of the results of the middle blocks.
    """

    groups: int
    epsilon: float
    activation: str
    head_width: int | None
    scale_shift: bool = False
    divisor: float = 1.0

    def block(
        self,
        parts: Parts,
        x: Tensor,
        time: Tensor | None,
        outputs: int,
        resize: Callable[[Tensor], Tensor] | None = None,
        divisor: float = 1.0,
    ) -> Tensor:
        """Two convolutions beside a short cut, told of the time between them.

        Arguments:
            x: (batch, height, width, channels).
            time: (batch, width), embedded; None where there is none.
            resize: makes both x and the normed x larger or smaller.

        Source: He et al., "Deep Residual Learning", 2015; Ho et al., "Denoising Diffusion Probabilistic Models", 2020, B.
        """
        active = ACTIVATIONS[self.activation]
        y = active(parts["norm1"].group_norm(x, self.groups, self.epsilon))
        if resize is not None:
            x, y = resize(x), resize(y)
        y = parts["conv1"].conv(y, outputs)
        told = None
        if time is not None:
            told = parts["time_emb_proj"].linear(active(time), outputs * (2 if self.scale_shift else 1))
            told = reshape(told, (told.shape[0], 1, 1, told.shape[1]))
        if told is not None and not self.scale_shift:
            y = y + told
        y = parts["norm2"].group_norm(y, self.groups, self.epsilon)
        if told is not None and self.scale_shift:
            y = y * (1 + told[..., :outputs]) + told[..., outputs:]
        y = parts["conv2"].conv(active(y), outputs, deviation=0.0)
        if x.shape[-1] != outputs:
            x = parts["conv_shortcut"].conv(x, outputs, 1)
        return x + y if divisor == 1 else (x + y) * (1 / divisor)

    def attention(self, parts: Parts, x: Tensor, normed: bool = True, divisor: float = 1.0) -> Tensor:
        """Every place of an image looks at every other, beside a short cut."""
        batch, height, width, channels = x.shape
        each = self.head_width or channels
        rows = parts["group_norm"].group_norm(x, self.groups, self.epsilon) if normed else x
        rows = reshape(rows, (batch, height * width, channels))
        mixed = attended(parts, rows, channels // each, each, deviation=0.0)
        y = reshape(mixed, x.shape)
        return x + y if divisor == 1 else (x + y) * (1 / divisor)

    def middle(
        self, parts: Parts, x: Tensor, time: Tensor | None, attends: bool, normed: bool = True
    ) -> Tensor:
        """A residual block, attention, and one more."""
        x = self.block(parts["resnets"][0], x, time, x.shape[-1], divisor=self.divisor)
        if attends:
            x = self.attention(parts["attentions"][0], x, normed, self.divisor)
        return self.block(parts["resnets"][1], x, time, x.shape[-1], divisor=self.divisor)


def attended(
    parts: Parts, x: Tensor, heads: int, width: int, bias: bool = True, deviation: float | None = None
) -> Tensor:
    """Attention of rows to one another.

    Arguments:
        x: (batch, rows, channels).
        heads, width: how many heads, and numbers of each.
        bias: of the products for query, key and value.
        deviation: that the last product begins with.
    """
    batch, rows, channels = x.shape
    q, k, v = (
        reshape(parts[f"to_{name}"].linear(x, heads * width, bias), (batch, rows, heads, width))
        for name in "qkv"
    )
    mixed = reshape(nn.scaled_dot_product_attention(q, k, v), (batch, rows, heads * width))
    return parts["to_out"][0].linear(mixed, channels, deviation=deviation)


def doubled(x: Tensor) -> Tensor:
    """Each pixel four times, in a square."""
    batch, height, width, channels = x.shape
    spread = broadcast_to(
        reshape(x, (batch, height, 1, width, 1, channels)), (batch, height, 2, width, 2, channels)
    )
    return reshape(spread, (batch, 2 * height, 2 * width, channels))


def halved(x: Tensor) -> Tensor:
    """The mean of each square of four pixels."""
    return nn.avg_pool(x, (2, 2))


def smaller(parts: Parts, x: Tensor, padding: int) -> Tensor:
    """A convolution of every second place; of padding 0 there is one more row below and one more column on the right."""
    sides = (padding, padding) if padding else (0, 1)
    return parts["downsamplers"][0]["conv"].conv(x, x.shape[-1], strides=2, padding=(sides, sides))


def larger(parts: Parts, x: Tensor) -> Tensor:
    """Twice as large, then a convolution."""
    return parts["upsamplers"][0]["conv"].conv(doubled(x), x.shape[-1])


Settings = dict[str, Any]
