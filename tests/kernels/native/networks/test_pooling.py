"""The gradient of the largest number of each window is one site, and its native kernel gives what the plain form gives."""

import math
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp import kernels
from pcp.backends import ExecutionFailed
from pcp.ir import DType, TensorSpec
from pcp.kernels.features import masked
from pcp.kernels.native import LIBRARIES, native_call
from pcp.planning.paths.preparation import prepared
from pcp.rewrite.raising import raised
from tests.execution import run
from tests.kernels.native.programs import native_path

RNG = np.random.default_rng()


def gradient_of(
    shape: tuple[int, ...], window: tuple[int, ...], strides: tuple[int, ...], padding: Any
) -> pcp.Program:
    """The gradient of x by a cotangent."""

    def pooled(x: Any) -> Any:
        return pcp.reduce_window(x, "max", window, strides, padding)

    return pcp.vjp(raised(pcp.trace(pooled, pcp.spec(shape, "f32"))))


def both(program: pcp.Program, *given: Any) -> tuple[Any, Any]:
    """What the program gives as it is written, and by the native kernel."""
    path = native_path(program)
    assert [choice.kernel for choice in path.choices.values()] == ["max_pool_gradient.native"]
    return run(program, *given), np.asarray(pcp.plan(program, path=path, cache=False).run(*given))


SAME, MORE = "SAME", ((0, 0), (2, 1), (1, 3), (0, 0))
CASES = [
    ((1, 1, 1, 1), (1, 2, 2, 1), (1, 1, 1, 1), SAME),
    ((2, 9, 7, 16), (1, 3, 3, 1), (1, 2, 2, 1), SAME),
    # Several parts of rows, between which windows reach.
    ((1, 40, 37, 40), (1, 3, 2, 1), (1, 1, 2, 1), "VALID"),
    ((2, 50, 6, 3), (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),  # windows that do not overlap
    ((1, 31, 11, 20), (1, 2, 3, 1), (1, 5, 4, 1), MORE),  # rows and columns that no window has
    ((1, 64, 3, 5), (1, 21, 3, 1), (1, 1, 1, 1), SAME),
]


@pytest.mark.parametrize("case", CASES)
def test_cotangents_go_where_the_plain_form_puts_them(case: Any) -> None:
    program = gradient_of(*case)
    x, g = (entry.spec.shape for entry in program.arguments)
    # Of few different numbers many windows hold some twice; others are none, or lie beyond all numbers.
    kinds = [-1.0, 0.0, -0.0, 1.0, 2.0, math.nan, math.inf, -math.inf]
    for values in (RNG.normal(size=x), RNG.choice(kinds[:5], x), RNG.choice(kinds, x)):
        plain, found = both(program, values.astype("f4"), RNG.normal(size=g).astype("f4"))
        np.testing.assert_allclose(found, plain, rtol=1e-5, atol=1e-6)
    with masked("avx512f", "avx2"):
        plain, found = both(program, values.astype("f4"), np.ones(g, "f4"))
        np.testing.assert_allclose(found, plain, rtol=1e-5, atol=1e-6)


def test_the_largest_of_a_window_gets_what_jax_gives_it() -> None:
    def pooled(x: Any) -> Any:
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

    x, g = RNG.normal(size=(2, 17, 18, 21)).astype("f4"), RNG.normal(size=(2, 9, 9, 21)).astype("f4")
    program = pcp.vjp(raised(pcp.from_jax(pooled, x)))
    (expected,) = jax.vjp(pooled, x)[1](g)
    for found in both(program, x, g):
        np.testing.assert_allclose(np.reshape(found, x.shape), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "window", "how"),
    [
        ((2, 6, 6, 3), (1, 3, 3, 1), {"window_dilation": (1, 2, 1, 1)}),
        ((2, 6, 6, 3), (1, 3, 3, 1), {"base_dilation": (1, 1, 2, 1)}),
        ((2, 6, 6, 3), (2, 3, 3, 1), {}),
        ((2, 6, 6, 3), (1, 3, 3, 2), {}),
        ((2, 6, 6, 3), (1, 3, 3, 1), {"padding": ((0, 0), (0, 0), (0, 0), (1, 0))}),
        ((6, 6, 3), (3, 3, 1), {}),
    ],
)
def test_other_windows_are_no_such_site(shape: Any, window: Any, how: dict[str, Any]) -> None:
    program = pcp.trace(lambda x: pcp.reduce_window(x, "max", window, **how), pcp.spec(shape, "f32"))
    assert raised(program) is program


@pytest.mark.parametrize(("kind", "dtype"), [("min", "f32"), ("sum", "f32"), ("max", "i32"), ("max", "f64")])
def test_other_reductions_and_types_have_no_such_kernel(kind: str, dtype: str) -> None:
    program = raised(
        pcp.trace(lambda x: pcp.reduce_window(x, kind, (1, 3, 3, 1)), pcp.spec((2, 6, 6, 3), dtype))
    )
    assert ("pcp.max_pool" in program.text) is (dtype == "f64")
    if dtype != "i32":
        assert not kernels.sites_of(prepared(pcp.vjp(program)), "cpu")


def test_a_window_of_too_many_numbers_keeps_the_plain_form() -> None:
    program = gradient_of((1, 20, 20, 2), (1, 13, 5, 1), (1, 1, 1, 1), "VALID")
    assert re.search(r"pcp.max_pool.vjp", program.text)
    assert not kernels.sites_of(prepared(program), "cpu")


@pytest.mark.parametrize(
    ("shapes", "attributes", "words"),
    [
        (((6, 3), (6, 3), (6, 3)), {}, "x has shape [6,3]; expected [samples,height,width,features]"),
        (((1, 6, 6, 3), (1, 4, 4, 3), (1, 6, 6, 2)), {}, "the gradient of x has shape [1,6,6,2]"),
        (((1, 6, 6, 3), (2, 4, 4, 3), (1, 6, 6, 3)), {}, "the cotangent has shape [2,4,4,3]"),
        (((1, 6, 6, 3), (1, 4, 4, 3), (1, 6, 6, 3)), {"sizes": [9, 8]}, "a window has 72 numbers"),
        (((1, 6, 6, 3), (1, 4, 4, 3), (1, 6, 6, 3)), {"sizes": [3]}, "sizes are not two numbers from 1"),
        (((1, 6, 6, 3), (1, 4, 4, 3), (1, 6, 6, 3)), {"strides": [0, 1]}, "strides are not two numbers from 1"),
        (((1, 6, 6, 3), (1, 4, 4, 3), (1, 6, 6, 3)), {"before": [-1, 0]}, "before are not two numbers from 0"),
        (((1, 6, 6, 3), (1, 4, 4, 3), (1, 6, 6, 3)), {"before": [1 << 40, 0]}, "before are not two numbers"),
    ],
)  # fmt: skip
def test_the_handler_refuses_what_it_is_not_for(shapes: Any, attributes: dict[str, Any], words: str) -> None:
    x, g, result = (TensorSpec(shape, DType.f32) for shape in shapes)
    told = {"sizes": [3, 3], "strides": [1, 1], "before": [0, 0]} | attributes
    program = pcp.trace(
        lambda x, g: native_call(LIBRARIES["pooling"], "max_pool_gradient", (x, g), (result,), told)[0],
        *(pcp.spec(each.shape, "f32") for each in (x, g)),
    )
    with pytest.raises(ExecutionFailed) as refused:
        pcp.plan(program).run(np.zeros(x.shape, "f4"), np.zeros(g.shape, "f4"))
    assert words in str(refused.value)


def test_more_windows_than_there_can_be_are_read_nowhere_else() -> None:
    """Rows and columns of a cotangent whose windows lie beyond x: nothing is added anywhere."""
    told = {"sizes": [2, 2], "strides": [3, 3], "before": [0, 0]}
    program = pcp.trace(
        lambda x, g: native_call(LIBRARIES["pooling"], "max_pool_gradient", (x, g), (x.spec,), told)[0],
        pcp.spec((1, 4, 4, 2), "f32"),
        pcp.spec((1, 50, 50, 2), "f32"),
    )
    found = np.asarray(pcp.plan(program).run(np.zeros((1, 4, 4, 2), "f4"), np.ones((1, 50, 50, 2), "f4")))
    assert found.sum() == 2 * 2 * 2
