"""What IREE writes into, it does not share: blocks written into arrays that are read later, and sorts of such."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("iree.runtime")
pytest.importorskip("iree.compiler")

import pcp
from pcp import Tensor
from pcp.backends.iree.prepared import with_safe_forms

X = np.random.default_rng().integers(-4, 5, (3, 4, 5)).astype(np.float32)
BLOCK = np.random.default_rng().integers(10, 20, (2, 3, 4)).astype(np.float32)
AT = np.array([1, 0, 1], np.int32)


def _chain(x: Tensor, block: Tensor, at: Tensor) -> Tensor:
    """A block is written where what was written before says."""
    first = pcp.dynamic_update_slice(x, block, [at[0], at[1], at[2]])
    return pcp.dynamic_update_slice(first, block, [at[1], first.sum().astype("i32"), at[0]])


BUILT: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    "an argument": lambda x, block, at: (x, _chain(x, block, at)),
    "computed": lambda x, block, at: (x + x, _chain(x + x, block, at)),
    "reshaped": lambda x, block, at: (x, _chain(x.reshape((12, 5)).reshape((3, 4, 5)), block, at)),
    "chosen": lambda x, block, at: (x, _chain(pcp.cond(at[0] > 0, lambda y: y, lambda y: -y, x), block, at)),
    "written twice": lambda x, block, at: (_chain(x + x, block, at), _chain(x + x, block, at + 1)),
    "every other": lambda x, _block, _at: (x + x, (x + x)[..., ::2] * 3 + 1),
    "sorted": lambda x, _block, _at: (x, pcp.sort(x, axis=1)),
    "sorted twice": lambda x, _block, _at: (
        pcp.argsort(x, axis=0),
        pcp.sort(x, axis=0),
        pcp.sort(x * 2, axis=2),
    ),
    "places shared": lambda x, _block, _at: (pcp.argsort(x, axis=1), pcp.argsort(-x, axis=1)),
}


@pytest.mark.parametrize("name", BUILT)
def test_what_is_read_later_is_not_written_to(name: str) -> None:
    x, block = X.astype(np.int64), BLOCK.astype(np.int64)
    program = pcp.trace(BUILT[name], x, block, AT)
    plan = pcp.plan(program, "iree:llvm-cpu")
    given = plan.place(x, block, AT)
    for found, right in zip(plan.run(*given), pcp.plan(program, "arena:cpu").run(x, block, AT), strict=True):
        np.testing.assert_array_equal(np.asarray(found), right)
    np.testing.assert_array_equal(np.asarray(given[0]), x)


@pytest.mark.parametrize(
    "named", ["dimension = 0 : i64, is_stable = true", "is_stable = true", "dimension = 0 : i64"]
)
def test_equal_elements_keep_their_order(named: str) -> None:
    keys, values = np.array([2, 1, 2, 1, 2], np.int64), np.arange(5, dtype=np.float32)
    text = f"""
    func.func @main(%k: tensor<5xi64>, %v: tensor<5xf32>) -> (tensor<5xi64>, tensor<5xf32>) {{
      %r:2 = "stablehlo.sort"(%k, %v) <{{{named}}}> ({{
        ^bb0(%a: tensor<i64>, %b: tensor<i64>, %p: tensor<f32>, %q: tensor<f32>):
          %c = stablehlo.compare LT, %a, %b : (tensor<i64>, tensor<i64>) -> tensor<i1>
          stablehlo.return %c : tensor<i1>
      }}) : (tensor<5xi64>, tensor<5xf32>) -> (tensor<5xi64>, tensor<5xf32>)
      return %r#0, %r#1 : tensor<5xi64>, tensor<5xf32>
    }}"""
    found = pcp.plan(pcp.Program.parse(text), "iree:llvm-cpu").run(keys, values)
    np.testing.assert_array_equal(np.asarray(found[0]), [1, 1, 2, 2, 2])
    if "is_stable" in named:
        np.testing.assert_array_equal(np.asarray(found[1]), [1, 3, 0, 2, 4])


def test_what_nothing_else_reads_is_not_copied() -> None:
    program = pcp.trace(lambda x, b: pcp.dynamic_update_slice(x, b * 2, [0, 1, 0]), X, BLOCK)
    assert with_safe_forms(program) is program
