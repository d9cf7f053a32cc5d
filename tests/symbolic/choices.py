"""Functions that choose, clip and calculate by their sizes, in many ways: each is right at a size, or refused there."""

import bisect
import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

import pcp
from pcp import nn

Case = tuple[Callable[[Any], Any], tuple[str | int, ...], list[str]]
N = ("n",)
NM = ("n", "m")


def of_n(*rows: tuple[str, Callable[[Any], Any]], constraints: tuple[str, ...] = ()) -> dict[str, Case]:
    return {name: (function, N, list(constraints)) for name, function in rows}


def looped(x: Any) -> Any:
    total = 0
    for i in range(x.shape[0]):
        total = total + x[i]
    return total


def matched(x: Any) -> Any:
    match x.shape[0]:
        case 5000:
            return x * 2
        case _:
            return x


def chunked(x: Any) -> Any:
    return sum(x[i : i + 2048].max() for i in range(0, x.shape[0], 2048))


def rows(x: Any) -> Any:
    return x.reshape(1, x.shape[0], 1)


KERNEL = np.ones((3, 1, 1), np.float32)
SLICES: dict[str, Case] = {
    **{f"x[:{k}]": (lambda x, k=k: x[:k] * 2, N, []) for k in (1, 3, 10, 100, 200, 4000, -1, -3, -200)},
    **{f"x[{k}:]": (lambda x, k=k: x[k:] * 2, N, []) for k in (1, 3, 10, 200, 4000, -1, -3, -200)},
    **of_n(
        ("turned", lambda x: x[::-1]),
        ("turned from", lambda x: x[3000::-1]),
        ("turned to", lambda x: x[:3000:-1]),
        ("every second", lambda x: x[::2]),
        ("every seventh", lambda x: x[3::7]),
        ("clipped", lambda x: x[:3000:3]),
        ("half", lambda x: x[: x.shape[0] // 2]),
        ("other half", lambda x: x[x.shape[0] // 2 :]),
        ("at -1", lambda x: x[-1] * 2),
        ("at 5", lambda x: x[5]),
        ("at n // 2", lambda x: x[x.shape[0] // 2]),
        ("min", lambda x: x[: min(x.shape[0], 4000)].sum()),
        ("np.minimum", lambda x: x[: np.minimum(x.shape[0], 4000)].sum()),
        ("last ones", lambda x: x[max(0, x.shape[0] - 2500) :].sum()),
        ("shift", lambda x: x[: x.shape[0] >> 1]),
        ("whole blocks", lambda x: x[: x.shape[0] // 1000 * 1000].sum()),
        ("joined", lambda x: pcp.concatenate([x, x[:3000]])),
    ),
}
NUMBERS: dict[str, Case] = of_n(
    ("max", lambda x: x.sum() * max(x.shape[0], 4000)),
    ("np.maximum", lambda x: x.sum() / np.maximum(x.shape[0], 4000)),
    ("least part", lambda x: x.sum() * min(x.shape[0] / 4000, 1.0)),
    ("np.clip", lambda x: x.sum() * np.clip(x.shape[0], 1, 4000)),
    ("ceil", lambda x: x.sum() * math.ceil(x.shape[0] / 1100)),
    ("ceil 2", lambda x: x.sum() * math.ceil(x.shape[0] / 2)),
    ("floor", lambda x: x.sum() * math.floor(x.shape[0] / 2)),
    ("np.ceil", lambda x: x.sum() * np.ceil(x.shape[0] / 1100)),
    ("int", lambda x: x.sum() * int(x.shape[0] / 1100)),
    ("round", lambda x: x.sum() * round(x.shape[0] / 1100)),
    ("ceil //", lambda x: x.sum() * -(-x.shape[0] // 1100)),
    ("//", lambda x: x.sum() * (x.shape[0] // 1100 + 1)),
    ("// 3", lambda x: x.sum() * (x.shape[0] // 3 + 1)),
    ("%", lambda x: x.sum() * (x.shape[0] % 7)),
    ("% 4096", lambda x: x.sum() * (x.shape[0] % 4096)),
    ("divmod", lambda x: x.sum() * sum(divmod(x.shape[0], 100))),
    ("&", lambda x: x.sum() * (x.shape[0] & 1)),
    ("<<", lambda x: x.sum() * (x.shape[0] << 1)),
    ("mean", lambda x: x.sum() / x.shape[0]),
    ("1 / n", lambda x: x * (1 / x.shape[0])),
    ("n ** 0.5", lambda x: x / x.shape[0] ** 0.5),
    ("n ** -0.5", lambda x: x * x.shape[0] ** -0.5),
    ("sqrt", lambda x: x / math.sqrt(x.shape[0])),
    ("np.sqrt", lambda x: x / np.sqrt(x.shape[0])),
    ("n * n", lambda x: x * (x.shape[0] * x.shape[0])),
    ("n ** 2", lambda x: x * x.shape[0] ** 2),
    ("n / 4000", lambda x: x * (x.shape[0] / 4000)),
    ("0.5 n", lambda x: x * (x.shape[0] * 0.5)),
    ("0.1 n", lambda x: x * (x.shape[0] * 0.1)),
    ("log", lambda x: x * math.log(x.shape[0])),
    ("int64", lambda x: x * (np.int64(3) * x.shape[0])),
    ("n - 0.5", lambda x: x * (x.shape[0] - 0.5)),
    ("float32", lambda x: x * (np.float32(3) * x.shape[0])),
    ("float64", lambda x: x * np.float64(x.shape[0])),
    ("returned", lambda x: (x.sum(), x.shape[0])),
    ("len", lambda x: x.sum() / len(x)),
    ("list", lambda x: x * [1.0, 2.0][x.shape[0] > 3000]),
    ("list of n", lambda x: x * ([1.0] * 8000)[x.shape[0]]),
)
CHOICES: dict[str, Case] = of_n(
    ("if //", lambda x: x.sum() * (2.0 if x.shape[0] // 2000 else 1.0)),
    ("if >", lambda x: x * 2 if x.shape[0] > 3000 else x),
    ("if ==", lambda x: x * 2 if x.shape[0] == 3000 else x),
    ("if %", lambda x: x * 2 if x.shape[0] % 2 == 0 else x),
    ("if % 5000", lambda x: x * 2 if x.shape[0] % 5000 == 0 else x),
    ("if in", lambda x: x * 2 if x.shape[0] in (3000, 4096) else x),
    ("if in set", lambda x: x * 2 if x.shape[0] in {3000, 4096} else x),
    ("if key", lambda x: x * {37: 1.0}.get(x.shape[0], 2.0)),
    ("match", matched),
    ("if shape", lambda x: x * 2 if x.shape == (3000,) else x),
    ("if between", lambda x: x * 2 if 5000 < x.shape[0] < 6000 else x),
    ("if float between", lambda x: x * 2 if 5000.0 < float(x.shape[0]) < 6000.0 else x),
    ("if float", lambda x: x * 2 if float(x.shape[0]) > 2500.0 else x),
    ("if sqrt", lambda x: x * 2 if math.sqrt(x.shape[0]) > 70 else x),
    ("if root", lambda x: x * 2 if x.shape[0] ** 0.5 > 70 else x),
    ("if log", lambda x: x * 2 if math.log(x.shape[0]) > 9 else x),
    ("if /", lambda x: x * 2 if x.shape[0] / 3 > 1000 else x),
    ("if size", lambda x: x * 2 if x.size > 3000 else x),
    ("if len", lambda x: x * 2 if len(x) > 3000 else x),
    ("if spec", lambda x: x * 2 if x.spec.shape[0] > 3000 else x),
    ("if derived", lambda x: x * 2 if x[::2].shape[0] > 3000 else x),
    ("if bisect", lambda x: x * bisect.bisect([10, 3000, 5000], x.shape[0])),
    ("if key of text", lambda x: x * {"4001": 2.0}.get(f"{x.shape[0]}", 1.0)),
    ("if shape is", lambda x: x * 2 if np.array_equal(x.shape, (3000,)) else x),
    ("if text", lambda x: x * 2 if len(str(x.shape[0])) > 3 else x),
    ("if int", lambda x: x * 2 if isinstance(x.shape[0], int) else x),
    ("if bits", lambda x: x * 2 if x.shape[0].bit_length() > 12 else x),
    ("if &", lambda x: x * 2 if x.shape[0] & 4096 else x),
    ("if not", lambda x: x if not x.shape[0] // 3000 else x * 2),
    ("three ways", lambda x: x if x.shape[0] < 50 else (x * 1.0 if x.shape[0] < 5000 else x * 2)),
)
LOOPS: dict[str, Case] = of_n(
    ("loop", looped),
    ("iterated", lambda x: sum(row for row in x)),
    ("unstack", lambda x: sum(pcp.unstack(x))),
    ("chunked", chunked),
    (
        "range of ceil",
        lambda x: sum(x[i * 2048 : (i + 1) * 2048].max() for i in range(-(-x.shape[0] // 2048))),
    ),
    ("scan", lambda x: pcp.scan(lambda c, r: (c + r, c), pcp.zeros((), "f32"), x)[0]),
    ("fori", lambda x: pcp.fori_loop(0, x.shape[0], lambda _, c: c + 1.0, x.sum())),
)
OPERATIONS: dict[str, Case] = {
    **of_n(
        ("split", lambda x: pcp.split(x, 2)[0] * 2),
        ("reshape", lambda x: x.reshape(x.shape[0] // 2, 2)),
        ("reshape -1", lambda x: x.reshape(-1, 2).sum(axis=0)),
        constraints=("n % 2 == 0",),
    ),
    **of_n(
        ("top_k", lambda x: pcp.top_k(x, 3)[0]),
        ("top_k 20", lambda x: pcp.top_k(x, 20)[0]),
        ("top_k min", lambda x: pcp.top_k(x, min(200, x.shape[0]))[0]),
        ("roll", lambda x: pcp.roll(x, 1, 0)),
        ("roll 100", lambda x: pcp.roll(x, 100, 0)),
        ("roll 5000", lambda x: pcp.roll(x, 5000, 0)),
        ("pad", lambda x: pcp.pad(x, [(1, 2)])),
        ("pad to", lambda x: pcp.pad(x, [(0, max(0, 4096 - x.shape[0]))])),
        ("pad %", lambda x: pcp.pad(x, [(0, -x.shape[0] % 1024)])),
        ("diff", lambda x: pcp.diff(x)),
        ("arange", lambda x: x * pcp.arange(x.shape[0])),
        ("np.arange", lambda x: x * np.arange(x.shape[0])),
        ("zeros", lambda x: x + pcp.zeros((x.shape[0],), "f32")),
        ("np.zeros", lambda x: x + np.zeros(x.shape, np.float32)),
        ("full", lambda x: x + pcp.full(x.shape, 2.0, "f32")),
        ("linspace", lambda x: x * pcp.linspace(0.0, 1.0, x.shape[0])),
        ("repeat", lambda x: pcp.repeat(x, 3, 0)),
        ("tile", lambda x: pcp.tile(x, 3)),
        ("sort", lambda x: pcp.sort(x)[:2500]),
        ("argsort", lambda x: x[pcp.argsort(x)]),
        ("var", lambda x: x.var()),
        ("softmax", lambda x: nn.softmax(x)),
        ("take", lambda x: x[np.array([0, 5, 20])]),
        ("expanded", lambda x: pcp.broadcast_to(x.mean(), (x.shape[0], 3))),
        ("same", lambda x: nn.conv(rows(x), KERNEL, padding="SAME")),
        ("same 3", lambda x: nn.conv(rows(x), KERNEL, strides=3, padding="SAME")),
        ("valid", lambda x: nn.conv(rows(x), KERNEL, strides=2, padding="VALID")),
        ("max_pool", lambda x: nn.max_pool(rows(x), (2,))),
        ("avg_pool", lambda x: nn.avg_pool(rows(x), (3,), padding="SAME")),
    ),
    "prod": (lambda x: x.reshape(math.prod(x.shape)), NM, []),
    "np.prod": (lambda x: x.reshape(np.prod(x.shape)), NM, []),
    "reduced": (lambda x: x.reshape(functools.reduce(operator.mul, x.shape)), NM, []),
    "summed": (lambda x: x * sum(x.shape), NM, []),
    "sorted": (lambda x: x.reshape(sorted(x.shape)), NM, []),
    "n > 100 m": (lambda x: x * 2 if x.shape[0] > 100 * x.shape[1] else x, NM, []),
    "n == m": (lambda x: x * 2 if x.shape[0] == x.shape[1] else x, NM, []),
    "eye": (lambda x: x @ pcp.eye(x.shape[1]), NM, []),
    "tril": (lambda x: pcp.tril(x), NM, []),
    "triu": (lambda x: pcp.triu(x, 3), NM, []),
    "diagonal": (lambda x: pcp.diagonal(x), NM, []),
    "minus 1": (lambda x: x[:-1], ("2*n + 1",), []),
    "n // 2": (lambda x: x[:2000], ("n // 2",), ["n >= 2"]),
    "broadcast": (lambda x: x - x.mean(axis=0, keepdims=True), ("n", 3), []),
    "einsum": (lambda x: pcp.einsum("ij,ik->jk", x, x), ("n", 3), []),
}
CASES = {**SLICES, **NUMBERS, **CHOICES, **LOOPS, **OPERATIONS}
EVERYWHERE = (
    "x[1:]",
    "x[:-1]",
    "turned",
    "every second",
    "half",
    "other half",
    "ceil 2",
    "floor",
    "// 3",
    "<<",
    "mean",
    "1 / n",
    "n ** 0.5",
    "n ** -0.5",
    "sqrt",
    "np.sqrt",
    "n * n",
    "n ** 2",
    "0.5 n",
    "int64",
    "float32",
    "float64",
    "returned",
    "scan",
    "fori",
    "split",
    "reshape",
    "reshape -1",
    "roll",
    "pad",
    "diff",
    "arange",
    "zeros",
    "full",
    "repeat",
    "tile",
    "argsort",
    "var",
    "softmax",
    "expanded",
    "same",
    "prod",
    "np.prod",
    "reduced",
    "summed",
    "eye",
    "tril",
    "triu",
    "minus 1",
    "broadcast",
    "einsum",
)
"""Cases that no size is refused for."""
FLOATS = ("sqrt", "float32", "float64")
"""Those of them in which a size becomes a float, so that a file holds at the sizes that were compared alone."""
