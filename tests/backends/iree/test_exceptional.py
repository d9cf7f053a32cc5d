"""Powers, angles and roots of exceptional numbers on IREE: what NumPy says of them."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("iree.runtime")
pytest.importorskip("iree.compiler")

import pcp
from pcp.ir import DType

NUMBERS = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 20.0, np.inf, -np.inf, np.nan]
PAIRS = [each.ravel() for each in np.meshgrid(NUMBERS, NUMBERS)]


def _computed(function: Any, dtype: DType, *arrays: Any) -> Any:
    given = [np.asarray(array).astype(dtype.numpy) for array in arrays]
    plan = pcp.plan(pcp.trace(function, *given), "iree:llvm-cpu")
    return np.asarray(plan.run(*given)).astype(np.float64)


@pytest.mark.parametrize(
    ("function", "right", "dtype", "tolerance"),
    [
        (pcp.power, np.power, DType.f32, 1e-5),
        (pcp.power, np.power, DType.bf16, 1e-2),
        (pcp.power, np.power, DType.f64, 1e-12),
        (pcp.arctan2, np.arctan2, DType.f32, 1e-5),
        (pcp.arctan2, np.arctan2, DType.bf16, 1e-2),
    ],
)
def test_pairs_of_exceptional_numbers(function: Any, right: Any, dtype: DType, tolerance: float) -> None:
    found = _computed(function, dtype, *PAIRS)
    with np.errstate(all="ignore"):
        expected = right(*PAIRS)
        if dtype is DType.bf16:
            expected = expected.astype(dtype.numpy).astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=tolerance)
    is_number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[is_number], np.signbit(expected)[is_number])


@pytest.mark.parametrize(("function", "right"), [(pcp.sin, np.sin), (pcp.cos, np.cos), (pcp.tan, np.tan)])
def test_angles_of_many_turns(function: Any, right: Any) -> None:
    angles = np.array([1e-30, 0.5, 6.0, 6.5, -40.0, 1000.0, 9999.5, -30000.0], np.float32)
    found = _computed(function, DType.f32, angles)
    np.testing.assert_allclose(found, right(angles.astype(np.float64)), rtol=1e-4, atol=2e-6)
    assert np.isnan(_computed(function, DType.f32, [np.inf, np.nan])).all()


def test_roots_of_infinities() -> None:
    np.testing.assert_array_equal(_computed(pcp.cbrt, DType.f32, [np.inf, -np.inf]), [np.inf, -np.inf])


@pytest.mark.parametrize("place", ["iree:llvm-cpu", "iree:vulkan"])
@pytest.mark.parametrize("dtype", [DType.u64, DType.i64])
def test_shifts_of_64_bits(place: str, dtype: DType) -> None:
    """By 0, too, where a chip computes in halves of 32 bits. IREE refuses 64 integers of 64 bits there, and takes 60."""
    if place.removeprefix("iree:") not in {each.kind for each in pcp.backends.devices("iree")}:
        pytest.skip(f"{place} is not here")
    count = np.arange(60, dtype=dtype.numpy)
    x = np.random.default_rng(0).integers(1, 2**62, 60).astype(dtype.numpy)
    plan = pcp.plan(pcp.trace(lambda a, b: a << b, x, count), place)
    np.testing.assert_array_equal(np.asarray(plan.run(x, count)), x << count)
