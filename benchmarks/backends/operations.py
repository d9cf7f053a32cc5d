"""A program of one operation for each operation of StableHLO and CHLO that computes, to be written in any element type.

In the text `?` is the element type, `&` the type of its parts where it is complex and itself where it is not. What StableHLO's
own verifier refuses is no operation of that type; nobody has to say so here.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from pcp.errors import PCPError
from pcp.ir import DType, Program

TYPES = tuple(dtype for dtype in DType if dtype.kind != "storage")
"""The element types that are computed in."""

EPSILON = float(np.float32(0.001))
"""Of the norms: an attribute of float32, whatever the element type is."""
_PARTS = {DType.c64: DType.f32, DType.c128: DType.f64}
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """One operation.

    Arguments:
        arguments: the types of `%a`, `%b`, ..., separated by spaces.
        result: the type of `%r`.
        body: the operations, the last of which makes `%r`.
        low, high: bounds of its operands of type `?`.
        in_numpy: the result where StableHLO's interpreter has not the operation.
    """

    arguments: str
    result: str
    body: str
    low: float = -2.0
    high: float = 2.0
    in_numpy: Callable[..., Any] | None = None

    def program(self, dtype: DType) -> Program | None:
        """The operation in an element type; None if there is no such operation in StableHLO."""
        names = (
            f"%{letter}: {written}"
            for letter, written in zip("abcdefg", self.arguments.split(), strict=False)
        )
        text = f"func.func @main({', '.join(names)}) -> {self.result} {{\n{self.body}\nreturn %r : {self.result}\n}}"
        try:
            return Program.parse(text.replace("?", dtype.mlir).replace("&", _PARTS.get(dtype, dtype).mlir))
        except PCPError:
            return None

    def operands(self, program: Program, rng: np.random.Generator) -> list[Array]:
        """Random operands; those of another type than `?` are indices, from 0 to 1."""
        written = self.arguments.split()
        return [
            _drawn(
                rng,
                entry.spec.shape,
                entry.spec.dtype,
                *((self.low, self.high) if "?" in text or "&" in text else (0, 1)),
            )
            for text, entry in zip(written, program.arguments, strict=True)
        ]


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, low: float, high: float) -> Array:
    if dtype is DType.bool:
        return rng.random(shape) < 0.5
    if dtype.is_integer:
        least = max(round(low), 0) if dtype.kind == "unsigned" else round(low)
        drawn = rng.integers(least, max(round(high), least), shape, endpoint=True)
        if least < 0:  # some backends are wrong for negative numbers alone
            drawn.flat[:1] = least
        return drawn.astype(dtype.numpy)
    drawn = rng.uniform(low, high, shape)
    return (drawn + 1j * rng.uniform(low, high, shape) if dtype.kind == "complex" else drawn).astype(
        dtype.numpy
    )


V, M, S = "tensor<8x?>", "tensor<4x4x?>", "tensor<?>"
PARTS, TRUTHS, INDEX = "tensor<8x&>", "tensor<8xi1>", "tensor<i32>"
SUM = "({ ^bb0(%p: tensor<?>, %q: tensor<?>): %s = stablehlo.add %p, %q : tensor<?>\nstablehlo.return %s : tensor<?> })"
LARGER = (
    "({ ^bb0(%p: tensor<?>, %q: tensor<?>): %s = stablehlo.compare GE, %p, %q : (tensor<?>, tensor<?>) -> tensor<i1>\n"
    "stablehlo.return %s : tensor<i1> })"
)


def _full(name: str) -> str:
    return name if "." in name else f"stablehlo.{name}"


def _unary(name: str, low: float = -2.0, high: float = 2.0, result: str = V) -> Case:
    return Case(V, result, f'%r = "{_full(name)}"(%a) : ({V}) -> {result}', low, high)


def _binary(name: str, low: float = -2.0, high: float = 2.0, result: str = V, attributes: str = "") -> Case:
    return Case(
        f"{V} {V}", result, f'%r = "{_full(name)}"(%a, %b) {attributes} : ({V}, {V}) -> {result}', low, high
    )


def _named(make: Callable[..., Case], names: str, *bounds: float, **fields: str) -> dict[str, Case]:
    return {name: make(name, *bounds, **fields) for name in names.split()}


def _generic(name: str, arguments: str, result: str, attributes: str = "", **fields: Any) -> Case:
    """An operation in generic form; `attributes` may hold its regions."""
    operands = ", ".join(f"%{letter}" for letter, _ in zip("abcdefg", arguments.split(), strict=False))
    signature = f"({', '.join(arguments.split())}) -> {result}"
    return Case(arguments, result, f'%r = "{_full(name)}"({operands}) {attributes} : {signature}', **fields)


ELEMENTWISE: dict[str, Case] = {
    **_named(
        _unary,
        "cbrt ceil cosine count_leading_zeros exponential exponential_minus_one floor logistic negate not popcnt "
        "round_nearest_afz round_nearest_even sign sine tanh chlo.atan chlo.sinh chlo.cosh chlo.asinh chlo.erf chlo.erfc "
        "chlo.bessel_i1e chlo.square chlo.conj",
    ),
    **_named(_unary, "tan chlo.tan", -1.2, 1.2),
    **_named(_unary, "log log_plus_one rsqrt sqrt chlo.lgamma chlo.digamma", 0.25, 3.0),
    **_named(_unary, "chlo.asin chlo.acos chlo.atanh chlo.erf_inv", -0.9, 0.9),
    "chlo.acosh": _unary("chlo.acosh", 1.1, 3.0),
    **_named(_unary, "abs real imag", result=PARTS),
    **_named(_unary, "is_finite chlo.is_inf chlo.is_pos_inf chlo.is_neg_inf", result=TRUTHS),
    **_named(_binary, "add and atan2 maximum minimum multiply or subtract xor chlo.next_after chlo.mulhi"),
    **_named(_binary, "power", 1.0, 4.0),
    "chlo.polygamma": Case(
        f"{V} {V}",
        V,
        f"%n = stablehlo.floor %a : {V}\n%r = chlo.polygamma %n, %b : {V}, {V} -> {V}",
        1.0,
        4.0,
    ),
    "divide": replace(
        _binary("divide", 1.0, 4.0), in_numpy=lambda a, b: a // b if a.dtype.kind in "iu" else a / b
    ),
    "remainder": replace(
        _binary("remainder", 1.0, 4.0), in_numpy=lambda a, b: None if a.dtype.kind == "c" else np.fmod(a, b)
    ),
    "chlo.zeta": _binary("chlo.zeta", 1.5, 4.0),
    **_named(_binary, "shift_left shift_right_arithmetic shift_right_logical", 0.0, 5.0),
    "compare": _binary(
        "compare", result=TRUTHS, attributes="{comparison_direction = #stablehlo<comparison_direction LT>}"
    ),
    "complex": Case(
        f"{V} {V}",
        "tensor<8xcomplex<?>>",
        f'%r = "stablehlo.complex"(%a, %b) : ({V}, {V}) -> tensor<8xcomplex<?>>',
    ),
    "select": _generic("select", f"{TRUTHS} {V} {V}", V),
    "clamp": _generic("clamp", f"{V} {V} {V}", V),
    "reduce_precision": _generic(
        "reduce_precision", V, V, "{exponent_bits = 5 : i32, mantissa_bits = 7 : i32}"
    ),
    "convert to f32": _unary("convert", result="tensor<8xf32>"),
    "convert to i32": _unary("convert", -9.0, 9.0, "tensor<8xi32>"),
    "convert to i1": _unary("convert", result=TRUTHS),
    "convert from f32": _generic("convert", "tensor<8xf32>", V),
    "chlo.constant_like": _generic("chlo.constant_like", V, V, "{value = 1.0 : &}"),
}

MOVEMENT: dict[str, Case] = {
    "broadcast_in_dim": _generic("broadcast_in_dim", V, "tensor<3x8x?>", "{broadcast_dimensions = array<i64: 1>}"),
    "bitcast_convert": Case(
        M, M, f"%q = stablehlo.bitcast_convert %a : ({M}) -> {M}\n%r = stablehlo.bitcast_convert %q : ({M}) -> {M}"
    ),
    "concatenate": _generic("concatenate", f"{V} {V}", "tensor<16x?>", "{dimension = 0 : i64}"),
    "constant": Case(V, V, "%z = stablehlo.constant dense<1> : tensor<8xi32>\n"
                     f"%y = stablehlo.convert %z : (tensor<8xi32>) -> {V}\n"
                     f'%r = "stablehlo.concatenate"(%y) {{dimension = 0 : i64}} : ({V}) -> {V}'),
    "iota": Case(V, V, f"%r = stablehlo.iota dim = 0 : {V}"),
    "dynamic_slice": _generic("dynamic_slice", f"{M} {INDEX} {INDEX}", "tensor<2x3x?>", "{slice_sizes = array<i64: 2, 3>}"),
    "dynamic_update_slice": _generic("dynamic_update_slice", f"{M} tensor<2x3x?> {INDEX} {INDEX}", M),
    "gather": _generic(
        "gather", f"{M} tensor<3x1xi32>", "tensor<3x4x?>",
        "{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], "
        "index_vector_dim = 1>, slice_sizes = array<i64: 1, 4>}",
    ),
    "torch_index_select": _generic(
        "torch_index_select", f"{M} tensor<3xi32>", "tensor<3x4x?>", "{dim = 0 : i64, batch_dims = 0 : i64}",
        in_numpy=lambda a, b: a[b],
    ),
    "pad": _generic(
        "pad", f"{V} {S}", "tensor<17x?>",
        "{edge_padding_low = array<i64: 1>, edge_padding_high = array<i64: 1>, interior_padding = array<i64: 1>}",
    ),
    "reshape": _generic("reshape", M, "tensor<2x8x?>"),
    "reverse": _generic("reverse", M, M, "{dimensions = array<i64: 1>}"),
    "slice": _generic(
        "slice", V, "tensor<3x?>", "{start_indices = array<i64: 1>, limit_indices = array<i64: 7>, strides = array<i64: 2>}"
    ),
    "transpose": _generic("transpose", "tensor<2x3x?>", "tensor<3x2x?>", "{permutation = array<i64: 1, 0>}"),
    "get_dimension_size": _generic("get_dimension_size", V, INDEX, "{dimension = 0 : i64}"),
    "optimization_barrier": _generic("optimization_barrier", V, V),
}  # fmt: skip

PRODUCTS: dict[str, Case] = {
    "dot_general": _generic(
        "dot_general", "tensor<4x8x?> tensor<8x3x?>", "tensor<4x3x?>",
        "{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}",
    ),
    "dot_general, batched": _generic(
        "dot_general", "tensor<2x4x8x?> tensor<2x8x3x?>", "tensor<2x4x3x?>",
        "{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], "
        "lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>}",
    ),
    "einsum": _generic(
        "einsum", "tensor<4x8x?> tensor<8x3x?>", "tensor<4x3x?>", '{einsum_config = "ij,jk->ik"}', in_numpy=lambda a, b: a @ b
    ),
    "convolution": _generic(
        "convolution", "tensor<2x6x6x3x?> tensor<3x3x3x4x?>", "tensor<2x4x4x4x?>",
        "{dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, feature_group_count = 1 : i64, "
        "batch_group_count = 1 : i64}",
    ),
    "cholesky": Case(
        M, M,
        f"%t = stablehlo.transpose %a, dims = [1, 0] : ({M}) -> {M}\n"
        f"%g = stablehlo.dot_general %a, %t, contracting_dims = [1] x [0] : ({M}, {M}) -> {M}\n"
        "%i = stablehlo.iota dim = 0 : tensor<4x4xi32>\n%j = stablehlo.iota dim = 1 : tensor<4x4xi32>\n"
        "%e = stablehlo.compare EQ, %i, %j : (tensor<4x4xi32>, tensor<4x4xi32>) -> tensor<4x4xi1>\n"
        f"%o = stablehlo.convert %e : (tensor<4x4xi1>) -> {M}\n%p = stablehlo.add %g, %o : {M}\n"
        f"%c = stablehlo.cholesky %p, lower = true : {M}\n"
        "%n = stablehlo.compare GE, %i, %j : (tensor<4x4xi32>, tensor<4x4xi32>) -> tensor<4x4xi1>\n"
        f"%l = stablehlo.convert %n : (tensor<4x4xi1>) -> {M}\n%r = stablehlo.multiply %c, %l : {M}",
        in_numpy=lambda a: np.linalg.cholesky(a @ a.T + np.eye(4)) if a.dtype.kind != "c" else None,
    ),
    "triangular_solve": _generic(
        "triangular_solve", f"{M} tensor<4x2x?>", "tensor<4x2x?>",
        "{left_side = true, lower = true, unit_diagonal = true, transpose_a = #stablehlo<transpose NO_TRANSPOSE>}",
        in_numpy=lambda a, b: solve_triangular(a, b, lower=True, unit_diagonal=True),
    ),
    "fft": Case(
        "tensor<8x?>", "tensor<8x?>", "%r = stablehlo.fft %a, type = FFT, length = [8] : (tensor<8x?>) -> tensor<8x?>",
        in_numpy=np.fft.fft,
    ),
}  # fmt: skip

REDUCTIONS: dict[str, Case] = {
    "reduce": _generic("reduce", f"{M} {S}", "tensor<4x?>", f"{SUM} {{dimensions = array<i64: 1>}}"),
    "reduce to the largest": _generic(
        "reduce", f"{M} {S}", "tensor<4x?>", f"{SUM.replace('add', 'maximum')} {{dimensions = array<i64: 0>}}"
    ),
    "reduce_window": _generic(
        "reduce_window", f"{M} {S}", "tensor<3x3x?>", f"{SUM} {{window_dimensions = array<i64: 2, 2>}}"
    ),
    "map": _generic(
        "map", f"{V} {V}", V, f"{SUM.replace('stablehlo.add', 'stablehlo.multiply')} {{dimensions = array<i64: 0>}}"
    ),
    "scatter": _generic(
        "scatter", f"{M} tensor<2x1xi32> tensor<2x4x?>", M,
        f"{SUM} {{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], "
        "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}",
    ),
    "select_and_scatter": Case(  # of distinct numbers: which of two equal ones is selected, StableHLO leaves open
        "tensor<2x2x?>", M,
        "%i = stablehlo.iota dim = 0 : tensor<16xi32>\n%j = stablehlo.reshape %i : (tensor<16xi32>) -> tensor<4x4xi32>\n"
        f"%k = stablehlo.convert %j : (tensor<4x4xi32>) -> {M}\n%x = stablehlo.negate %k : {M}\n"
        f"%o = stablehlo.constant dense<0> : {INDEX}\n%z = stablehlo.convert %o : ({INDEX}) -> {S}\n"
        f'%r = "stablehlo.select_and_scatter"(%x, %a, %z) ({LARGER[1:-1]}, {SUM[1:-1]}) '
        f"{{window_dimensions = array<i64: 2, 2>, window_strides = array<i64: 2, 2>}} : ({M}, tensor<2x2x?>, {S}) -> {M}",
    ),
    "sort": _generic("sort", M, M, f"{LARGER.replace('GE', 'LT')} {{dimension = 1 : i64}}"),
    "chlo.top_k": Case(M, "tensor<4x2x?>", f"%r, %i = chlo.top_k(%a, k = 2) : {M} -> (tensor<4x2x?>, tensor<4x2xi32>)"),
    "batch_norm_inference": _generic(
        "batch_norm_inference", f"{M} {' '.join(['tensor<4x?>'] * 4)}", M, "{epsilon = 0.001 : f32, feature_index = 1 : i64}",
        low=0.5, in_numpy=lambda x, scale, offset, mean, variance: (x - mean) / np.sqrt(variance + EPSILON) * scale + offset,
    ),
    "batch_norm_training": Case(
        f"{M} tensor<4x?> tensor<4x?>", M,
        '%r, %m, %v = "stablehlo.batch_norm_training"(%a, %b, %c) {epsilon = 0.001 : f32, feature_index = 1 : i64} : '
        f"({M}, tensor<4x?>, tensor<4x?>) -> ({M}, tensor<4x?>, tensor<4x?>)",
        in_numpy=lambda x, scale, offset: (x - x.mean(0)) / np.sqrt(x.var(0) + EPSILON) * scale + offset,
    ),
    "batch_norm_grad": Case(
        f"{M} tensor<4x?> tensor<4x?> tensor<4x?> {M}", "tensor<4x?>",
        '%q, %s, %r = "stablehlo.batch_norm_grad"(%a, %b, %c, %d, %e) {epsilon = 0.001 : f32, feature_index = 1 : i64} : '
        f"({M}, tensor<4x?>, tensor<4x?>, tensor<4x?>, {M}) -> ({M}, tensor<4x?>, tensor<4x?>)",
        low=0.5, in_numpy=lambda *operands: operands[-1].sum(0),
    ),
}  # fmt: skip

CONTROL: dict[str, Case] = {
    "if": Case(
        f"tensor<i1> {V}", V,
        f'%r = "stablehlo.if"(%a) ({{ stablehlo.return %b : {V} }}, '
        f"{{ %n = stablehlo.add %b, %b : {V}\nstablehlo.return %n : {V} }}) : (tensor<i1>) -> {V}",
    ),
    "case": Case(
        f"{INDEX} {V}", V,
        f'%r = "stablehlo.case"(%a) ({{ stablehlo.return %b : {V} }}, '
        f"{{ %n = stablehlo.add %b, %b : {V}\nstablehlo.return %n : {V} }}) : ({INDEX}) -> {V}",
    ),
    "while": Case(
        f"{INDEX} {V}", V,
        f'%n, %r = "stablehlo.while"(%a, %b) ({{ ^bb0(%i: {INDEX}, %x: {V}): %l = stablehlo.constant dense<3> : {INDEX}\n'
        f"%g = stablehlo.compare LT, %i, %l : ({INDEX}, {INDEX}) -> tensor<i1>\nstablehlo.return %g : tensor<i1> }}, "
        f"{{ ^bb0(%i: {INDEX}, %x: {V}): %o = stablehlo.constant dense<1> : {INDEX}\n%j = stablehlo.add %i, %o : {INDEX}\n"
        f"%y = stablehlo.add %x, %x : {V}\nstablehlo.return %j, %y : {INDEX}, {V} }}) : ({INDEX}, {V}) -> ({INDEX}, {V})",
    ),
}  # fmt: skip

CASES: dict[str, Case] = ELEMENTWISE | MOVEMENT | PRODUCTS | REDUCTIONS | CONTROL
"""By the name of the operation, with what is special where one has several."""
