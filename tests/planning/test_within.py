"""Plans within a number of bytes, as the compiler counts them."""

from typing import Any

import numpy as np
import pytest

import pcp
from pcp.autodiff import BudgetUnreachable, InvalidByteBudget, Remat

RANDOM = np.random.default_rng(0)


def loss(parameters: Any, x: Any) -> Any:
    for up, down in parameters:
        hidden = x @ up
        x = x + pcp.tanh(hidden * pcp.sigmoid(hidden)) @ down
    return pcp.mean(x * x)


@pytest.fixture(scope="module")
def program() -> pcp.Program:
    parameters = tuple((RANDOM.normal(size=(16, 64)), RANDOM.normal(size=(64, 16))) for _ in range(4))
    return pcp.trace(loss, parameters, RANDOM.normal(size=(256, 16)))


def peak(plan: pcp.Plan) -> int:
    return plan.memory[str(plan.device)].peak


def test_a_plan_stays_within_what_it_is_given(program: pcp.Program) -> None:
    plain = pcp.plan(pcp.grad(program), cache=False)
    for share in (1.0, 0.6):
        size = int(share * peak(plain))
        made = pcp.plan_within(size, lambda remat: pcp.grad(program, remat=remat), cache=False)
        assert peak(made) <= size
        assert (made.program == plain.program) == (share == 1.0)


def test_an_estimate_that_is_too_low_is_corrected(program: pcp.Program) -> None:
    asked: list[int] = []

    def optimist(remat: Remat | None) -> pcp.Program:
        """Takes three times the budget that it is given."""
        if not isinstance(remat, pcp.ByteBudget):
            return pcp.grad(program)
        asked.append(remat.bytes)
        return pcp.grad(program, remat=3 * remat.bytes)

    size = int(0.6 * peak(pcp.plan(pcp.grad(program), cache=False)))
    assert peak(pcp.plan_within(size, optimist, cache=False)) <= size
    assert len(asked) > 1
    assert asked == sorted(asked, reverse=True)


def test_what_cannot_fit_is_refused(program: pcp.Program) -> None:
    with pytest.raises(BudgetUnreachable, match=r"no choice of values .* fits in 1000 bytes"):
        pcp.plan_within(1000, lambda remat: pcp.grad(program, remat=remat), cache=False)
    with pytest.raises(
        BudgetUnreachable, match=r"no plan .* fits in 1000 bytes: the smallest takes \d{5,}; give"
    ):
        pcp.plan_within(1000, lambda _: pcp.grad(program), cache=True)
    with pytest.raises(InvalidByteBudget, match="'much' is not a positive number of bytes"):
        pcp.plan_within("much", lambda remat: pcp.grad(program, remat=remat))
