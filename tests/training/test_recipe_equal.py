"""Recipes: equal settings give equal programs, parameters and batches."""

import random
from pathlib import Path

import numpy as np
import pytest
from tests.training.tiny_run import Prepared, assert_equal
from tests.training.tiny_run import prepared as prepared

from pcp.training.config import InvalidTrainingConfig
from pcp.training.recipe import prepare


def test_equal_settings_give_equal_programs_parameters_and_batches(prepared: Prepared) -> None:
    (one, _), (two, _), (other, _) = prepared("one"), prepared("two"), prepared("other", seed=12)
    assert one.step.digest == two.step.digest
    assert one.evaluation.digest == two.evaluation.digest
    assert_equal(one.parameters, two.parameters)
    assert_equal(one.batches.batch(3), two.batches.batch(3))
    assert other.step.digest == one.step.digest
    assert not np.array_equal(other.parameters["wte"], one.parameters["wte"])
    assert not np.array_equal(other.batches.batch(3)[0], one.batches.batch(3)[0])
    assert prepared("faster", learning_rate=2e-3)[0].step.digest != one.step.digest


def test_the_data_is_read_once(prepared: Prepared, tmp_path: Path) -> None:
    recipe, folder = prepared("run")
    assert recipe.model.vocabulary == 6
    (tmp_path / "letters.txt").unlink()
    np.testing.assert_array_equal(prepare(folder).tokens.training, recipe.tokens.training)


def test_bytes_need_not_be_text(prepared: Prepared, tmp_path: Path) -> None:
    data = bytes(random.Random(2).choices(range(256), k=600))
    (tmp_path / "letters.txt").write_bytes(data)
    recipe, _ = prepared("bytes", tokenizer="bytes")
    assert recipe.model.vocabulary == 256
    tokens = np.concatenate([recipe.tokens.training, recipe.tokens.validation])
    assert bytes(tokens.astype(np.uint8)) == data


def test_an_unknown_tokenizer_is_refused(prepared: Prepared) -> None:
    with pytest.raises(
        InvalidTrainingConfig, match="tokenizer is 'words'; expected one of characters, bytes, bpe"
    ):
        prepared("words", tokenizer="words")
