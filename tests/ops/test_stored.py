"""Ways to keep rows of a matrix in fewer bits: each has a row here, which says what it takes and how wrong it is."""

from typing import Any

import numpy as np
import pytest

import pcp
from pcp import nn
from pcp.ops.linear.stored import FORMATS, format_of, product_with
from pcp.tracing import specs_of

ROWS = {
    "bf16": (128, 1.7e-3),
    "int8": (68, 7e-3),
    "int8_blocks": (72, 6e-3),
    "fp8": (68, 2.7e-2),
    "fp8_e5m2": (68, 5.3e-2),
    "int4": (40, 0.1),
}
"""Bytes of a row of 64 numbers, and the error of normal ones."""
SHAPE = (48, 64)
WEIGHTS = np.random.default_rng(0).standard_normal(SHAPE, np.float32)
WEIGHTS[3] = 0
X = np.random.default_rng(1).standard_normal((2, 3, 64), np.float32)


def distance(given: Any, expected: Any) -> float:
    return float(np.linalg.norm(given - expected) / np.linalg.norm(expected))


def test_every_way_has_a_row_here() -> None:
    assert list(FORMATS) == list(ROWS)


def test_they_are_written_and_read_as_their_rows_say() -> None:
    def function(weights: pcp.Tensor, x: pcp.Tensor) -> object:
        parts = {name: each.written(weights) for name, each in FORMATS.items()}
        read = {name: FORMATS[name].read(*kept) for name, kept in parts.items()}
        return parts, read, {name: product_with(x, kept) for name, kept in parts.items()}

    parts, read, products = pcp.plan(pcp.trace(function, WEIGHTS, X)).run(WEIGHTS, X)
    for name, (size, error) in ROWS.items():
        form, kept = FORMATS[name], [np.asarray(each) for each in parts[name]]
        by_numpy = form.written_by_numpy(WEIGHTS)
        assert [each.shape for each in kept] == [each.shape for each in by_numpy]
        assert sum(each.nbytes for each in by_numpy) == 48 * form.row_bytes(64) == 48 * size
        for given, expected in zip(kept, by_numpy, strict=True):
            assert given.dtype == expected.dtype
            # A compiler divides by multiplying, after which a number between two may go either way.
            near = np.isclose(given.astype("f"), expected.astype("f"), rtol=1e-6)
            assert near.mean() > 0.99, name
        assert error / 2 < distance(read[name], WEIGHTS) < error
        assert error < 0.55 * 2.0**-form.bits
        assert not np.asarray(read[name])[3].any()
        exact = X.astype(np.float64) @ np.asarray(read[name]).astype(np.float64).T
        assert distance(products[name], exact) < 1e-6


@pytest.mark.parametrize("name", FORMATS)
def test_rows_that_hold_no_numbers_are_none_when_they_are_read(name: str) -> None:
    form, rows = FORMATS[name], WEIGHTS[:3].copy()
    rows[0, 5], rows[1, 40] = np.nan, np.inf
    program = pcp.trace(lambda rows: form.read(*form.written(rows)), rows)
    read = np.asarray(pcp.plan(program).run(rows))
    assert not np.isfinite(read[0, 5])
    assert not np.isfinite(read[1, 40])
    assert distance(read[2], rows[2]) < 1.3 * ROWS[name][1]


def test_rows_that_do_not_fit() -> None:
    assert [name for name, each in FORMATS.items() if not each.fits(33)] == ["int8_blocks", "int4"]
    assert not any(each.fits(0) for each in FORMATS.values())
    with pytest.raises(
        nn.NotQuantisable, match=r"weights of 33 inputs cannot be stored as int4, .* 32 inputs each"
    ):
        nn.quantise(np.ones((2, 33), np.float32), "int4")


def test_values_say_how_they_are_kept() -> None:
    def named(*kept: pcp.Tensor) -> pcp.Tensor:
        said.append(format_of(*kept).name)
        return kept[0]

    said: list[str] = []
    for each in FORMATS.values():
        pcp.trace(named, *map(specs_of, each.written_by_numpy(WEIGHTS)))
    assert said == list(FORMATS)
