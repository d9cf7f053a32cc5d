"""Recipes: equal settings give equal programs, parameters and batches."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from tests.training.tiny_run import Prepared, assert_equal
from tests.training.tiny_run import prepared as prepared

from pcp.ir.tree import flatten
from pcp.training.recipes.config import TrainingConfig
from pcp.training.recipes.prepare import prepare
from pcp.training.run_folder import RunFolder

SOURCE = Path(__file__).parents[3] / "src"

FINGERPRINT = """
import hashlib, sys
from pathlib import Path
from pcp.ir.tree import flatten
from pcp.training.recipes.prepare import prepare
from pcp.training.run_folder import RunFolder
recipe = prepare(RunFolder.open(Path(sys.argv[1])))
digest = hashlib.sha256()
for array in (*flatten(recipe.parameters)[0], *recipe.batches.batch(5)):
    digest.update(array.tobytes())
print(recipe.step.digest, recipe.evaluation.digest, digest.hexdigest())
"""


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


def test_another_process_makes_the_same(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("to be, or not to be, that is the question\n" * 60)
    config = TrainingConfig(data=str(tmp_path / "text.txt"))
    folder = RunFolder.create(tmp_path / "run", config)
    recipe = prepare(folder)
    digest = hashlib.sha256()
    for array in (*flatten(recipe.parameters)[0], *recipe.batches.batch(5)):
        digest.update(array.tobytes())
    # Its hashes of strings are others, so the order of a set would show.
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(SOURCE), *sys.path]),
        "PYTHONHASHSEED": "7",
    }
    command = [sys.executable, "-c", FINGERPRINT, str(folder.path)]
    printed = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=120
    ).stdout
    assert printed.split() == [recipe.step.digest, recipe.evaluation.digest, digest.hexdigest()]
