"""Kernels for `pcp.attention` and its gradient: tiles of several shapes, with products of float32 or bfloat16."""

from collections.abc import Callable
from dataclasses import replace

from pcp.ir.bindings import ir
from pcp.ir.composites.records import ATTENTION
from pcp.kernels.artifact import Build, StableHLO
from pcp.kernels.attention.heads import Heads
from pcp.kernels.attention.lengths import Masked, takes_lengths
from pcp.kernels.attention.tiles import Operands, Tiling, backward, forward
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, is_named, tensors
from pcp.kernels.registry import Family, register_family, register_kernel
from pcp.kernels.storage import BF16, F32, Storage
from pcp.tensor import Tensor

LARGEST = 256
"""Tiles are written out one by one, so there must not be more."""


def tiled(tiling: Tiling) -> Build:
    """A kernel that computes attention tile by tile."""

    def build(op: ir.Operation, storage: Storage) -> list[Tensor]:
        masked = Masked.of(op)
        # Of a query that sees no key the result is no number here, and 0 takes its place.
        kept = replace(tiling, storage=storage)
        result, _ = forward(Operands.of(masked.heads, kept, masked.operands, masked.heads.sight.fill))
        return [masked.returned(result, "result")]

    return build


def tiled_gradient(tiling: Tiling) -> Build:
    """A kernel that computes the gradient of attention tile by tile."""

    def build(op: ir.Operation, storage: Storage) -> list[Tensor]:
        masked, named = Masked.of(op), Named.of(op)
        cotangent = masked.turned(tensors(op)[len(named.operands)], "result")
        # Sums over queries go through one that sees no key, too: its weights have to be numbers.
        kept = replace(tiling, storage=storage)
        operands = Operands.of(masked.heads, kept, masked.operands, masked.heads.sight.finite)
        *others, bias = backward(operands, cotangent)
        further = {} if bias is None else {masked.heads.place_of_bias: bias}
        return masked.cotangents(op, others, further)

    return build


def _fits(tiling: Tiling) -> Callable[[ir.Operation], bool]:
    def applies(op: ir.Operation) -> bool:
        heads = Heads.of_f32(op)
        if heads is None or not takes_lengths(op, heads):
            return False
        if tiling.queries is None and tiling.keys is None:
            return True
        if tiling.keys is None and not heads.sight.skips:
            return False  # without later keys to leave out, blocks of queries alone save nothing
        return 1 < tiling.count(heads) <= LARGEST

    return applies


for _name, _about, _matches, _gradient in (
    ("attention", "softmax of query times key, times value", ATTENTION.name, "attention_gradient"),
    ("attention_gradient", "the gradient of attention", ATTENTION.gradient_name, ""),
):
    register_family(Family(_name, _about, is_named(_matches), gradient=_gradient, saturates=not _gradient))
    _make = tiled if _gradient else tiled_gradient
    for _kind, _queries, _keys, _how in (
        ("whole", None, None, "all queries and keys at once, axes in one order"),
        ("rows_64", 64, None, "64 queries at a time, with the keys that they see"),
        ("rows_128", 128, None, "128 queries at a time, with the keys that they see"),
        ("chunked", None, 128, "128 keys at a time, softmax put together as they come"),
        ("tiled", 128, 128, "128 queries and keys at a time, softmax put together as they come"),
    ):
        _tiling = Tiling(_queries, _keys)
        register_kernel(
            Kernel(
                f"{_name}.{_kind}",
                _how,
                _fits(_tiling),
                StableHLO(_make(_tiling)),
                version=1 if _gradient == "" else 2,
                nonfinite="skips" if _name == "attention_gradient" else "nan",
                storages=(F32, BF16),
                keeps="operands of products",
            )
        )
