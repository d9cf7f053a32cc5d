"""Weights in a file that is mapped for reading are used where they lie, so that they may be larger than memory."""

import mmap
from pathlib import Path

import numpy as np
import pytest
from tests.little_memory import run_alone

import pcp
from pcp.backends import OutOfMemory
from pcp.backends.host_memory import is_read_only
from pcp.planning.capacity import InvalidMapped
from pcp.planning.plan import PlanConflict

LAYERS, SIZE = 24, 1024
pytestmark = pytest.mark.cpu


def chain(layers: int = LAYERS, size: int = SIZE) -> pcp.Program:
    """Products with one matrix after the other."""

    def function(weights: list[pcp.Tensor], x: pcp.Tensor) -> pcp.Tensor:
        for each in weights:
            x = pcp.tanh(x @ each)
        return x

    return pcp.trace(function, [pcp.spec((size, size), "f32")] * layers, pcp.spec((2, size), "f32"))


def written(
    file: Path, layers: int = LAYERS, size: int = SIZE
) -> np.memmap[tuple[int, ...], np.dtype[np.float32]]:
    """Random weights in a file, mapped for reading."""
    rng = np.random.default_rng()
    with file.open("wb") as out:
        for _ in range(layers):
            out.write((rng.standard_normal((size, size), np.float32) / size**0.5).tobytes())
    return np.memmap(file, np.float32, "r", shape=(layers, size, size))


CHILD = """
import sys
import numpy as np
from tests.backends.test_mapped import LAYERS, SIZE, chain
from tests.little_memory import allow_further

import pcp
from pcp.backends import OutOfMemory

plan = pcp.plan(chain(), sys.argv[2], mapped=["weights"])
x = np.random.default_rng().standard_normal((2, SIZE), np.float32)
weights = np.memmap(sys.argv[1], np.float32, "r", shape=(LAYERS, SIZE, SIZE))
wanted = x.astype(np.float64)
for each in weights:
    wanted = np.tanh(wanted @ each)
plan.run(list(weights), x)
allow_further(LAYERS * SIZE * SIZE)  # a quarter of them
print(np.abs(plan.run(list(weights), x) - wanted).max() < 1e-4)
matrix = np.array(weights[0])
try:
    plan.place([matrix] * LAYERS, x)
except OutOfMemory as error:
    print(error)
"""


@pytest.mark.parametrize("device", ["cpu:0", "arena:cpu"])
def test_a_process_without_memory_for_them_reads_weights_where_they_lie(tmp_path: Path, device: str) -> None:
    written(tmp_path / "weights")
    right, said = run_alone(CHILD, tmp_path / "weights", device)
    assert "there is no memory left on cpu:0 for an argument of f32[1024,1024], 4194304 bytes" in said
    assert "give a `numpy.memmap` of a file, opened with mode 'r'" in said
    assert right == "True"


@pytest.mark.parametrize("device", ["cpu:0", "arena:cpu"])
def test_mapped_arguments_do_not_count_in_what_has_to_fit(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, weights = chain(4, 64), written(tmp_path / "weights", 4, 64)
    monkeypatch.setenv("PCP_MEMORY_LIMIT", "20KiB")
    with pytest.raises(
        OutOfMemory, match=r"the program needs at least 65.0 KiB on cpu:0, which has 20.0 KiB"
    ):
        pcp.plan(program, device)
    plan = pcp.plan(program, device, mapped=["weights"])
    x = wanted = np.random.default_rng().standard_normal((2, 64), np.float32)
    for each in weights:
        wanted = np.tanh(wanted @ each)
    np.testing.assert_allclose(np.asarray(plan.run(list(weights), x)), wanted, atol=1e-5)
    assert pcp.plan(program, device, mapped=["weights.0", "weights.1", "weights.2"]).memory


def test_files_that_can_be_written_are_copied(tmp_path: Path) -> None:
    weights = written(tmp_path / "weights", 1, 8)
    assert is_read_only(weights[0])
    with (tmp_path / "weights").open("rb") as file:
        for access, is_safe in ((mmap.ACCESS_READ, True), (mmap.ACCESS_COPY, False)):
            assert (
                is_read_only(np.frombuffer(mmap.mmap(file.fileno(), 0, access=access), np.float32)) == is_safe
            )
    assert is_read_only(np.frombuffer(b"1234", np.float32))
    assert not is_read_only(np.frombuffer(bytearray(b"1234"), np.float32))
    for mode in ("r+", "c"):
        assert not is_read_only(np.memmap(tmp_path / "weights", np.float32, mode))
    changeable = np.memmap(tmp_path / "weights", np.float32, "r+")
    changeable.flags.writeable = False
    assert not is_read_only(changeable)


def test_what_cannot_be_mapped_is_refused() -> None:
    program = chain(2, 8)
    with pytest.raises(
        InvalidMapped, match=r"mapped names 'weight'; the program's arguments are weights\.0, weights\.1, x"
    ):
        pcp.plan(program, mapped=["weight"])
    with pytest.raises(
        PlanConflict, match=r"mapped was given beside a tolerance or memory; .* leave them out"
    ):
        pcp.plan(program, mapped=["weights"], tolerance=1e-2)
    specs = pcp.spec((8,), "f32"), pcp.spec((8,), "f32")
    state = pcp.trace(lambda s, x: s + x, *specs, roles=("state", "input"))
    with pytest.raises(
        InvalidMapped, match="mapped names s, which is state, and a file that is mapped for reading"
    ):
        pcp.plan(state, mapped=["s"])
