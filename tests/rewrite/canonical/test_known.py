"""What is computed of values that depend on no argument is what runs; and what a mask says is found where it says so, only."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pcp
from pcp import Program
from pcp.ir.bindings import context
from pcp.ir.toolkit.functions import main_of
from pcp.rewrite.canonical.known import LARGEST, Known, stored
from pcp.rewrite.canonical.masks import Diagonals, with_known_masks
from pcp.tensor import as_tensor
from tests.execution import run

TABLE = np.arange(12, dtype=np.float32).reshape(3, 4)


def places(*shape: int, axis: int = 0) -> Any:
    return pcp.iota(shape, axis)


# What an operation makes of what depends on no argument.
VALUES: dict[str, Any] = {
    "a constant": lambda: as_tensor(TABLE) * 2.0,
    "places": lambda: places(3, 4, axis=1) + places(3, 4) * 10,
    "repeated": lambda: pcp.broadcast_to(places(4), (2, 3, 4)) * 2 - 1,
    "turned": lambda: pcp.broadcast_to(places(3, 1), (3, 4)).T + 1,
    "joined axes": lambda: pcp.broadcast_to(places(3, 1), (3, 4)).reshape(12),
    "a running sum": lambda: pcp.cumsum(places(8) % 3, 0),
    "padded": lambda: pcp.pad(places(4), [(1, 2, 1)], constant_values=7),
    "cut": lambda: pcp.pad(places(5), [(-1, -2)], constant_values=7),
    "gathered": lambda: pcp.take(as_tensor(TABLE), places(2) + 1, 0),
    "gathered in pairs": lambda: pcp.take_along_axis(as_tensor(TABLE), 3 - places(3, 1), 1),
    "any": lambda: pcp.any(places(3, 4) > places(3, 4, axis=1), 1),
    "all": lambda: pcp.all(pcp.broadcast_to(places(3, 1) >= 1, (3, 4)), 1),
    "a sum of whole numbers": lambda: pcp.broadcast_to(places(3), (4, 3)).sum(0),
    "the largest": lambda: (places(3, 4) - places(3, 4, axis=1)).max(1),
    "chosen": lambda: pcp.where(places(3, 4) > 1, places(3, 4, axis=1), -5),
    "converted": lambda: (places(4) - 2).astype("bool"),
    "in pieces": lambda: pcp.concatenate([places(3), places(2)])[1:4][::-1],
}


def last_of(program: Program) -> tuple[Any, Any]:
    """A module, and the first value that it returns."""
    module = program.module()
    *_, end = main_of(module).regions[0].blocks[0].operations
    return module, end.operation.operands[0]


@pytest.mark.parametrize("name", VALUES)
def test_what_is_computed_is_what_runs(name: str) -> None:
    program = pcp.trace(lambda x: [VALUES[name](), x], pcp.spec((2,), "f32"))
    module, value = last_of(program)
    with context():
        found = Known().of(value)
    assert found is not None
    np.testing.assert_array_equal(found, run(program, np.zeros(2, np.float32))[0])
    del module


@pytest.mark.parametrize(
    "form",
    [
        lambda x: x + 1.0,
        lambda _: pcp.exp(pcp.ones((3,))),
        lambda _: pcp.ones((3,)).sum(),
        lambda _: pcp.tap("t", pcp.iota((3,))),
    ],
    ids=["of an argument", "rounded in its own way", "a sum of floats", "marked"],
)
def test_other_values_are_not_known(form: Any) -> None:
    module, value = last_of(pcp.trace(lambda x: [form(x), x], pcp.spec((3,), "f32")))
    with context():
        assert Known().of(value) is None
    del module


def test_what_is_repeated_is_computed_once() -> None:
    """A mask of 2^44 elements that are 2^12 numbers, repeated."""
    wide = (1 << 16, 1 << 16, 1 << 12)
    program = pcp.trace(lambda x: [pcp.broadcast_to(places(1 << 12), wide) >= 0, x], pcp.spec((2,), "f32"))
    module, value = last_of(program)
    with context():
        found = Known().of(value)
        assert found is not None
        assert found.shape == wide
        assert stored(found) == 1 << 12
    del module


def test_what_is_large_is_left_as_it_is() -> None:
    size = 2 * int(LARGEST**0.5)
    table = pcp.spec((4, 4), "f32")

    def function(x: Any) -> Any:
        return [pcp.where(places(size, size) * 3 % 7 > places(size, size, axis=1) % 5, 1.0, x[0, 0]), x]

    program = pcp.trace(function, table)
    assert with_known_masks(program) is program


bands = st.tuples(st.integers(-6, 6), st.integers(-6, 6), st.integers(1, 6), st.integers(1, 6))


@given(bands, st.booleans(), st.booleans())
def test_a_band_is_found_from_its_elements(band: Any, has_least: bool, has_most: bool) -> None:
    low, high, rows, columns = band
    i, j = np.indices((rows, columns))
    mask = np.ones((rows, columns), bool)
    mask &= (j - i >= low) if has_least else True
    mask &= (j - i <= high) if has_most else True
    found = Diagonals.of(mask)
    assert (found is None) == (not mask.any())
    if found is not None:
        again = np.ones_like(mask)
        again &= True if found.least is None else j - i >= found.least
        again &= True if found.most is None else j - i <= found.most
        np.testing.assert_array_equal(again, mask)


@given(st.integers(2, 7), st.integers(2, 7), st.integers(0, 48), st.integers(-2, 3))
def test_a_band_of_which_one_element_is_another_is_none_or_that_one(
    rows: int, columns: int, place: int, most: int
) -> None:
    i, j = np.indices((rows, columns))
    mask = j - i <= most
    mask.flat[place % mask.size] ^= True
    found = Diagonals.of(mask)
    if found is not None:
        again = np.ones_like(mask)
        again &= True if found.least is None else j - i >= found.least
        again &= True if found.most is None else j - i <= found.most
        np.testing.assert_array_equal(again, mask)
