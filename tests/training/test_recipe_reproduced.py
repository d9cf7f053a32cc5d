"""Recipes: equal settings give equal programs, parameters and batches."""

from pathlib import Path

import numpy as np
from tests.training.tiny_run import Prepared, assert_equal
from tests.training.tiny_run import prepared as prepared

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
