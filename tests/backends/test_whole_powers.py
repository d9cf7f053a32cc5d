"""Powers of integers: the same from XLA, compiled or folded, from the arena and from plain arithmetic, for every exponent."""

from typing import Any

import numpy as np
import pytest

import pcp
from pcp import ops
from pcp.ir import Program
from pcp.tensor import DTypeMismatch

BASES = (0, 1, -1, 2, -2, 3, 7)
EXPONENTS = (0, 1, 2, 3, 31, 32, 33, 62, 63, 64, 65, 100, -1, -2, -3, -64)


def defined(x: int, y: int, dtype: np.dtype[Any]) -> int:
    """What `pcp.power` says."""
    if y < 0:
        return 1 if x == 1 or (x == -1 and y % 2 == 0) else -1 if x == -1 else 0
    bits = 8 * dtype.itemsize
    found = pow(x, y, 1 << bits)
    return found - (1 << bits) if dtype.kind == "i" and found >> (bits - 1) else found


def pairs(dtype: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    limits = np.iinfo(dtype)
    bases = {n for n in (*BASES, limits.min, limits.max, limits.min + 1) if limits.min <= n <= limits.max}
    exponents = {
        n for n in (*EXPONENTS, limits.min, limits.max, limits.max - 1) if limits.min <= n <= limits.max
    }
    each = [(x, y) for x in sorted(bases) for y in sorted(exponents)]
    wanted = [defined(x, y, np.dtype(dtype)) for x, y in each]
    x, y = zip(*each, strict=True)
    return np.array(x, dtype), np.array(y, dtype), np.array(wanted, dtype)


@pytest.mark.parametrize("target", ["cpu:0", "arena:cpu"])
def test_powers_of_integers_are_one_number_everywhere(target: str) -> None:
    types = (np.int8, np.int32, np.int64, np.uint8, np.uint32, np.uint64)
    rows = [pairs(dtype) for dtype in types]

    def everything(*arguments: pcp.Tensor) -> list[Any]:
        given = [ops.power(x, y) for x, y in zip(arguments[::2], arguments[1::2], strict=True)]
        hidden = [
            ops.power(ops.convert(x, x.dtype), pcp.stop_gradient(ops.convert(y, y.dtype))) for x, y, _ in rows
        ]
        known = [ops.power(x, n) for x in arguments[2:4:2] for n in (0, 1, 2, 63, 64, 100)]
        return [given, hidden, known]

    arguments = [each for x, y, _ in rows for each in (x, y)]
    given, hidden, known = pcp.plan(pcp.trace(everything, *arguments), target).run(*arguments)
    for dtype, (_, _, wanted), one, other in zip(types, rows, given, hidden, strict=True):
        np.testing.assert_array_equal(np.asarray(one), wanted, err_msg=f"{dtype} given")
        np.testing.assert_array_equal(np.asarray(other), wanted, err_msg=f"{dtype} constant")
    for n, found in zip((0, 1, 2, 63, 64, 100), known, strict=True):
        np.testing.assert_array_equal(
            np.asarray(found), [defined(int(x), n, np.dtype("i4")) for x in rows[1][0]]
        )


def test_a_power_in_stablehlo_is_the_same_with_a_constant_exponent() -> None:
    text = """func.func @main(%x: tensor<4xi32>) -> (tensor<4xi32>, tensor<4xi32>) {{
      %minus = stablehlo.constant dense<-1> : tensor<4xi32>
      %one = stablehlo.constant dense<[0, 1, -1, 2]> : tensor<4xi32>
      %r = stablehlo.power %x, %minus : tensor<4xi32>
      %s = stablehlo.power %one, %minus : tensor<4xi32>
      return %r, %s : tensor<4xi32>, tensor<4xi32> }}""".format()
    x = np.array([0, 1, -1, 2], np.int32)
    for target in ("cpu:0", "arena:cpu"):
        for found in pcp.plan(Program.parse(text), target).run(x):
            np.testing.assert_array_equal(np.asarray(found), [0, 1, -1, 0], err_msg=target)


X = np.arange(3, dtype=np.int32)


@pytest.mark.parametrize("exponent", [-1, np.int32(-2), np.array([1, -1, 2]), np.array(-3)])
def test_known_negative_exponents_of_integers_are_refused(exponent: Any) -> None:
    message = r"power: integers of i\d\d were raised to the power -\d.*, which is no integer; .* x.astype\('f32'\) \*\* y"
    with pytest.raises(DTypeMismatch, match=message):
        pcp.trace(lambda x: x**exponent, X)
    with pytest.raises(DTypeMismatch, match=message):
        pcp.trace(lambda x: x ** ops.convert(np.int32(-1), "i32"), X)
    pcp.trace(lambda x: x.astype("f32") ** exponent, X)
