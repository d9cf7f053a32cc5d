"""Symbolic programs: traced once, then the same as a static trace at every size, in digest and in numbers."""

from typing import Any

import jax
import numpy as np
import pytest

import pcp
from pcp import nn
from pcp.models import decoder
from pcp.models.published import gpt2_config
from pcp.refusals import ShapeMismatch
from pcp.symbolic import BuiltDifferently, InvalidConstraint, InvalidSize, SizesRefused, SymbolicProgram
from pcp.symbolic.watched import SizeHasNoNumber
from tests.execution import run_in_jax
from tests.models.test_gpt2 import plain, random_parameters

CONFIG = gpt2_config(layers=1, heads=2, width=48, context=96, vocabulary=50, bias=False)


def mlp(weights: Any, x: pcp.Tensor) -> pcp.Tensor:
    hidden = pcp.tanh(x @ weights["first"] + weights["bias"])
    return (hidden @ weights["second"]).mean(axis=1)


def mlp_weights(rng: np.random.Generator) -> dict[str, Any]:
    shapes = {"first": (64, 24), "bias": (24,), "second": (24, 5)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def gpt2_loss(parameters: Any, tokens: pcp.Tensor, targets: pcp.Tensor) -> pcp.Tensor:
    return nn.cross_entropy(decoder.logits(parameters, tokens, CONFIG), targets)


@pytest.fixture(scope="module")
def symbolic_gpt2() -> Any:
    parameters = pcp.specs_of(decoder.parameter_shapes(CONFIG))
    tokens = pcp.spec(("batch", "length"), "i32")
    return pcp.trace(gpt2_loss, parameters, tokens, tokens, constraints=["length <= 96"])


@pytest.fixture(scope="module")
def symbolic_step(symbolic_gpt2: Any) -> Any:
    return pcp.training_step(symbolic_gpt2, pcp.optimizers.adamw(1e-3))


def static_gpt2(batch: int, length: int) -> pcp.Program:
    tokens = pcp.spec((batch, length), "i32")
    return pcp.trace(gpt2_loss, pcp.specs_of(decoder.parameter_shapes(CONFIG)), tokens, tokens)


def test_an_mlp_at_random_sizes_is_that_of_jax_and_the_static_trace() -> None:
    rng = np.random.default_rng()
    weights = mlp_weights(rng)
    program = pcp.trace(mlp, weights, pcp.spec(("batch", "length", 64), "f32"))
    assert isinstance(program, SymbolicProgram)
    assert str(program.arguments[-1].spec) == "f32[batch,length,64]"
    assert [str(entry.spec) for entry in program.results] == ["f32[batch,5]"]
    for batch, length in ((1, 1), (3, 500), *rng.integers(1, 40, (3, 2)).tolist()):
        static = program.at(batch=batch, length=length)
        x = rng.normal(size=(batch, length, 64)).astype(np.float32)
        assert static.digest == pcp.trace(mlp, weights, pcp.spec(x.shape, "f32")).digest
        exact = np.tanh(x.astype(float) @ weights["first"] + weights["bias"]) @ weights["second"]
        got = np.asarray(pcp.plan(static, "arena:cpu").run(weights, x))
        np.testing.assert_allclose(got, exact.mean(axis=1), rtol=2e-4, atol=2e-5)


def test_gpt2_at_random_sizes_is_the_static_trace(symbolic_gpt2: Any) -> None:
    rng = np.random.default_rng()
    for batch, length in ((2, 64), (48, 2), *rng.integers(2, 96, (3, 2)).tolist()):
        assert symbolic_gpt2.at(batch=batch, length=length).digest == static_gpt2(batch, length).digest, (
            batch,
            length,
        )


def test_gpt2_in_float64_at_random_sizes_is_plain_jax() -> None:
    config = gpt2_config(layers=1, heads=3, width=12, context=40, vocabulary=17)
    parameters = random_parameters(config, seed=int(np.random.default_rng().integers(1000)))
    program = pcp.trace(
        lambda parameters, tokens: decoder.logits(parameters, tokens, config),
        parameters,
        pcp.spec(("batch", "length"), "i32"),
        constraints=["length <= 40"],
    )
    plan = pcp.plan(program, "arena:cpu")
    rng = np.random.default_rng()
    with jax.enable_x64(True):
        for batch, length in ((1, 1), (2, 40), tuple(rng.integers(1, 40, 2).tolist())):
            tokens = rng.integers(0, 17, (batch, length)).astype(np.int32)
            expected = run_in_jax(jax.vmap(lambda p, row: plain(p, row, 3), (None, 0)), parameters, tokens)
            np.testing.assert_allclose(plan.run(parameters, tokens), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("batch", "length"), [(3, 17), (1, 1), (2, 96)])
def test_a_training_step_of_gpt2_does_what_that_of_a_static_trace_does(
    symbolic_step: Any, batch: int, length: int
) -> None:
    rng = np.random.default_rng()
    step = symbolic_step.at(batch=batch, length=length)
    expected = pcp.training_step(static_gpt2(batch, length), pcp.optimizers.adamw(1e-3))
    assert type(step) is type(expected)
    state = step.initial_state(decoder.initial_parameters(CONFIG, seed=int(rng.integers(1 << 30))))
    tokens = rng.integers(0, 50, (2, batch, length)).astype(np.int32)
    for one, other in zip(
        jax.tree.leaves(pcp.plan(step, "arena:cpu").run(state, tuple(tokens))),
        jax.tree.leaves(pcp.plan(expected, "arena:cpu").run(state, tuple(tokens))),
        strict=True,
    ):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-5, atol=1e-7)


def test_some_sizes_leave_a_symbolic_program_of_the_others(symbolic_gpt2: Any) -> None:
    part = symbolic_gpt2.at(batch=4)
    assert isinstance(part, SymbolicProgram)
    assert part.symbols == ("length",)
    assert part.at(length=30).digest == static_gpt2(4, 30).digest


def test_arithmetic_of_symbols_in_shapes_and_in_the_function() -> None:
    def joined(x: pcp.Tensor, y: pcp.Tensor) -> pcp.Tensor:
        n, width = x.shape
        return pcp.concatenate([x, y]).reshape((3 * n + 1) * width) * n

    program = pcp.trace(joined, pcp.spec(("n", 7), "f32"), pcp.spec(("2*n + 1", 7), "f32"))
    assert [str(entry.spec) for entry in program.results] == ["f32[21*n + 7]"]
    x, y = np.ones((5, 7), np.float32), np.ones((11, 7), np.float32)
    assert program.sizes_of(x, y) == {"n": 5}  # type: ignore[attr-defined]  # of symbolic programs
    np.testing.assert_array_equal(pcp.plan(program.at(n=5), "arena:cpu").run(x, y), np.full(112, 5.0))


def test_a_symbolic_program_is_called_inside_a_trace(symbolic_gpt2: Any) -> None:
    def doubled(parameters: Any, tokens: pcp.Tensor) -> pcp.Tensor:
        return pcp.call(symbolic_gpt2, parameters, tokens, tokens) * 2

    tokens = pcp.spec(("batch", 24), "i32")
    program = pcp.trace(doubled, pcp.specs_of(decoder.parameter_shapes(CONFIG)), tokens)
    static = pcp.trace(doubled, pcp.specs_of(decoder.parameter_shapes(CONFIG)), pcp.spec((5, 24), "i32"))
    assert program.at(batch=5).digest == static.digest


def test_constraints_choose_the_sizes_that_are_tried() -> None:
    def heads(x: pcp.Tensor) -> pcp.Tensor:
        assert x.shape[0] % 8 == 0
        assert x.shape[1] == 4 * x.shape[2]
        return x.reshape((x.shape[0] // 8, 8, -1)).sum(axis=1)

    program = pcp.trace(
        heads, pcp.spec(("n", "w", "h"), "f32"), constraints=["n % 8 == 0", "w == 4*h", "h >= 3", "n <= 512"]
    )
    assert str(program.results[0].spec) == "f32[n // 8,h*w]"
    x = np.random.default_rng().normal(size=(16, 12, 3)).astype(np.float32)
    got = pcp.plan(program.at(n=16, w=12, h=3), "arena:cpu").run(x)
    np.testing.assert_allclose(got, x.reshape(2, 8, 36).astype(float).sum(axis=1), rtol=1e-5, atol=1e-5)
    for sizes, expected in (
        ({"n": 12, "w": 12, "h": 3}, "expected n % 8 == 0, and 4 == 0 does not hold"),
        ({"n": 16, "w": 13, "h": 3}, r"expected w == 4\*h, and 13 == 12 does not hold"),
        ({"n": 16, "w": 8, "h": 2}, "expected h >= 3, and 2 >= 3 does not hold"),
        ({"n": 1024, "w": 12, "h": 3}, r"the sizes \(n=1024\) were given; expected n <= 512"),
    ):
        with pytest.raises(SizesRefused, match=expected):
            program.at(**sizes)


def test_what_the_function_compares_its_sizes_with_is_a_constraint() -> None:
    def chosen(x: pcp.Tensor) -> pcp.Tensor:
        return x * 2 if x.shape[0] > 150 else x

    program = pcp.trace(chosen, pcp.spec(("n",), "f32"))
    assert program.constraints == ("n <= 150",)  # type: ignore[attr-defined]  # of symbolic programs
    with pytest.raises(
        SizesRefused, match=r"n <= 150, and 151 <= 150 does not hold: the function was traced.*test_programs"
    ):
        program.at(n=151)
    large = pcp.trace(chosen, pcp.spec(("n",), "f32"), constraints=["n >= 200"])
    assert large.constraints == ("n >= 200",)  # type: ignore[attr-defined]  # of symbolic programs
    assert large.at(n=300).digest == pcp.trace(lambda x: x * 2, pcp.spec((300,), "f32")).digest


def test_a_function_that_is_built_differently_is_refused() -> None:
    def unrolled(x: pcp.Tensor) -> pcp.Tensor:
        return sum((x[i] for i in range(int(x.shape[0]))), start=x[0])

    with pytest.raises(SizeHasNoNumber, match=r"was used as an integer of Python .* loop by pcp.scan"):
        pcp.trace(unrolled, pcp.spec(("n", 3), "f32"))

    def constant(x: pcp.Tensor) -> pcp.Tensor:
        return x + np.arange(x.shape[0], dtype=np.float32)

    with pytest.raises(BuiltDifferently, match=r"constant of NumPy: make it by operations, as pcp.iota"):
        pcp.trace(constant, pcp.spec(("n",), "f32"))

    def hidden(x: pcp.Tensor) -> pcp.Tensor:
        return x * 2 if float(x.shape[0]) > 500.0 else x

    with pytest.raises(
        BuiltDifferently,
        match=r"\(n=1020\) than what .*, as \(n=37\).* a size became a number at .*test_programs",
    ):
        pcp.trace(hidden, pcp.spec(("n",), "f32"))


def test_an_error_of_the_function_says_for_which_sizes_it_is() -> None:
    tokens = pcp.spec(("batch", "length"), "i32")
    with pytest.raises(ShapeMismatch, match="a gpt2 with a context of 96") as caught:
        pcp.trace(gpt2_loss, pcp.specs_of(decoder.parameter_shapes(CONFIG)), tokens, tokens)
    assert (
        "this is how it is for batch=1020, length=768; if such sizes need not be" in caught.value.__notes__[0]
    )


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"batch": 2}, None),
        (
            {"batch": 2, "size": 3},
            r"the sizes \(batch=2, size=3\) were given, which lacks length; the program takes batch, length",
        ),
        (
            {"batch": 2, "length": 3, "size": 3},
            r"which names size; the program takes batch, length: give .at\(batch=...",
        ),
        ({"batch": 0, "length": 3}, "the size batch=0 was given; expected an integer from 1 on"),
        ({"batch": 2.5, "length": 3}, "the size batch=2.5 was given; expected an integer from 1 on"),
        (
            {"length": 97},
            r"\(length=97\) were given; expected length <= 96, and 97 <= 96 does not hold: give",
        ),
        (
            {"batch": 2, "length": 97},
            r"\(length=97\) were given; expected length <= 96, and 97 <= 96 does not hold: give",
        ),
    ],
)
def test_sizes_that_do_not_fit(symbolic_gpt2: Any, sizes: dict[str, Any], message: str | None) -> None:
    if message is None:
        assert symbolic_gpt2.at(**sizes).symbols == ("length",)
        return
    with pytest.raises(SizesRefused, match=message):
        symbolic_gpt2.at(**sizes)


def test_sizes_for_which_the_program_is_not_valid() -> None:
    def tail(x: pcp.Tensor) -> pcp.Tensor:
        return x[10:]

    program = pcp.trace(tail, pcp.spec(("n",), "f32"))
    assert program.at(n=12).results[0].spec.shape == (2,)
    with pytest.raises(
        SizesRefused, match=r"\(n=9\) were given; expected n >= 10, and 9 >= 10 does not hold: the function"
    ):
        program.at(n=9)


def test_arrays_whose_shapes_do_not_agree(symbolic_gpt2: Any) -> None:
    parameters = decoder.initial_parameters(CONFIG)
    one, other = np.zeros((2, 3), np.int32), np.zeros((2, 4), np.int32)
    with pytest.raises(
        SizesRefused, match=r"has shape \(2, 4\); expected i32\[batch,length\], which is \(2, 3\) for"
    ):
        symbolic_gpt2.sizes_of(parameters, one, other)
    with pytest.raises(
        SizesRefused, match=r"has shape \(2,\); expected i32\[batch,length\]: give an array of that rank"
    ):
        symbolic_gpt2.sizes_of(parameters, one, one[:, 0])


@pytest.mark.parametrize("size", ["", "n +", "n / 2", "n.m", "f(n)", "n ** 9", "1 if n else 2", "n" * 600])
def test_texts_that_are_no_sizes(size: str) -> None:
    with pytest.raises(InvalidSize, match="expected"):
        pcp.spec((size, 3), "f32")


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        (["n"], "'n' is no constraint; expected one comparison of sizes"),
        (["1 < n < 5"], "is no constraint; expected one comparison"),
        (["m <= 5"], "names m; the symbols of the arguments are n: give it in the shape"),
        (["n <= 3"], r"3 sets of sizes of n were found that satisfy the constraints \(n <= 3\); expected 6"),
        (["n % 4 == 1", "n % 4 == 2"], "0 sets of sizes"),
    ],
)
def test_constraints_that_are_none(constraints: list[str], message: str) -> None:
    with pytest.raises(InvalidConstraint, match=message):
        pcp.trace(lambda x: x, pcp.spec(("n",), "f32"), constraints=constraints)


def test_a_program_without_symbols_has_no_sizes() -> None:
    program = pcp.trace(lambda x: x, pcp.spec((3,), "f32"))
    assert program.at() is program
    with pytest.raises(
        pcp.PCPError, match=r"sizes were given \(n=3\); the program has no symbols, so expected none"
    ):
        program.at(n=3)
