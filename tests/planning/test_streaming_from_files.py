"""A program larger than a device is streamed from a file of weights that a process has no memory for."""

from pathlib import Path

import numpy as np
import pytest
from tests.backends.test_mapped import LAYERS, SIZE
from tests.little_memory import run_alone

from pcp.training.data.safetensors_file import write_arrays

pytestmark = pytest.mark.cpu

CHILD = """
import sys
import numpy as np
from tests.backends.test_mapped import LAYERS, SIZE, chain
from tests.little_memory import allow_further

import pcp
from pcp.backends import OutOfMemory

file, home, away = sys.argv[1:]
program = chain()
path = pcp.streamed(program, away, 8 * 4 * SIZE * SIZE)
plan = pcp.plan(program, home, path=path, mapped=["weights"])
weights = pcp.load_weights(file, [pcp.spec((SIZE, SIZE), "f32")] * LAYERS, mapped=True)
x = np.random.default_rng().standard_normal((2, SIZE), np.float32)
wanted = x.astype(np.float64)
for each in weights:
    wanted = np.tanh(wanted @ each)
plan.run(weights, x)
allow_further(LAYERS * 4 * SIZE * SIZE // 2)  # half of the weights
print(np.abs(np.asarray(plan.run(weights, x)) - wanted).max() < 1e-4)
try:
    plan.place([np.array(each) for each in weights], x)
except (OutOfMemory, MemoryError) as error:
    print("there is no memory for all of them")
"""


@pytest.mark.parametrize(("home", "away"), [("arena:cpu", "cpu:0"), ("arena:cpu", "arena:cpu")])
def test_a_process_without_memory_for_its_weights_streams_them_from_their_file(
    tmp_path: Path, home: str, away: str
) -> None:
    rng = np.random.default_rng()
    with (tmp_path / "weights.safetensors").open("wb") as file:
        write_arrays(
            file,
            {str(n): rng.standard_normal((SIZE, SIZE), np.float32) / SIZE**0.5 for n in range(LAYERS)},
        )
    assert run_alone(CHILD, tmp_path / "weights.safetensors", home, away) == [
        "True",
        "there is no memory for all of them",
    ]
