"""Values kept in fewer bits: what products read and make is rounded, and nothing else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp.ir import DType, Program
from pcp.rewrite.stored import FACTORS, RESULTS, ProductClass, products_in, stored

BOTH = {FACTORS: DType.bf16, RESULTS: DType.bf16}
SHAPES = ((160, 96), (96, 128), (128,))


def dense(x: pcp.Tensor, w: pcp.Tensor, b: pcp.Tensor) -> pcp.Tensor:
    """A product of which what it reads is read otherwise, too."""
    return pcp.tanh((x @ w + b) * 0.05) + w.mean()


def rounded(x: jax.Array) -> jax.Array:
    return x.astype(jnp.bfloat16).astype(jnp.float32)


def program(function: object = dense, *shapes: tuple[int, ...]) -> Program:
    return pcp.trace(function, *(pcp.spec(shape, "f32") for shape in shapes or SHAPES))  # type: ignore[arg-type]  # any function


def arguments(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [np.random.default_rng().standard_normal(shape, np.float32) for shape in shapes or SHAPES]


def distance(given: object, expected: object) -> float:
    """Of two arrays, relative to the second."""
    return float(np.linalg.norm(np.subtract(given, expected)) / np.linalg.norm(expected))  # type: ignore[arg-type]  # any array


def run(made: Program, arrays: list[np.ndarray]) -> np.ndarray:
    return np.asarray(pcp.plan(made).run(*arrays))


def test_products_read_and_make_rounded_numbers() -> None:
    x, w, b = arrays = arguments()
    factors = rounded(jnp.array(x)) @ rounded(jnp.array(w))
    for storages, product in (({FACTORS: DType.bf16}, factors), (BOTH, rounded(factors))):
        expected = jnp.tanh((product + b) * 0.05) + w.mean()  # which reads the argument as it is
        given = run(stored(program(), storages), arrays)
        # What reads a result at once may read it before it is rounded.
        assert distance(given, expected) < (3e-3 if storages is BOTH else 1e-5)
        exact = np.tanh((x.astype(np.float64) @ w + b) * 0.05) + w.mean()
        assert 1e-3 < distance(given, exact) < 1e-2


def test_a_product_multiplies_what_is_stored() -> None:
    text = stored(program(), BOTH).text
    assert "(tensor<160x96xbf16>, tensor<96x128xbf16>) -> tensor<160x128xbf16>" in text
    factors = stored(program(), {FACTORS: DType.bf16}).text
    assert "(tensor<160x96xbf16>, tensor<96x128xbf16>) -> tensor<160x128xf32>" in factors
    left = stored(program(), {f"{FACTORS} 160x96": DType.bf16}).text
    assert "(tensor<160x96xf32>, tensor<96x128xf32>) -> tensor<160x128xf32>" in left
    assert left.count("bf16") > 0


def test_numbers_that_are_moved_before_a_product() -> None:
    def moved(x: pcp.Tensor, w: pcp.Tensor) -> pcp.Tensor:
        return x @ w.reshape((128, 96)).T

    made = stored(program(moved, (160, 96), (96 * 128,)), BOTH)
    assert "tensor<12288xf32>) -> tensor<12288xbf16>" in made.text
    x, w = arguments((160, 96), (96 * 128,))
    expected = rounded(rounded(jnp.array(x)) @ rounded(jnp.array(w)).reshape(128, 96).T)
    assert distance(run(made, [x, w]), expected) < 3e-3


def test_products_say_what_they_read_and_make() -> None:
    def three(x: pcp.Tensor, w: pcp.Tensor, v: pcp.Tensor) -> tuple[pcp.Tensor, pcp.Tensor]:
        return (x @ w) @ v, pcp.tanh(x) @ w

    given = program(three, (160, 96), (96, 128), (128, 8))
    assert products_in(given) == [
        ProductClass(("factors 160x96", "factors 96x128"), "", 1, 192512),  # the next one reads what it makes
        ProductClass(("factors 160x96", "factors 96x128"), "results 160x128", 1, 192512),
        ProductClass(("factors 160x128", "factors 128x8"), "results 160x8", 1, 91136),
    ]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, _, b: pcp.tanh(x) * b[:96],  # nothing is multiplied
        lambda x, w, _: x[:4] @ w[:, :4],  # what is small is left as it is
        lambda x, w, _: x.astype("f64") @ w.astype("f64"),
        lambda x, w, _: x.astype("bf16") @ w.astype("bf16"),
        lambda x, w, _: x.astype("i32") @ w.astype("i32"),
    ],
    ids=["no product", "small", "f64", "bf16", "i32"],
)
def test_what_is_left_as_it_is(function: object) -> None:
    made = program(function)
    assert products_in(made) == []
    assert stored(made, BOTH).digest == made.digest


def test_a_product_whose_precision_the_program_says() -> None:
    given = pcp.from_jax(lambda x, w: jnp.matmul(x, w, precision="highest"), *arguments()[:2])
    assert products_in(given) == []


def test_products_in_loops_and_convolutions() -> None:
    def function(
        x: jax.Array, w: jax.Array, image: jax.Array, filters: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        found = jax.lax.fori_loop(0, 3, lambda _, x: jnp.tanh(x @ w), x)
        return found, jax.lax.conv(image, filters, (1, 1), "SAME")

    x, w = arguments((160, 128), (128, 128))
    image, filters = arguments((2, 8, 32, 32), (16, 8, 3, 3))
    made = stored(pcp.from_jax(function, x, w, image, filters), BOTH)
    assert made.text.count("bf16>) -> tensor<") >= 2
    plan = pcp.plan(made)
    results = plan.run(x, w, image, filters)
    for given, expected in zip(results, function(*map(jnp.array, (x, w, image, filters))), strict=True):
        assert 1e-4 < distance(given, expected) < 0.1
