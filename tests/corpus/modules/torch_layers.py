"""Layers, functions and losses of PyTorch."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.corpus.arguments import (
    definite,
    distinct,
    integers,
    invertible,
    normal,
    positive,
    together,
    uniform,
)
from tests.corpus.case import Case, Refusal

_X = normal((3, 4))
_IMAGE = normal((2, 3, 6, 6))
_SEQUENCE = normal((2, 5, 8))
_CLASSES = lambda rng: (rng.integers(0, 4, (3,)),)  # noqa: E731  # one of the makers; PyTorch wants 64 bits
_NO_ROW = "the importer's table has no row for it; the message says how to enter one"


def _function(function: Callable[..., Any]) -> Callable[[], Callable[..., Any]]:
    return lambda: function


def _without_row(operation: str) -> Refusal:
    return Refusal("UnsupportedOperations", operation)


def _indices(high: int, *shape: int) -> Any:
    return lambda rng: (rng.integers(0, high, shape),)


def _scattered(x: torch.Tensor, u: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return x.scatter_add(0, i, u) * x.index_add(0, i[:, 0], u)


def _unrolled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    h = x[:, 0]
    for t in range(x.shape[1]):
        h = torch.tanh(h @ w + x[:, t])
    return h


class FirstOutput(nn.Module):
    """What a module returns first."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Of the inner module's inputs."""
        return self.inner(*inputs)[0]


class SelfAttention(nn.Module):
    """Attention of a sequence to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of (batch, time, 8)."""
        return self.inner(x, x, x, need_weights=False)[0]


CASES = [
    Case("linear", functools.partial(nn.Linear, 4, 5), _X, order=2),
    Case(
        "bilinear",
        functools.partial(nn.Bilinear, 4, 3, 2),
        normal((5, 4), (5, 3)),
        refusal=_without_row("_trilinear"),
        note=_NO_ROW,
    ),
    Case("embedding", functools.partial(nn.Embedding, 7, 4), _indices(7, 2, 5)),
    Case("conv_1d", functools.partial(nn.Conv1d, 3, 4, 3, padding=1), normal((2, 3, 7)), order=2),
    Case("conv_2d", functools.partial(nn.Conv2d, 3, 4, 3, stride=2, padding=1), _IMAGE, order=2),
    Case("conv_2d_dilated", functools.partial(nn.Conv2d, 3, 6, 2, dilation=2, groups=3), _IMAGE),
    Case("conv_3d", functools.partial(nn.Conv3d, 2, 3, 2), normal((1, 2, 3, 3, 3))),
    Case(
        "conv_transpose",
        functools.partial(nn.ConvTranspose2d, 3, 4, 3, stride=2, padding=1, output_padding=1),
        _IMAGE,
    ),
    Case("layer_norm", functools.partial(nn.LayerNorm, 4), _X, order=2),
    Case("rms_norm", functools.partial(nn.RMSNorm, 4), _X, order=2),
    Case("group_norm", functools.partial(nn.GroupNorm, 2, 6), normal((2, 6, 4, 4))),
    Case("batch_norm_evaluation", functools.partial(nn.BatchNorm2d, 3), _IMAGE),
    Case("batch_norm_of_batch", functools.partial(nn.BatchNorm2d, 3, track_running_stats=False), _IMAGE),
    Case("instance_norm", functools.partial(nn.InstanceNorm2d, 3, affine=True), _IMAGE),
    Case("lstm", lambda: FirstOutput(nn.LSTM(3, 4, batch_first=True)), normal((2, 5, 3))),
    Case("lstm_two_layers", lambda: FirstOutput(nn.LSTM(3, 4, 2)), normal((5, 2, 3))),
    Case("lstm_bidirectional", lambda: FirstOutput(nn.LSTM(3, 4, bidirectional=True)), normal((5, 2, 3))),
    Case("gru", lambda: FirstOutput(nn.GRU(3, 4)), normal((5, 2, 3))),
    Case("elman", lambda: FirstOutput(nn.RNN(3, 4)), normal((5, 2, 3))),
    Case("lstm_cell", functools.partial(nn.LSTMCell, 3, 4), normal((2, 3))),
    Case("gru_cell", functools.partial(nn.GRUCell, 3, 4), normal((2, 3), (2, 4)), order=2),
    Case("attention", SelfAttention, _SEQUENCE),
    Case("encoder_layer", lambda: nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True), _SEQUENCE),
    Case(
        "decoder_layer",
        lambda: nn.TransformerDecoderLayer(8, 2, 12, 0.0, batch_first=True),
        normal((2, 3, 8), (2, 5, 8)),
    ),
    Case("max_pool", functools.partial(nn.MaxPool2d, 2), distinct((2, 3, 6, 6))),
    Case("average_pool", functools.partial(nn.AvgPool2d, 3, 2, 1), _IMAGE),
    Case("adaptive_pool", functools.partial(nn.AdaptiveAvgPool2d, 2), _IMAGE),
    Case("upsample_nearest", functools.partial(nn.Upsample, scale_factor=2), _IMAGE),
    Case("upsample_bilinear", functools.partial(nn.Upsample, scale_factor=2, mode="bilinear"), _IMAGE),
    Case("pixel_shuffle", functools.partial(nn.PixelShuffle, 2), normal((2, 8, 3, 3)), order=2),
    Case("gelu", functools.partial(nn.GELU), _X, order=2),
    Case("silu", functools.partial(nn.SiLU), _X, order=2),
    Case("mish", functools.partial(nn.Mish), _X),
    Case("elu", functools.partial(nn.ELU), _X),
    Case("prelu", functools.partial(nn.PReLU), _X),
    Case("hardswish", functools.partial(nn.Hardswish), _X),
    Case("softplus", functools.partial(nn.Softplus), _X),
    Case("glu", functools.partial(nn.GLU), _X),
    Case("log_softmax", functools.partial(nn.LogSoftmax, -1), _X, order=2),
    Case("cross_entropy", _function(F.cross_entropy), together(_X, _CLASSES), order=2),
    Case(
        "cross_entropy_smoothed",
        _function(lambda x, i: F.cross_entropy(x, i, label_smoothing=0.1)),
        together(_X, _CLASSES),
    ),
    Case("mean_squared_error", _function(F.mse_loss), normal((3, 4), (3, 4)), order=2),
    Case("smooth_absolute_error", _function(F.smooth_l1_loss), normal((3, 4), (3, 4))),
    Case(
        "binary_cross_entropy",
        _function(F.binary_cross_entropy_with_logits),
        together(_X, uniform(0.1, 0.9, (3, 4))),
    ),
    Case(
        "divergence",
        _function(lambda x, y: F.kl_div(x, y, reduction="batchmean")),
        together(_X, lambda rng: (rng.dirichlet(np.ones(4), 3),)),
    ),
    Case("cosine_similarity", _function(lambda x, y: F.cosine_similarity(x, y)), normal((3, 4), (3, 4))),
    Case(
        "dot_product_attention",
        _function(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
        normal((2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4)),
    ),
    Case(
        "einsum",
        _function(lambda x, y: torch.einsum("bij,bjk->bki", x, y)),
        normal((2, 3, 4), (2, 4, 5)),
        order=2,
    ),
    Case(
        "broadcast_arithmetic",
        _function(lambda x, y: (x * y + x / (2 + y**2)).sin()),
        normal((3, 1), (4,)),
        order=2,
    ),
    Case("variance", _function(lambda x: x.var(1) + x.std(1, correction=0)), _X, order=2),
    Case("logsumexp", _function(lambda x: x.logsumexp(1)), _X, order=2),
    Case("cumulative_sum", _function(lambda x: x.cumsum(1) * x), _X, order=2),
    Case("cumulative_product", _function(lambda x: x.cumprod(1)), positive((3, 4))),
    Case("sort", _function(lambda x: x.sort(1).values * torch.arange(4)), distinct((3, 4))),
    Case("top_k", _function(lambda x: x.topk(2, 1).values), distinct((3, 6))),
    Case("gather", _function(lambda x, i: x.gather(1, i) ** 2), together(_X, _indices(4, 3, 2)), order=2),
    Case(
        "index_select",
        _function(lambda x, i: x[i] * x.index_select(0, i)),
        together(_X, _indices(3, 5)),
        order=2,
    ),
    Case(
        "scatter",
        _function(_scattered),
        together(normal((3, 4), (5, 4)), lambda rng: (np.repeat(rng.integers(0, 3, (5, 1)), 4, 1),)),
    ),
    Case("masked_fill", _function(lambda x: x.masked_fill(torch.ones(3, 4).tril().bool(), 2.0) * x), _X),
    Case(
        "where", _function(lambda x, y: torch.where(x > y, x * y, y.exp())), normal((3, 4), (3, 4)), order=2
    ),
    Case("pad_reflect", _function(lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect")), normal((2, 3, 5, 5))),
    Case("unfold", _function(lambda x: x.unfold(1, 3, 2) ** 2), normal((3, 7))),
    Case(
        "concatenate_and_split",
        _function(lambda x, y: torch.cat([x, y], 1).chunk(4, 1)[1] * torch.stack([x, y]).sum()),
        normal((3, 4), (3, 4)),
        order=2,
    ),
    Case(
        "matrix_solve",
        _function(torch.linalg.solve),
        together(invertible((3, 3)), normal((3, 2))),
        refusal=_without_row("_linalg_solve_ex"),
        note=_NO_ROW,
    ),
    Case(
        "cholesky",
        _function(lambda x: torch.linalg.cholesky((x + x.mT) / 2)),
        definite((3, 3)),
        refusal=_without_row("linalg_cholesky_ex"),
        note=_NO_ROW,
    ),
    Case(
        "inverse",
        _function(torch.linalg.inv),
        invertible((3, 3)),
        refusal=_without_row("linalg_inv_ex"),
        note=_NO_ROW,
    ),
    Case("unrolled_recurrence", _function(_unrolled), normal((2, 5, 4), (4, 4)), order=2),
    Case("error_function", _function(lambda x: x.erf() * x.sigmoid().log()), _X, order=2),
    Case("trigonometry", _function(lambda x: x.sin() * x.cos() + x.atan() * x.tanh().atanh()), _X, order=2),
    Case("power", _function(lambda x, y: x**y + x.rsqrt()), positive((3, 4), (3, 4)), order=2),
    Case("extremes", _function(lambda x: x.amax(1) * x.amin(1) + x.max(1).values), distinct((3, 4))),
    Case("roll_and_flip", _function(lambda x: x.roll(1, 0) * x.flip(1)), _X, order=2),
    Case("norms", _function(lambda x: torch.linalg.vector_norm(x, dim=1) + x.abs().sum(1)), _X),
    Case(
        "embedding_sum",
        _function(lambda w, i: F.embedding(i, w).mean(1)),
        together(normal((7, 4)), integers(0, 7, (2, 5))),
    ),
]
