"""Activations are named however they are written, before they are differentiated and after; nothing else is."""

import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import erf, erfc
from jax.scipy.stats import norm

import pcp
from pcp import Program, nn
from pcp.ir.composites.records import ACTIVATION
from pcp.kernels import features, sites_of
from pcp.planning.paths.preparation import prepared
from pcp.rewrite.raising import raised
from tests.execution import run

ROOT, HALF = math.sqrt(2 / math.pi), math.sqrt(0.5)
Form = Callable[[Any], Any]
FORMS: dict[str, tuple[Form, ...]] = {
    "tanh_gelu": (
        jax.nn.gelu,
        lambda x: 0.5 * x * (1.0 + jnp.tanh(ROOT * (x + 0.044715 * jnp.power(x, 3.0)))),
        lambda x: 0.5 * x * (1.0 + jnp.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x))),
        lambda x: x * (jnp.tanh(ROOT * x * (1 + 0.044715 * x**2)) + 1) / 2,
        lambda x: x * jax.nn.sigmoid(2 * ROOT * (x + 0.044715 * x * x * x)),
    ),
    "exact_gelu": (
        lambda x: jax.nn.gelu(x, approximate=False),
        lambda x: x * 0.5 * (1.0 + erf(x / math.sqrt(2))),
        lambda x: 0.5 * x * erfc(-x / math.sqrt(2)),
        lambda x: (x + x * erf(x * HALF)) * 0.5,
        lambda x: x * (1 - 0.5 * erfc(HALF * x)),
        lambda x: x * norm.cdf(x),
    ),
    "silu": (
        jax.nn.silu,
        lambda x: x / (1.0 + jnp.exp(-x)),
        lambda x: x * 0.5 * (1 + jnp.tanh(0.5 * x)),
        lambda x: x * (1 / (jnp.exp(-x) + 1)),
    ),
    "quick_gelu": (lambda x: x * jax.nn.sigmoid(1.702 * x), lambda x: x / (1 + jnp.exp(x * -1.702))),
    "squared_relu": (
        lambda x: jnp.square(jax.nn.relu(x)),
        lambda x: jax.nn.relu(x) * x,
        lambda x: jnp.maximum(x, 0) ** 2,
        lambda x: jnp.where(x > 0, x, 0) ** 2,
    ),
}
EVERY = [form for forms in FORMS.values() for form in forms]
EXPECTED = {name: len(forms) for name, forms in FORMS.items()}
X, Y = (2, 16, 128), (2, 16, 128)


def named_in(program: Program, name: str = ACTIVATION.name) -> Counter[str]:
    """The functions of the composites of a name, but for those inside of others."""
    main = program.text.partition("func.func private")[0]
    found = re.findall(r'composite "([^"]*)".*?composite_attributes = {[^}]*function = "(\w+)"', main)
    return Counter(function for each, function in found if each == name)


def every(*arrays: Any) -> Any:
    """Each form, of a number times an array: what is halved in one is not shared with another."""
    half = len(arrays) // 2
    return sum((form(x) * g).sum() for form, x, g in zip(EVERY, arrays[:half], arrays[half:], strict=True))


def of_arrays(function: Any, count: int = 2 * len(EVERY), dtype: Any = jnp.float32) -> Program:
    return pcp.from_jax(function, *[jax.ShapeDtypeStruct((3, 4), dtype)] * count)


def test_every_form_is_named_and_so_is_every_gradient() -> None:
    wrt = tuple(range(len(EVERY)))
    program = of_arrays(every)
    assert named_in(raised(program)) == EXPECTED
    first = pcp.value_and_grad(raised(program), wrt=wrt)
    assert named_in(first) == named_in(first, ACTIVATION.gradient_name) == EXPECTED
    for after in (
        pcp.value_and_grad(program, wrt=wrt),
        of_arrays(jax.value_and_grad(every, argnums=wrt)),
    ):
        found = prepared(after)
        assert named_in(found) == named_in(found, ACTIVATION.gradient_name) == EXPECTED
        assert raised(found).digest == found.digest


def test_no_bit_changes() -> None:
    wrt = tuple(range(len(EVERY)))
    program = pcp.value_and_grad(of_arrays(every), wrt=wrt)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(0, 3, (3, 4)).astype(np.float32) for _ in program.arguments]
    assert raised(program).digest == program.digest
    for one, other in zip(run(program, *arrays), run(raised(program), *arrays), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: 0.5 * x * (1 + pcp.tanh(0.8 * (x + 0.044715 * x**3))),
        lambda x: 0.5 * x * (2 + pcp.tanh(ROOT * (x + 0.044715 * x**3))),
        lambda x: 0.5 * (x + 1) * (1 + pcp.tanh(ROOT * (x + 0.044715 * x**3))),
        lambda x: 0.5 * x * (1 + pcp.erf(x)),
        lambda x: 0.5 * x * (1 - pcp.erf(x * HALF)),
        lambda x: x * pcp.sigmoid(1.7 * x),
        lambda x: x * pcp.sigmoid(x[:, ::-1]),
        lambda x: x * pcp.softmax(x),
        lambda x: nn.relu(x) * nn.relu(-x),
        lambda x: pcp.exp(x) * x,
        nn.relu,
        pcp.tanh,
        pcp.sigmoid,
    ],
)
def test_nothing_else_is_named(function: Any) -> None:
    assert not named_in(raised(pcp.trace(function, pcp.spec((3, 4), "f32"))))


def test_an_activation_inside_of_another_function_is_one() -> None:
    for function in (
        lambda x: pcp.maximum(nn.gelu(x), -0.1),
        lambda x: pcp.where(x > 3, 0, nn.gelu(x) * 2),
        lambda x: nn.gelu(x) * pcp.tanh(x),
    ):
        assert named_in(raised(pcp.trace(function, pcp.spec((3, 4), "f32")))) == {"tanh_gelu": 1}
    twice = raised(pcp.trace(lambda x: nn.gelu(nn.gelu(nn.silu(x))), pcp.spec((3, 4), "f32")))
    assert named_in(twice) == {"tanh_gelu": 2, "silu": 1}


def test_the_nearest_value_is_what_it_is_taken_of() -> None:
    program = raised(pcp.trace(lambda x: nn.silu(2 * pcp.tanh(x)) + 1, pcp.spec((3, 4), "f32")))
    assert named_in(program) == {"silu": 1}
    assert re.search(r"(%\d+) = stablehlo.multiply.*\n.*composite \S+ \1 ", program.text)


def test_half_precision_is_named_by_what_it_is_made_of() -> None:
    forms = [form for name in ("tanh_gelu", "exact_gelu", "silu") for form in FORMS[name][:2]]
    program = of_arrays(
        lambda *x: [f(each) for f, each in zip(forms, x, strict=True)], len(forms), jnp.bfloat16
    )
    assert named_in(raised(program)) == {"tanh_gelu": 2, "exact_gelu": 2, "silu": 2}


def test_a_derivative_of_ones_own_stays() -> None:
    @jax.custom_vjp
    def mine(x: Any) -> Any:
        return jax.nn.silu(x)

    mine.defvjp(lambda x: (mine(x), None), lambda _, g: (g,))
    program = of_arrays(lambda x: mine(x).sum(), 1)
    assert not named_in(raised(program))
    assert named_in(prepared(program)) == {"silu": 1}
    step = pcp.training_step(program, pcp.optimizers.sgd(1.0))
    state, _ = pcp.plan(step).run(step.initial_state(np.zeros((3, 4), np.float32)), ())
    np.testing.assert_array_equal(state["params"], -np.ones((3, 4), np.float32))


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_a_training_step_has_the_sites(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if platform == "cuda":
        monkeypatch.setattr(features, "_found", lambda _: frozenset({"cuda", "sm_80", "sm_90"}))

    def loss(p: Any, x: Any) -> Any:
        h = x
        for form in EVERY:  # one layer of each
            h = h + form(h @ p["w"] + p["b"]) @ p["w"]
        for form in EVERY:
            h = h + (form(h @ p["w"]) * (h @ p["v"])) @ p["w"]
        return (h**2).mean()

    shapes = {"w": (128, 128), "v": (128, 128), "b": (128,)}
    arrays = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    program = pcp.from_jax(loss, arrays, jax.ShapeDtypeStruct((4, 128), jnp.float32))
    step = prepared(pcp.training_step(program, pcp.optimizers.sgd(0.1)))
    found = Counter(
        site.family
        for site in sites_of(step, platform, builds=False)
        if any(each in site.kernels for each in (f"{site.family}.native", f"{site.family}.triton"))
    )
    for family in ("gelu", "gelu_gradient"):
        assert found[family] == 2 * len(EVERY)
    for family in ("gated_silu", "gated_silu_gradient"):
        assert found[family] >= len(EVERY)


def test_what_hides_between_two_points_is_seen() -> None:
    def hidden(x: pcp.Tensor) -> pcp.Tensor:
        return pcp.where(x > 0.111, pcp.where(x < 0.1111, 5.0, x * pcp.sigmoid(x)), x * pcp.sigmoid(x))

    def a_part(x: pcp.Tensor) -> pcp.Tensor:
        return 2 * (x > 0.1).astype("f32") * x * pcp.sigmoid(x)

    for function in (hidden, a_part):
        program = pcp.trace(function, pcp.spec((8,), "f32"))
        x = np.array([-1, -0.1, 0.05, 0.11105, 0.2, 1, 2, 3], np.float32)
        kept = prepared(program, 0.1)
        np.testing.assert_allclose(run(kept, x), run(program, x), rtol=1e-6)
        main = kept.text[kept.text.index("@main") :].partition("\n  }")[0]
        assert "compare" in main


def test_truths_that_are_compared_have_no_sign_and_are_no_activation() -> None:
    """As in masks of DETR, whose comparison with False stands beside what is hidden."""
    program = pcp.from_jax(
        lambda x: jnp.where(jnp.equal(x > 0, False), x * x, jnp.exp(x)), pcp.spec(X, "f32")
    )
    assert raised(program).text.count(ACTIVATION.name) == 0
