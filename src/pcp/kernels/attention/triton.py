"""Attention for NVIDIA GPUs in Pallas by Triton: what cuDNN does not take, as caps of scores, heads of up to 256 numbers, masks
and biases that differ along other axes from one another, and the cotangent of any bias.

Operands and result are in bfloat16, sums in float32; no scores are in memory.
"""

import math
from collections.abc import Sequence

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.ir.composites.records import ATTENTION
from pcp.kernels.artifact import Application, Lowered
from pcp.kernels.attention.blocks import SMALLEST, Attention, Blocks, Forward
from pcp.kernels.attention.gradient_blocks import Backward
from pcp.kernels.attention.heads import Heads, Order
from pcp.kernels.attention.layout import Layout, takes_one_length_each
from pcp.kernels.attention.sight import FINITE, HIDING, MASKS
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, tensors
from pcp.kernels.pallas import is_numbered_in_32_bits, next_power_of_two
from pcp.kernels.registry import register_with_gradient
from pcp.kernels.storage import BF16_CENTRED, BF16_RESULT, Storage, as_kept, widened
from pcp.ops.elementwise import convert, not_equal, where
from pcp.ops.movement import expand_dims, transpose
from pcp.rewrite.raising.attention import CONTRACTED, FREE
from pcp.tensor import Tensor

BLOCKS = {
    64: (Blocks(64, 64, 4, 3), Blocks(64, 64, 4, 2), Blocks(64, 64, 4, 3)),
    128: (Blocks(128, 64, 4, 2), Blocks(64, 64, 4, 2), Blocks(64, 64, 4, 2)),
    256: (Blocks(128, 32, 8, 2), Blocks(128, 32, 8, 1), Blocks(64, 64, 8, 1)),
}
"""Of the forward pass and of the cotangents of queries and of keys, by the width of a head, at most: the fastest of ten on an
H200 that an A100 has memory for."""


def attention_of(layout: Layout) -> Attention:
    """What is computed."""
    attributes, width = layout.heads.attributes, layout.sizes[-1]
    padded = max(SMALLEST, next_power_of_two(width))
    blocks = next(blocks for most, blocks in BLOCKS.items() if padded <= most)
    cap = float(attributes["cap"]) if "cap" in attributes else None
    sight = layout.heads.sight
    fill = sight.fill if sight.by & {"mask"} or sight.offset is not None else -math.inf
    fill = -math.inf if sight.safe else FINITE if -math.inf < fill <= HIDING else fill
    return Attention(
        float(attributes["scale"]),
        cap,
        sight.band,
        *blocks,
        added=tuple(kind for kind in MASKS if kind in sight.by),
        fill=fill,
        skips=sight.offset is None or sight.skips or sight.safe,
        is_safe=sight.safe or sight.has_lengths,
    )


def _more(op: ir.Operation, layout: Layout) -> list[Tensor]:
    """The operands behind the value: lengths, or what hides keys or adds to scores."""
    if layout.lengths is not None:
        return [layout.lengths.queries, layout.lengths.keys]
    heads = layout.heads
    masks = heads.masks(tensors(op)).items()
    spread = {kind: heads.spread(x, kind, Order.by_length, by_queries=False) for kind, x in masks}
    return [convert(x, DType.i8) if kind == "mask" else as_kept(x) for kind, x in spread.items()]


def _operands(op: ir.Operation, layout: Layout, storage: Storage) -> tuple[list[Tensor], Tensor | None]:
    """Query, key and value, with whatever is beyond the lengths, and what was taken off the values for every query."""
    whole, named, middle = (
        Layout(layout.heads),
        dict(zip(ATTENTION.operands, tensors(op), strict=False)),
        None,
    )
    if storage.centred:
        named, middle = layout.centred(named)
    return [whole.taken(x, kind) for kind, x in named.items()], middle


def _attention(op: ir.Operation, storage: Storage) -> Application:
    layout = Layout.of(op)
    operands, middle = _operands(op, layout, storage)

    def results(returned: Sequence[Tensor]) -> list[Tensor]:
        whole = returned[0] if middle is None else widened(returned[0]) + middle
        if (
            middle is not None and layout.heads.sight.has_masks
        ):  # a query that sees no key has no mean of values, either
            sees = not_equal(expand_dims(transpose(returned[2], (0, 2, 1)), 3), 0.0)
            whole = where(sees, whole, 0.0)
        around = Layout(layout.heads) if middle is None else layout
        return [around.returned(whole, "result"), *returned]

    return Application(Forward(attention_of(layout)), (*operands, *_more(op, layout)), results)


def _gradient(op: ir.Operation, residuals: Sequence[Tensor], storage: Storage) -> Application:
    layout = Layout.of(op)
    cotangent = Layout(layout.heads).taken(tensors(op)[len(Named.of(op).operands)], "result")
    operands, _ = _operands(op, layout, storage)
    place, wrt = layout.heads.place_of_bias, Named.of(op).attributes["wrt"]

    def results(cotangents: Sequence[Tensor]) -> list[Tensor]:
        of_bias = (layout.heads.for_bias(x, Order.by_length) for x in cotangents[3:])
        return layout.cotangents(op, cotangents[:3], dict(zip([place], of_bias, strict=False)))

    backward = Backward(attention_of(layout), given=bool(residuals), with_bias=place in wrt)
    return Application(backward, (*operands, cotangent, *residuals, *_more(op, layout)), results)


def _applies(op: ir.Operation) -> bool:
    heads = Heads.of_f32(op)
    if heads is None or not takes_one_length_each(op, heads):
        return False
    width = heads.sizes[CONTRACTED]
    return width == heads.sizes[FREE] and width <= max(BLOCKS) and is_numbered_in_32_bits(op)


_ABOUT = "by blocks of queries and keys, without scores in memory"
register_with_gradient(
    Kernel(
        "attention.triton",
        _ABOUT,
        _applies,
        Lowered(_attention, "cuda"),
        requires=("sm_80",),
        nonfinite="skips",
        hands=("attention.triton_result", "attention.triton_largest", "attention.triton_reciprocal"),
        keeps="keys and values",
        applies_in=lambda op, storage: not (storage.centred and "cap" in Named.of(op).attributes),
        storages=(BF16_RESULT, BF16_CENTRED),
    ),
    Lowered(_gradient, "cuda"),
    about=f"{_ABOUT}; weights are computed again",
)
