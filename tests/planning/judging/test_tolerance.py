"""A plan within a tolerance is within it: planned for real, and judged again here by the definition alone."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pcp
from pcp.ir import Program
from pcp.planning.conditions import InvalidBudget, InvalidJudge, InvalidTolerance
from pcp.planning.judging.distances import scale_of
from pcp.planning.judging.judge import UnknownResult
from pcp.planning.judging.oracle import widened
from pcp.planning.measuring.bench import Bench
from pcp.planning.measuring.measurement import Failure
from pcp.planning.measuring.random_inputs import Recipe
from pcp.planning.measuring.request import Request
from pcp.planning.search.search import ToleranceUnreachable
from pcp.planning.search.whole import ReferenceNotFinite

RNG = np.random.default_rng()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "profile.sqlite"


def forward_error(found: Any, exact: np.ndarray[Any, Any]) -> float:
    return float(np.linalg.norm(np.asarray(found, np.float64) - exact) / np.linalg.norm(exact))


def drawn(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape, np.float32)


def judged(child: Bench, plain: Program, candidate: Program, tolerance: float) -> Any:
    """What is measured of a program that claims to compute the same as another."""
    return child.measure(
        Request(
            plain, candidate, "candidate", widened(plain), Recipe(seed=int(RNG.integers(1 << 30))),
            tolerance=tolerance, judged_at=tolerance, timing_seconds=0.0,
        )
    )  # fmt: skip


@pytest.mark.usefixtures("one_child")
def test_a_product_that_cancels_stays_within_its_tolerance(database: Path) -> None:
    """Rounding to bfloat16 would be wrong by more than all of the result."""
    program = pcp.trace(
        lambda x, w: (x + 2000.0) @ w - 2000.0 * w.sum(0),
        pcp.spec((256, 256), "f32"),
        pcp.spec((256, 256), "f32"),
    )
    plan = pcp.plan(program, tolerance=1e-2, database=database, budget=30)
    x, w = drawn(256, 256), drawn(256, 256)
    error = forward_error(plan.run(x, w), x.astype(np.float64) @ w.astype(np.float64))
    assert error < 1e-2
    assert plan.error is not None
    assert plan.plain_error is not None
    assert error / 3 < plan.error < 3 * error
    assert plan.plain_error > 1e-4
    with pytest.raises(ToleranceUnreachable, match="misses the tolerance of 1e-05: the error of result 0 is"):
        pcp.plan(program, tolerance=1e-5, database=database, budget=30)


@pytest.mark.usefixtures("one_child")
def test_half_types_cannot_promise_what_they_do_not_hold(database: Path) -> None:
    program = pcp.trace(lambda x: pcp.tanh(x) * 3.0, pcp.spec((64, 64), "bf16"))
    with pytest.raises(ToleranceUnreachable, match=r"the error of result 0 is 0\.00"):
        pcp.plan(program, tolerance=1e-4, database=database, budget=30)
    plan = pcp.plan(program, tolerance=1e-2, database=database, budget=30)
    x = drawn(64, 64).astype(ml_dtypes.bfloat16)
    error = forward_error(plan.run(x), 3 * np.tanh(x.astype(np.float64)))
    assert plan.error is not None
    assert error / 2 < plan.error < 2 * error


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "f64", "c64"])
def test_zeros_and_signs_are_refused_in_every_type(child: Bench, dtype: str) -> None:
    spec = pcp.spec((64, 8), dtype)
    plain = pcp.trace(lambda x: x * x + 1.0, spec)
    for wrong in (
        pcp.trace(lambda x: x - x, spec),
        pcp.trace(lambda x: -(x * x + 1.0), spec),
        pcp.trace(lambda x: pcp.concatenate([(x * x + 1.0)[:-1], (x - x)[-1:]]), spec),  # only the last row
    ):
        found = judged(child, plain, wrong, 0.02)
        assert found.failure is Failure.inaccurate, (found.detail, found.error, found.judgement)
        assert found.error > 0.02 or found.judgement.slice_error > 0.2


def test_a_slice_is_named(child: Bench) -> None:
    spec = pcp.spec((2000, 8), "f32")
    plain = pcp.trace(lambda x: x * 2.0, spec)
    rows = pcp.trace(lambda x: pcp.concatenate([x[:1234] * 2.0, x[1234:1235] * 0.0, x[1235:] * 2.0]), spec)
    found = judged(child, plain, rows, 0.05)
    assert found.error < 0.05
    assert found.detail.startswith("the error of a slice of result 0 (axis 0, index 1234) is ")
    assert found.detail.endswith("; the tolerance for slices is 0.5")


def test_integers_may_differ_in_a_share_that_is_stated(child: Bench) -> None:
    spec = pcp.spec((1000, 64), "f32")
    plain = pcp.trace(lambda x: pcp.argmax(x, axis=1), spec)
    coarse = pcp.trace(lambda x: pcp.argmax(x.astype("bf16").astype("f32"), axis=1), spec)
    found = judged(child, plain, coarse, 0.05)
    assert found.failure is None
    [(name, share)] = found.judgement.shares
    assert (name, share) == ("0", found.error)
    assert 0 < share < 0.05
    refused = judged(child, plain, coarse, share / 10)
    assert refused.failure is Failure.inaccurate
    assert "a share of" in refused.detail


@pytest.mark.usefixtures("one_child")
def test_a_result_is_ignored_visibly(database: Path) -> None:
    def function(x: Any, w: Any) -> Any:
        return {"good": x @ w, "bad": (x + 2000.0) @ w - 2000.0 * w.sum(0)}

    program = pcp.trace(function, pcp.spec((64, 64), "f32"), pcp.spec((64, 64), "f32"))
    with pytest.raises(ToleranceUnreachable, match=r"result bad is .* judge=\{'bad': 'ignore'\}"):
        pcp.plan(program, tolerance=1e-5, database=database, budget=20)
    plan = pcp.plan(program, tolerance=1e-5, database=database, budget=20, judge={"bad": "ignore"})
    assert plan.error is not None
    assert plan.error < 1e-5
    assert "ignored, as asked for: bad" in str(plan)
    assert plan.to_json()["judgement"]["ignored"] == ("bad",)
    with pytest.raises(UnknownResult, match="no result is named 'worse'; the results are bad, good"):
        pcp.plan(program, tolerance=1e-5, database=database, judge={"worse": "ignore"})
    with pytest.raises(InvalidJudge, match="expected a dictionary from names of results to 'ignore'"):
        pcp.plan(program, tolerance=1e-5, database=database, judge={"bad": "skip"})


def test_a_large_program_is_judged_in_float32(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCP_FLOAT64_BYTES", "0")
    program = pcp.trace(lambda x, w: pcp.tanh(x @ w), pcp.spec((96, 300), "f32"), pcp.spec((300, 96), "f32"))
    plan = pcp.plan(program, tolerance=1e-2, database=database, budget=20)
    assert plan.measurement is not None
    assert plan.measurement.judgement is not None
    assert plan.measurement.judgement.reference == "float32"
    assert "against float32 in full precision" in str(plan)
    assert plan.plain_error is not None
    assert 1e-8 < plan.plain_error < 1e-5
    x, w = drawn(96, 300), drawn(300, 96) / np.float32(17)
    error = forward_error(plan.run(x, w), np.tanh(x.astype(np.float64) @ w.astype(np.float64)))
    assert plan.error is not None
    assert error < 3 * plan.error
    # What float32 itself misses is still found, and then said by float64.
    missed = pcp.trace(
        lambda x, w: (x + 2e5) @ w - 2e5 * w.sum(0), pcp.spec((96, 300), "f32"), pcp.spec((300, 96), "f32")
    )
    with pytest.raises(ToleranceUnreachable, match=r"the error of result 0 is 0\.0"):
        pcp.plan(missed, tolerance=1e-2, database=database, budget=20)


@pytest.mark.parametrize("given", [True, -1.0, float("nan"), "1e-2"])
def test_what_is_no_tolerance_or_budget(given: Any) -> None:
    program = pcp.trace(lambda x: x * 2.0, pcp.spec((2,), "f32"))
    with pytest.raises(InvalidTolerance, match=f"the tolerance is {given!r}; expected a number from 0"):
        pcp.plan(program, tolerance=given)
    with pytest.raises(InvalidBudget, match=f"the budget is {given!r}; expected seconds from 0"):
        pcp.plan(program, tolerance=1e-2, budget=given)


@pytest.mark.usefixtures("one_child")
def test_what_is_mostly_no_number_judges_nothing(database: Path) -> None:
    program = pcp.trace(
        lambda x, w: {"good": pcp.tanh(x @ w), "bad": pcp.log(-(x * x)) @ w},
        pcp.spec((32, 32), "f32"),
        pcp.spec((32, 32), "f32"),
    )
    message = r"on random arguments: 100 % of result bad is NaN or infinite, .* example=.*, or .* judge=\{'bad': 'ignore'\}"
    with pytest.raises(ReferenceNotFinite, match=message):
        pcp.plan(program, tolerance=1e-2, database=database, budget=30)
    plan = pcp.plan(program, tolerance=1e-2, database=database, budget=30, judge={"bad": "ignore"})
    assert plan.error is not None
    assert plan.error < 1e-2


@pytest.mark.parametrize(
    ("values", "lost"),
    [
        ([1.0, 2.0, np.nan], 1 / 3),
        ([1.0, np.inf, np.nan], 2 / 3),
        ([1.0, -np.inf, -np.inf], 0.0),  # as a mask hides
        ([-np.inf] * 3, 1.0),
        ([], 0.0),
        ([1 + 1j, complex(np.nan, 0.0)], 0.5),
    ],
)
def test_how_much_of_a_result_is_no_number(values: list[Any], lost: float) -> None:
    assert scale_of(np.array(values)).lost == pytest.approx(lost)
