"""Attention for NVIDIA GPUs in Pallas by Triton: what cuDNN does not take, caps of scores and heads of up to 256 numbers.

Operands and result are in bfloat16, sums in float32; no scores are in memory.
"""

from collections.abc import Sequence

from pcp.ir.bindings import ir
from pcp.ir.composites.records import ATTENTION
from pcp.kernels.artifact import Application, Lowered
from pcp.kernels.attention.blocks import SMALLEST, Attention, Backward, Blocks, Forward
from pcp.kernels.attention.heads import Heads
from pcp.kernels.attention.layout import Layout, takes_one_length_each
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, tensors
from pcp.kernels.pallas import is_numbered_in_32_bits, next_power_of_two
from pcp.kernels.registry import register_with_gradient
from pcp.kernels.storage import BF16_CENTRED, BF16_RESULT, Storage, widened
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
    return Attention(float(attributes["scale"]), cap, layout.heads.sight.band, *blocks)


def _ends(layout: Layout) -> list[Tensor]:
    return [] if layout.lengths is None else [layout.lengths.queries, layout.lengths.keys]


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
        around = Layout(layout.heads) if middle is None else layout
        return [around.returned(whole, "result"), *returned]

    return Application(Forward(attention_of(layout)), (*operands, *_ends(layout)), results)


def _gradient(op: ir.Operation, residuals: Sequence[Tensor], storage: Storage) -> Application:
    layout = Layout.of(op)
    cotangent = Layout(layout.heads).taken(tensors(op)[len(Named.of(op).operands)], "result")
    operands, _ = _operands(op, layout, storage)
    return Application(
        Backward(attention_of(layout), given=bool(residuals)),
        (*operands, cotangent, *residuals, *_ends(layout)),
        lambda cotangents: layout.cotangents(op, cotangents),
    )


def _applies(op: ir.Operation) -> bool:
    heads = Heads.of_f32(op)
    if heads is None or heads.sight.has_masks or not takes_one_length_each(op, heads):
        return False
    if heads.sight.offset is not None and not heads.sight.skips:
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
