"""Cosines and sines of the same angles: a processor computes them once, whoever wrote the program, and to the same bits."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp import nn
from pcp.backends.angles_kept import with_angles_kept
from pcp.backends.forms import for_xla
from pcp.ir.tree import flatten

pytestmark = pytest.mark.cpu
RNG = np.random.default_rng()
SHAPE = (2, 128, 4, 16)


def rotated(x: Any, weights: Any) -> Any:
    """Queries and keys of two layers, turned."""
    for each in weights:
        x = nn.rotary(x * each) + nn.rotary(x, interleaved=True)
    return (x * x).sum()


def rotated_by_jax(x: Any, weights: Any) -> Any:
    """As models of transformers do: tables of all features, once for all layers."""
    angles = jnp.arange(SHAPE[1])[:, None] * 10000.0 ** (-jnp.arange(8) / 8)
    table = jnp.concatenate([angles, angles], -1)
    cosine, sine = jnp.cos(table)[None, :, None], jnp.sin(table)[None, :, None]
    for each in weights:
        y = x * each
        half = jnp.concatenate([-y[..., 8:], y[..., :8]], -1)
        x = y * cosine + half * sine
    return (x * x).sum()


def scanned(x: Any, weights: Any) -> Any:
    """A loop over layers, in which the angles are computed."""
    return pcp.scan(lambda x, each: (nn.rotary(x * each), ()), x, weights)[0].sum()


def gradient(function: Any) -> tuple[pcp.Program, tuple[Any, Any]]:
    given = RNG.normal(size=SHAPE).astype("f4"), RNG.normal(size=2).astype("f4")
    if function is rotated_by_jax:
        return pcp.from_jax(jax.value_and_grad(function, argnums=(0, 1)), *given), given
    return pcp.value_and_grad(pcp.trace(function, *given), wrt=(0, 1)), given


@pytest.mark.parametrize("function", [rotated, rotated_by_jax, scanned])
def test_what_reads_them_does_not_compute_them_and_sees_the_same_bits(
    function: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, given = gradient(function)
    plan = pcp.plan(program, "cpu:0", cache=False)
    text = plan._executable._loaded.hlo_modules()[0].to_string()
    size = "128,4," if function is not rotated_by_jax else "2,128,4,"
    computing = [part for part in text.split("\n\n") if re.search(r" (co)?sine\(", part)]
    assert computing
    assert not [part for part in computing if size in part]
    monkeypatch.setattr(for_xla, "with_angles_kept", lambda program: program)
    plain = pcp.plan(program, "cpu:0", cache=False)
    assert plain._executable._loaded.hlo_modules()[0].to_string() != text
    for one, other in zip(flatten(plan.run(*given))[0], flatten(plain.run(*given))[0], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-4)


def test_turned_numbers_have_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    x = RNG.normal(size=SHAPE).astype("f4")
    program = pcp.trace(nn.rotary, x)
    found = np.asarray(pcp.plan(program, "cpu:0", cache=False).run(x))
    monkeypatch.setattr(for_xla, "with_angles_kept", lambda program: program)
    np.testing.assert_array_equal(found, pcp.plan(program, "cpu:0", cache=False).run(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: pcp.cos(x) + pcp.sin(x),
        lambda x: pcp.cos(x)[:, None] * pcp.ones((64, 5, 64)),
        lambda x: pcp.cos(x)[:, None] * pcp.ones((64, 5, 64)) + pcp.sin(x + 1)[:, None],
        lambda x: pcp.cos(x[0, :9]) * pcp.ones((64, 9)) + pcp.sin(x[0, :9]),
        lambda x: pcp.tanh(x)[:, None] * pcp.ones((64, 5, 64)),
    ],
)
def test_other_programs_are_left_as_they_are(function: Any) -> None:
    """Read once; without a sine; of other angles; few; without a cosine."""
    program = pcp.trace(function, pcp.spec((64, 64), "f32"))
    assert with_angles_kept(program) is program


def test_a_sine_before_what_reads_the_cosine_and_one_behind_it() -> None:
    x, y = RNG.normal(size=(64, 64)).astype("f4"), RNG.normal(size=(64, 9, 64)).astype("f4")

    def late(x: Any, y: Any) -> Any:
        first = y * pcp.cos(x)[:, None]
        return first, y * pcp.sin(x)[:, None]

    program = pcp.trace(late, x, y)
    assert with_angles_kept(program) is not program
    found = pcp.plan(program, "cpu:0", cache=False).run(x, y)
    for one, other in zip(found, (y * np.cos(x)[:, None], y * np.sin(x)[:, None]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
