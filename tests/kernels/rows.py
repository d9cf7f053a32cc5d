"""The test row of every kernel of a named operation: programs at whose sites it must hold, at what error."""

from typing import Any, NamedTuple

import numpy as np

import pcp
from pcp import Program, nn
from pcp.autodiff.gradient import value_and_vjp
from pcp.ops.dropping import dropped
from pcp.planning.paths.preparation import prepared
from pcp.rewrite.raising import raised


class Row(NamedTuple):
    """A program with one kind of site, and what extreme operands there are.

    Arguments:
        function: of Tensors.
        specs: of its arguments, `f32[2,3]`.
        wrt: the arguments with a gradient; None if there is no kernel of one.
        operands: from a site's place of an operand to what it is filled with instead of normal numbers.
    """

    function: Any
    specs: tuple[str, ...]
    wrt: Any
    operands: dict[int, Any]


def program_of(row: Row) -> Program:
    """The row's function, raised, and its gradient, if it has one."""
    program = raised(pcp.trace(row.function, *(_spec(text) for text in row.specs)))
    return prepared(program if row.wrt is None else value_and_vjp(program, row.wrt))


def _spec(text: str) -> Any:
    dtype, _, sizes = text.rstrip("]").partition("[")
    return pcp.spec([int(n) for n in sizes.split(",") if n], dtype)


def _row(function: Any, *specs: str, wrt: Any = 0, **operands: Any) -> Row:
    return Row(function, specs, wrt, {int(name.removeprefix("at_")): fill for name, fill in operands.items()})


def _joined(*parts: Any) -> Any:
    """As reverse mode writes it: each part with zeros around."""
    width, total = parts[0].shape[-1], None
    for place, part in enumerate(parts):
        sides = (place * width, (len(parts) - 1 - place) * width)
        alone = pcp.pad(part, [(0, 0)] * (part.ndim - 1) + [sides])
        total = alone if total is None else total + alone
    return total


def _causal(q: Any, k: Any, v: Any) -> Any:
    return nn.scaled_dot_product_attention(q, k, v, causal=True)


def _windowed(q: Any, k: Any, v: Any) -> Any:
    return nn.scaled_dot_product_attention(q, k, v, causal=True, window=70)


def _capped(q: Any, k: Any, v: Any) -> Any:
    return nn.scaled_dot_product_attention(q, k, v, causal=True, cap=0.5)


def _padded(q: Any, k: Any, v: Any, rows: Any, columns: Any) -> Any:
    return nn.scaled_dot_product_attention(q, k, v, query_lengths=rows, key_lengths=columns)


def _padded_window(q: Any, k: Any, v: Any, columns: Any) -> Any:
    return nn.scaled_dot_product_attention(q, k, v, causal=True, window=70, key_lengths=columns)


def _masked(q: Any, k: Any, v: Any, m: Any) -> Any:
    return nn.scaled_dot_product_attention(q, k, v, mask=m)


def _biased(q: Any, k: Any, v: Any, b: Any) -> Any:
    scores = pcp.transpose(q, (0, 2, 1, 3)) @ pcp.transpose(k, (0, 2, 3, 1)) * 0.5
    return pcp.softmax(scores + b) @ pcp.transpose(v, (0, 2, 1, 3))


def _causal_and_biased(q: Any, k: Any, v: Any, b: Any) -> Any:
    scores = pcp.transpose(q, (0, 2, 1, 3)) @ pcp.transpose(k, (0, 2, 3, 1)) * 0.5 + b
    sees = pcp.greater_equal(pcp.iota(scores.shape[2:], 0), pcp.iota(scores.shape[2:], 1))
    return pcp.softmax(pcp.where(sees, scores, float("-inf"))) @ pcp.transpose(v, (0, 2, 1, 3))


def _same(x: Any, kernel: Any) -> Any:
    return pcp.conv2d(x, kernel, 1, "SAME")


def _depthwise(stride: int, dilation: int) -> Any:
    def form(x: Any, kernel: Any) -> Any:
        pads, apart = [(1, 2), (0, 3)], (dilation, dilation)
        return pcp.conv_general(
            x, kernel, (stride, stride), pads, 1, apart, x.shape[-1], ("NHWC", "HWIO", "NHWC")
        )

    return form


def _strided(x: Any, kernel: Any) -> Any:
    return pcp.conv2d(x, kernel, 2, "SAME")


def batch_norm(x: Any, scale: Any, bias: Any) -> Any:
    """By the statistics of the batch, of the features along the last axis."""
    axes = tuple(range(x.ndim - 1))
    centred = x - x.mean(axes)
    return centred * pcp.rsqrt((centred * centred).mean(axes) + 1e-5) * scale + bias


def _batch_norm_and_relu(x: Any, scale: Any, bias: Any) -> Any:
    return nn.relu(batch_norm(x, scale, bias))


def _bf16(x: Any, values: Any) -> Any:
    return nn.quantised_product(x, {"values": values})


def _scaled(x: Any, values: Any, scales: Any) -> Any:
    return nn.quantised_product(x, {"values": values, "scales": scales})


def _large(shape: tuple[int, ...]) -> Any:
    return 1e4 * np.random.default_rng(1).normal(size=shape)


def _some_infinite(shape: tuple[int, ...]) -> Any:
    random = np.random.default_rng(2)
    return np.where(random.random(shape) < 0.5, -np.inf, random.normal(size=shape))


def _one_key_seen(shape: tuple[int, ...]) -> Any:
    """Every query sees one key, and not always one in the first block."""
    return np.arange(shape[-1]) == np.random.default_rng(3).integers(0, shape[-1], (*shape[:-1], 1))


def _ends(shape: tuple[int, ...]) -> Any:
    """Lengths of sequences: none, some of a block, and more than there is."""
    return np.resize([0, 131, 5, 999], shape)


def _positive(shape: tuple[int, ...]) -> Any:
    return np.abs(np.random.default_rng(4).normal(size=shape)) + 0.1


def _adamw(p: Any, g: Any, m: Any, v: Any) -> Any:
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * (g * g)
    return m, v, p - 0.02 * ((m / 0.3) / (pcp.sqrt(v / 0.2) + 1e-6) + 0.1 * p)


THIRD = (0, 1, 2)

# By family of the forward operation; the sites of the gradient are in the same programs.
ROWS: dict[str, list[Row]] = {
    "quantised_product": [
        _row(_bf16, "f32[2,3,33]", "bf16[7,33]", wrt=None),
        _row(_bf16, "f32[1,9]", "bf16[5,9]", wrt=None, at_0=_large),
        _row(_scaled, "f32[8,65]", "i8[13,65]", "f32[13]", wrt=None),
        _row(_scaled, "f32[1,1]", "i8[1,1]", "f32[1]", wrt=None),
        _row(_scaled, "f32[1,64]", "u8[11,32]", "f32[11,2]", wrt=None),
        _row(_bf16, "f32[3,5,33]", "bf16[7,33]", wrt=None),
        _row(_scaled, "f32[9,65]", "i8[13,65]", "f32[13]", wrt=None),
        _row(_scaled, "f32[17,64]", "u8[11,32]", "f32[11,2]", wrt=None),
    ],
    "softmax": [
        _row(pcp.softmax, "f32[3,7,33]"),
        _row(lambda x: pcp.softmax(x, 0), "f32[5,1]"),
        _row(pcp.softmax, "f32[9,31]", at_0=_large),
        _row(pcp.softmax, "f32[3,64]", at_0=_some_infinite),
        _row(pcp.log_softmax, "f32[3,33]"),
        _row(pcp.log_softmax, "f32[9,31]", at_0=_large),
    ],
    "normalisation": [
        _row(nn.layer_norm, "f32[3,7,33]", "f32[33]", "f32[33]", wrt=THIRD),
        _row(lambda x, s: x + nn.layer_norm(x, s), "f32[1,9]", "f32[9]", wrt=(0, 1)),
        _row(nn.layer_norm, "f32[6,9]", "f32[9]", wrt=(0, 1), at_0=_large),
        _row(nn.rms_norm, "f32[33]", "f32[33]", wrt=(0, 1)),
        _row(nn.rms_norm, "f32[2,3,1]", "f32[1]", wrt=(0, 1)),
    ],
    "residual_normalisation": [
        _row(lambda x, r, s, b: nn.layer_norm(x + r, s, b), *["f32[3,7,33]"] * 2, "f32[33]", "f32[33]", wrt=THIRD),
        _row(lambda x, r, s: nn.rms_norm(x + r, s), *["f32[6,9]"] * 2, "f32[9]", wrt=(0, 1), at_0=_large),
        _row(lambda x, r, s: nn.rms_norm(x + r, s), *["f32[2,3,1]"] * 2, "f32[1]", wrt=(0, 1)),
    ],
    "batch_normalisation": [
        _row(batch_norm, "f32[3,7,33]", "f32[33]", "f32[33]", wrt=THIRD),
        _row(_batch_norm_and_relu, "f32[9,5,2,16]", "f32[16]", "f32[16]", wrt=THIRD),
        _row(lambda x, s, b: x + _batch_norm_and_relu(x, s, b), "f32[600,70]", "f32[70]", "f32[70]", wrt=(0, 2)),
        _row(batch_norm, "f32[19,2,5]", "f32[5]", "f32[5]", wrt=THIRD, at_0=_large),
        _row(batch_norm, "f32[1,9]", "f32[9]", "f32[9]", wrt=THIRD),
    ],
    "gelu": [
        _row(lambda x, b: nn.gelu(x + b), "f32[3,7,33]", "f32[33]", wrt=(0, 1)),
        _row(nn.gelu, "f32[1,16]"),
        _row(lambda x: nn.gelu(x, approximate=False), "f32[5,3]"),
        _row(nn.silu, "f32[5]"),
        _row(nn.gelu, "f32[9,31]", at_0=_large),
    ],
    "dropout": [
        _row(lambda k, x: nn.dropout(x, k, 0.1), "u32[2]", "f32[3,7,33]", wrt=1),
        _row(lambda k, x: nn.dropout(x, k, 0.5), "u32[2]", "f32[1]", wrt=1),
        _row(lambda k, x: nn.dropout(x, k, 0.97), "u32[2]", "f32[9,31]", wrt=1, at_1=_large),
        _row(lambda k, x: dropped(x, k, 0.1, divides=False), "u32[2]", "f32[64]", wrt=1),
    ],
    "joined": [
        _row(_joined, *["f32[2,32,128]"] * 3, wrt=None),
        _row(_joined, *["f32[64,384]"] * 2, wrt=None),
        _row(_joined, *["f32[32,192]"] * 3, wrt=None),
    ],
    "gated_silu": [
        _row(lambda g, u: nn.silu(g) * u, *["f32[3,7,128]"] * 2, wrt=(0, 1)),
        _row(lambda g, u: nn.gelu(g, approximate=False) * u, *["f32[2,64]"] * 2, wrt=(0, 1), at_0=_large),
    ],
    "product_epilogue": [
        _row(lambda x, w, b: nn.gelu(nn.linear(x, w, b)), "f32[3,22,33]", "f32[33,66]", "f32[66]", wrt=THIRD),
        _row(lambda x, w, b: nn.gelu(nn.linear(x, w, b), approximate=False), "f32[40,300]", "f32[300,70]", "f32[70]"),
        _row(lambda x, w, r: r + nn.linear(x, w), "f32[9,31]", "f32[31,5]", "f32[9,5]", at_0=_large),
        _row(lambda x, w, b, r: r + nn.linear(nn.silu(x), w, b), "f32[1,5]", "f32[5,1]", "f32[1]", "f32[1,1]"),
        _row(lambda x, w: nn.silu(x @ w), "f32[6,1]", "f32[1,50]", wrt=(0, 1)),
        _row(lambda x, w, b: nn.relu(nn.linear(x, w, b)), "f32[1,600]", "f32[600,70]", "f32[70]"),
    ],
    "adamw": [
        _row(_adamw, *["f32[3,7,11]"] * 4, **{f"at_{place}": _positive for place in range(13)}),
        _row(_adamw, *["f32[]"] * 4, **{f"at_{place}": _positive for place in range(13)}),
    ],
    "attention": [
        _row(_causal, "f32[2,130,2,8]", "f32[2,130,1,8]", "f32[2,130,1,8]", wrt=THIRD),
        _row(_causal, "f32[1,67,1,4]", "f32[1,200,1,4]", "f32[1,200,1,4]", wrt=THIRD),
        _row(_causal, "f32[1,1,1,1]", "f32[1,1,1,1]", "f32[1,1,1,1]", wrt=THIRD),
        _row(_windowed, "f32[1,140,2,4]", "f32[1,290,1,4]", "f32[1,290,1,4]", wrt=THIRD),
        _row(_causal, "f32[1,140,1,4]", "f32[1,140,1,4]", "f32[1,140,1,4]", wrt=THIRD, at_0=_large),
        _row(_capped, "f32[1,140,2,4]", "f32[1,290,1,4]", "f32[1,290,1,4]", wrt=THIRD),
        _row(
            _padded, "f32[3,140,2,4]", *["f32[3,290,1,4]"] * 2, *["i32[3]"] * 2,
            wrt=THIRD, at_3=lambda shape: _ends(shape)[::-1], at_4=_ends,
        ),
        _row(_padded_window, "f32[4,290,2,4]", *["f32[4,290,1,4]"] * 2, "i32[4]", wrt=THIRD, at_3=_ends),
        _row(
            _masked, "f32[2,3,2,4]", "f32[2,260,2,4]", "f32[2,260,2,4]", "bool[2,1,3,260]",
            wrt=THIRD, at_3=_one_key_seen,
        ),
        _row(_biased, "f32[2,130,2,4]", *["f32[2,150,2,4]"] * 2, "f32[1,2,130,150]", wrt=(0, 1, 2, 3)),
        _row(_causal_and_biased, "f32[2,140,2,4]", *["f32[2,140,2,4]"] * 2, "f32[2,140,140]", wrt=(0, 1, 2, 3)),
    ],
    "convolution": [
        _row(_same, "f32[2,7,9,17]", "f32[3,3,17,33]", wrt=(0, 1)),
        _row(_strided, "f32[2,8,7,16]", "f32[3,2,16,18]", wrt=(0, 1)),
        _row(_same, "f32[1,3,3,16]", "f32[2,2,16,16]", wrt=(0, 1), at_0=_large),
        _row(_depthwise(1, 1), "f32[2,11,12,20]", "f32[7,9,1,20]", wrt=(0, 1)),
        _row(_depthwise(2, 1), "f32[2,9,8,33]", "f32[3,2,1,33]", wrt=(0, 1)),
        _row(_depthwise(1, 3), "f32[1,14,29,5]", "f32[3,3,1,5]", wrt=(0, 1), at_0=_large),
    ],
    "max_pool_gradient": [
        _row(lambda x: pcp.reduce_window(x, "max", (1, 3, 3, 1), (1, 2, 2, 1), "SAME"), "f32[2,29,9,17]"),
        _row(lambda x: 2 * x[:, :4] + pcp.reduce_window(x, "max", (1, 2, 1, 1)), "f32[1,5,3,16]"),
        _row(lambda x: pcp.reduce_window(x, "max", (1, 2, 2, 1), (1, 3, 4, 1)), "f32[2,11,9,3]", at_0=_large),
    ],
    "cross_entropy": [
        _row(nn.negative_log_likelihood, "f32[3,5,33]", "i32[3,5]"),
        _row(nn.negative_log_likelihood, "f32[2,1]", "i32[2]", at_1=np.zeros),
        _row(nn.negative_log_likelihood, "f32[9,31]", "i32[9]", at_0=_large),
        _row(nn.negative_log_likelihood, "f32[3,31]", "i32[3]", at_1=lambda shape: np.full(shape, -7)),
        _row(
            lambda x, t: pcp.take_along_axis(pcp.log_softmax(x), t[:, None], -1),
            "f32[3,31]", "i32[3]", at_1=lambda shape: np.full(shape, -7),
        ),
        _row(nn.negative_log_likelihood, "f32[70,20000]", "i32[70]"),
    ],
    "embedding_gradient": [
        _row(lambda e, t: nn.embedding(t, e), "f32[7,5]", "i32[3,6]"),
        _row(lambda e, t: nn.embedding(t, e), "f32[1,3]", "i32[2]", at_1=np.zeros),
        _row(lambda e, t: nn.embedding(t, e), "f32[50,16]", "i32[33]"),
    ],
}  # fmt: skip
