"""Programs that together hold nearly every operation, each for tests of what must be true of all programs."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tests.autodiff.rows import ROWS as DERIVATIVES
from tests.ir.bare_operations import BARE
from tests.ops.composed_rows import COMPOSED
from tests.ops.operands import draw
from tests.ops.rows import ROWS
from tests.suite.share import part

import pcp
from pcp import nn
from pcp.ir import DType, Program
from pcp.models import decoder
from pcp.models.published import gpt2_config

DTYPES = (DType.f32, DType.bf16, DType.i32, DType.u8, DType.bool, DType.c64)
"""One element type of each kind, and a narrow one."""

TINY = gpt2_config(layers=2, heads=2, width=8, context=6, vocabulary=11)


def by_operation(of: int = 1) -> Iterator[tuple[str, Program]]:
    """A program for every row of the tables of operations, with its largest operands.

    Arguments:
        of: how many parts the tables have, of which this run's share is one.
    """
    table = [(name, n, row) for name, rows in sorted((ROWS | COMPOSED).items()) for n, row in enumerate(rows)]
    for name, number, row in part(table, of, lambda each: f"{each[0]}[{each[1]}]"):
        rng = np.random.default_rng(number)
        make = row.operands or (lambda r, s, d, row=row: [draw(r, x, d, row.low, row.high) for x in s])
        cases = [make(rng, row.shapes[-1], dtype) for dtype in DTYPES if dtype.kind in row.kinds] or [
            make(rng, row.shapes[-1], DType.f64)
        ]
        yield f"{name}[{number}]", _traced(row.apply, cases)


def _traced(apply: Callable[..., Any], cases: list[Any]) -> Program:
    return pcp.trace(lambda given: [apply(*operands) for operands in given], cases, roles=("input",))


def by_derivative(of: int = 1) -> Iterator[tuple[str, Program]]:
    """For every row of the tables of derivatives, or of this run's share of so many parts, the program of its gradients."""
    for number, row in part(enumerate(DERIVATIVES), of, lambda each: f"{each[1].rule}[{each[0]}]"):
        rng = np.random.default_rng(number)
        forward = pcp.trace(row.function, *[domain(rng) for domain in row.domains])
        yield f"{row.rule}[{number}]", pcp.vjp(forward)


def bare() -> Iterator[tuple[str, Program]]:
    """The operations that no row has, from text."""
    for name, text in BARE.items():
        yield name, Program.parse(text)


def models() -> Iterator[tuple[str, Program]]:
    """Every model, and the gradient of its loss."""
    tokens = pcp.spec((2, TINY.context), "i32")
    parameters = decoder.initial_parameters(TINY)
    yield "gpt2", pcp.trace(lambda p, x: decoder.logits(p, x, TINY), parameters, tokens)
    loss = pcp.trace(lambda p, x, y: decoder.loss(p, x, y, TINY), parameters, tokens, tokens)
    yield "gpt2 loss", loss
    yield "gpt2 gradient", pcp.value_and_grad(loss)


def layers() -> Iterator[tuple[str, Program]]:
    """Every layer of `pcp.nn`, and the gradient of the sum of what it makes."""
    for name, (function, given) in LAYERS.items():
        yield name, pcp.trace(function, *given)
        yield f"{name} gradient", pcp.vjp(pcp.trace(function, *given), 0)


def _array(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


X, IMAGE, KERNEL = _array(3, 8), _array(2, 6, 6, 4), _array(3, 3, 4, 4)
SEQUENCE, HEADS = _array(2, 5, 8), _array(2, 5, 2, 4)
TARGETS = np.array([1, 7, 0], np.int32)


def _recurrent(gates: int) -> dict[str, Any]:
    return {"input": _array(8, 4 * gates), "hidden": _array(4, 4 * gates), "bias": _array(4 * gates)}


LAYERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "attention": (
        lambda x, p: nn.attention(x, p, 2, causal=True),
        (SEQUENCE, {"qkv": {"weight": _array(8, 24)}, "out": {"weight": _array(8, 8)}}),
    ),
    "avg_pool": (lambda x: nn.avg_pool(x, (2, 2)), (IMAGE,)),
    "binary_cross_entropy": (nn.binary_cross_entropy, (X, X)),
    "celu": (nn.celu, (X,)),
    "conv": (nn.conv, (IMAGE, KERNEL)),
    "conv_transpose": (lambda x, w: nn.conv_transpose(x, w, None, 2), (IMAGE, KERNEL)),
    "cross_entropy": (nn.cross_entropy, (X, TARGETS)),
    "dropout": (lambda x, key: nn.dropout(x, key, 0.3), (X, np.array([1, 2], np.uint32))),
    "elu": (nn.elu, (X,)),
    "embedding": (lambda table, tokens: nn.embedding(tokens, table), (X, np.array([1, 0], np.int32))),
    "gelu": (nn.gelu, (X,)),
    "gelu, exact": (lambda x: nn.gelu(x, approximate=False), (X,)),
    "glu": (nn.glu, (X,)),
    "group_norm": (lambda x: nn.group_norm(x, 2), (IMAGE,)),
    "gru": (nn.gru, (SEQUENCE, _recurrent(3))),
    "gru_cell": (lambda x, h, p: nn.gru_cell(h, x, p), (X, X[:, :4], _recurrent(3))),
    "hard_sigmoid": (nn.hard_sigmoid, (X,)),
    "hard_silu": (nn.hard_silu, (X,)),
    "hard_swish": (nn.hard_swish, (X,)),
    "hard_tanh": (nn.hard_tanh, (X,)),
    "huber": (nn.huber, (X, X + 1)),
    "layer_norm": (nn.layer_norm, (X, X[0], X[1])),
    "leaky_relu": (nn.leaky_relu, (X,)),
    "linear": (nn.linear, (X, X.T)),
    "log1mexp": (nn.log1mexp, (X,)),
    "identity": (nn.identity, (X,)),
    "log_sigmoid": (nn.log_sigmoid, (X,)),
    "log_softmax": (nn.log_softmax, (X,)),
    "logsumexp": (nn.logsumexp, (X,)),
    "lstm": (nn.lstm, (SEQUENCE, _recurrent(4))),
    "lstm_cell": (lambda x, s, p: nn.lstm_cell(s, x, p), (X, (X[:, :4], X[:, 4:]), _recurrent(4))),
    "mae": (nn.mae, (X, X + 1)),
    "max_pool": (lambda x: nn.max_pool(x, (2, 2)), (IMAGE,)),
    "mish": (nn.mish, (X,)),
    "mlp": (nn.mlp, (X, {"up": {"weight": _array(8, 16)}, "down": {"weight": _array(16, 8)}})),
    "mse": (nn.mse, (X, X + 1)),
    "negative_log_likelihood": (nn.negative_log_likelihood, (X, TARGETS)),
    "one_hot": (lambda x, targets: x * nn.one_hot(targets, 8), (X, TARGETS)),
    "quantised_product": (
        lambda x, values, scales: nn.quantised_product(x, {"values": values, "scales": scales}),
        (X, _array(5, 8).astype(np.int8), _array(5)),
    ),
    "relu": (nn.relu, (X,)),
    "relu6": (nn.relu6, (X,)),
    "rms_norm": (nn.rms_norm, (X, X[0])),
    "rotary": (nn.rotary, (HEADS,)),
    "scaled_dot_product_attention": (nn.scaled_dot_product_attention, (HEADS, HEADS, HEADS)),
    "selu": (nn.selu, (X,)),
    "sigmoid": (nn.sigmoid, (X,)),
    "silu": (nn.silu, (X,)),
    "softmax": (nn.softmax, (X,)),
    "soft_sign": (nn.soft_sign, (X,)),
    "softplus": (nn.softplus, (X,)),
    "sparse_plus": (nn.sparse_plus, (X,)),
    "sparse_sigmoid": (nn.sparse_sigmoid, (X,)),
    "squareplus": (nn.squareplus, (X,)),
    "standardize": (nn.standardize, (X,)),
    "swish": (nn.swish, (X,)),
    "tanh": (nn.tanh, (X,)),
    "unembedding": (nn.unembedding, (X, X)),
}
