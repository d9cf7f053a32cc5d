"""One row for every operation: how it is called, NumPy's form of it, what it is called with, how near it must be.

Reference functions take NumPy arrays of a wider type than the operation's own (float64 for floats, complex128 for complex), so
that the error measured is the operation's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.ops.elementwise_rows import BINARY, UNARY, ElementwiseRow
from tests.ops.operands import Operands, Shape, index_operands, mask_operands, modulo_divisor, shift_operands

from pcp import ops
from pcp.ir import DType
from pcp.ops.reductions.primitives import REDUCTIONS
from pcp.tensor import OPERATIONS

Reference = Callable[..., Any]

FLOATS = ("float",)
NUMBERS = ("signed", "unsigned", "float")
ALL = ("bool", "signed", "unsigned", "float")

VECTORS: tuple[tuple[Shape, ...], ...] = (((),), ((7,),), ((0, 3),), ((2, 3, 4),))
PAIRS: tuple[tuple[Shape, ...], ...] = (
    ((), ()),
    ((5,), (5,)),
    ((3, 1), (1, 4)),
    ((2, 3), ()),
    ((0, 3), (3,)),
)


@dataclass(frozen=True)
class Row:
    """A test of one operation.

    Arguments:
        apply: from Tensors to a Tensor or a tuple of them.
        reference: the same on arrays.
        shapes: of the operands, one entry for each case.
        kinds: of element types to try.
        low, high: bounds of the operands; integers are drawn from the integers between.
        operands: in place of `low` and `high`, a function from generator, shapes and element type to operands.
        ulps: how many roundings of the result's type the error may be, beside one part in 10^12 in float64.
    """

    apply: Callable[..., Any]
    reference: Reference
    shapes: tuple[tuple[Shape, ...], ...] = VECTORS
    kinds: tuple[str, ...] = ALL
    low: float = -3.0
    high: float = 3.0
    operands: Operands | None = None
    ulps: float = 4.0


_REDUCTION: dict[str, Reference] = {
    "sum": np.sum,
    "product": np.prod,
    "max": np.max,
    "min": np.min,
    "all": np.all,
    "any": np.any,
}


def value_rows(row: ElementwiseRow, shapes: tuple[tuple[Shape, ...], ...]) -> dict[str, list[Row]]:
    """The tests of the functions that are an elementwise operation alone."""
    if row.reference is None:
        return {}
    kinds = tuple(kind for kind in row.types if kind not in row.without)
    drawn = row.low, row.high, row.operands, row.ulps
    return {name: [Row(OPERATIONS[name], row.reference, shapes, kinds, *drawn)] for name in row.functions}


ROWS: dict[str, list[Row]] = {}
for _row in UNARY:
    ROWS |= value_rows(_row, VECTORS)
for _row in BINARY:
    ROWS |= value_rows(_row, PAIRS)


def _reduction_rows(name: str, kinds: tuple[str, ...]) -> list[Row]:
    apply, reference = OPERATIONS[name], _REDUCTION[name]
    empty: tuple[tuple[Shape, ...], ...] = () if name in ("max", "min") else (((0, 3),),)
    low, high = (0.5, 1.5) if name == "product" else (-3.0, 3.0)
    exact = {"kinds": kinds, "low": low, "high": high, "ulps": 40}
    return [
        Row(lambda x: apply(x), lambda x: reference(x), (((),), ((7,),), ((2, 3, 4),), *empty), **exact),
        Row(lambda x: apply(x, 1), lambda x: reference(x, 1), (((2, 3),), ((0, 3),), ((2, 3, 4),)), **exact),
        Row(
            lambda x: apply(x, (0, -1), True),
            lambda x: reference(x, (0, -1), keepdims=True),
            (((2, 3),), ((2, 3, 4),)),
            **exact,
        ),
    ]


ROWS |= {row.name: _reduction_rows(row.name, row.kinds) for row in REDUCTIONS.values()}


def _softmax(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _update(x: Any, update: Any) -> Any:
    result = x.copy()
    result[1:3, 2:4] = update
    return result


def _interior(x: Any) -> Any:
    result = np.full((1 + 2 * x.shape[0] - 1 + 2, x.shape[1] - 1), 2, x.dtype)
    result[1:-2:2] = x[:, 1:]
    return result


_MATRIX: tuple[tuple[Shape, ...], ...] = (((3, 4),), ((0, 4),))
_AXES: tuple[tuple[Shape, ...], ...] = (((2, 3, 4),),)
_SUMMABLE = ("signed", "unsigned", "float", "complex")

ROWS |= {
    "floor_divide": [Row(ops.elementwise.floor_divide, np.floor_divide, PAIRS, NUMBERS, operands=modulo_divisor)],
    "modulo": [Row(ops.elementwise.modulo, np.mod, PAIRS, NUMBERS, operands=modulo_divisor, ulps=200)],
    "remainder": [Row(ops.elementwise.remainder, np.remainder, PAIRS, NUMBERS, operands=modulo_divisor, ulps=200)],
    "shift_right": [
        Row(ops.elementwise.shift_right, np.right_shift, PAIRS, ("signed", "unsigned"), operands=shift_operands)
    ],
    "where": [Row(ops.elementwise.where, np.where, (((3,), (3,), (3,)), ((2, 1), (3,), ())), ALL, operands=mask_operands)],
    "clip": [Row(lambda x: ops.elementwise.clip(x, 1, 2), lambda x: np.clip(x, 1, 2), kinds=NUMBERS)],
    "convert": [
        Row(lambda x: ops.elementwise.convert(x, "i32"), lambda x: np.asarray(x).astype(np.int32), low=-9, high=9),
        Row(lambda x: ops.elementwise.convert(x, "f64"), lambda x: np.asarray(x).astype(np.float64), low=-9, high=9),
        Row(lambda x: ops.elementwise.convert(x, "bool"), lambda x: np.asarray(x) != 0, low=-1, high=1),
        Row(lambda x: ops.elementwise.convert(x, "bf16"), lambda x: np.asarray(x).astype(DType.bf16.numpy), low=-9, high=9),
    ],
    "real": [Row(ops.elementwise.real, np.real, kinds=("complex",))],
    "imag": [Row(ops.elementwise.imag, np.imag, kinds=("complex",))],
    "complex": [
        Row(lambda x, y: ops.elementwise.complex_(x.astype("f32"), y.astype("f32")), lambda x, y: x + 1j * y, PAIRS, FLOATS)
    ],
    "square": [Row(ops.elementwise.square, np.square, kinds=(*NUMBERS, "complex"))],
    "reciprocal": [Row(ops.elementwise.reciprocal, np.reciprocal, kinds=FLOATS, low=0.5, high=4)],
    "reshape": [
        Row(lambda x: ops.movement.reshape(x, (4, -1)), lambda x: x.reshape(4, -1), (((2, 6),), ((4, 1),))),
        Row(lambda x: ops.movement.reshape(x, ()), lambda x: x.reshape(()), (((1, 1),), ((),))),
    ],
    "transpose": [
        Row(lambda x: ops.movement.transpose(x), np.transpose),
        Row(lambda x: ops.movement.transpose(x, 2, 0, 1), lambda x: x.transpose(2, 0, 1), _AXES),
    ],
    "swapaxes": [Row(lambda x: ops.movement.swapaxes(x, 0, -1), lambda x: x.swapaxes(0, -1), _AXES)],
    "broadcast_to": [
        Row(lambda x: ops.movement.broadcast_to(x, (2, 3)), lambda x: np.broadcast_to(x, (2, 3)), (((),), ((3,),), ((2, 1),)))
    ],
    "expand_dims": [Row(lambda x: ops.movement.expand_dims(x, -1), lambda x: np.expand_dims(x, -1))],
    "squeeze": [
        Row(lambda x: ops.movement.squeeze(x), np.squeeze, (((1, 3, 1),), ((),))),
        Row(lambda x: ops.movement.squeeze(x, 0), lambda x: np.squeeze(x, 0), (((1, 1),),)),
    ],
    "slice": [
        Row(lambda x: ops.movement.slice_(x, (1, 0), (3, 4), (1, 2)), lambda x: x[1:3, 0:4:2], (((3, 4),),)),
    ],
    "reverse": [Row(lambda x: ops.movement.reverse(x, -1), lambda x: x[..., ::-1], _AXES)],
    "pad": [
        Row(
            lambda x: ops.movement.pad(x, [(1, 2), (0, 1)]),
            lambda x: np.pad(x, [(1, 2), (0, 1)]),
            _MATRIX,
        ),
        Row(lambda x: ops.movement.pad(x, [(1, 2, 1), (-1, 0)], constant_values=2), _interior, (((3, 4),),), NUMBERS),
    ],
    "concatenate": [
        Row(
            lambda x, y: ops.movement.concatenate([x, y, x], -1),
            lambda x, y: np.concatenate([x, y, x], -1),
            (((2, 3), (2, 0)),),
        )
    ],
    "stack": [Row(lambda x, y: ops.movement.stack([x, y], 1), lambda x, y: np.stack([x, y], 1), (((2, 3), (2, 3)),))],
    "split": [Row(lambda x: ops.movement.split(x, 2, 1), lambda x: tuple(np.split(x, 2, 1)), (((3, 4),), ((0, 4),)))],
    "stop_gradient": [Row(ops.movement.stop_gradient, lambda x: x)],
    "iota": [
        Row(
            lambda x: ops.movement.iota(x.shape, 1, x.dtype),
            lambda x: np.broadcast_to(np.arange(4), x.shape),
            _MATRIX,
            NUMBERS,
        )
    ],
    "full": [Row(lambda x: ops.movement.full((2, 3), x), lambda x: np.full((2, 3), x), (((),),))],
    "zeros": [Row(lambda x: ops.movement.zeros(x.shape, x.dtype), np.zeros_like)],
    "ones": [Row(lambda x: ops.movement.ones(x.shape, x.dtype), np.ones_like)],
    "index": [
        Row(lambda x: x[1:, ::-1, None, -1], lambda x: x[1:, ::-1, None, -1], _AXES),
        Row(lambda x, i: x[i], lambda x, i: x[i], (((3, 4), (5,)), ((3,), ()), ((3, 0), (2, 2))), operands=index_operands),
    ],
    "take": [
        Row(
            lambda x, i: ops.take(x, i, 1),
            lambda x, i: np.take(x, i, 1),
            (((2, 3, 4), (2, 2)), ((0, 3), (5,))),
            operands=index_operands,
        )
    ],
    "dynamic_slice": [
        Row(lambda x: ops.dynamic_slice(x, (1, 9), (2, 2)), lambda x: x[1:3, 2:4], (((3, 4),),)),
    ],
    "dynamic_update_slice": [
        Row(lambda x, u: ops.dynamic_update_slice(x, u, (1, 9)), _update, (((3, 4), (2, 2)),)),
    ],
    "one_hot": [
        Row(
            lambda x: ops.one_hot(x, 5, "i32"),
            lambda x: (np.asarray(x)[..., None] == np.arange(5)).astype(np.int32),
            kinds=("signed", "unsigned"),
        )
    ],
    "mean": [Row(lambda x: ops.mean(x, 1), lambda x: np.mean(x, 1), _AXES, (*FLOATS, "complex"), ulps=40)],
    "var": [Row(lambda x: ops.var(x, 1, True), lambda x: np.var(x, 1, keepdims=True), _AXES, FLOATS, ulps=40)],
    "argmax": [Row(lambda x: ops.argmax(x, 1), lambda x: np.argmax(x, 1), (((3, 40),), ((0, 4),)))],
    "argmin": [Row(lambda x: ops.argmin(x, 0), lambda x: np.argmin(x, 0), (((40, 3),), ((4, 0),)))],
    "dot_general": [
        Row(
            lambda x, y: ops.dot_general(x, y, ((2,), (1,)), ((0,), (0,))),
            lambda x, y: np.einsum("bij,bjk->bik", x, y),
            (((2, 3, 4), (2, 4, 5)), ((2, 3, 0), (2, 0, 5))),
            _SUMMABLE,
            ulps=40,
        )
    ],
    "matmul": [
        Row(
            ops.matmul,
            np.matmul,
            (
                ((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 5)),
                ((2, 1, 3, 4), (6, 4, 5)), ((4,), (2, 4, 5)), ((2, 3, 4), (4,)), ((0, 4), (4, 5)),
            ),
            _SUMMABLE,
            ulps=40,
        )
    ],
    "einsum": [
        Row(
            lambda x, y, f=formula: ops.einsum(f, x, y),
            lambda x, y, f=formula: np.einsum(f, x, y),
            (shapes,),
            _SUMMABLE,
            ulps=60,
        )
        for formula, shapes in (
            ("bqhd,bkhd->bhqk", ((2, 3, 2, 4), (2, 5, 2, 4))),
            ("ij,jk", ((3, 4), (4, 5))),
            ("ij,ik->k", ((3, 4), (3, 5))),
            ("ij,kl->jlik", ((3, 2), (2, 4))),
            ("ij,ij->", ((3, 4), (3, 4))),
        )
    ],
    "softmax": [Row(ops.normalizing.softmax, _softmax, (((2, 5),), ((3, 1),)), FLOATS, ulps=40)],
    "log_softmax": [
        Row(ops.normalizing.log_softmax, lambda x: np.log(_softmax(x)), (((2, 5),), ((3, 1),)), FLOATS, ulps=40)
    ],
    "logsumexp": [
        Row(
            lambda x: ops.normalizing.logsumexp(x, 0, True),
            lambda x: np.log(np.exp(x).sum(0, keepdims=True)),
            (((2, 5),), ((3, 1),)),
            FLOATS,
            ulps=40,
        )
    ],
}  # fmt: skip

# Tests of their own: what these take or make depends on the width of the element type.
OWN_TEST = {"bitcast", "complex"}
