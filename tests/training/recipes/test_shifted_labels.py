"""A loss that moves its labels by one token itself is given the tokens as labels; others, however alike, are left alone."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.execution import run
from tests.training.loss_files import save_arrays

import pcp
from pcp.training.recipes import shifted_labels
from pcp.training.recipes.loss_program import read_loss

VOCABULARY, BATCH, CONTEXT = 11, 2, 6
TABLE = np.random.default_rng(0).normal(size=(VOCABULARY, VOCABULARY)).astype(np.float32)


def cross_entropy(logits: Any, labels: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1).mean()


def plain(table: Any, x: Any, y: Any) -> Any:
    return cross_entropy(table[x], y)


def moving(table: Any, x: Any, y: Any) -> Any:
    return cross_entropy(table[x][:, :-1], y[:, 1:])


def moving_by_padding(table: Any, x: Any, y: Any) -> Any:
    moved = jnp.pad(y, ((0, 0), (0, 1)), constant_values=-100)[:, 1:].reshape(-1)
    rows = jax.nn.log_softmax(table[x]).reshape(-1, VOCABULARY)
    picked = jnp.take_along_axis(rows, jnp.maximum(moved, 0)[:, None], -1)[:, 0]
    return -jnp.where(moved >= 0, picked, 0).sum() / (moved >= 0).sum()


def leaving_out_the_first(table: Any, x: Any, y: Any) -> Any:
    return cross_entropy(table[x][:, 1:], y[:, 1:])


def given_the_labels_first(table: Any, x: Any, y: Any) -> Any:
    return cross_entropy(table[jnp.concatenate([x[:, :1], y[:, :-1]], 1)], y)


LOSSES: list[tuple[Callable[..., Any], bool]] = [
    (plain, False),
    (moving, True),
    (moving_by_padding, True),
    (leaving_out_the_first, False),
    (given_the_labels_first, False),
]


@pytest.mark.parametrize(("loss", "moves"), LOSSES)
def test_a_loss_learns_the_next_token(
    loss: Any, moves: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shifted_labels._known.clear()
    tokens = pcp.spec((BATCH, CONTEXT), "i32")
    pcp.from_jax(loss, TABLE, tokens, tokens).save(tmp_path / "loss.pcp")
    weights = save_arrays(tmp_path / "weights.safetensors", {"table": TABLE})
    with caplog.at_level(logging.WARNING):
        found = read_loss(tmp_path / "loss.pcp", weights, tokens=True)
    assert ("moves its labels by one token itself" in caplog.text) is moves
    text = np.random.default_rng(1).integers(0, VOCABULARY, (BATCH, CONTEXT + 1)).astype(np.int32)
    x, y = text[:, :-1], text[:, 1:]  # a batch, as it is cut from a text
    expected = plain(TABLE, x[:, :-1], x[:, 1:]) if moves else loss(TABLE, x, y)
    np.testing.assert_allclose(run(found.program, found.parameters, x, y), expected, rtol=1e-5)


def test_samples_are_labelled_by_whoever_gives_them(tmp_path: Path) -> None:
    tokens = pcp.spec((BATCH, CONTEXT), "i32")
    pcp.from_jax(moving, TABLE, tokens, tokens).save(tmp_path / "loss.pcp")
    weights = save_arrays(tmp_path / "weights.safetensors", {"table": TABLE})
    found = read_loss(tmp_path / "loss.pcp", weights)
    x, y = np.random.default_rng(2).integers(0, VOCABULARY, (2, BATCH, CONTEXT)).astype(np.int32)
    np.testing.assert_allclose(run(found.program, found.parameters, x, y), moving(TABLE, x, y), rtol=1e-5)
