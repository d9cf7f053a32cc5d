"""Every element is judged on its own scale; what should not be finite is not, and the other way round."""

from typing import Any

import numpy as np
import pytest

from pcp.kernels.problems import problem
from pcp.planning.judging.tolerance import SLICES
from pcp.planning.measuring.measurement import Failure
from pcp.planning.verification.deviation import Deviation, judged
from pcp.planning.verification.expected import Outcome, expected_results, typical_size
from pcp.planning.verification.values import KINDS, arguments_for
from pcp.planning.verification.verdict import bucket

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)
EXACT = RNG.standard_normal((2500, 4))
PLAIN = EXACT.astype(np.float32)


def outcome(exact: Array = EXACT, plain: Array = PLAIN) -> Outcome:
    return Outcome(exact, exact, plain, np.maximum(np.abs(np.nan_to_num(exact)), 1.0))


def on_the_typical_scale(result: Array, exact: Array, plain: Array) -> Deviation:
    expected = Outcome(exact, exact, plain.astype(np.float32), typical_size(exact))
    return judged(result.astype(np.float32), expected, True, "exact")


def test_rounding_has_the_error_of_rounding() -> None:
    found = judged(PLAIN, outcome(), True, "exact")
    assert found.fault is None
    assert found.same_bits
    assert found.error is not None
    assert 1e-9 < found.error < 2.0**-24
    assert found.worst <= 2.0**-24


def test_one_wrong_row_of_many_is_found() -> None:
    result = PLAIN.copy()
    result[2499] = 0.0
    found = judged(result, outcome(), True, "exact")
    assert found.error is not None
    norms = np.linalg.norm(EXACT, axis=1)
    assert found.error == pytest.approx(norms[2499] / max(norms[2499], norms.mean()) / SLICES)
    assert np.linalg.norm(result - EXACT) < 0.05 * np.linalg.norm(EXACT)
    assert found.worst > 0.3
    assert found.place.startswith("element (2499, ")


def test_what_float32_cannot_compute_is_wrong_all_the_same() -> None:
    """No scale is easier than that of the exact result, however wrong the plain program is."""
    plain = (EXACT * 1.01).astype(np.float32)
    found = judged((EXACT * 1.02).astype(np.float32), outcome(plain=plain), True, "exact")
    assert found.error == pytest.approx(0.02, rel=1e-3)
    assert found.plain_error == pytest.approx(0.01, rel=1e-3)
    assert on_the_typical_scale(EXACT * 1.02, EXACT, plain).error == pytest.approx(found.error)


@pytest.mark.parametrize(
    ("exact", "result", "nonfinite", "fault"),
    [
        (np.inf, np.inf, "exact", None),
        (np.inf, 1e30, "exact", Failure.hides_nonfinite),
        (np.inf, -np.inf, "exact", Failure.hides_nonfinite),
        (np.inf, np.nan, "exact", Failure.hides_nonfinite),
        (np.inf, np.nan, "nan", None),
        (np.inf, 1e30, "nan", Failure.hides_nonfinite),
        (np.nan, np.nan, "exact", None),
        (np.nan, np.inf, "exact", None),
        (np.nan, 0.0, "spreads", Failure.hides_nonfinite),
        (1.0, np.nan, "exact", Failure.not_finite),
        (1.0, np.nan, "nan", Failure.not_finite),
        (1.0, np.nan, "spreads", None),
        (1.0, np.inf, "spreads", Failure.not_finite),
    ],
)
def test_numbers_that_are_not_finite(
    exact: float, result: float, nonfinite: str, fault: Failure | None
) -> None:
    wide = EXACT.copy()
    wide[7, 2] = exact
    plain, made = wide.astype(np.float32), wide.astype(np.float32)
    made[7, 2] = result
    found = judged(made, outcome(wide, plain), False, nonfinite)
    assert found.fault is fault
    if fault is not None:
        assert found.detail == f"element (7, 2) is {np.float32(result)}, expected {np.float32(exact)}"


def test_denormal_numbers_may_be_read_as_zero_but_not_as_others() -> None:
    tiny = 1e-39 * np.ones((8, 8))
    expected = Outcome(1e10 * tiny, 0 * tiny, (1e10 * tiny).astype(np.float32), 1e10 * tiny)
    for factor in (0.0, 0.5, 1.0):
        assert judged((factor * 1e10 * tiny).astype(np.float32), expected, False, "exact").worst < 1e-6
    assert judged((2e10 * tiny).astype(np.float32), expected, False, "exact").worst > 0.5


@pytest.mark.parametrize(
    ("error", "tolerance"), [(0.0, 0.0), (2.9e-3, 5e-3), (3.4e-3, 1e-2), (6e-8, 1e-7), (0.6, 1.0)]
)
def test_the_tolerance_lies_half_above_the_error(error: float, tolerance: float) -> None:
    assert bucket(error) == tolerance


def test_values_are_new_for_every_seed_and_changed_in_one_element() -> None:
    of = problem("product", sizes={"b": 1, "m": 5, "k": 7, "n": 3})
    first, other = (arguments_for(of, KINDS["normal"], seed) for seed in (1, 2))
    assert not np.array_equal(first[0], other[0])
    again, changed = (arguments_for(of, KINDS[name], 1) for name in ("again", "changed"))
    assert [int((a != b).sum()) for a, b in zip(again, changed, strict=True)] == [1, 1]
    for kind in KINDS.values():
        x, y = arguments_for(of, kind, 1)
        assert (x.shape, y.shape, x.dtype) == ((5, 7), (7, 3), np.float32), kind.name
        assert np.isfinite(x).all() == kind.finite, kind.name
    tiny = arguments_for(of, KINDS["denormal"], 1)[0]
    assert (np.abs(tiny) > 0).all()
    assert (np.abs(tiny) < np.finfo(np.float32).tiny).all()


def test_a_cancelling_sum_is_judged_on_the_scale_of_its_summands() -> None:
    of = problem("product", sizes={"b": 1, "m": 2, "k": 64, "n": 4})
    expected = expected_results(of, 5)
    place = [kind.name for kind in expected.kinds].index("cancelling")
    [outcome_] = expected.outcomes[place]
    assert np.abs(outcome_.exact).max() < 1e-10
    assert outcome_.scale.min() > 1.0
    assert judged(outcome_.plain, outcome_, False, "exact").worst < 1e-6


def test_a_large_result_is_judged_in_parts_and_where_most_is_zero_on_the_scale_of_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pcp.planning.verification.deviation.PART", 1000)
    exact = np.zeros((2500, 4))
    exact[::100] = RNG.standard_normal((25, 4))
    exact[0, 0] = 1e-3  # left by a cancellation of numbers of the usual size
    found = exact.copy()
    found[::100] += 2e-3
    judgement = on_the_typical_scale(found, exact, exact)
    assert judgement.fault is None
    assert 1e-3 < judgement.worst < 1e-2
    found[2400] = 0.0
    judgement = on_the_typical_scale(found, exact, exact)
    assert judgement.worst > 0.3
    assert judgement.place.startswith("element (2400, ")
    found[2401, 3] = np.nan
    judgement = on_the_typical_scale(found, exact, exact)
    assert judgement.fault is Failure.not_finite
    assert judgement.detail == "element (2401, 3) is nan, expected 0.0"
