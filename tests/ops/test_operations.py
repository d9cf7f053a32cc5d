"""Every operation against NumPy, on random operands of every element type that it admits."""

import zlib
from collections.abc import Mapping, Sequence
from inspect import Parameter, isfunction, signature
from typing import Any

import numpy as np
import pytest
from tests.execution import QUICK
from tests.ops.composed_rows import COMPOSED, TESTED_ELSEWHERE
from tests.ops.operands import Shape, draw
from tests.ops.rows import OWN_TEST, ROWS, Row
from tests.suite.share import part

import pcp
from pcp.ir import DType
from pcp.methods import Methods
from pcp.ops.elementwise import bitcast
from pcp.tensor import OPERATIONS, DTypeMismatch

_WIDE = {"float": np.float64, "complex": np.complex128}


def results_and_references(
    table: Mapping[str, Sequence[Row]], name: str, of: int = 1
) -> list[tuple[str, Row, Any, Any]]:
    """What an operation makes and what it should, for the cases of its rows in every element type, by one program.

    Arguments:
        table: rows by names of operations.
        of: how many parts the table has, of which this run's share is one.
    """
    whole = [
        (number, row, dtype, shapes)
        for number, row in enumerate(table[name])
        for dtype in DType
        if dtype.kind in row.kinds
        for shapes in row.shapes
    ]
    labels, rows, dtypes, cases = [], [], [], []
    for number, row, dtype, shapes in part(whole, of, lambda each: f"{name}[{each[0]}] {each[2:]}"):
        labels.append(f"{name}[{number}] {dtype} {shapes}")
        rng = np.random.default_rng(zlib.crc32(labels[-1].encode()))
        rows.append(row)
        dtypes.append(dtype)
        cases.append(_operands(row, shapes, dtype, rng))

    def every(given: Any) -> Any:
        return [row.apply(*operands) for row, operands in zip(rows, given, strict=True)]

    made = pcp.plan(pcp.trace(every, cases, roles=("input",)), cache=False, options=QUICK).run(cases)
    found = []
    for label, row, dtype, operands, result in zip(labels, rows, dtypes, cases, made, strict=True):
        wide = [
            x.astype(_WIDE[dtype.kind]) if x.dtype == dtype.numpy and dtype.kind in _WIDE else x
            for x in operands
        ]
        with np.errstate(all="ignore"):
            expected = row.reference(*wide)
        if isinstance(result, tuple):
            found += [(label, row, r, e) for r, e in zip(result, expected, strict=True)]
        else:
            found.append((label, row, result, expected))
    return found


def _operands(row: Row, shapes: tuple[Shape, ...], dtype: DType, rng: np.random.Generator) -> list[Any]:
    if row.operands is not None:
        return row.operands(rng, shapes, dtype)
    return [draw(rng, shape, dtype, row.low, row.high) for shape in shapes]


def assert_near(label: str, result: Any, expected: Any, ulps: float) -> None:
    """Exact for integers and booleans; within some roundings of its own type for a float."""
    array, wanted = np.asarray(result), np.asarray(expected)
    assert array.shape == wanted.shape, label
    if array.dtype.kind in "biu":
        np.testing.assert_array_equal(array, wanted.astype(array.dtype), err_msg=label)
        return
    real = {"c": np.float32 if array.dtype.itemsize == 8 else np.float64}.get(array.dtype.kind, array.dtype)
    step = {2: 2.0**-10, 4: 2.0**-23, 8: 2.0**-50}[np.dtype(real).itemsize]
    step = 2.0**-7 if array.dtype == DType.bf16.numpy else step
    scale = np.abs(wanted.astype(np.complex128)).max(initial=1.0)
    error = np.abs(array.astype(np.complex128) - wanted.astype(np.complex128)).max(initial=0.0)
    assert error <= ulps * step * scale, f"{label}: {array} is not near {wanted}"


EVERY = ROWS | COMPOSED


@pytest.mark.parametrize("name", sorted(EVERY))
def test_it_computes_what_numpy_does(name: str) -> None:
    for label, row, result, expected in results_and_references(EVERY, name, of=3):
        assert_near(label, result, expected, row.ulps)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(EVERY))
def test_every_case_computes_what_numpy_does(name: str) -> None:
    for label, row, result, expected in results_and_references(EVERY, name):
        assert_near(label, result, expected, row.ulps)


def test_every_operation_has_a_row() -> None:
    aliases = {name for name, function in OPERATIONS.items() if function.__name__.rstrip("_") != name}
    assert all(OPERATIONS[name] is OPERATIONS[OPERATIONS[name].__name__.rstrip("_")] for name in aliases)
    assert set(OPERATIONS) - aliases == set(EVERY) | OWN_TEST | TESTED_ELSEWHERE
    assert not set(ROWS) & set(COMPOSED)


def test_every_operation_is_in_the_namespace() -> None:
    for namespace, others in ((pcp.ops, set()), (pcp, {"trace"})):  # pcp.trace makes a Program
        held = {name for name, function in OPERATIONS.items() if getattr(namespace, name, None) is function}
        assert set(OPERATIONS) - held == others


METHODS = {name: method for name, method in vars(Methods).items() if isfunction(method) and name[0] != "_"}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_the_operation_of_its_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Methods, "_call", lambda _, called, *__, **___: called)
    count = sum(p.default is Parameter.empty for p in signature(METHODS[name]).parameters.values())
    called = METHODS[name](Methods(), *range(count - 1))
    assert called == {"astype": "convert", "flatten": "ravel"}.get(name, name)
    function = OPERATIONS[called]
    ours, theirs = (list(signature(f).parameters.values())[1:] for f in (METHODS[name], function))
    if ours[:1] and ours[0].kind is Parameter.VAR_POSITIONAL:  # sizes or axes one by one
        return
    assert [p.default for p in ours] == [p.default for p in theirs]
    assert [p.kind for p in ours] == [p.kind for p in theirs]
    assert [p.name for p in ours] == [p.name for p in theirs]


def test_bitcast_reads_the_bits_as_another_type_of_the_same_width() -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((3, 4)).astype(np.float32)
    program = pcp.trace(lambda x: (bitcast(x, "i32"), bitcast(x, "u32")), pcp.spec(x.shape, "f32"))
    signed, unsigned = pcp.plan(program, cache=False).run(x)
    np.testing.assert_array_equal(signed, x.view(np.int32))
    np.testing.assert_array_equal(unsigned, x.view(np.uint32))


@pytest.mark.parametrize(("part", "whole"), [("f32", "c64"), ("f64", "c128")])
def test_complex_joins_two_parts(part: str, whole: str) -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((2, 3)).astype(pcp.spec((), part).spec.dtype.numpy)
    y = rng.standard_normal(3).astype(x.dtype)
    program = pcp.trace(
        lambda x, y: OPERATIONS["complex"](x, y), pcp.spec((2, 3), part), pcp.spec((3,), part)
    )
    assert program.results[0].spec.dtype == whole
    np.testing.assert_array_equal(pcp.plan(program, cache=False).run(x, y), x + 1j * y)
    with pytest.raises(DTypeMismatch, match="complex: element type bf16 was given; expected f32 or f64"):
        pcp.trace(lambda x: OPERATIONS["complex"](x, x), pcp.spec((2,), "bf16"))


@pytest.mark.parametrize("name", ["exp", "sqrt", "tanh", "sigmoid", "erf", "mean", "divide"])
def test_integers_become_f32_where_only_floats_make_sense(name: str) -> None:
    x = np.array([1, 2, 5], np.int32)
    count = 2 if name == "divide" else 1
    program = pcp.trace(lambda x: OPERATIONS[name](*[x] * count), pcp.spec(x.shape, "i32"))
    assert program.results[0].spec.dtype == "f32"
    plan = pcp.plan(program, cache=False)
    floats = pcp.trace(lambda x: OPERATIONS[name](*[x] * count), pcp.spec(x.shape, "f32"))
    expected = pcp.plan(floats, cache=False).run(x.astype(np.float32))
    np.testing.assert_array_equal(plan.run(x), expected)


def test_extremes_return_nan_where_there_is_one() -> None:
    x = np.array([1.0, np.nan, 3.0], np.float32)
    program = pcp.trace(lambda x: (x.max(), x.min(), OPERATIONS["maximum"](x, 2.0)), pcp.spec((3,), "f32"))
    most, least, each = pcp.plan(program, cache=False).run(x)
    assert np.isnan(most)
    assert np.isnan(least)
    np.testing.assert_array_equal(each, np.maximum(x, 2))


def test_a_filler_of_another_kind_is_refused() -> None:
    with pytest.raises(DTypeMismatch, match=r"pad: the value is f32\[\]; expected a scalar of i32"):
        pcp.trace(lambda x: OPERATIONS["pad"](x, [(1, 1)], constant_values=0.5), pcp.spec((2,), "i32"))


def test_a_number_beyond_its_type_is_refused() -> None:
    with pytest.raises(DTypeMismatch, match="300 does not fit in u8"):
        pcp.trace(lambda x: x + 300, pcp.spec((2,), "u8"))


def test_floor_division_of_floats_is_exact_where_the_quotient_rounds_up() -> None:
    program = pcp.trace(lambda x, y: (x // y, x % y), pcp.spec((2,), "f64"), pcp.spec((2,), "f64"))
    quotient, rest = pcp.plan(program, cache=False).run(np.array([1.0, -1.0]), np.array([0.1, 0.1]))
    np.testing.assert_array_equal(quotient, [1.0 // 0.1, -1.0 // 0.1])
    np.testing.assert_allclose(rest, [1.0 % 0.1, -1.0 % 0.1], rtol=1e-14)
