"""Activations with their bias, gated ones and gradients: found, right to float32, and refused where arrays do not fit."""

import math
import resource
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import pcp
from pcp import kernels, nn
from pcp.backends import ExecutionFailed
from pcp.kernels.features import masked
from pcp.planning.paths.path import Path as PlanPath
from pcp.planning.paths.preparation import prepared
from pcp.rewrite.raising import raised
from tests.execution import exactly
from tests.kernels.native.programs import arguments_of, calling, native_path

X, BIAS = pcp.spec((5, 7, 50), "f32"), pcp.spec((50,), "f32")


def of_probability(x: Any) -> Any:
    """As JAX and others write it."""
    return x * (0.5 * (1.0 + pcp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * (x * x))))))


def forms(program: pcp.Program) -> list[str]:
    return [site.family for site in kernels.sites_of(prepared(program), "cpu")]


def worst(program: pcp.Program, arguments: list[Any]) -> float:
    """The largest error of native kernels, as a part of the largest number of each result."""
    found = pcp.plan(program, path=native_path(program)).run(*arguments)
    exact = exactly(program, *arguments)
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True)
    return max(float(np.abs(np.float64(a) - np.float64(b)).max() / np.abs(b).max()) for a, b in pairs)


FUNCTIONS = (
    nn.gelu,
    of_probability,
    lambda x: nn.gelu(x, approximate=False),
    nn.silu,
    lambda x: x * pcp.sigmoid(1.702 * x),
    lambda x: nn.relu(x) ** 2,
)


def test_each_is_found_with_its_bias_and_without_and_right() -> None:
    program = pcp.trace(
        lambda x, b: [of(x * 2 + b) for of in FUNCTIONS] + [of(x * 3) for of in FUNCTIONS], X, BIAS
    )
    assert forms(program) == ["gelu"] * 2 * len(FUNCTIONS)
    found = [len(site.region.arguments) for site in kernels.sites_of(prepared(program), "cpu")]
    assert sorted(found) == [1] * len(FUNCTIONS) + [2] * len(FUNCTIONS)
    assert worst(program, arguments_of(program)) < 1e-6


def test_gradients_are_found_and_right() -> None:
    def loss(x: Any, b: Any, *g: Any) -> Any:
        return sum((of(x + b) * each).sum() for of, each in zip(FUNCTIONS, g, strict=True))

    program = pcp.value_and_grad(pcp.trace(loss, X, BIAS, *[X] * len(FUNCTIONS)), wrt=(0, 1))
    assert Counter(forms(program)) >= Counter(gelu=len(FUNCTIONS), gelu_gradient=len(FUNCTIONS))
    text = str(native_path(program).applied(program).module()).partition("func.func private")[0]
    assert not [word for word in ("stablehlo.tanh", "chlo.erf", "logistic", "exponential") if word in text]
    assert worst(program, arguments_of(program)) < 2e-6


def test_what_a_gate_lets_pass_and_its_gradients_are_right() -> None:
    def loss(*arrays: Any) -> Any:
        count = len(FUNCTIONS)
        gates, ups, cotangents = arrays[:count], arrays[count : 2 * count], arrays[2 * count :]
        each = zip(FUNCTIONS, gates, ups, cotangents, strict=True)
        return sum((of(gate) * up * cotangent).sum() for of, gate, up, cotangent in each)

    count = len(FUNCTIONS)
    program = pcp.grad(pcp.trace(loss, *[X] * 3 * count), wrt=tuple(range(2 * count)))
    sites = kernels.sites_of(prepared(program), "cpu")
    both = [site for site in sites if "gated_silu_gradient.native" in site.kernels]
    assert [len(site.region.results) for site in both] == [2] * count
    chosen = {site.key: kernels.kernel_named(f"{site.family}.native") for site in sites if site in both}
    exact = exactly(program, *(arguments := arguments_of(program)))
    found = pcp.plan(program, path=PlanPath.of(program, chosen)).run(*arguments)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True):
        assert np.abs(np.float64(a) - np.float64(b)).max() < 2e-6 * np.abs(b).max()


def test_what_other_uses_of_x_gave_is_added() -> None:
    step = raised(pcp.trace(lambda x, g: (nn.gelu(x) * g + x * x).sum(), X, X))
    program = pcp.grad(step, wrt=0)
    (site,) = (site for site in kernels.sites_of(prepared(program), "cpu") if site.family == "gelu_gradient")
    assert len(site.region.arguments) == 3
    assert worst(program, arguments_of(program)) < 1e-6


@pytest.mark.parametrize(
    "function",
    [
        lambda x: 0.5 * x * (1 + pcp.tanh(0.8 * (x + 0.044715 * (x * x * x)))),
        lambda x: 0.5 * x * (2 + pcp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x)))),
        lambda x: 0.5 * x * (1 + pcp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x)))),
        lambda x: 0.5 * (x + 1) * (1 + pcp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x)))),
    ],
)
def test_nothing_else_is_taken_for_it(function: Any) -> None:
    assert forms(pcp.trace(function, X)) == []


def test_extreme_numbers() -> None:
    numbers = np.float32(
        [np.inf, -np.inf, np.nan, 1e20, -1e20, 100, -100, 10, -10, 5, -5, -5.5, 1e-30, -1e-30, 0.0, -0.0]
    )
    program = pcp.trace(
        lambda *x: [of(each) for of, each in zip(FUNCTIONS, x, strict=True)], *[pcp.spec((3, 9), "f32")] * 6
    )
    x = [np.resize(numbers, (3, 9))] * 6
    found, plain = (pcp.plan(program, path=path).run(*x) for path in (native_path(program), None))
    for one, other in zip(found, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-6)


def test_extreme_numbers_have_the_slope_of_the_formula() -> None:
    def loss(*x: Any) -> Any:
        return sum((of(each) * g).sum() for of, each, g in zip(FUNCTIONS, x[:6], x[6:], strict=True))

    numbers = np.float32([np.nan, np.inf, 1e15, 200.0, 0.0, -0.0, -200.0, -1e15])
    program = pcp.grad(pcp.trace(loss, *[pcp.spec((8,), "f32")] * 12), wrt=tuple(range(6)))
    found = pcp.plan(program, path=native_path(program)).run(*[numbers] * 6, *[np.ones_like(numbers)] * 6)
    for each in found[:5]:
        np.testing.assert_allclose(each, [np.nan, np.nan, 1, 1, 0.5, 0.5, 0, 0], rtol=1e-6, atol=1e-20)
    np.testing.assert_allclose(found[5], [np.nan, np.inf, 2e15, 400, 0, 0, 0, 0], rtol=1e-6)


@pytest.mark.parametrize(
    ("handler", "takes", "makes", "words"),
    [
        ("gelu", [(6,), (6,)], (6,), "x has shape [6]; expected [rows,width]"),
        ("gelu", [(2, 6), (5,)], (2, 6), "bias has shape [5]; expected [6]"),
        ("gelu", [(2, 6), (6,)], (2, 5), "the result has shape [2,5]; expected that of x"),
        (
            "gelu_gradient",
            [(2, 6), (6,), (1, 6)],
            (2, 6),
            "the cotangent has shape [1,6]; expected that of x",
        ),
        ("gelu", [(2, 6), (6,)], (2, 6), "there is no activation 7"),
        ("gated", [(2, 6), (2, 6)], (2, 6), "there is no activation 7"),
        ("gated", [(2, 6), (6,)], (2, 6), "what passes has shape [6]; expected that of the gate, [2,6]"),
        ("gated", [(2, 6), (2, 6)], (2, 5), "the result has shape [2,5]; expected that of the gate, [2,6]"),
        (
            "gated_gradient",
            [(2, 6), (2, 6), (3, 6)],
            (2, 6),
            "the cotangent has shape [3,6]; expected that of the gate",
        ),
        (
            "gated_gradient",
            [(2, 6)] * 3,
            (2, 7),
            "a result has shape [2,7]; expected that of the gate, [2,6]",
        ),
    ],
)
def test_a_handler_refuses_what_it_is_not_for(
    handler: str, takes: list[tuple[int, ...]], makes: tuple[int, ...], words: str
) -> None:
    program = calling(
        handler,
        takes,
        [makes] * (2 if handler == "gated_gradient" else 1),
        activation=7 if "activation" in words else 1,
    )
    with pytest.raises(ExecutionFailed) as refused:
        pcp.plan(program).run(*arguments_of(program))
    assert words in str(refused.value)


def test_a_processor_with_less_gets_the_same_numbers() -> None:
    program = pcp.trace(lambda x, b: nn.gelu(x + b), X, BIAS)
    arguments = arguments_of(program)
    usual = pcp.plan(program, path=native_path(program)).run(*arguments)
    with masked("avx512f", "avx2"):
        plain = pcp.plan(program, path=native_path(program)).run(*arguments)
    np.testing.assert_allclose(plain, usual, rtol=1e-5, atol=1e-7)


HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.cpu
@pytest.mark.skipif(
    not HUGE.exists() or "[never]" in HUGE.read_text(), reason="this system has no huge pages"
)
def test_a_large_result_in_fresh_memory_is_written_in_huge_pages() -> None:
    program = pcp.trace(nn.gelu, pcp.spec((1 << 14, 1024), "f32"))
    plan = pcp.plan(program, path=native_path(program), cache=False)
    x = jax.block_until_ready(jax.device_put(np.ones((1 << 14, 1024), np.float32)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    jax.block_until_ready(plan.run(x))
    pages = x.nbytes // resource.getpagesize()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < pages / 4
