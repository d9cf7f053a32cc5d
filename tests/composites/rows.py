"""The test rows of PCP's own composites: programs that hold one, or its plain form."""

from typing import Any, NamedTuple

import pcp
from pcp import nn, ops
from pcp.importers.torch.rows.attention import scaled_dot_product_attention
from pcp.ir import Program
from pcp.ops.dropping import dropped


class Row(NamedTuple):
    """A function in which one composite is written, or can be found.

    Arguments:
        function: of Tensors.
        specs: of its arguments, `f32[2,3]`.
        further: the operands that its composite has besides.
    """

    function: Any
    specs: tuple[str, ...]
    further: tuple[str, ...] = ()

    @property
    def written(self) -> Program:
        """The program as the function writes it."""
        return pcp.trace(self.function, *map(_spec, self.specs))

    @property
    def plain(self) -> Program:
        """The program as a file has it: written out."""
        return Program.from_artifact(self.written.artifact())


def _spec(text: str) -> Any:
    dtype, _, sizes = text.rstrip("]").partition("[")
    return pcp.spec([int(n) for n in sizes.split(",") if n], dtype)


def _attention(*kinds: str, **settings: Any) -> Any:
    def function(q: Any, k: Any, v: Any, *more: Any) -> Any:
        return nn.scaled_dot_product_attention(q, k, v, **settings, **dict(zip(kinds, more, strict=True)))

    return function


def _biased(q: Any, k: Any, v: Any, bias: Any) -> Any:
    scores = ops.einsum("bqhd,bkhd->bhqk", q, k) * 0.25 + bias
    return ops.einsum("bhqk,bkhd->bqhd", ops.softmax(scores, -1), v)


def _batch_norm(x: Any, scale: Any, bias: Any) -> Any:
    centred = x - x.mean((0, 1))
    return centred * pcp.rsqrt((centred * centred).mean((0, 1)) + 1e-5) * scale + bias


def _dropped(key: Any, x: Any) -> Any:
    return dropped(x, key, 0.5, divides=True)


def _product(x: Any, values: Any, *scales: Any) -> Any:
    return nn.quantised_product(x, dict(zip(("values", "scales"), (values, *scales), strict=False)))


def _normed(x: Any) -> Any:
    return nn.layer_norm(x, None, None)


def _max_pool(x: Any) -> Any:
    return nn.max_pool(x, (2, 2))


X, QKV = "f32[4,6]", ("f32[2,6,4,8]",) * 3
ROWS: dict[str, tuple[Row, ...]] = {
    "pcp.softmax": (Row(ops.softmax, (X,)), Row(lambda x: ops.softmax(x, 0), (X,))),
    "pcp.log_softmax": (Row(ops.log_softmax, (X,)),),
    "pcp.log_sum_exp": (Row(lambda x: ops.logsumexp(x, -1), (X,)),),
    "pcp.layer_norm": (
        Row(_normed, (X,)),
        Row(nn.layer_norm, (X, "f32[6]", "f32[6]"), ("scale", "bias")),
    ),
    "pcp.rms_norm": (Row(nn.rms_norm, (X, "f32[6]"), ("scale",)),),
    "pcp.batch_norm": (Row(_batch_norm, ("f32[4,3,6]", "f32[6]", "f32[6]")),),
    "pcp.activation": (Row(nn.gelu, (X,)), Row(nn.silu, (X,))),
    "pcp.max_pool": (Row(_max_pool, ("f32[2,4,4,3]",)),),
    "pcp.attention": (
        Row(_attention(), QKV),
        Row(_attention(causal=True, window=3, cap=2.0), QKV),
        Row(_attention("mask"), (*QKV, "bool[6,6]"), ("mask",)),
        Row(_biased, (*QKV, "f32[4,6,6]"), ("bias",)),
        Row(scaled_dot_product_attention, (*QKV, "bool[4,4]"), ("mask",)),
        Row(
            _attention("query_lengths", "key_lengths", causal=True),
            (*QKV, "i32[2]", "i32[2]"),
            ("query_lengths", "key_lengths"),
        ),
    ),
    "pcp.quantised_product": (
        Row(_product, (X, "bf16[3,6]")),
        Row(_product, (X, "i8[3,6]", "f32[3]"), ("scales",)),
    ),
    "pcp.dropout": (Row(_dropped, ("u32[2]", X)),),
    "pcp.cross_entropy": (Row(nn.negative_log_likelihood, (X, "i32[4]")),),
}
"""By the name of the composite."""
