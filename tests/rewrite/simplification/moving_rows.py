"""Programs that rows about places of elements change, and programs that they must leave alone.

Each entry: the row's name, a function, and what its arguments are.
"""

from typing import Any

import numpy as np

import pcp
from pcp.ir import TensorSpec
from pcp.ops import movement
from pcp.ops.movement.shape import broadcast_in_dim
from pcp.tensor import Tensor, as_tensor, emit

Case = tuple[str, Any, tuple[str, ...]]


def spread(x: Tensor, shape: tuple[int, ...], axes: tuple[int, ...]) -> Tensor:
    return broadcast_in_dim(x, shape, axes)


def moved(name: str, x: Tensor, shape: tuple[int, ...], **attributes: Any) -> Tensor:
    return emit(name, (x,), (TensorSpec(shape, x.dtype),), attributes)


def padded(x: Tensor, low: tuple[int, ...], high: tuple[int, ...], value: float = 1.5) -> Tensor:
    return movement.pad(x, list(zip(low, high, strict=True)), constant_values=value)


def padded_twice(x: Tensor, second: float) -> Tensor:
    filler = as_tensor(np.array(1.5, np.float32))
    other = filler if second == 1.5 else as_tensor(np.array(second, np.float32))
    return movement.pad(
        movement.pad(x, [(1, 0), (0, 2)], constant_values=filler), [(0, 1), (1, 1)], constant_values=other
    )


def at(x: Tensor, places: Any, sizes: tuple[int, ...]) -> Tensor:
    """The block of x at an index that is an operand."""
    starts = tuple(as_tensor(place) for place in places)
    return emit("dynamic_slice", (x, *starts), (TensorSpec(sizes, x.dtype),), {"slice_sizes": sizes})


def place(number: int) -> np.ndarray[Any, Any]:
    return np.array(number, np.int32)


def gathered(x: Tensor, start: int, sizes: tuple[int, ...], axes: str, shape: tuple[int, ...]) -> Tensor:
    batch = len(shape) - len(axes.partition("]")[0].split(","))
    numbers = f"#stablehlo.gather<offset_dims = {axes}, index_vector_dim = {batch}>"
    index = as_tensor(np.full((1,) * (batch + 1), start, np.int32))
    attributes = {"dimension_numbers": numbers, "slice_sizes": sizes}
    return emit("gather", (x, index), (TensorSpec(shape, x.dtype),), attributes)


def update(x: Tensor, y: Tensor, start: Tensor) -> Tensor:
    return emit("dynamic_update_slice", (x, y, start, start), (x.spec,))


M = ("f32[2,3]",)

CHANGED: list[Case] = [
    ("reshape_unchanged", lambda x: moved("reshape", x, (2, 3)), M),
    ("reshape_of_reshape", lambda x: x.reshape(6).reshape(3, 2), M),
    ("reshape_of_broadcast", lambda x: movement.broadcast_to(x, (2, 3)).reshape(3, 2), ("f32[]",)),
    ("reshape_of_broadcast", lambda x: spread(x, (3, 1, 4), (0, 1)).reshape(1, 3, 4), ("f32[3,1]",)),
    ("reshape_of_iota", lambda x: x + movement.iota((2, 1, 3), 2, "f32").reshape(2, 3), M),
    ("transpose_unchanged", lambda x: moved("transpose", x, (2, 3), permutation=(0, 1)), M),
    ("transpose_of_transpose", lambda x: x.transpose(1, 2, 0).transpose(1, 0, 2), ("f32[2,3,4]",)),
    ("transpose_of_ones", lambda x: x.transpose(1, 0, 2), ("f32[2,1,3]",)),
    ("transpose_of_broadcast", lambda x: spread(x, (2, 4, 3), (0, 2)).transpose(2, 1, 0), M),
    ("transpose_of_iota", lambda x: x + movement.iota((3, 2), 0, "f32").T, M),
    ("broadcast_unchanged", lambda x: spread(x, (2, 3), (0, 1)), M),
    ("broadcast_in_other_order", lambda x: spread(x, (3, 4, 2), (2, 0)), M),
    ("broadcast_as_reshape", lambda x: spread(x, (2, 1, 3), (0, 2)), M),
    ("broadcast_of_broadcast", lambda x: spread(spread(x, (2, 3, 4), (0, 1)), (4, 2, 3, 5), (1, 2, 0)), M),
    ("broadcast_of_broadcast", lambda x: spread(spread(x, (2, 4, 3), (0, 2)), (2, 5, 4, 3), (0, 2, 3)), M),
    ("broadcast_of_reshape", lambda x: spread(x.reshape(2, 1, 3, 1), (2, 4, 3, 5), (0, 1, 2, 3)), M),
    ("broadcast_of_iota", lambda x: x + spread(movement.iota((3,), 0, "f32"), (2, 3), (1,)), M),
    (
        "slice_unchanged",
        lambda x: moved("slice", x, (2, 3), start_indices=(0, 0), limit_indices=(2, 3), strides=(1, 1)),
        M,
    ),
    ("slice_of_slice", lambda x: x[1:9:2, 1:][1:4:2, ::2], ("f32[9,6]",)),
    ("slice_of_concatenate", lambda x, y: movement.concatenate([x, y], 1)[:, 4:6], M * 2),
    ("slice_of_pad", lambda x: padded(x, (2, 1), (0, 1))[2:3, 1:4], M),
    ("slice_of_broadcast", lambda x: spread(x, (4, 2, 3), (1, 2))[1:3, 1:, :2], M),
    ("slice_of_broadcast", lambda x: spread(x, (4, 3), (0, 1))[1:3, 1:], ("f32[1,3]",)),
    ("pad_unchanged", lambda x: padded(x, (0, 0), (0, 0)), M),
    ("pad_as_slice", lambda x: padded(x, (-1, 0), (0, -2)), M),
    ("pad_of_pad", lambda x: padded_twice(x, 1.5), M),
    ("concatenate_of_one", lambda x: movement.concatenate([x]), M),
    ("concatenate_of_one", lambda x, y: movement.concatenate([x, y, x], 1), ("f32[2,3]", "f32[2,0]")),
    (
        "concatenate_of_concatenate",
        lambda x, y: movement.concatenate([y, movement.concatenate([x, y], 1)], 1),
        M * 2,
    ),
    ("concatenate_of_slices", lambda x: movement.concatenate([x[:, 1:3], x[:, 3:4]], 1), ("f32[2,5]",)),
    ("reverse_unchanged", lambda x: movement.reverse(x, 1), ("f32[2,1]",)),
    ("reverse_of_reverse", lambda x: x[::-1][::-1], M),
    ("reverse_of_reverse", lambda x: x[::-1][::-1, ::-1], M),
    ("dynamic_slice_of_all", lambda x, i: at(x, (i, i), (2, 3)), (*M, "i32[]")),
    ("dynamic_slice_at_constant", lambda x: at(x, (place(1), place(-5)), (1, 2)), M),
    ("dynamic_slice_at_constant", lambda x: at(x, (place(0), place(7)), (1, 2)), M),
    ("update_of_all", lambda x, y, i: update(x, y, i), (*M, *M, "i32[]")),
    (
        "gather_at_constant",
        lambda x: gathered(x, 1, (1, 3), "[0], start_index_map = [0], collapsed_slice_dims = [0]", (3,)),
        M,
    ),
    ("gather_at_constant", lambda x: gathered(x, 7, (2, 2), "[1, 2], start_index_map = [1]", (1, 2, 2)), M),
]

LEFT_ALONE: list[Case] = [
    ("reshape_unchanged", lambda x: x.reshape(3, 2), M),
    ("reshape_unchanged", lambda x: pcp.tap("x", x), M),
    ("reshape_unchanged", lambda x: pcp.stop_gradient(x), M),
    ("reshape_of_reshape", lambda x: pcp.tap("x", x.reshape(6)).reshape(3, 2), M),
    ("reshape_of_reshape", lambda x: pcp.stop_gradient(x.reshape(6)), M),
    ("reshape_of_broadcast", lambda x: spread(x, (3, 4), (0,)).reshape(12), ("f32[3]",)),
    ("reshape_of_iota", lambda x: x + movement.iota((3, 2), 0, "f32").reshape(2, 3), M),
    ("reshape_of_iota", lambda x: x + movement.iota((1, 2), 0, "f32").reshape(2), ("f32[2]",)),
    ("transpose_unchanged", lambda x: x.T, M),
    ("transpose_of_transpose", lambda x: pcp.tap("x", x.T).T, M),
    ("transpose_of_ones", lambda x: x.transpose(2, 1, 0), ("f32[2,1,3]",)),
    ("transpose_of_broadcast", lambda x: (x + spread(x, (2, 3), (0, 1))).T, M),
    ("transpose_of_iota", lambda x: x.T, M),
    ("broadcast_unchanged", lambda x: spread(x, (2, 2), (1, 0)), ("f32[2,2]",)),
    ("broadcast_in_other_order", lambda x: spread(x, (4, 2, 3), (1, 2)), M),
    ("broadcast_as_reshape", lambda x: spread(x, (4, 2, 3), (1, 2)), M),
    ("broadcast_of_broadcast", lambda x: spread(-spread(x, (2, 3, 4), (0, 1)), (5, 2, 3, 4), (1, 2, 3)), M),
    ("broadcast_of_reshape", lambda x: spread(x.reshape(6), (4, 6), (1,)), M),
    ("broadcast_of_iota", lambda x: x + spread(movement.iota((2, 1), 1, "f32"), (2, 3), (0, 1)), M),
    ("slice_unchanged", lambda x: x[:, 1:], M),
    ("slice_of_slice", lambda x: (-x[1:])[1:], ("f32[5,2]",)),
    ("slice_of_concatenate", lambda x, y: movement.concatenate([x, y], 1)[:, 2:5], M * 2),
    ("slice_of_pad", lambda x: padded(x, (2, 1), (0, 1))[1:3], M),
    ("slice_of_pad", lambda x: movement.pad(x, [(0, 0, 1), (0, 0)])[1:2], M),
    ("slice_of_broadcast", lambda x: (-spread(x, (4, 2, 3), (1, 2)))[1:], M),
    ("pad_unchanged", lambda x: padded(x, (1, 0), (-1, 0)), M),
    ("pad_as_slice", lambda x: padded(x, (-1, 0), (1, 0)), M),
    ("pad_as_slice", lambda x: movement.pad(x, [(-1, 0, 1), (0, 0)]), M),
    ("pad_of_pad", lambda x: padded_twice(x, 2.5), M),
    ("pad_of_pad", lambda x: padded(padded(x, (-1, 0), (0, 0)), (1, 0), (0, 0)), M),
    ("concatenate_of_one", lambda x, y: movement.concatenate([x, y]), M * 2),
    (
        "concatenate_of_concatenate",
        lambda x, y: [movement.concatenate([y, z := movement.concatenate([x, y], 1)], 1), z],
        M * 2,
    ),
    (
        "concatenate_of_concatenate",
        lambda x: movement.concatenate([movement.concatenate([x, x], 1)] * 2, 0),
        M,
    ),
    ("concatenate_of_slices", lambda x: movement.concatenate([x[:, 1:3], x[:, 2:4]], 1), ("f32[2,5]",)),
    ("concatenate_of_slices", lambda x, y: movement.concatenate([x[:, :1], y[:, 1:]], 1), M * 2),
    ("concatenate_of_slices", lambda x: movement.concatenate([x[:1, :1], x[1:, 1:2]], 1), M),
    ("reverse_unchanged", lambda x: x[::-1], M),
    ("reverse_of_reverse", lambda x: (-x[::-1])[::-1], M),
    ("dynamic_slice_of_all", lambda x, i: at(x, (i, i), (1, 3)), (*M, "i32[]")),
    ("dynamic_slice_at_constant", lambda x, i: at(x, (i, place(1)), (1, 2)), (*M, "i32[]")),
    ("update_of_all", lambda x, y, i: update(x, y, i), (*M, "f32[1,3]", "i32[]")),
    ("gather_at_constant", lambda x: x[np.array([1, 0])], M),
    ("gather_at_constant", lambda x, i: x[i], (*M, "i32[1]")),
]
