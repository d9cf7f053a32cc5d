"""The finder names the operation and the user's line that a NaN or an infinity in a result comes from."""

import inspect
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.ops.control.loops import fori_loop
from pcp.ops.elementwise import exp, log, multiply, sqrt
from pcp.planning.diagnostics.nan_finder import NaNFound, find_nan, range_of

X = np.array([0.5, 2.0, -1.0, 3.0], np.float32)
SPEC = pcp.spec((4,), "f32")


def line_of(function: Any, text: str) -> str:
    """`file:line` of the line of `function` that holds `text`."""
    lines, start = inspect.getsourcelines(function)
    (offset,) = [i for i, line in enumerate(lines) if text in line]
    return f"{__file__}:{start + offset}"


def root_of_a_negative(x: Any, scale: Any) -> Any:
    y = multiply(x, scale)
    z = sqrt(y)  # the culprit
    return exp(z).sum()


def test_the_operation_its_line_and_its_operands_are_named() -> None:
    program = pcp.trace(root_of_a_negative, SPEC, pcp.spec((), "f32"))
    report = find_nan(program, X, 2.0)
    assert report is not None
    assert report.origin.name == "sqrt"
    assert str(report).startswith(f"sqrt made NaN at {line_of(root_of_a_negative, '# the culprit')}")
    assert "operand 0: f32[4] in [-2, 6]" in str(report)
    assert "result: f32[4] in [1, 2.44949], 1 NaN" in str(report)
    assert find_nan(program, np.abs(X), 2.0) is None


def overflowing(x: Any) -> Any:
    y = exp(100 * x)  # an infinity
    return y - y  # the NaN


def test_the_infinity_behind_a_nan_is_named_too() -> None:
    report = find_nan(pcp.trace(overflowing, SPEC), X)
    assert report is not None
    assert report.origin.name == "subtract"
    assert report.cause is not None
    assert report.cause.origin.name == "exponential"
    assert line_of(overflowing, "# an infinity") in str(report)
    assert line_of(overflowing, "# the NaN") in str(report)


def test_an_infinity_that_is_meant_and_reaches_no_result_is_not_blamed() -> None:
    def masked(x: Any) -> Any:
        y = pcp.where(x > 0, x, -np.inf)
        return exp(y) + log(x)  # the log of -1 is the culprit, not the mask

    report = find_nan(pcp.trace(masked, SPEC), X)
    assert report is not None
    assert report.origin.name == "log"
    assert find_nan(pcp.trace(lambda x: exp(pcp.where(x > 0, x, -np.inf)), SPEC), X) is None


def test_a_bad_argument_is_named() -> None:
    program = pcp.trace(root_of_a_negative, SPEC, pcp.spec((), "f32"))
    report = find_nan(program, np.abs(X), np.nan)
    assert str(report) == "argument scale holds NaN: f32[] 1 NaN"


def test_loops_count_as_one_operation_and_what_they_capture_is_seen() -> None:
    def looped(x: Any) -> Any:
        bad = log(x)
        return fori_loop(0, 3, lambda _, c: c + bad, exp(x))

    report = find_nan(pcp.trace(looped, SPEC), X)
    assert report is not None
    assert report.origin.name == "log"
    report = find_nan(pcp.trace(lambda x: fori_loop(0, 3, lambda _, c: log(c), x), SPEC), X)
    assert report is not None
    assert report.origin.name == "while"


def test_a_gradient_is_searched_like_any_program() -> None:
    program = pcp.grad(pcp.trace(lambda x: sqrt(x * x).sum(), SPEC))
    report = find_nan(program, np.array([1, 0, 2, 3], np.float32))
    assert report is not None
    assert report.result.nans or report.result.infinities
    assert __file__ in str(report)


def test_state_is_not_consumed() -> None:
    program = pcp.trace(lambda s, x: (s + x, log(x)), pcp.spec((4,), "f32", "state"), SPEC)
    state = pcp.plan(program).place(X, X)[0]
    assert find_nan(program, state, X) is not None
    np.testing.assert_array_equal(state, X)


def test_more_values_than_flags_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcp.planning.diagnostics.nan_finder._FLAGS_AT_ONCE", 2)
    report = find_nan(pcp.trace(root_of_a_negative, SPEC, pcp.spec((), "f32")), X, 2.0)
    assert report is not None
    assert report.origin.name == "sqrt"


def test_complex_numbers() -> None:
    report = find_nan(pcp.trace(lambda z: (z / (z - z)) * 2, pcp.spec((2,), "c64")), np.ones(2, np.complex64))
    assert report is not None
    assert report.origin.name == "divide"


def test_ranges() -> None:
    values = np.array([1, -2, np.inf, np.nan, np.nan], np.float64)
    assert str(range_of(values)) == "f64[5] in [-2, 1], 2 NaN, 1 infinite"
    assert str(range_of(np.zeros((0,), np.float32))) == "f32[0] without elements"
    assert str(range_of(np.array([3 + 4j], np.complex64))) == "c64[1] in [5, 5]"


def test_a_checked_run_raises_and_an_unchecked_one_returns_the_nan() -> None:
    plan = pcp.plan(pcp.trace(root_of_a_negative, SPEC, pcp.spec((), "f32")))
    assert np.isnan(plan.run(X, 2.0))
    assert np.isfinite(plan.run(np.abs(X), 2.0, check=True))
    with pytest.raises(
        NaNFound, match=r"the result is not finite: f32\[\] 1 NaN\n.*sqrt made NaN at "
    ) as caught:
        plan.run(X, 2.0, check=True)
    assert caught.value.report.origin.name == "sqrt"


def test_a_checked_run_of_a_training_step_names_the_state_that_went_wrong() -> None:
    program = pcp.trace(lambda w, x: (w * x).sum(), X, SPEC)
    step = pcp.training_step(program, pcp.optimizers.sgd(0.1))
    plan = pcp.plan(step)
    state, _ = plan.run(step.initial_state(X), (X,), check=True)
    with pytest.raises(NaNFound, match=r"argument batch\.0 holds NaN"):
        plan.run(state, (X * np.nan,), check=True)


def test_bound_weights_are_searched_too() -> None:
    plan = pcp.plan(pcp.trace(lambda w, x: log(w) + x, X, SPEC)).bind(X)
    with pytest.raises(NaNFound, match="log made NaN"):
        plan.run(X, check=True)
