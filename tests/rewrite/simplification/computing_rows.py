"""Programs that rows about numbers change, and programs that they must leave alone."""

from typing import Any

import numpy as np

import pcp
from pcp.ops import elementwise as e
from pcp.rewrite.pattern import filled
from pcp.tensor import Tensor, as_tensor, emit
from tests.rewrite.simplification.moving_rows import Case, spread

F, N, U, B = ("f32[2,3]",), ("i32[2,3]",), ("u8[2,3]",), ("bool[2,3]",)


def full(x: Tensor, number: Any) -> Tensor:
    return filled(x.spec, number)


def op(name: str, *operands: Tensor) -> Tensor:
    return emit(name, operands, (operands[-1].spec,))


def array(*numbers: Any, dtype: str = "float32") -> Tensor:
    return as_tensor(np.array(numbers, dtype))


def branch(predicate: Any, x: Tensor) -> Any:
    return pcp.cond(
        as_tensor(np.array(predicate)) if isinstance(predicate, bool) else predicate,
        lambda: -x,
        lambda: x * 2,
    )


def chosen(index: Any, x: Tensor) -> Any:
    return pcp.switch(index, [lambda: -x, lambda: x * 2, lambda: x + 1])


TURNED = """
func.func @main(%x: tensor<2x4x3xf32>, %k: tensor<4x3x5xf32>) -> tensor<2x1x5xf32> {
  %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {reverse = [true]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x4x3xf32>, tensor<4x3x5xf32>) -> tensor<2x1x5xf32>
  return %0 : tensor<2x1x5xf32>
}
"""

CASE = """
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{
  %i = stablehlo.constant dense<{}> : tensor<i32>
  %y = "stablehlo.case"(%i) ({{
    %a = stablehlo.negate %x : tensor<2xf32>
    stablehlo.return %a : tensor<2xf32>
  }}, {{
    stablehlo.return %x : tensor<2xf32>
  }}) : (tensor<i32>) -> tensor<2xf32>
  return %y : tensor<2xf32>
}}
"""


def trips(start: Any, x: Tensor) -> Any:
    first = as_tensor(np.array(start, np.int32)) if isinstance(start, int) else start
    return pcp.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, -c[1]), (first, x))[1]


CHANGED: list[Case] = [
    ("add_nothing", lambda x: op("add", x, full(x, -0.0)), F),
    ("add_nothing", lambda x: op("add", full(x, 0), x), N),
    ("add_of_negate", lambda x, y: x + (-y), F * 2),
    ("add_of_negate", lambda x, y: (-x) + y, F * 2),
    ("add_of_integers", lambda x: 5 + (x + (2**31 - 3)), N),
    ("subtract_nothing", lambda x: op("subtract", x, full(x, 0.0)), F),
    ("subtract_from_nothing", lambda x: op("subtract", full(x, -0.0), x), F),
    ("subtract_from_nothing", lambda x: op("subtract", full(x, 0), x), N),
    ("subtract_itself", lambda x: x - x, N),
    ("subtract_of_negate", lambda x, y: x - (-y), F * 2),
    ("multiply_by_one", lambda x: op("multiply", full(x, 1), x), F),
    ("multiply_by_one", lambda x: op("multiply", x, full(x, True)), B),
    ("multiply_by_minus_one", lambda x: op("multiply", x, full(x, -1)), F),
    ("multiply_by_minus_one", lambda x: op("multiply", x, full(x, -1)), N),
    ("multiply_by_zero", lambda x: op("multiply", x, full(x, 0)), N),
    ("multiply_of_negates", lambda x, y: (-x) * (-y), F * 2),
    ("multiply_of_negate", lambda x: (-x) * 3, F),
    ("multiply_of_integers", lambda x: (x * 3) * 2**30, N),
    ("divide_by_one", lambda x: op("divide", x, full(x, 1)), F),
    ("divide_by_one", lambda x: op("divide", x, full(x, 1)), N),
    ("divide_by_minus_one", lambda x: op("divide", x, full(x, -1)), F),
    ("divide_by_power_of_two", lambda x: x / 8, F),
    ("divide_by_power_of_two", lambda x: x / -(2.0**-100), F),
    ("divide_of_negates", lambda x, y: (-x) / (-y), F * 2),
    ("negate_of_negate", lambda x: op("negate", -x), F),
    ("negate_of_integers", lambda x, y: -(x - y), N * 2),
    ("power_of_zero", lambda x: op("power", x, full(x, 0)), F),
    ("power_of_one", lambda x: op("power", x, full(x, 1)), F),
    ("square_of_integers", lambda x: op("power", x, full(x, 2)), N),
    ("abs_of_negate", lambda x: abs(-x), F),
    ("abs_of_abs", lambda x: abs(abs(x)), F),
    ("floor_of_floor", lambda x: e.floor(e.floor(x)), F),
    ("ceil_of_ceil", lambda x: e.ceil(e.ceil(x)), F),
    ("round_of_round", lambda x: e.round_(e.round_(x)), F),
    ("maximum_of_itself", lambda x: e.maximum(x, x), F),
    ("maximum_of_lowest", lambda x: e.maximum(x, -np.inf), F),
    ("minimum_of_itself", lambda x: e.minimum(x, x), F),
    ("minimum_of_highest", lambda x: e.minimum(np.inf, x), F),
    # Reassociating
    ("add_zero", lambda x: x + 0.0, F),
    ("add_of_constants", lambda x: (x + 0.1) + 0.2, F),
    ("subtract_from_zero", lambda x: 0.0 - x, F),
    ("multiply_of_constants", lambda x: (x * 0.1) * 0.2, F),
    ("negate_of_difference", lambda x, y: -(x - y), F * 2),
    ("divide_by_constant", lambda x: x / 3, F),
    ("divide_by_broadcast", lambda x, y: x / y, (*F, "f32[2,1]")),
    ("divide_by_root", lambda x, y: x / e.sqrt(y), F * 2),
    ("power_of_two", lambda x: op("power", x, full(x, 2)), F),
    ("power_of_three", lambda x: op("power", x, full(x, 3)), F),
    ("power_of_half", lambda x: op("power", x, full(x, 0.5)), F),
    ("power_of_minus_one", lambda x: op("power", x, full(x, -1)), F),
    ("power_of_minus_half", lambda x: op("power", x, full(x, -0.5)), F),
    # Logic
    ("select_known", lambda x, y: e.where(True, x, y), F * 2),
    ("select_known", lambda x, y: e.where(np.zeros((2, 3), bool), x, y), F * 2),
    ("select_equal", lambda p, x: e.where(p, x, x), (*B, *F)),
    ("select_of_not", lambda p, x, y: e.where(~p, x, y), (*B, *F, *F)),
    ("select_of_truths", lambda p: e.where(p, full(p, True), full(p, False)), B),
    ("select_of_truths", lambda p: e.where(p, full(p, False), full(p, True)), B),
    ("compare_with_itself", lambda x: [x == x, x < x], N),
    ("compare_with_truth", lambda p: [p == full(p, True), full(p, False) != p, p == full(p, False)], B),
    ("compare_unsigned_with_zero", lambda x: [x < 0, x >= 0], U),
    ("not_of_not", lambda p: ~(~p), B),
    ("not_of_compare", lambda x, y: ~(x < y), N * 2),
    ("not_of_compare", lambda x, y: [~(x == y), ~(x != y)], F * 2),
    ("and_of_itself", lambda p: p & p, B),
    ("and_of_ones", lambda p: full(p, True) & p, B),
    ("and_of_ones", lambda x: x & full(x, 255), U),
    ("and_of_zeros", lambda x: x & full(x, 0), N),
    ("or_of_itself", lambda x: x | x, N),
    ("or_of_ones", lambda x: x | full(x, -1), N),
    ("or_of_zeros", lambda p: p | full(p, False), B),
    ("xor_of_itself", lambda x: x ^ x, U),
    ("xor_of_zeros", lambda x: full(x, 0) ^ x, N),
    # Conversions
    ("convert_unchanged", lambda x: op("convert", x), F),
    ("convert_of_convert", lambda x: x.astype("f32").astype("bf16"), ("bf16[2,3]",)),
    ("convert_of_convert", lambda x: x.astype("f64").astype("f16"), F),
    ("convert_of_convert", lambda x: x.astype("f32").astype("i8"), ("i8[2,3]",)),
    ("convert_of_convert", lambda x: x.astype("i32").astype("f32"), U),
    ("bitcast_unchanged", lambda x: op("bitcast_convert", x), F),
    ("bitcast_of_bitcast", lambda x: e.bitcast(e.bitcast(x, "i32"), "u32"), F),
    ("bitcast_of_bitcast", lambda x: e.bitcast(e.bitcast(x, "i32"), "f32"), F),
    ("real_of_complex", lambda x, y: e.real(e.complex_(x, y)), F * 2),
    ("imag_of_complex", lambda x, y: e.imag(e.complex_(x, y)), F * 2),
    ("complex_of_parts", lambda z: e.complex_(e.real(z), e.imag(z)), ("c64[2]",)),
    # Products
    ("transpose_of_dot", lambda x, y: (x @ y).T, (*F, "f32[3,4]")),
    ("transpose_of_dot", lambda x, y: (x @ y).transpose(1, 0, 3, 2), ("f32[2,2,1,3]", "f32[2,2,3,4]")),
    ("dot_of_transpose", lambda x, y: x.T @ y, ("f32[3,2]", "f32[3,4]")),
    ("dot_of_transpose", lambda x, y: x.T @ y.T, ("f32[3,2]", "f32[4,3]")),
    ("dot_of_transpose", lambda x, y: x @ y.transpose(0, 2, 1), ("f32[2,2,3]", "f32[2,4,3]")),
    ("dot_of_negate", lambda x, y: x @ -y, (*F, "f32[3,2]")),
    ("dot_over_one", lambda x, y: x @ y, ("f32[4,1]", "f32[1,3]")),
    ("dot_over_one", lambda x, y: x @ y, ("f32[2,5,4,1]", "f32[2,5,1,3]")),
    ("dot_over_one", lambda x, y: pcp.einsum("abc,dc->abd", x, y), ("f32[2,5,1]", "bf16[3,1]")),
    ("dot_of_convolution", lambda x, k: pcp.conv_general(x, k), ("f32[2,4,5,3]", "f32[1,1,3,4]")),
    ("dot_of_convolution", lambda x, k: pcp.conv_general(x, k, (2, 3)), ("f32[2,4,5,3]", "f32[1,1,3,4]")),
    (
        "dot_of_convolution",
        lambda x, k: pcp.conv_general(x, k, orders=("NCH", "OIH", "NCH")),
        ("f32[2,3,5]", "f32[4,3,1]"),
    ),
    ("dot_of_convolution", lambda x, k: pcp.conv_general(x, k), ("f32[2,4,5,3]", "f32[4,5,3,2]")),
    (
        "dot_of_convolution",
        lambda x, k: pcp.conv_general(x, k, 9, kernel_dilation=2, orders=("NCH", "OIH", "NCH")),
        ("f32[2,3,6]", "f32[4,3,3]"),
    ),
    ("dot_of_convolution", lambda x, k: pcp.conv_general(x, k, (2, 3)), ("f32[2,5,7,3]", "f32[2,3,3,4]")),
    # Reductions
    ("reduce_of_ones", lambda x: x.sum(1), ("f32[2,1,3]",)),
    ("reduce_of_ones", lambda x: x.max((0, 1)), ("f32[1,1]",)),
    ("reduce_of_reshape", lambda x: x.reshape(2, 1, 3).sum((1, 2)), F),
    ("reduce_of_transpose", lambda x: x.transpose(2, 0, 1).max(1), ("f32[2,3,4]",)),
    ("reduce_of_transpose", lambda x: x.T.sum(0), N),
    ("reduce_of_reduce", lambda x: x.max(0).max(1), ("f32[2,3,4]",)),
    ("reduce_of_reduce", lambda x: x.sum(2).sum(0), ("i32[2,3,4]",)),
    ("extreme_of_broadcast", lambda x: spread(x, (4, 2, 3), (1, 2)).max(0), F),
    ("sum_of_transpose", lambda x: x.transpose(2, 0, 1).sum(1), ("f32[2,3,4]",)),
    ("sum_of_sum", lambda x: x.sum(0).sum(1), ("f32[2,3,4]",)),
    ("sum_of_broadcast", lambda x: spread(x, (4, 2, 3), (1, 2)).sum(0), F),
    ("sum_of_broadcast", lambda x: spread(x, (4, 3), (0, 1)).sum(0), ("f32[1,3]",)),
    ("sum_of_negate", lambda x: (-x).sum(1), F),
    # Control
    ("if_known", lambda x: [branch(True, x), branch(False, x)], F),
    *(("case_known", CASE.format(index), ()) for index in (0, 1, -1, 9)),
    ("while_never", lambda x: trips(3, x), F),
]

LEFT_ALONE: list[Case] = [
    ("add_nothing", lambda x: x + 0.0, F),
    ("add_nothing", lambda x: op("add", x, full(x, True)), B),
    ("add_of_negate", lambda x, y: x + pcp.tap("y", -y), F * 2),
    ("add_of_integers", lambda x: (x + 2.0) + 3.0, F),
    ("add_of_integers", lambda x: (x + 2) - 3, N),
    ("subtract_nothing", lambda x: op("subtract", x, full(x, -0.0)), F),
    ("subtract_from_nothing", lambda x: op("subtract", full(x, 0.0), x), F),
    ("subtract_itself", lambda x: x - x, F),
    ("subtract_of_negate", lambda x, y: (-x) - y, F * 2),
    ("multiply_by_one", lambda x: x * 2, F),
    ("multiply_by_minus_one", lambda x: x * 255, U),
    ("multiply_by_zero", lambda x: op("multiply", x, full(x, 0.0)), F),
    ("multiply_of_negates", lambda x, y: (-x) * y, F * 2),
    ("multiply_of_negate", lambda x, y: (-x) * y, F * 2),
    ("multiply_of_integers", lambda x: (x * 2.0) * 3.0, F),
    ("divide_by_one", lambda x: op("divide", full(x, 1), x), F),
    ("divide_by_minus_one", lambda x: op("divide", x, full(x, -1)), N),
    ("divide_by_power_of_two", lambda x: [x / 3, x / 2.0**-127, x / 2.0**127, 8 / x], F),
    ("divide_by_power_of_two", lambda x: op("divide", x, full(x, 8)), N),
    ("divide_of_negates", lambda x, y: (-x) / y, F * 2),
    ("negate_of_negate", lambda x: -abs(x), F),
    ("negate_of_integers", lambda x, y: -(x - y), F * 2),
    ("power_of_zero", lambda x: op("power", full(x, 0), x), F),
    ("power_of_one", lambda x: op("power", full(x, 1), x), F),
    ("square_of_integers", lambda x: op("power", x, full(x, 2)), F),
    ("abs_of_negate", lambda x: abs(x), F),
    ("abs_of_abs", lambda x: abs(e.floor(x)), F),
    ("floor_of_floor", lambda x: e.floor(e.ceil(x) / 2), F),
    ("ceil_of_ceil", lambda x: e.ceil(e.floor(x) / 2), F),
    ("round_of_round", lambda x: e.round_(e.floor(x) / 2), F),
    ("maximum_of_itself", lambda x, y: e.maximum(x, y), F * 2),
    ("maximum_of_lowest", lambda x: [e.maximum(x, np.inf), e.maximum(x, 0.0)], F),
    ("minimum_of_itself", lambda x, y: e.minimum(x, y), F * 2),
    ("minimum_of_highest", lambda x: [e.minimum(x, -np.inf), e.minimum(x, 0.0)], F),
    ("add_zero", lambda x: x + 1.0, F),
    ("add_of_constants", lambda x, y: (x + 2.0) + y, F * 2),
    ("subtract_from_zero", lambda x: 1.0 - x, F),
    ("multiply_of_constants", lambda x: (x * 2.0) + 3.0, F),
    ("negate_of_difference", lambda x, y: -(x + y), F * 2),
    ("divide_by_constant", lambda x: [x / 4, x / 0.0, x / 1e-38, 3 / x], F),
    ("divide_by_broadcast", lambda x, y: x / y, F * 2),
    ("divide_by_root", lambda x, y: e.sqrt(x) / y, F * 2),
    ("power_of_two", lambda x: op("power", full(x, 2), x), F),
    ("power_of_three", lambda x: op("power", x, full(x, 2)), F),
    ("power_of_half", lambda x: op("power", x, full(x, 0.25)), F),
    ("power_of_minus_one", lambda x: op("power", x, full(x, 1.5)), F),
    ("power_of_minus_half", lambda x: op("power", x, full(x, 0.5)), F),
    ("select_known", lambda x, y: e.where(np.eye(2, 3) > 0, x, y), F * 2),
    ("select_equal", lambda p, x: e.where(p, x, -x), (*B, *F)),
    ("select_of_not", lambda p, x, y: e.where(p, x, y), (*B, *F, *F)),
    ("select_of_truths", lambda p: e.where(p, full(p, True), full(p, True)), B),
    ("select_of_truths", lambda p: e.where(p, array(1.0, 2.0)[0], 0.0), ("bool[]",)),
    ("compare_with_itself", lambda x: [x == x, x < x], F),
    ("compare_with_truth", lambda p, q: p == q, B * 2),
    ("compare_unsigned_with_zero", lambda x: [x <= 0, x > 0], U),
    ("compare_unsigned_with_zero", lambda x: x < 0, N),
    ("not_of_not", lambda p, q: ~(p & q), B * 2),
    ("not_of_compare", lambda x, y: ~(x < y), F * 2),
    ("and_of_itself", lambda p, q: p & q, B * 2),
    ("and_of_ones", lambda x: x & full(x, 127), U),
    ("and_of_zeros", lambda x: x & full(x, 1), N),
    ("or_of_itself", lambda x, y: x | y, N * 2),
    ("or_of_ones", lambda x: x | full(x, 1), N),
    ("or_of_zeros", lambda p: p | full(p, True), B),
    ("xor_of_itself", lambda x, y: x ^ y, U * 2),
    ("xor_of_zeros", lambda x: full(x, 1) ^ x, N),
    ("convert_unchanged", lambda x: x.astype("f64"), F),
    ("convert_of_convert", lambda x: x.astype("bf16").astype("f32"), F),
    ("convert_of_convert", lambda x: x.astype("f32").astype("f16"), ("f64[2]",)),
    ("convert_of_convert", lambda x: x.astype("f32").astype("i32"), N),
    ("convert_of_convert", lambda x: x.astype("f32").astype("u8"), ("i8[2]",)),
    ("convert_of_convert", lambda x: x.astype("f16").astype("f32"), ("bf16[2]",)),
    ("bitcast_unchanged", lambda x: e.bitcast(x, "i32"), F),
    ("bitcast_of_bitcast", lambda x: e.bitcast(-e.bitcast(x, "i32"), "f32"), F),
    ("real_of_complex", lambda z: e.real(z), ("c64[2]",)),
    ("imag_of_complex", lambda z: e.imag(z), ("c64[2]",)),
    ("complex_of_parts", lambda z: e.complex_(e.imag(z), e.real(z)), ("c64[2]",)),
    ("transpose_of_dot", lambda x, y: [z := x @ y, z.T], (*F, "f32[3,4]")),
    ("transpose_of_dot", lambda x, y: (x @ y).transpose(1, 0, 2), ("f32[2,2,3]", "f32[2,3,4]")),
    ("transpose_of_dot", lambda x, y: (x @ y).transpose(1, 0, 2), ("f32[2,5,3]", "f32[3,4]")),
    ("dot_of_transpose", lambda x, y: x.transpose(1, 0, 2) @ y, ("f32[2,5,3]", "f32[5,3,4]")),
    ("dot_of_transpose", lambda x, y: x.transpose(1, 0, 2) @ y, ("f32[2,5,3]", "f32[3,4]")),
    ("dot_of_negate", lambda x, y: x @ -y, ("f32[4,1]", "f32[1,4]")),
    ("dot_over_one", lambda x, y: x @ y, ("f32[1,2]", "f32[2,1]")),
    ("dot_over_one", lambda x, y: x @ y, ("c64[2,1]", "c64[1,2]")),
    ("dot_of_convolution", lambda x, k: pcp.conv_general(x, k), ("f32[2,4,5,3]", "f32[3,5,3,2]")),
    ("dot_of_convolution", lambda x, k: pcp.conv_general(x, k, groups=2), ("f32[2,4,4]", "f32[1,2,6]")),
    ("dot_of_convolution", lambda x, k: pcp.conv_general(x, k, 2, [(1, 1)]), ("f32[2,4,3]", "f32[1,3,4]")),
    ("dot_of_convolution", lambda x, k: pcp.conv_general(x, k, 2, [(0, 1)]), ("f32[2,7,3]", "f32[2,3,4]")),
    ("dot_of_convolution", lambda x, k: pcp.conv_general(x, k, 2), ("f32[2,7,3]", "f32[3,3,4]")),
    ("dot_of_convolution", lambda x, k: pcp.conv_general(x, k, 2, groups=3), ("f32[2,8,3]", "f32[2,1,6]")),
    ("dot_of_convolution", lambda x, k: pcp.conv_general(x, k, 9, [(1, 0)]), ("f32[2,3,3]", "f32[4,3,4]")),
    ("dot_of_convolution", lambda x, k: pcp.conv_general(x, k, 9, "VALID", 2), ("f32[2,2,3]", "f32[3,3,4]")),
    ("dot_of_convolution", lambda x, k: pcp.conv_general(x, k, 1, [(1, 0)]), ("f32[2,4,3]", "f32[1,3,4]")),
    ("dot_of_convolution", lambda x, k: pcp.conv_general(x, k, 1, "VALID", 2), ("f32[2,4,3]", "f32[1,3,4]")),
    ("dot_of_convolution", TURNED, ()),
    ("reduce_of_ones", lambda x: x.sum(0), ("f32[2,1]",)),
    ("reduce_of_reshape", lambda x: x.reshape(3, 2).sum(0), F),
    ("reduce_of_transpose", lambda x: x.T.sum(0), F),
    ("reduce_of_reduce", lambda x: x.sum(0).sum(1), ("f32[2,3,4]",)),
    ("reduce_of_reduce", lambda x: x.max(0).min(1), ("f32[2,3,4]",)),
    ("reduce_of_reduce", lambda x: [y := x.max(0), y.max(1)], ("f32[2,3,4]",)),
    ("extreme_of_broadcast", lambda x: spread(x, (4, 2, 3), (1, 2)).max(1), F),
    ("extreme_of_broadcast", lambda x: spread(x, (4, 2, 3), (1, 2)).sum(0), F),
    ("sum_of_transpose", lambda x: x.T.sum(0), N),
    ("sum_of_sum", lambda x: [y := x.sum(0), y.sum(1)], ("f32[2,3,4]",)),
    ("sum_of_broadcast", lambda x: spread(x, (4, 2, 3), (1, 2)).sum((0, 1)), F),
    ("sum_of_negate", lambda x: (-x).max(1), F),
    ("if_known", lambda p, x: branch(p, x), ("bool[]", *F)),
    ("case_known", lambda i, x: chosen(i, x), ("i32[]", *F)),
    ("while_never", lambda x: trips(2, x), F),
    ("while_never", lambda i, x: trips(i, x), ("i32[]", *F)),
]
