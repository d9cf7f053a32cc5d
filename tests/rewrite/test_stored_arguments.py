"""Arguments that are kept in fewer bits: what products and lookups read of them, and which cannot be."""

import re
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp.ir import Program
from pcp.ops.linear.stored import FORMATS
from pcp.planning.paths.preparation import prepared
from pcp.rewrite.binding import bind_stage
from pcp.rewrite.stored import Matrix, NotStored, matrices_in, with_stored_arguments

W, X = (256, 96), (2, 3, 96)
RNG = np.random.default_rng(0)
INT8 = FORMATS["int8"]
PRODUCTS: dict[str, tuple[tuple[int, ...], Callable[[Any, Any], Any]]] = {
    "contracted along the last axis": (W, lambda w, x: x @ w.T),
    "contracted along the first axis": (W[::-1], lambda w, x: x @ w),
    "on the left": (W, lambda w, x: pcp.dot_general(w, x, ((1,), (2,)))),
    "a vector": (W, lambda w, x: w @ x[0, 0]),
    "heads": ((96, 4, 64), lambda w, x: pcp.einsum("bti,ihd->bthd", x, w)),
    "heads that are joined": ((4, 24, 256), lambda w, x: pcp.einsum("bthd,hdo->bto", x.reshape((2, 3, 4, 24)), w)),
    "moved": ((96 * 256,), lambda w, x: x @ w.reshape((256, 96)).T),
    "moved twice": (W[::-1], lambda w, x: x @ w.T.reshape((16, 16, 96)).reshape((256, 96)).T),
    "twice": (W, lambda w, x: pcp.tanh(x @ w.T) @ w),
    "read otherwise, too": (W, lambda w, x: x @ w.T + w.mean()),
    "looked up": (W, lambda w, x: x @ w.T + (pcp.ops.take(w, np.array([[3, 7, 255]]), 0) @ w.T)),
    "looked up with scales": (W, lambda w, x: pcp.ops.take(w, np.array([5, 0, 9]), 0) * ((x @ w.T) ** 2).mean()),
}  # fmt: skip


def of(shape: tuple[int, ...]) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def traced(function: Any, *arguments: Any) -> Program:
    return prepared(pcp.trace(function, *arguments))


@pytest.mark.parametrize("form", FORMATS)
def test_products_read_what_is_kept(form: str) -> None:
    weights, x = [of(shape) for shape, _ in PRODUCTS.values()], of(X)
    program = traced(
        lambda weights, x: [
            function(w, x) for w, (_, function) in zip(weights, PRODUCTS.values(), strict=True)
        ],
        weights,
        x,
    )
    assert [each.number for each in matrices_in(program)] == list(range(len(weights)))
    ways = {
        each.number: FORMATS[form] if all(map(FORMATS[form].fits, each.inputs)) else INT8
        for each in matrices_in(program)
    }
    made = with_stored_arguments(program, ways)
    # Every product is by what is kept.
    assert "stablehlo.dot_general" not in re.split(r"func.func private", made.text)[0]
    rounded, exact = (pcp.plan(each, "cpu:0").run(weights, x) for each in (made, program))
    error = 0.55 * 2.0 ** -FORMATS[form].bits
    for name, given, expected in zip(PRODUCTS, rounded, exact, strict=True):
        distance = np.linalg.norm(given - expected) / np.linalg.norm(expected)
        assert error / 40 < distance < 3 * error, name
    stage = bind_stage(made, tuple(range(len(weights))))
    assert stage is not None
    kept = sum(each.spec.bytes for each in stage.sequence[0].program.results)
    assert kept < 1.5 * sum(each.size * 4 for each in weights) * FORMATS[form].row_bytes(96) / (4 * 96)


def test_what_there_is_to_keep() -> None:
    program = traced(lambda w, v, b, x: (x @ w.T + b) @ v, *map(of, (W, (256, 128), (256,), X)))
    assert matrices_in(program) == [Matrix(1, 32768, (256,), 6), Matrix(0, 24576, (96,), 6)]


@pytest.mark.parametrize(
    "function",
    [
        lambda w, x: pcp.tanh(w) * x[0, 0],
        lambda w, x: x.astype("bf16") @ w.astype("bf16").T,
        lambda w, x: w[:, :4] @ w[:, 4:8].T * x.sum(),
        lambda w, x: pcp.tanh(w) @ x[0].T,
        lambda w, x: pcp.ops.take(w, np.array([3]), 0) + x,
        lambda w, x: w @ w.T * x.sum(),
        lambda w, x: pcp.einsum("bi,bj->bij", w, w) * x.sum(),
    ],
    ids=["no product", "bf16", "sliced", "changed before", "looked up alone", "with itself", "batch"],
)
def test_arguments_that_stay_as_they_are(function: Any) -> None:
    program = traced(function, of(W), of(X))
    assert matrices_in(program) == []
    words = (
        "argument w is kept in int8, and no product of float32 reads it, or it has fewer than 16384 numbers"
    )
    with pytest.raises(NotStored, match=words):
        with_stored_arguments(program, {0: INT8})


def test_arguments_that_cannot_be_kept() -> None:
    program = traced(lambda w, x: x @ w.T, of((512, 33)), of((2, 33)))
    words = "argument w is kept in int4, whose scales are for 32 numbers of a row each, and a row has 33: .* keep it in int8"
    with pytest.raises(NotStored, match=words):
        with_stored_arguments(program, {0: FORMATS["int4"]})
    with pytest.raises(NotStored, match="argument 7 is kept in int8, and the program takes 2: plan again"):
        with_stored_arguments(program, {7: INT8})
    state = pcp.trace(lambda w, x: (w + 1, x @ w.T), pcp.spec((512, 33), "f32", "state"), of((2, 33)))
    assert matrices_in(state) == []
    with pytest.raises(NotStored, match="argument w is kept in int8, and is state: every call makes it anew"):
        with_stored_arguments(state, {0: INT8})


def test_a_product_whose_precision_the_program_says() -> None:
    given = pcp.from_jax(lambda w, x: jnp.matmul(x, w.T, precision="highest"), of(W), of(X))
    assert matrices_in(given) == []


def test_an_argument_is_kept_once_for_all_that_read_it() -> None:
    program = traced(
        lambda w, x, i: (x @ w.T, pcp.tanh(x) @ w.T, pcp.ops.take(w, i, 0)), of(W), of(X), np.array([2, 3])
    )
    text = with_stored_arguments(program, {0: INT8}).text
    assert text.count("round_nearest_even") == 1
    assert len(re.findall(r"tensor<256x96xi8>.*-> tensor<2x96xi8>", text)) == 1
