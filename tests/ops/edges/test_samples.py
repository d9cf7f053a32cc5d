"""Operations with samples give what they give for each sample alone, at the edges as elsewhere.

Integers agree bit for bit, floats to four units in the last place: XLA may compute the last elements of an array by scalar code
that rounds otherwise than its vector code.
"""

from typing import Any

import numpy as np
import pytest
from tests.execution import run
from tests.ops.edges.cases import EVERY, Case, cases_of, same
from tests.suite.share import part

import pcp
from pcp.ir import DType
from pcp.ir.tree import flatten

TYPES = (DType.f32, DType.i8)
NAMES = sorted(EVERY)
GROUPS = [NAMES[start : start + 12] for start in range(0, len(NAMES), 12)]

NEAR = {"matmul", "dot_general", "einsum", "inner", "tensordot", "cholesky", "cholesky_solve", "triangular_solve", "softmax",
        "sum", "mean", "var", "std", "norm", "product", "prod", "trace", "logsumexp", "log_softmax", "cumsum", "cumprod",
        "logcumsumexp", "linspace"}  # fmt: skip
"""Operations that add up in another order with samples."""


def _cases(names: list[str]) -> list[tuple[str, Case]]:
    """For every row of the operations, one case with its own shapes in each of two types."""
    found: dict[tuple[Any, ...], tuple[str, Case]] = {}
    for name in names:
        for case in cases_of(name, thorough=False, sizes=("own", "one")):
            small = all(np.asarray(x).size < 200 for x in case.operands)
            if case.dtype in TYPES and small and case.operands:
                found.setdefault((name, id(case.row), case.dtype, case.fill), (name, case))
    return list(found.values())


GROUPED = pytest.mark.parametrize("names", GROUPS, ids=[f"{group[0]}..{group[-1]}" for group in GROUPS])


@GROUPED
def test_samples_are_as_if_alone(names: list[str]) -> None:
    check(part(_cases(names), 3, lambda each: each[1].label))


@pytest.mark.long
@GROUPED
def test_samples_of_every_case_are_as_if_alone(names: list[str]) -> None:
    check(_cases(names))


def check(cases: list[tuple[str, Case]]) -> None:
    samples = [
        [[x, np.flip(x).copy() if x.dtype == case.dtype.numpy else x] for x in case.operands]
        for _, case in cases
    ]
    whole = [[np.stack(pair) for pair in operands] for operands in samples]

    def apply(given: Any) -> Any:
        together = [
            pcp.vmap(case.row.apply)(*operands) for (_, case), operands in zip(cases, given, strict=True)
        ]
        alone = [
            [case.row.apply(*(x[i] for x in operands)) for i in range(2)]
            for (_, case), operands in zip(cases, given, strict=True)
        ]
        return together, alone

    together, alone = run(pcp.trace(apply, whole, roles=("input",)), whole)
    for (name, case), many, each in zip(cases, together, alone, strict=True):
        for place, one in enumerate(each):
            for left, right in zip(flatten(many)[0], flatten(one)[0], strict=True):
                if name in NEAR and right.dtype.kind in "fc":
                    scale = np.abs(right[np.isfinite(right)]).max(initial=1e-6)
                    np.testing.assert_allclose(
                        left[place], right, atol=float(1e-5 * scale), rtol=1e-5, err_msg=case.label
                    )
                else:
                    assert same(left[place], right) or _rounded(left[place], right), case.label


def _rounded(left: Any, right: Any) -> bool:
    """Whether floats differ by four units in the last place at most."""
    if right.dtype.kind not in "fc" or left.shape != right.shape or left.dtype != right.dtype:
        return False
    rtol = 4 * float(np.finfo(right.dtype).eps)
    return bool(np.isclose(left, right, rtol=rtol, atol=0.0, equal_nan=True).all())
