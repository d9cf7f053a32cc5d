"""Batch normalisation as programs write it is one site, and its native kernels are exact however large the mean is."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp import kernels, nn
from pcp.backends import ExecutionFailed
from pcp.kernels.features import masked
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared, without_unknown_composites
from pcp.rewrite.raising import raised
from pcp.tracing import call
from tests.execution import exactly
from tests.kernels.native.programs import arguments_of, calling, native_path
from tests.kernels.rows import batch_norm

RNG = np.random.default_rng()


def of_jax(x: Any, scale: Any, bias: Any) -> Any:
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + bias


def of_flax(x: Any, scale: Any, bias: Any) -> Any:
    mean = x.mean((0, 1, 2))
    variance = jnp.maximum(0.0, (x * x).mean((0, 1, 2)) - mean * mean)
    return (x - mean) * (jax.lax.rsqrt(variance + 1e-5) * scale) + bias


def with_statistics(x: Any, scale: Any, bias: Any) -> Any:
    """With those that go into running averages."""
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + bias, mean, variance


@jax.custom_jvp
def relu(x: Any) -> Any:
    """A function of the same name as JAX's, with another derivative."""
    return jnp.maximum(x, 0)


relu.defjvps(lambda tangent, _, x: jnp.where(x > 0, tangent, 0.1 * tangent))


def imported(function: Any, *shape: int) -> pcp.Program:
    given = [np.zeros(shape, "f4"), np.zeros(shape[-1], "f4"), np.zeros(shape[-1], "f4")]
    return raised(without_unknown_composites(pcp.from_jax(function, *given)))


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (of_jax, [""]),
        (of_flax, [""]),
        (lambda *x: jax.nn.relu(of_jax(*x)), ["above 0"]),
        (lambda *x: jax.nn.relu(of_flax(*x)), ["above 0"]),
        (lambda *x: relu(of_jax(*x)), [""]),
        (lambda *x: jnp.maximum(of_jax(*x), 0), [""]),  # half of a cotangent passes at 0
        (lambda *x: jax.nn.relu((y := of_jax(*x)) + y * 0), [""]),
        (lambda x, s, b: (of_jax(x, s, b), x.var((0, 1, 2))), [""]),
        (lambda x, s, b: of_jax(x, s, b) + jnp.ones(x.shape) * s.sum(), [""]),
        (lambda x, s, b: of_jax(x.mean(0, keepdims=True), s, b), [""]),
        (lambda x, s, b: of_jax(x * jnp.ones((4, 3, 5, 1)), s, b), [""]),
        (lambda x, s, b: (x - x.mean((0, 1))) * jax.lax.rsqrt(x.var((0, 1)) + 1e-5) * s + b, []),
        (lambda x, s, b: (x - x.mean((0, 1, 2))) * jax.lax.rsqrt(x.var((0, 1, 2), ddof=1) + 1e-5) * s + b, []),
        (lambda x, s, b: with_statistics(x, s, b), [""]),
        (lambda x, s, b: ((y := of_jax(x, s, b)), jax.nn.relu(y)), [""]),
        (lambda x, s, b: (y := x - x.mean((0, 1, 2)), y * jax.lax.rsqrt(x.var((0, 1, 2)) + 1e-5) * s + b), []),
    ],
)  # fmt: skip
def test_programs_of_jax_are_recognised(function: Any, found: list[str]) -> None:
    main, _, _ = imported(function, 4, 3, 5, 6).text.partition("func.func private")
    assert re.findall(r'pcp.batch_norm" .*relu = "([^"]*)"', main) == found


def both(function: Any, *shape: int) -> pcp.Program:
    """The result, and the gradients of x, scale and bias by a cotangent."""
    vector = pcp.spec(shape[-1:], "f32")
    loss = pcp.trace(
        lambda x, s, b, g: (function(x, s, b) * g).sum(),
        *(pcp.spec(shape, "f32"), vector, vector, pcp.spec(shape, "f32")),
    )
    return pcp.value_and_grad(raised(loss), wrt=(0, 1, 2))


def flat(found: Any) -> list[Any]:
    return [np.asarray(each, np.float64) for each in jax.tree.leaves(found)]


def errors(program: pcp.Program, path: Path, given: list[Any]) -> list[float]:
    """Of two calls, whose results have the same bits."""
    plan = pcp.plan(program, path=path, cache=False)
    exact, found = flat(exactly(program, *given)), flat(plan.run(*given))
    for a, b in zip(flat(plan.run(*given)), found, strict=True):
        np.testing.assert_array_equal(a, b)
    return [
        float(np.linalg.norm(a - b) / max(1.0, np.linalg.norm(b))) for a, b in zip(found, exact, strict=True)
    ]


def rectified(x: Any, scale: Any, bias: Any) -> Any:
    return nn.relu(batch_norm(x, scale, bias))


# One block, several parts of several blocks, whole vectors and rests, more features than rows.
SHAPES = [(2, 1), (5, 16), (3, 7, 33), (70, 31, 48), (9, 2, 3000), (1100, 257), (20000, 3)]


@pytest.mark.parametrize("function", [batch_norm, rectified])
@pytest.mark.parametrize("shape", SHAPES)
def test_kernels_are_exact_at_any_size(shape: tuple[int, ...], function: Any) -> None:
    program = both(function, *shape)
    path = native_path(program)
    assert sorted(choice.kernel for choice in path.choices.values()) == [
        "batch_normalisation.native",
        "batch_normalisation_gradient.native",
    ]
    assert max(errors(program, path, arguments_of(program))) < 1e-5


@pytest.mark.parametrize("hidden", [("avx512f",), ("avx512f", "avx2")])
def test_kernels_are_exact_on_lesser_processors(hidden: tuple[str, ...]) -> None:
    program = both(rectified, 30, 5, 37)
    with masked(*hidden):
        assert max(errors(program, native_path(program), arguments_of(program))) < 1e-5


def test_a_mean_far_from_zero_costs_no_more_than_its_own_rounding() -> None:
    """A mean of 1,000 and a deviation of 1, and columns of which some rows are 0: E[x^2] - E[x]^2 has no digit left there."""
    program = pcp.trace(batch_norm, *[pcp.spec(shape, "f32") for shape in ((3000, 40), (40,), (40,))])
    x, scale, bias = arguments_of(program)
    x[:, :20] += 1000
    x[:2, 20:], x[2:, 20:] = 0, x[2:, 20:] + 1000
    exact = exactly(program, x, scale, bias)
    found = np.asarray(pcp.plan(program, path=native_path(program), cache=False).run(x, scale, bias))
    off = np.linalg.norm(found - exact, axis=0) / np.linalg.norm(exact, axis=0)
    assert off.max() < 1e-4


def test_the_forward_kernel_hands_its_statistics_to_its_gradient() -> None:
    program = both(rectified, 40, 33)
    sites = {site.family: site for site in kernels.sites_of(prepared(program), "cpu")}
    gradient = {sites["batch_normalisation_gradient"].key: "batch_normalisation_gradient.native"}
    forward = {sites["batch_normalisation"].key: "batch_normalisation.native"}
    for chosen, operands in ((gradient, 4), (gradient | forward, 6)):
        path = Path.of(program, {key: kernels.kernel_named(name) for key, name in chosen.items()})
        calls = re.findall(r'batch_norm_gradient@\w+"?\(([^)]*)\)', str(path.applied(program).module()))
        assert [len(each.split(",")) for each in calls] == [operands]
        assert max(errors(program, path, arguments_of(program))) < 1e-5


@pytest.mark.parametrize("is_of_jax", [False, True])
def test_cotangents_pass_a_relu_where_the_program_says_so(is_of_jax: bool) -> None:
    """At 0 itself, where all of a column is, with scales and biases of 0, and where there is no number."""
    shape = (4, 3, 5, 18)
    written = imported(lambda *x: jax.nn.relu(of_jax(*x)), *shape)
    program = both((lambda *given: call(written, *given)) if is_of_jax else rectified, *shape)
    assert f'relu = "{"above 0" if is_of_jax else "not at or below 0"}"' in prepared(program).text
    x, scale, bias, g = arguments_of(program)
    scale[:6] = bias[:4] = 0
    x[1, 1, 1, 10], x[2, 1, 1, 11], x[0, 0, 0, 12] = np.nan, np.inf, -np.inf
    g[0, 0, 1, 13], g[0, 2, 1, 14] = np.nan, np.inf
    plain = flat(pcp.plan(program, cache=False).run(x, scale, bias, g))[1:]
    found = flat(pcp.plan(program, path=native_path(program), cache=False).run(x, scale, bias, g))[1:]
    for mine, theirs in zip(found, plain, strict=True):
        np.testing.assert_array_equal(np.isfinite(mine), np.isfinite(theirs))
        finite = np.isfinite(theirs)
        np.testing.assert_allclose(mine[finite], theirs[finite], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("dtype", "count"), [("f64", 0), ("bf16", 1)])
def test_float64_keeps_the_plain_form_and_bfloat16_and_other_axes_do_not(dtype: str, count: int) -> None:
    specs = [pcp.spec(each, dtype) for each in ((6, 4), (4,), (4,))]
    assert len(kernels.sites_of(prepared(pcp.trace(batch_norm, *specs)), "cpu")) == count

    def channels_first(x: Any, scale: Any, bias: Any) -> Any:
        return batch_norm(x.T, scale, bias).T

    found = prepared(pcp.trace(channels_first, pcp.spec((4, 6), "f32"), *[pcp.spec((4,), "f32")] * 2))
    assert "batch_normalisation" in {site.family for site in kernels.sites_of(found, "cpu")}


@pytest.mark.parametrize(
    ("handler", "takes", "makes", "attributes", "words"),
    [
        ("batch_norm", [(6,), (6,), (6,)], [(6,), (6,), (6,)], {}, "x has shape [6]; expected [rows,width]"),
        ("batch_norm", [(2, 6), (5,), (6,)], [(2, 6), (6,), (6,)], {}, "scale and bias have shapes [5] and [6]; expected [6]"),
        ("batch_norm", [(2, 6), (6,), (6,)], [(2, 5), (6,), (6,)], {}, "the result has shape [2,5]; expected that of x"),
        ("batch_norm", [(2, 6), (6,), (6,)], [(2, 6), (2,), (6,)], {}, "deviations have shapes [2] and [6]; expected [6]"),
        ("batch_norm", [(2, 6), (6,), (6,)], [(2, 6), (6,), (6,)], {"epsilon": -1.0}, "epsilon is no number from 0 on"),
        ("batch_norm", [(2, 6), (6,), (6,)], [(2, 6), (6,), (6,)], {"relu": 3}, "relu is 3; expected 0, 1 or 2"),
        ("batch_norm", [(0, 6), (6,), (6,)], [(0, 6), (6,), (6,)], {}, "x has no elements"),
        ("batch_norm_gradient", [(2, 6), (6,), (6,), (1, 6)], [(2, 6), (6,), (6,)], {}, "the cotangent has shape [1,6]"),
        ("batch_norm_gradient", [(2, 6), (6,), (6,), (2, 6)], [(2, 6), (6,), (5,)], {}, "bias have shapes [6] and [5]"),
        ("batch_norm_gradient", [(2, 6), (6,), (6,), (2, 6), (6,)], [(2, 6), (6,), (6,)], {}, "come 1 arrays"),
        ("batch_norm_gradient", [(2, 6), (6,), (6,), (2, 6), (6,), (2,)], [(2, 6), (6,), (6,)], {}, "not float32 of shape [6]"),
        ("batch_norm_gradient", [(0, 6), (6,), (6,), (0, 6)], [(0, 6), (6,), (6,)], {}, "x has no elements"),
    ],
)  # fmt: skip
def test_handlers_refuse_what_they_are_not_for(
    handler: str,
    takes: list[tuple[int, ...]],
    makes: list[tuple[int, ...]],
    attributes: dict[str, Any],
    words: str,
) -> None:
    program = calling(handler, takes, makes, **({"epsilon": 1e-5, "relu": 0} | attributes))
    with pytest.raises(ExecutionFailed) as raised_error:
        pcp.plan(program).run(*arguments_of(program))
    assert words in str(raised_error.value)
