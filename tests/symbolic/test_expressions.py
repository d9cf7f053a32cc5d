"""Arithmetic of sizes: values, texts that are read again, and what numbers of a program are found to be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcp.symbolic.constraints import Constraint, Space
from pcp.symbolic.expressions import Expression, InvalidSize
from pcp.symbolic.fitting import fitted, fitted_float, float_of
from pcp.symbolic.sampling import largest, samples

TEXTS = st.recursive(
    st.sampled_from(["a", "b", "c", "1", "2", "7", "16"]),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(
        lambda parts: f"({' '.join(parts)})"
    ),
    max_leaves=6,
)


@given(TEXTS, st.integers(1, 50), st.integers(1, 50), st.integers(1, 50))
def test_values_are_those_of_python(text: str, a: int, b: int, c: int) -> None:
    sizes = {"a": a, "b": b, "c": c}
    try:
        expected = eval(text, {}, sizes)
    except ZeroDivisionError:
        return
    try:
        expression = Expression.of(text)
        value = expression.value(sizes)
    except InvalidSize:  # a quotient by 0 inside of what is multiplied by 0, as an example
        return
    assert value == expected
    again = Expression.of(str(expression))
    assert again == expression
    assert again.value(sizes) == expected


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("length + length", "2*length"),
        ("2*(a + b) - 2*b", "2*a"),
        ("(a + 1)*(a - 1)", "a**2 - 1"),
        ("(8*a + 16) // 8", "a + 2"),
        ("-((a + 1) // 2)", "-((a + 1) // 2)"),
        ("3*(a // 2)", "3*(a // 2)"),
        ("a // 2 + 1", "a // 2 + 1"),
        ("a - a", "0"),
    ],
)
def test_sums_have_one_form(text: str, shown: str) -> None:
    assert str(Expression.of(text)) == shown


@pytest.mark.parametrize(
    "text",
    ["a", "5*a + 3", "a*b", "64*a*b - 7", "a**2*b", "3*a*b + 2*a + 1", "(a + 1) // 2", "(a + 1) // 4 - 1", "a - 2*(a // 2)",
     "b - a // 2", "b*((a + 1) // 2)", "100 - a", "3*((a*b + 3) // 4)"],
)  # fmt: skip
def test_an_expression_is_found_from_its_values(text: str) -> None:
    expression = Expression.of(text)
    tried = samples(Space.of(("a", "b")))
    assert fitted([expression.value(sizes) for sizes in tried], tried) == expression


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize(
    "made", [lambda n: n, lambda n: 1 / n, lambda n: -1 / n, lambda n: n**0.5, lambda n: 1 / n**0.5, lambda n: n / 2]
)  # fmt: skip
def test_a_constant_of_a_size_is_found(made: object, dtype: type) -> None:
    tried = samples(Space.of(("a",)))
    values = [float(dtype(made(3 * sizes["a"]))) for sizes in tried]  # type: ignore[operator]  # a function
    found = fitted_float(values, tried, np.dtype(dtype))
    assert found is not None
    form, expression = found
    for size in (2, 5, 100, 677):
        assert dtype(float_of(form, expression.value({"a": size}))) == dtype(made(3 * size))  # type: ignore[operator]  # as above


def test_values_of_no_expression_are_left() -> None:
    tried = samples(Space.of(("a", "b")))
    assert fitted([2 ** (sizes["a"] % 7) for sizes in tried], tried) is None
    assert fitted([max(sizes["a"], sizes["b"]) for sizes in tried], tried) is None


@pytest.mark.parametrize(
    "constraints",
    [
        (),
        ("a <= 30",),
        ("a % 64 == 0", "b >= 100"),
        ("a == 2*b",),
        ("b == a + 1", "a % 3 == 1"),
        ("a > 2*b", "b < 20"),
        ("a % 128 == 0", "a <= 4096", "a >= 1024"),
    ],
)
def test_sizes_that_are_tried_satisfy_the_constraints(constraints: tuple[str, ...]) -> None:
    space = Space.of(("a", "b"), constraints)
    for attempt in range(3):
        tried = samples(space, {64}, attempt)
        assert len({tuple(sizes.values()) for sizes in tried}) == len(tried) == 7
        assert all(space.admits(sizes) and min(sizes.values()) > 1 for sizes in tried)
    assert samples(space) == samples(space)
    far = largest(space)
    assert far is not None
    assert space.admits(far)


def test_bounds_and_multiples_are_read_from_constraints() -> None:
    space = Space.of(("a",), ("3 < a", "a <= 100", "a < 90", "a % 8 == 5"))
    assert space.bounds("a") == (4, 89)
    assert space.multiple("a") == (8, 5)
    assert str(Constraint.parse("2*a>=b")) == "2*a >= b"
