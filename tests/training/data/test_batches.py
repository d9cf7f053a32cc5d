"""The order of the data, and windows over the validation part."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcp.training.data.batches import Batches, InvalidBatches, TinyCorpus
from pcp.training.data.token_file import write_token_file
from pcp.training.data.token_range import TokenOutOfRange
from pcp.training.data.validation import mean_loss, validation_windows

TOKENS = np.random.default_rng(2).integers(0, 65, 5000).astype(np.uint16)


def test_batches_are_windows_of_the_tokens() -> None:
    inputs, targets = Batches(TOKENS, 12, 64, seed=7).batch(3)
    assert inputs.dtype == targets.dtype == np.int32
    assert inputs.shape == targets.shape == (12, 64)
    assert inputs.flags.c_contiguous
    assert targets.flags.c_contiguous
    windows = {tuple(TOKENS[start : start + 65].tolist()) for start in range(len(TOKENS) - 64)}
    for row, following in zip(inputs, targets, strict=True):
        assert (*row.tolist(), following[-1]) in windows
        assert row[1:].tolist() == following[:-1].tolist()


def test_a_batch_depends_on_seed_and_index_alone() -> None:
    one, other = Batches(TOKENS, 4, 16, seed=7), Batches(TOKENS, 4, 16, seed=7)
    forward = [one.batch(index)[0] for index in range(5)]
    backward = [other.batch(index)[0] for index in reversed(range(5))][::-1]
    np.testing.assert_array_equal(forward, backward)
    assert (forward[0] != forward[1]).any()
    assert (forward[0] != Batches(TOKENS, 4, 16, seed=8).batch(0)[0]).any()


def test_the_order_does_not_change_between_versions() -> None:
    count = np.arange(1_000_000, dtype=np.uint32)
    assert Batches(count, 4, 8, seed=1234).batch(5)[0][:, 0].tolist() == EXPECTED_STARTS
    assert Batches(count, 1, 8, seed=(1 << 64) - 1).batch((1 << 64) - 1)[0].shape == (1, 8)


EXPECTED_STARTS = [765455, 776078, 823249, 411733]


def test_starts_reach_every_place_equally() -> None:
    batches = Batches(np.arange(12, dtype=np.uint16), 5, 2, seed=0)
    starts = np.concatenate([batches.batch(index)[0][:, 0] for index in range(2000)])
    counts = np.bincount(starts, minlength=10)
    assert len(counts) == 10
    assert (abs(counts - 1000) < 5 * math.sqrt(1000)).all()


def test_a_mapped_file_gives_the_same_batches(tmp_path: Path) -> None:
    file = write_token_file(tmp_path / "data.tokens", TOKENS, 65)
    np.testing.assert_array_equal(
        Batches(file.training, 3, 9, 5).batch(2), Batches(TOKENS[:4500], 3, 9, 5).batch(2)
    )


def test_a_corpus_too_small_for_one_batch() -> None:
    Batches(TOKENS[:129], 8, 16, seed=0)
    with pytest.raises(TinyCorpus, match="has 128 tokens; batch 8 x context 16 needs at least 129"):
        Batches(TOKENS[:128], 8, 16, seed=0)


@pytest.mark.parametrize(("batch", "context"), [(0, 4), (4, 0), (-1, 4)])
def test_impossible_batches(batch: int, context: int) -> None:
    message = f"Batches of {batch} sequences of {context} positions were asked for; both must be >= 1"
    with pytest.raises(InvalidBatches, match=message):
        Batches(TOKENS, batch, context, seed=0)
    with pytest.raises(InvalidBatches, match=message):
        validation_windows(TOKENS, context, batch)


@pytest.mark.parametrize("number", [-1, 1 << 64])
def test_seed_and_index_out_of_range(number: int) -> None:
    with pytest.raises(InvalidBatches, match=f"seed of the data order is {number}; expected 0 <= seed"):
        Batches(TOKENS, 1, 4, seed=number)
    with pytest.raises(InvalidBatches, match=f"Batch {number} was asked for; expected 0 <= index"):
        Batches(TOKENS, 1, 4, seed=0).batch(number)


def test_tokens_beyond_the_vocabulary_are_caught_where_they_enter() -> None:
    with pytest.raises(TokenOutOfRange, match=r"Token 64 at position \d+ of batch 0 is outside"):
        Batches(np.full(100, 64, np.uint16), 2, 4, seed=0, vocabulary_size=64).batch(0)


@given(st.integers(2, 400), st.integers(1, 40), st.integers(1, 9))
def test_validation_covers_everything_once(size: int, context: int, batch: int) -> None:
    tokens = np.arange(size, dtype=np.uint16)
    if size <= context:
        with pytest.raises(
            TinyCorpus, match=f"validation part has {size} tokens; one window of context {context}"
        ):
            validation_windows(tokens, context, batch)
        return
    chunks = list(validation_windows(tokens, context, batch))
    inputs = np.concatenate([chunk.inputs[: chunk.windows] for chunk in chunks])
    targets = np.concatenate([chunk.targets[: chunk.windows] for chunk in chunks])
    count = (size - 1) // context
    assert inputs.reshape(-1).tolist() == list(range(count * context))
    np.testing.assert_array_equal(targets, inputs + 1)
    for chunk in chunks:
        assert chunk.inputs.shape == chunk.targets.shape == (batch, context)
        assert chunk.inputs.dtype == chunk.targets.dtype == np.int32
    assert [chunk.windows for chunk in chunks[:-1]] == [batch] * (len(chunks) - 1)


@pytest.mark.parametrize("batch", [1, 3, 7, 50])
def test_the_mean_loss_is_exact_for_every_chunk_size(batch: int) -> None:
    tokens = TOKENS[:1000]
    exact = np.mean([float(tokens[16 * row : 16 * row + 16].astype(float).sum() ** 2) for row in range(62)])
    padded = []
    for chunk in validation_windows(tokens, 16, batch):
        losses = chunk.inputs.astype(float).sum(axis=1) ** 2
        losses[chunk.windows :] = np.nan
        padded.append((chunk, losses))
    assert mean_loss(padded) == pytest.approx(exact, rel=1e-14)


def test_losses_that_are_not_one_a_row_are_refused() -> None:
    (chunk,) = validation_windows(TOKENS[:33], 16, 5)
    assert chunk.windows == 2
    np.testing.assert_array_equal(chunk.inputs[2:], chunk.inputs[[1, 1, 1]])
    with pytest.raises(InvalidBatches, match=r"Losses of shape \(\) were given for a chunk of 5 rows"):
        mean_loss([(chunk, 1.5)])
    with pytest.raises(InvalidBatches, match=r"Losses of shape \(2,\)"):
        mean_loss([(chunk, np.ones(2))])
    with pytest.raises(InvalidBatches, match="over no windows"):
        mean_loss([])
