"""Layers as modules, over the functions of `pcp.nn`. `init` of each makes one from a key: see `pcp.nn.initializers`."""

from collections.abc import Callable, Sequence
from typing import Any, Self

from pcp.nn import initializers
from pcp.nn.attention import scaled_dot_product_attention
from pcp.nn.convolution import conv
from pcp.nn.initializers import Initializer, Key, generator_of
from pcp.nn.layers import embedding, linear, unembedding
from pcp.nn.modules.module import Layer, Module
from pcp.nn.normalization import layer_norm, rms_norm
from pcp.ops.movement import reshape
from pcp.ops.windows.geometry import Padding, Sizes
from pcp.tensor import ShapeMismatch, Tensor, TensorLike, as_tensor

Array = Any


class Linear(Layer):
    """x @ weight + bias, of weight (inputs, outputs)."""

    weight: Array
    bias: Array = None

    @classmethod
    def init(
        cls,
        key: Key,
        inputs: int,
        outputs: int,
        bias: bool = True,
        weight_init: Initializer = initializers.lecun_normal(),  # noqa: B008 - it is a function
    ) -> Self:
        """One with random weights and a bias of zeros, or none."""
        return cls(weight_init(key, (inputs, outputs)), initializers.zeros(key, (outputs,)) if bias else None)

    def __call__(self, x: TensorLike) -> Tensor:
        return linear(x, self.weight, self.bias)


class Embedding(Layer):
    """Rows of a table, of weight (vocabulary, width)."""

    weight: Array

    @classmethod
    def init(cls, key: Key, vocabulary: int, width: int, weight_init: Initializer | None = None) -> Self:
        """One with random rows, whose squares have the sum 1 on average."""
        return cls((weight_init or initializers.normal(width**-0.5))(key, (vocabulary, width)))

    def __call__(self, tokens: TensorLike) -> Tensor:
        return embedding(tokens, self.weight)

    def attend(self, x: TensorLike) -> Tensor:
        """The product of x, of shape (..., width), with every row: scores of tokens."""
        return unembedding(x, self.weight)


class LayerNorm(Layer):
    """Mean 0 and variance 1 along the last axis, then times `scale` plus `bias`."""

    scale: Array
    bias: Array = None
    epsilon: float = 1e-5

    @classmethod
    def init(cls, width: int, bias: bool = True, epsilon: float = 1e-5) -> Self:
        """One with a scale of ones and a bias of zeros, or none."""
        return cls(initializers.ones(0, (width,)), initializers.zeros(0, (width,)) if bias else None, epsilon)

    def __call__(self, x: TensorLike) -> Tensor:
        return layer_norm(x, self.scale, self.bias, self.epsilon)


class RMSNorm(Layer):
    """Mean square 1 along the last axis, then times `scale`."""

    scale: Array
    epsilon: float = 1e-6

    @classmethod
    def init(cls, width: int, epsilon: float = 1e-6) -> Self:
        """One with a scale of ones."""
        return cls(initializers.ones(0, (width,)), epsilon)

    def __call__(self, x: TensorLike) -> Tensor:
        return rms_norm(x, self.scale, self.epsilon)


class Conv(Layer):
    """A convolution of weight (spatial, channels / groups, outputs), channels last: see `pcp.nn.conv`."""

    weight: Array
    bias: Array = None
    strides: Sizes = 1
    padding: Padding = "SAME"
    dilation: Sizes = 1
    groups: int = 1

    @classmethod
    def init(
        cls,
        key: Key,
        inputs: int,
        outputs: int,
        window: Sequence[int],
        bias: bool = True,
        weight_init: Initializer = initializers.lecun_normal(),  # noqa: B008 - it is a function
        **settings: Any,
    ) -> Self:
        """One with random weights and a bias of zeros, or none; `settings` are the further fields."""
        weight = weight_init(key, (*window, inputs // settings.get("groups", 1), outputs))
        return cls(weight, initializers.zeros(key, (outputs,)) if bias else None, **settings)

    def __call__(self, x: TensorLike) -> Tensor:
        return conv(x, self.weight, self.bias, self.strides, self.padding, self.dilation, self.groups)


class MultiHeadAttention(Layer):
    """Attention of several heads: from x to itself, or to a context."""

    query: Linear
    key: Linear
    value: Linear
    out: Linear
    heads: int

    @classmethod
    def init(cls, key: Key, width: int, heads: int, bias: bool = True) -> Self:
        """One with four random projections of `width` to `width`.

        Raises:
            ShapeMismatch: the heads do not divide the width.
        """
        if width % heads:
            raise ShapeMismatch(f"attention: a width of {width} cannot be shared by {heads} heads evenly")
        rng = generator_of(key)
        query, to_keys, value, out = (Linear.init(rng, width, width, bias) for _ in range(4))
        return cls(query, to_keys, value, out, heads)

    def __call__(
        self,
        x: TensorLike,
        context: TensorLike | None = None,
        causal: bool = False,
        mask: TensorLike | None = None,
    ) -> Tensor:
        """Of x (batch, length, width) and a context (batch, keys, width); `causal` and `mask` as of
        `pcp.nn.scaled_dot_product_attention`."""
        source = x if context is None else context
        q, k, v = (
            self._heads(f(of)) for f, of in ((self.query, x), (self.key, source), (self.value, source))
        )
        mixed = scaled_dot_product_attention(q, k, v, causal, mask)
        return self.out(reshape(mixed, (*as_tensor(x).shape[:2], -1)))

    def _heads(self, x: Tensor) -> Tensor:
        return reshape(x, (*x.shape[:2], self.heads, x.shape[2] // self.heads))


class Sequential(Module):
    """Layers, and other functions of one array, one after another."""

    layers: list[Callable[[Any], Any]]

    def __call__(self, x: TensorLike) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x
