"""A loss from a file over a Shepherd and two Workers: it completes, and equals a replay of its leases."""

from pathlib import Path

import numpy as np
import pytest

from pcp.ir.tree import flatten
from pcp.training.data.safetensors_file import read_arrays
from pcp.training.recipes.prepare import prepare
from pcp.training.run_folder import RunFolder, load_state
from tests.distributed.processes.command import Command, is_round
from tests.distributed.processes.replaying import leases_of, replay
from tests.distributed.tiny_run import assert_equal_arrays
from tests.training.loss_files import plain


@pytest.mark.runs
def test_plain_stablehlo_on_samples(tmp_path: Path) -> None:
    files, folder = plain(tmp_path), RunFolder(tmp_path / "run")
    settings = files.settings(
        steps=20, workers=2, inner_steps=10, evaluate_every=10, merge="mean", shares="equal"
    )
    options = [
        text for name, value in settings.items() for text in (f"--{name.replace('_', '-')}", str(value))
    ]
    with Command(["train", *options, "--run", str(folder.path)], tmp_path) as train:
        assert train.end() == 0, train.said
        last = train.wait_for(is_round(2))
        leases = leases_of(train.records)
    assert last["tokens"] == 2 * 20 * 8
    assert sorted(batches for held in leases for batches in held.values()) == [
        (0, 9),
        (10, 19),
        (20, 29),
        (30, 39),
    ]
    _, state, _ = load_state(folder)
    expected = replay(folder, leases, sorted(leases[0]))
    assert_equal_arrays(state["params"], expected, relative=1e-5, absolute=1e-6)
    recipe = prepare(folder)
    for name, array in read_arrays(folder.trained_file)[0].items():
        assert (array == state["params"][name]).all()
        assert (array != recipe.parameters[name]).any()
    assert all(np.isfinite(leaf).all() for leaf in flatten(state)[0])
