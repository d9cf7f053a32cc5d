"""Constants that rows fold, and those that they must leave alone."""

from typing import Any

import numpy as np

from pcp import ops
from pcp.ops import elementwise as e
from pcp.ops import movement
from pcp.ops.indexing.gathering import WindowAxes, gather
from pcp.rewrite.simplification import folding
from pcp.tensor import as_tensor, emit
from tests.rewrite.simplification.computing_rows import F, array, full, op
from tests.rewrite.simplification.moving_rows import Case, spread


def _table() -> Any:
    return as_tensor(np.arange(6, dtype=np.float32).reshape(2, 3))


def _two(indices: Any) -> Any:
    return as_tensor(np.array(indices, np.int32))


BINARY = ("add", "divide", "maximum", "minimum", "multiply", "remainder", "subtract")

# Constants: by name of the operation, what folds it, in the middle of a sum with an argument.
FOLDED: dict[str, list[Any]] = {
    "abs": [lambda: abs(array(-1.5, 2, -0.0))],
    "add": [
        lambda: array(0.1, 1e38, -0.0) + array(0.2, 3e38, -0.0),
        lambda: array(3, 4, dtype="int8") + array(127, 1, dtype="int8"),
    ],
    "and": [lambda: array(6, 3, dtype="int32") & array(3, 1, dtype="int32")],
    "ceil": [lambda: e.ceil(array(0.5, -0.5, 2))],
    "compare": [lambda: array(1, np.nan, 0.0) <= array(2, np.nan, -0.0)],
    "convert": [lambda: array(1.7, -1.7, 1e-3).astype("i32"), lambda: array(0.1, 1.0, np.inf).astype("bf16")],
    "divide": [
        lambda: array(1, 0, 7) / array(3, 0, -0.0),
        lambda: op("divide", array(7, -7, 9, dtype="int32"), array(2, 2, -4, dtype="int32")),
        lambda: op("divide", array(-(2**31), 2**31 - 1, dtype="int32"), array(2, -2, dtype="int32")),
    ],
    "floor": [lambda: e.floor(array(0.5, -0.5, 2))],
    "maximum": [lambda: e.maximum(array(1, np.nan), array(2, 1))],
    "minimum": [lambda: e.minimum(array(1, np.nan), array(2, 1))],
    "multiply": [lambda: array(0.1, 1e38) * array(0.3, 1e3)],
    "negate": [lambda: -array(0.0, 1, np.inf)],
    "not": [lambda: ~array(True, False, dtype="bool"), lambda: ~array(0, 5, dtype="uint8")],
    "or": [lambda: array(6, 3, dtype="int32") | array(3, 1, dtype="int32")],
    "remainder": [
        lambda: e.remainder(array(5.5, -5.5, 1e30), array(2, 2, 0.1)),
        lambda: op("remainder", array(7, -7, dtype="int32"), array(4, 4, dtype="int32")),
        lambda: op("remainder", array(-(2**31), 2**31 - 1, dtype="int32"), array(3, -3, dtype="int32")),
    ],
    "round_nearest_even": [lambda: e.round_(array(0.5, 1.5, -0.5))],
    "sqrt": [lambda: e.sqrt(array(2, -1, -0.0, 1e-40))],
    "subtract": [lambda: array(0.1, 0.0) - array(0.3, 0.0)],
    "xor": [lambda: array(6, 3, dtype="int32") ^ array(3, 1, dtype="int32")],
    "broadcast_in_dim": [lambda: spread(array(2, 2), (3, 2), (1,))],
    "concatenate": [lambda: movement.concatenate([array(1, 2), array(3)])],
    "gather": [
        lambda: gather(_table(), _two([[5], [0]]), WindowAxes((1,), (0,), (0,), 1), (1, 3)),
        lambda: gather(_table(), _two([[1, 2]]), WindowAxes((), (0, 1), (0, 1), 1), (1, 1)),
        lambda: gather(_table(), _two([[2], [1]]), WindowAxes((), (1,), (1,), 1, (0,), (0,)), (1, 1)),
    ],
    "pad": [
        lambda: movement.pad(array(1, 2, 3), [(1, -1, 1)], constant_values=9.0),
        lambda: movement.pad(array(1, 2, 3), [(-1, 2)], constant_values=9.0),
    ],
    "reshape": [lambda: array(1, 2, 3, 4).reshape(2, 2), lambda: array(2, 2, 2, 2).reshape(2, 2)],
    "reverse": [lambda: array(1, 2, 3)[::-1]],
    "select": [lambda: e.where(array(True, False, dtype="bool"), array(1, 2), array(3, 4))],
    "slice": [lambda: array(1, 2, 3, 4, 5)[1:5:2]],
    "transpose": [lambda: as_tensor(np.arange(6, dtype=np.float32).reshape(2, 3)).T],
}
UNFOLDED: dict[str, Any] = {
    "compare": lambda x: x < x.T,
    "select": lambda x: e.where(x > 0, x, -x),
    "concatenate": lambda x: movement.concatenate([x, np.ones((2, 2), np.float32)]),
    "not": lambda x: ~(x > 0),
    "and": lambda x: (x > 0) & (x < 1),
    "or": lambda x: (x > 0) | (x < 1),
    "xor": lambda x: (x > 0) ^ (x < 1),
    "broadcast_in_dim": lambda x: spread(x, (3, 2, 2), (1, 2)),
    "convert": lambda x: x.astype("f64"),
    "gather": lambda x: ops.take(x, array(1, 0, dtype="int32"), 0),
    "pad": lambda x: movement.pad(x, [(1, 0), (0, 0)], constant_values=9.0),
    "reshape": lambda x: x.reshape(4),
    "reverse": lambda x: x[::-1],
    "slice": lambda x: x[1:],
    "transpose": lambda x: x.T,
}


def _large(size: int) -> Any:
    return as_tensor(np.arange(size, dtype=np.float32))


CHANGED: list[Case] = []
LEFT_ALONE: list[Case] = []
for _name in (row.name.removeprefix("fold_") for row in folding.ROWS):
    CHANGED += [(f"fold_{_name}", lambda x, f=f: [f(), x], ("f32[2]",)) for f in FOLDED[_name]]
    LEFT_ALONE.append(
        (
            f"fold_{_name}",
            UNFOLDED.get(_name, lambda x, n=_name: emit(n, (x,) * (2 if n in BINARY else 1))),
            ("f32[2,2]",),
        )
    )
CHANGED += [
    ("fold_multiply", lambda x: [e.multiply(full(x, 0.1), full(x, 3)), x], ("f32[100,30]",)),
    ("fold_multiply", lambda x: [e.multiply(full(x, 1.1), full(x, 3)), x], ("bf16[2]",)),
]
LEFT_ALONE += [
    ("fold_add", lambda x: [_large(1025) + _large(1025), x], F),
    ("fold_reshape", lambda x: [_large(1026).reshape(2, 513), x], F),
    ("fold_divide", lambda x: [x / 3.0], F),
    ("fold_maximum", lambda x: [e.maximum(array(0.0, 1), array(-0.0, 1)), x], F),
    ("fold_convert", lambda x: [array(1e20, 1).astype("i32"), x], F),
    ("fold_convert", lambda x: [array(1 + 2.0**-8 + 2.0**-40, 1, dtype="float64").astype("bf16"), x], F),
]
