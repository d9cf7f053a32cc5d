"""The tolerance that a kernel deserves follows from its errors."""

import pytest

from pcp.planning.verification.verdict import bucket


@pytest.mark.parametrize(
    ("error", "tolerance"), [(0.0, 0.0), (2.9e-3, 5e-3), (3.4e-3, 1e-2), (6e-8, 1e-7), (0.6, 1.0)]
)
def test_the_tolerance_lies_half_above_the_error(error: float, tolerance: float) -> None:
    assert bucket(error) == tolerance
