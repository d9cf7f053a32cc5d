"""Attention and its gradient by cuDNN: operands in bfloat16, no scores in memory.

XLA's CUDA plug-in calls cuDNN's fused kernels for custom calls of these names; a program with them needs nothing else.
Operands keep the order in which products write them (batch, length, heads, width), so nothing is transposed in memory.

Source: the custom calls that `jax.nn.dot_product_attention` emits; Dao, "FlashAttention-2", 2023.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.kernels.artifact import StableHLO
from pcp.kernels.attention.heads import Heads
from pcp.kernels.attention.key_cotangents import are_added_up, without_mean
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, tensors
from pcp.kernels.registry import register_kernel
from pcp.ops.elementwise import convert
from pcp.ops.movement import reshape, transpose
from pcp.rewrite.raising_attention import CONTRACTED, FREE
from pcp.rewrite.row import Effect
from pcp.tensor import Tensor, current_builder

WIDEST = 128
"""Numbers of a head, at most, on every GPU that has these kernels."""

RETURNS_STATUS = 2
"""The version of the custom call interface by which XLA finds its own library calls."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The operands of attention as cuDNN takes them: four axes each, the first of the sets of keys as the batch.

    Arguments:
        heads: which axis of which operand is what.
    """

    heads: Heads

    @property
    def sizes(self) -> tuple[int, int, int, int, int, int]:
        """Batch, heads of the query, heads of the keys, queries, keys, width."""
        heads = self.heads
        rest = math.prod(heads.sizes[axis] for axis in heads.batch[1:])
        groups = math.prod(heads.sizes[axis] for axis in heads.groups)
        batch = heads.sizes[heads.batch[0]] if heads.batch else 1
        return batch, rest * groups, rest, *heads.lengths, heads.sizes[CONTRACTED]

    def taken(self, tensor: Tensor, kind: str) -> Tensor:
        """An operand in bfloat16, with the axes batch, length, heads, width."""
        names, flat = self.heads.attributes[kind], self._flat(kind)
        ordered = transpose(convert(tensor, DType.bf16), [names.index(axis) for axis in flat])
        return reshape(ordered, self._shape(kind))

    def returned(self, tensor: Tensor, kind: str) -> Tensor:
        """The opposite, in float32."""
        names, flat = self.heads.attributes[kind], self._flat(kind)
        wide = reshape(tensor, [self.heads.sizes[axis] for axis in flat])
        return convert(transpose(wide, [flat.index(axis) for axis in names]), DType.f32)

    def _flat(self, kind: str) -> list[int]:
        heads = self.heads
        length = heads.queries if kind in ("query", "result") else heads.keys
        groups = heads.groups if kind in ("query", "result") else ()
        width = CONTRACTED if kind in ("query", "key") else FREE
        return [*heads.batch[:1], length, *heads.batch[1:], *groups, width]

    def _shape(self, kind: str) -> tuple[int, int, int, int]:
        batch, of_query, of_keys, queries, keys, width = self.sizes
        if kind in ("query", "result"):
            return batch, queries, of_query, width
        return batch, keys, of_keys, width

    def described(self, backward: bool) -> str:
        """What the calls are told, as XLA reads it."""
        batch, of_query, _, queries, keys, _ = self.sizes
        return json.dumps(
            {
                "operation_queue_id": "0",
                "cudnn_fmha_backend_config": {
                    "algorithm": {
                        "algo_id": "0",
                        "math_type": "TENSOR_OP_MATH",
                        "tuning_knobs": {"17": "1", "24": "0"},
                        "is_cudnn_frontend": True,
                        "workspace_size": "0",
                    },
                    "fmha_scale": self.heads.attributes["scale"],
                    "intermediate_tensor_shape": _scores(batch, of_query, queries, keys),
                    "is_flash_attention": True,
                    "mask_type": "CAUSAL" if self.heads.attributes["causal"] else "NO_MASK",
                    **(_BACKWARD if backward else _FORWARD),
                    "dropout_rate": 0.0,
                    "seed": 42,
                    "sliding_window_length": self.heads.window or 0,
                    "max_seg_per_batch": 1,
                    "is_paged_attention": False,
                },
            }
        )

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """The result (batch, queries, heads, width), and for every query the logarithm of the sum of its weights, float32 of
        shape (batch, heads, queries)."""
        batch, of_query, _, queries, _, width = self.sizes
        results = (
            TensorSpec((batch, of_query, queries, width), DType.bf16),
            TensorSpec((batch, of_query, queries), DType.f32),
        )
        y, normaliser = _call("__cudnn$fmhaSoftmax", (query, key, value), results, self.described(False))
        return transpose(y, (0, 2, 1, 3)), normaliser

    def backward(self, operands: Sequence[Tensor]) -> list[Tensor]:
        """The cotangents of query, key and value, from those, the normaliser, the cotangent of the result, and the result."""
        batch, of_query, of_keys, queries, keys, width = self.sizes
        of_key = TensorSpec((batch, of_keys, keys, width), DType.bf16)
        results = (TensorSpec((batch, of_query, queries, width), DType.bf16), of_key, of_key)
        found = _call("__cudnn$fmhaSoftmaxBackward", operands, results, self.described(True))
        return [transpose(x, (0, 2, 1, 3)) for x in found]


def _axes(left: int, right: int, batch: tuple[int, int], other: tuple[int, int]) -> dict[str, list[str]]:
    return {
        "lhs_contracting_dimensions": [str(left)],
        "rhs_contracting_dimensions": [str(right)],
        "lhs_batch_dimensions": [str(axis) for axis in batch],
        "rhs_batch_dimensions": [str(axis) for axis in other],
    }


# Scores have the axes batch, heads, queries, keys; everything else batch, length, heads, width.
_FORWARD = {
    "bmm1_dot_dimension_numbers": _axes(3, 3, (0, 2), (0, 2)),
    "bmm2_dot_dimension_numbers": _axes(3, 1, (0, 1), (0, 2)),
}
_BACKWARD = {
    "bmm1_grad_gemm1_dot_dimension_numbers": _axes(2, 1, (0, 1), (0, 2)),
    "bmm1_grad_gemm2_dot_dimension_numbers": _axes(3, 1, (0, 1), (0, 2)),
    "bmm2_grad_gemm1_dot_dimension_numbers": _axes(2, 1, (0, 1), (0, 2)),
    "bmm2_grad_gemm2_dot_dimension_numbers": _axes(3, 3, (0, 2), (0, 2)),
}


def _scores(*shape: int) -> dict[str, object]:
    """The shape of the scores, as XLA writes one in JSON."""
    return {
        "element_type": "BF16",
        "dimensions": [str(size) for size in shape],
        "tuple_shapes": [],
        "layout": {
            "dim_level_types": [],
            "dim_unique": [],
            "dim_ordered": [],
            "minor_to_major": ["3", "2", "1", "0"],
            "tiles": [],
            "element_size_in_bits": "0",
            "memory_space": "0",
            "index_primitive_type": "PRIMITIVE_TYPE_INVALID",
            "pointer_primitive_type": "PRIMITIVE_TYPE_INVALID",
            "dynamic_shape_metadata_prefix_bytes": "0",
        },
        "is_dynamic_dimension": [False] * 4,
    }


def _call(
    target: str, operands: Sequence[Tensor], results: Sequence[TensorSpec], config: str
) -> list[Tensor]:
    """A call of cuDNN, without the workspace that it returns.

    Results (batch, heads, length, width) lie in memory as (batch, length, heads, width).
    """
    builder = current_builder()
    workspace = TensorSpec((0,), DType.u8)
    with builder.location:
        op = builder.emit(
            "stablehlo.custom_call",
            [operand.value for operand in operands],
            [*results, workspace],
            {
                "call_target_name": target,
                "api_version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), RETURNS_STATUS),
                "backend_config": config,
                "operand_layouts": _layouts([tuple(reversed(range(x.ndim))) for x in operands]),
                "result_layouts": _layouts(
                    [
                        (3, 1, 2, 0) if len(x.shape) == 4 else tuple(reversed(range(len(x.shape))))
                        for x in results
                    ]
                    + [(0,)]
                ),
            },
        )
    return [Tensor(value, builder) for value in list(op.results)[:-1]]


def _layouts(orders: Sequence[tuple[int, ...]]) -> ir.Attribute:
    return ir.ArrayAttr.get(
        [ir.Attribute.parse(f"dense<{list(order)}> : tensor<{len(order)}xindex>") for order in orders]
    )


def _applies(op: ir.Operation) -> bool:
    named, heads = Named.of(op), Heads.of(op)
    if heads is None or not named.is_f32 or max(named.attributes.get("wrt", (0,))) > 2:
        return False
    given, sizes = heads.attributes, heads.sizes
    if "mask" in given or "bias" in given or (given["causal"] and heads.last_key != 0):
        return False
    if heads.window is not None and heads.lengths[0] != heads.lengths[1]:
        return False
    width = sizes[CONTRACTED]
    return width == sizes[FREE] and width % 8 == 0 and 0 < width <= WIDEST and 0 not in sizes.values()


def _operands(op: ir.Operation) -> tuple[Layout, list[Tensor]]:
    heads = Heads.of(op)
    assert heads is not None
    layout = Layout(heads)
    kinds = zip(tensors(op), ("query", "key", "value"), strict=False)
    return layout, [layout.taken(tensor, kind) for tensor, kind in kinds]


def _attention(op: ir.Operation) -> list[Tensor]:
    layout, operands = _operands(op)
    y, normaliser = layout.forward(*operands)
    return [layout.returned(y, "result"), y, normaliser]


def _gradient(op: ir.Operation, residuals: Sequence[Tensor]) -> list[Tensor]:
    layout, operands = _operands(op)
    named = Named.of(op)
    y, normaliser = residuals or layout.forward(*operands)
    cotangent = layout.taken(tensors(op)[len(named.operands)], "result")
    of_query, of_key, of_value = layout.backward((*operands, normaliser, cotangent, y))
    wrt = named.attributes["wrt"]
    if 1 in wrt and are_added_up(op.results[wrt.index(1)]):
        of_key = without_mean(convert(of_key, DType.f32), 1)
    found = {
        0: layout.returned(of_query, "query"),
        1: layout.returned(of_key, "key"),
        2: layout.returned(of_value, "value"),
    }
    return named.cotangents(op, found)


_RESIDUALS = ("attention.cudnn_result", "attention.cudnn_normaliser")
register_kernel(
    Kernel(
        "attention.cudnn",
        Effect.lowers_precision,
        "cuDNN's fused kernel in bfloat16, without scores in memory",
        _applies,
        StableHLO(_attention),
        requires=("cuda", "sm_80"),
        hands=_RESIDUALS,
    )
)
register_kernel(
    Kernel(
        "attention_gradient.cudnn",
        Effect.lowers_precision,
        "cuDNN's fused kernel in bfloat16, without scores in memory",
        _applies,
        StableHLO(_gradient),
        requires=("cuda", "sm_80"),
        nonfinite="skips",
        takes=_RESIDUALS,
    )
)
