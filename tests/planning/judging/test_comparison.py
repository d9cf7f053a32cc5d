"""Results are compared by compiled programs as they are by NumPy."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pcp import backends
from pcp.backends import Target
from pcp.ir import TensorSpec
from pcp.ir.types import dtype_of
from pcp.planning.judging import comparison
from pcp.planning.judging.changes import Change
from pcp.planning.judging.comparison import Comparison
from pcp.planning.judging.distances import INFINITE, Distance, Scale
from pcp.planning.judging.pair import Pair

TARGET = Target.of()
COMPILED = Comparison(TARGET, compiled=True)
ON_HOST = Comparison(TARGET, compiled=False)
RNG = np.random.default_rng(0)
SHAPE = (5, 4096)


@pytest.fixture(autouse=True)
def _all_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "SMALL", 0)


def drawn(dtype: Any) -> tuple[Any, Any]:
    """Exact numbers and the nearest of a type."""
    wide = np.complex128 if np.dtype(dtype).kind == "c" else np.float64
    exact = RNG.standard_normal(SHAPE).astype(wide)
    if wide is np.complex128:
        exact += 1j * RNG.standard_normal(SHAPE)
    return exact, exact.astype(dtype)


def judged(by: Comparison, found: Any, exact: Any, before: Any = None, kept: float = 0.0) -> Distance:
    return by.distance(found, exact, by.scale(exact, kept, before))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16, np.complex64])
def test_errors_are_those_of_numpy(dtype: Any) -> None:
    exact, plain = drawn(dtype)
    found = (plain.astype(exact.dtype) * (1 + 1e-2 * RNG.standard_normal(SHAPE))).astype(dtype)
    found[3] = 0
    before = drawn(dtype)[1]
    for given in ((found, exact), (found, exact, before, 1.0), (found, exact, before, 0.9), (plain, exact)):
        made, expected = (judged(each, *given) for each in (COMPILED, ON_HOST))
        assert made.error == pytest.approx(expected.error, rel=1e-6)
        assert made.slice_error == pytest.approx(expected.slice_error, rel=1e-6)
        assert made.slice == expected.slice
    worst = judged(COMPILED, found, exact)
    assert worst.error > 1e-3
    assert worst.slice == "axis 0, index 3"


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_rounding_that_storing_cannot_avoid_is_that_of_numpy(dtype: Any) -> None:
    exact, plain = drawn(dtype)
    scale = COMPILED.scale(exact)
    found = (exact * (1 + 1e-2 * RNG.standard_normal(SHAPE))).astype(dtype)
    made, expected = (by.distance(found, exact, scale, True) for by in (COMPILED, ON_HOST))
    assert made.error == pytest.approx(expected.error, rel=1e-6)
    assert made.slice_error == pytest.approx(expected.slice_error, rel=1e-6)
    assert made.error == pytest.approx(1e-2, rel=0.05)
    assert COMPILED.distance(plain, exact, scale, True).error < 1e-9
    plain[4, 3] = np.nan
    assert COMPILED.distance(plain, exact, scale, True) == INFINITE


def test_what_is_not_finite_is_infinitely_wrong() -> None:
    exact, plain = drawn(np.float32)
    for wrong in (np.nan, np.inf):
        found = plain.copy()
        found[4, 3] = wrong
        assert judged(COMPILED, found, exact) == INFINITE
    exact[4, 3] = found[4, 3] = np.inf
    assert judged(COMPILED, found, exact).error < 1e-6


@pytest.mark.parametrize(
    "dtype", [np.float32, ml_dtypes.bfloat16, np.complex64, np.int32, np.bool_, np.uint8]
)
def test_bits(dtype: Any) -> None:
    numbers = RNG.integers(0, 2, SHAPE).astype(dtype)
    other = numbers.copy()
    assert COMPILED.same_bits(numbers, other)
    other[4, -1] = dtype(1) - other[4, -1] if dtype is not np.bool_ else ~other[4, -1]
    assert not COMPILED.same_bits(numbers, other)
    assert not COMPILED.same_bits(numbers, numbers[:4])


def test_bits_are_no_values() -> None:
    zero = np.zeros(SHAPE, np.float32)
    nan = np.full(SHAPE, np.nan, np.float32)
    assert COMPILED.same_bits(nan, nan.copy())
    assert not COMPILED.same_bits(zero, -zero)


def test_what_lies_on_the_device_stays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = backends.backend()
    exact, plain = drawn(np.float32)
    buffers = [
        TARGET.place(each, TensorSpec(each.shape, dtype_of(each.dtype))) for each in (exact, plain, plain)
    ]
    compared = Comparison(TARGET, compiled=True)
    judged(compared, buffers[2], buffers[0])  # compiles
    placed: list[Any] = []
    place = backend.place

    def counted(array: Any, *more: Any, **also: Any) -> Any:
        placed.append(array)
        return place(array, *more, **also)

    monkeypatch.setattr(type(backend), "place", lambda self, *a, **k: counted(*a, **k))  # noqa: ARG005
    assert judged(compared, buffers[2], buffers[0]).error < 1e-6
    assert compared.same_bits(buffers[1], buffers[2])
    assert [np.shape(each) for each in placed] == [(), ()]  # only the factors


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("planted", [(), ("found",), ("right",), ("found", "right")])
def test_a_pair_is_what_it_is_by_numpy(dtype: Any, planted: tuple[str, ...]) -> None:
    right = drawn(dtype)[1]
    found = (right.astype(np.float64) * (1 + 1e-2 * RNG.standard_normal(SHAPE))).astype(dtype)
    for array in ({"found": found, "right": right}[each] for each in planted):
        array[2, 5], array[4, 7] = np.nan, -np.inf
    made, expected = (by.pair(found, right) for by in (COMPILED, ON_HOST))
    for name in ("shape", "has_finite", "lacks_finite", "is_finite", "is_right_finite", "is_equal"):
        assert getattr(made, name) == getattr(expected, name), name
    assert made.has_finite == (planted == ("right",))
    assert made.lacks_finite == (planted == ("found",))
    assert not made.is_equal
    a, b = (each.distance(each.scale) for each in (made, expected))
    assert (a.error, a.slice_error) == pytest.approx((b.error, b.slice_error), rel=1e-6)
    assert a.error > 1e-3


def test_a_result_that_is_right_is_equal_where_nan_stands_on_both_sides() -> None:
    right = drawn(np.float32)[1]
    right[1, 1] = np.nan
    assert all(by.pair(right, right.copy()).is_equal for by in (COMPILED, ON_HOST))


ROWS, WIDTH = 6, 40
CHANGES = {
    "nothing": Change(),
    "a factor and an addend": Change(0.5, addend=-3.0),
    "rows": Change(rows=RNG.standard_normal(ROWS).astype(np.float32)),
    "rows and columns": Change(
        rows=np.where(np.arange(ROWS) % 2, 1e-3, 1).astype(np.float32),
        columns=np.where(np.arange(WIDTH) % 3, 1e-2, 1).astype(np.float32),
    ),
    "half masked": Change(addend=np.where(np.arange(WIDTH) < 9, -np.inf, 0).astype(np.float32)),
    "one of each row": Change(0.0, chosen=RNG.integers(0, WIDTH, ROWS, np.int32), own=(1.0, 2.0)),
    "some numbers": Change(places=(3, 77, 239), values=(np.nan, np.inf, -np.inf)),
    "all a little": Change(step=0.1, seed=(1 << 32) - 5),
}


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(2, 3, WIDTH), (ROWS * WIDTH,)], ids=str)
def test_what_is_changed_is_changed_alike_by_one_program(
    dtype: Any, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = []
    monkeypatch.setattr(
        Target, "compile", lambda self, program: compiled.append(program) or _compile(self, program)
    )
    by, array = Comparison(TARGET, compiled=True), RNG.standard_normal(shape).astype(dtype)
    for name, change in CHANGES.items():
        if len(shape) == 1 and any(
            isinstance(each, np.ndarray) for each in (change.rows, change.addend, change.chosen)
        ):
            continue
        made, expected = (np.asarray(each.changed(array, change)) for each in (by, ON_HOST))
        assert made.dtype == dtype, name
        np.testing.assert_allclose(
            made.astype(np.float64), expected.astype(np.float64), rtol=1e-6 if dtype != ml_dtypes.bfloat16 else 1e-2,
            err_msg=name,
        )  # fmt: skip
        assert by.size(made) == pytest.approx(ON_HOST.size(made), rel=1e-6), name
        assert (name == "nothing") == change.is_none == bool(np.array_equal(made, array)), name
    moved = np.asarray(by.changed(array, CHANGES["all a little"])).astype(np.float64) / array.astype(
        np.float64
    )
    assert np.mean(moved > 1) == pytest.approx(0.5, abs=0.1)
    assert len(compiled) == 1


_compile = Target.compile


def test_bits_are_compared_by_the_program_of_pairs_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = []
    monkeypatch.setattr(
        Target, "compile", lambda self, program: compiled.append(program) or _compile(self, program)
    )
    by, array = Comparison(TARGET, compiled=True), np.linspace(-1, 1, 64, dtype=np.float32)
    other, negative = array.copy(), np.zeros(64, np.float32)
    other[63] = np.nextafter(other[63], np.float32(2))
    assert not by.pair(other, array).is_equal
    assert by.same_bits(array, array.copy())
    assert not by.same_bits(array, other)
    assert not by.same_bits(negative, -negative)
    assert by.pair(negative, -negative).is_equal
    assert by.size(array) == pytest.approx(np.sqrt(np.mean(array.astype(np.float64) ** 2)))
    assert len(compiled) == 1


def test_results_of_which_nothing_is_finite_stay_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pair, "of", staticmethod(lambda *_: pytest.fail("they came to the processor")))
    lost = np.full(SHAPE, np.nan, np.float32)
    pair = COMPILED.pair(lost, lost)
    assert (pair.is_equal, pair.is_finite, pair.has_finite, pair.lacks_finite) == (True, False, False, False)
    assert pair.scale.whole == 0.0
    assert pair.distance(Scale.of_elements(1.0, SHAPE)).error == 0.0
