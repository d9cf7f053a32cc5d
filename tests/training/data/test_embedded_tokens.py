"""The vocabulary that a program shows, in what PCP traces and in what JAX lowers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp.ir import Program
from pcp.models import decoder
from pcp.models.published import gpt2_config
from pcp.training.data.embedded_tokens import embedded_rows

IDS = pcp.spec((2, 8), "i32")


def test_a_gpt2() -> None:
    config = gpt2_config(layers=1, heads=2, width=8, context=8, vocabulary=23)
    start = decoder.initial_parameters(config)
    traced = pcp.trace(lambda p, a, b: decoder.loss(p, a, b, config), start, IDS, IDS)
    assert embedded_rows(traced, len(traced.arguments) - 2) == 23


@pytest.mark.parametrize("mode", [None, "clip", "fill"])
def test_what_jax_indexes(mode: Any) -> None:
    def loss(table: jax.Array, tokens: jax.Array, targets: jax.Array) -> jax.Array:
        return jnp.sum(jnp.take(table.astype(jnp.bfloat16), tokens, axis=0, mode=mode)) + targets.sum()

    shapes = [jax.ShapeDtypeStruct((29, 4), jnp.float32), *[jax.ShapeDtypeStruct((2, 8), jnp.int32)] * 2]
    assert embedded_rows(Program.parse(jax.jit(loss).lower(*shapes).as_text()), 1) == 29


def test_a_program_without_a_lookup() -> None:
    program = pcp.trace(lambda w, a, b: pcp.sum(w[a[0, 0] * 0] * b), np.ones(4, "f4"), IDS, IDS)
    assert embedded_rows(program, 1) is None
