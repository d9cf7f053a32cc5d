"""GELU with its bias and its gradient: found as they are written, right to float32, and refused where arrays do not fit."""

import math
import resource
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import pcp
from pcp import kernels, nn
from pcp.backends import ExecutionFailed
from pcp.kernels.features import masked
from pcp.planning.paths.preparation import prepared
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


@pytest.mark.parametrize("function", [nn.gelu, of_probability])
@pytest.mark.parametrize("biased", [True, False])
def test_it_is_found_and_right(function: Any, biased: bool) -> None:
    specs = (X, BIAS) if biased else (X,)
    program = pcp.trace(lambda x, *b: function(x + b[0] if b else x), *specs)
    assert forms(program) == ["gelu"]
    (site,) = kernels.sites_of(prepared(program), "cpu")
    assert len(site.region.arguments) == len(specs)
    assert worst(program, arguments_of(program)) < 1e-6


@pytest.mark.parametrize("biased", [True, False])
def test_its_gradient_is_found_and_right(biased: bool) -> None:
    specs = (X, BIAS, X) if biased else (X, X)
    loss = pcp.trace(lambda x, *b: (nn.gelu(x + b[0] if len(b) > 1 else x) * b[-1]).sum(), *specs)
    program = pcp.value_and_grad(loss, wrt=tuple(range(len(specs) - 1)))
    assert sorted(forms(program)) == ["gelu", "gelu_gradient"]
    text = str(native_path(program).applied(program).module())
    assert "stablehlo.tanh" not in text.partition("func.func private")[0]
    assert worst(program, arguments_of(program)) < 2e-6


@pytest.mark.parametrize(
    "function",
    [
        lambda x: nn.gelu(x, approximate=False),
        nn.silu,
        lambda x: 0.5 * x * (1 + pcp.tanh(0.8 * (x + 0.044715 * (x * x * x)))),
        lambda x: 0.5 * x * (2 + pcp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x)))),
        lambda x: 0.5 * x * (1 + pcp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x)))),
        lambda x: 0.5 * (x + 1) * (1 + pcp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x)))),
    ],
)
def test_nothing_else_is_taken_for_it(function: Any) -> None:
    assert forms(pcp.trace(function, X)) == []


def test_extreme_numbers() -> None:
    program = pcp.trace(nn.gelu, pcp.spec((3, 9), "f32"))
    numbers = [
        np.inf,
        -np.inf,
        np.nan,
        1e20,
        -1e20,
        100.0,
        -100.0,
        10.0,
        -10.0,
        5.0,
        -5.0,
        -5.5,
        1e-30,
        -1e-30,
        0.0,
    ]
    x = np.resize(np.float32(numbers), (3, 9))
    found, plain = (pcp.plan(program, path=path).run(x) for path in (native_path(program), None))
    np.testing.assert_allclose(found, plain, rtol=2e-6, atol=1e-6)


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
    ],
)
def test_a_handler_refuses_what_it_is_not_for(
    handler: str, takes: list[tuple[int, ...]], makes: tuple[int, ...], words: str
) -> None:
    program = calling(handler, takes, [makes])
    with pytest.raises(ExecutionFailed) as raised:
        pcp.plan(program).run(*arguments_of(program))
    assert words in str(raised.value)


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
