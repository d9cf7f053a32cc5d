"""A cap of scores, as people write it, is an attribute of attention; another tanh is left alone."""

import math
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp import Program, Tensor, nn
from pcp.kernels import kernel_named, replaced, sites_of
from pcp.rewrite.raising import raised
from tests.execution import run

CAP, LENGTH, SCALE = 3.0, 9, 0.5
SPECS = [pcp.spec((2, LENGTH, 3, 4), "f32")] * 3


def causal(scores: Tensor, fill: float = -1e30) -> Tensor:
    i, j = (pcp.iota((LENGTH, LENGTH), axis) for axis in (0, 1))
    return pcp.where(j <= i, scores, fill)


def attention(between: Any, *given: Any) -> Any:
    """Attention, with what is between the first product and the softmax."""
    q, k, v, *more = given
    scores = between(pcp.einsum("bqhd,bkhd->bhqk", q, k), *more)
    return pcp.einsum("bhqk,bkhd->bqhd", pcp.softmax(scores, -1), v)


FORMS: dict[str, Any] = {
    "divided": lambda s: causal(CAP * pcp.tanh(s * SCALE / CAP)),
    "multiplied": lambda s: causal(pcp.tanh((SCALE / CAP) * s) * CAP),
    "one after the other": lambda s: causal(pcp.tanh(s / 2.0 / CAP) * CAP, -math.inf),
    "both turned": lambda s: causal(-CAP * pcp.tanh(s * (-SCALE / CAP))),
    "in two factors": lambda s: causal(2.0 * (pcp.tanh(s * (SCALE / CAP)) * (CAP / 2.0))),
}


def said(program: Program) -> dict[str, str]:
    """The attributes of its one attention; empty if there is none."""
    lines = [line for line in program.text.splitlines() if '"pcp.attention"' in line]
    return dict(re.findall(r"(\w+) = ([^,:}]*)", lines[0])) if lines else {}


def exact(q: Any, k: Any, v: Any) -> Any:
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    scores = CAP * np.tanh(np.einsum("bqhd,bkhd->bhqk", q, k) * SCALE / CAP)
    scores = np.where(np.tril(np.ones((LENGTH, LENGTH), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhqk,bkhd->bqhd", weights / weights.sum(-1, keepdims=True), v)


@pytest.mark.parametrize("name", FORMS)
def test_a_cap_is_read_however_it_is_written(name: str) -> None:
    program = pcp.trace(lambda *x: attention(FORMS[name], *x), *SPECS)
    found = raised(program)
    known = said(found)
    assert float(known["cap"]) == pytest.approx(CAP)
    assert float(known["scale"]) == pytest.approx(SCALE)
    assert known["causal"] == "true"
    assert found.digest == program.digest
    arrays = [np.random.default_rng().normal(size=(2, LENGTH, 3, 4)).astype(np.float32) for _ in range(3)]
    (site,) = (site for site in sites_of(found, "cpu") if site.family == "attention")
    by_kernel = run(replaced(site.region, kernel_named("attention.whole")), *arrays)
    for result in (run(found, *arrays), np.reshape(by_kernel, (2, 3, LENGTH, 4)).swapaxes(1, 2)):
        np.testing.assert_allclose(result, exact(*arrays), rtol=1e-5, atol=1e-6)


def test_a_bias_is_added_to_capped_scores() -> None:
    program = pcp.trace(
        lambda *x: attention(lambda s, b: CAP * pcp.tanh(s * SCALE / CAP) + b, *x),
        *SPECS,
        pcp.spec((3, LENGTH, LENGTH), "f32"),
    )
    known = said(raised(program))
    assert float(known["cap"]) == pytest.approx(CAP)
    assert "bias" in known


def test_a_cap_as_it_is_written_in_jax() -> None:
    def capped(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * SCALE
        scores = jnp.tanh(scores / CAP) * CAP
        scores = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), scores, -2.3819763e38)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)

    known = said(raised(pcp.from_jax(capped, *[jax.ShapeDtypeStruct((2, LENGTH, 3, 4), jnp.float32)] * 3)))
    assert float(known["cap"]) == pytest.approx(CAP)
    assert float(known["scale"]) == pytest.approx(SCALE)


OTHERS: dict[str, Any] = {
    "hidden before": lambda s: CAP * pcp.tanh(causal(s, -1e5) / CAP),
    "added before": lambda s: CAP * pcp.tanh((s + pcp.iota((LENGTH,), 0).astype("f32")) / CAP),
    "twice": lambda s: pcp.tanh(CAP * pcp.tanh(s / CAP)),
    "another function": lambda s: CAP * pcp.sin(s / CAP),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_computation_is_left_alone(name: str) -> None:
    program = pcp.trace(lambda *x: attention(OTHERS[name], *x), *SPECS)
    found = raised(program)
    assert not said(found)
    arrays = [np.random.default_rng().normal(size=(2, LENGTH, 3, 4)).astype(np.float32) for _ in range(3)]
    np.testing.assert_array_equal(run(found, *arrays), run(program, *arrays))


def test_the_mask_of_a_named_attention_is_read_beside_a_cap_and_not_beside_lengths() -> None:
    def masked(q: Any, k: Any, v: Any, **more: Any) -> Any:
        i, j = (pcp.iota((LENGTH, LENGTH), axis) for axis in (0, 1))
        return nn.scaled_dot_product_attention(q, k, v, causal=True, mask=i - j < 2, cap=CAP, **more)

    known = said(raised(pcp.trace(masked, *SPECS)))
    assert known["window"].split()[0] == "2"
    assert float(known["cap"]) == pytest.approx(CAP)
    padded = pcp.trace(lambda q, k, v, n: masked(q, k, v, key_lengths=n), *SPECS, pcp.spec((2,), "i32"))
    found = raised(padded)
    assert {"mask", "key_lengths"} <= said(found).keys()
    assert found.digest == padded.digest
