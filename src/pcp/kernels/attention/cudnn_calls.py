"""The custom calls by which XLA's CUDA plug-in calls cuDNN's fused attention: what they are told, and how results lie.

Source: the custom calls that `jax.nn.dot_product_attention` emits.
"""

import json
from collections.abc import Mapping, Sequence

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.composites.records import ATTENTION
from pcp.tensor import Tensor, current_builder

RETURNS_STATUS = 2
"""The version of the custom call interface by which XLA finds its own library calls."""


def config(said: Mapping[str, object], *, backward: bool) -> str:
    """What a call is told, as XLA reads it: what is said here, and what is the same for all."""
    told = {
        "algorithm": {
            "algo_id": "0",
            "math_type": "TENSOR_OP_MATH",
            "tuning_knobs": {"17": "1", "24": "0"},
            "is_cudnn_frontend": True,
            "workspace_size": "0",
        },
        "fmha_scale": said["fmha_scale"],
        "intermediate_tensor_shape": said["intermediate_tensor_shape"],
        "is_flash_attention": True,
        "mask_type": said["mask_type"],
        **(_BACKWARD if backward else _FORWARD),
        "dropout_rate": 0.0,
        "seed": 42,
        "sliding_window_length": said["sliding_window_length"],
        "max_seg_per_batch": 1,
        "is_paged_attention": False,
    }
    return json.dumps({"operation_queue_id": "0", "cudnn_fmha_backend_config": told})


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


def shape_of_scores(*shape: int) -> dict[str, object]:
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


def called(
    target: str, operands: Sequence[Tensor], results: Sequence[TensorSpec], config: str
) -> list[Tensor]:
    """A call of cuDNN, without the workspace that it returns.

    Results (batch, heads, length, width) lie in memory as (batch, length, heads, width); the cotangent of a bias, which
    follows them, as it is written.
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
                        (3, 1, 2, 0)
                        if len(x.shape) == 4 and place < len(ATTENTION.operands)
                        else tuple(reversed(range(len(x.shape))))
                        for place, x in enumerate(results)
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
