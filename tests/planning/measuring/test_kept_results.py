"""Results stay on a GPU that has room for them, and go to files otherwise."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from pcp.backends import Device, Target
from pcp.ir import Result, TensorSpec
from pcp.ir.types import dtype_of
from pcp.planning.measuring.kept_results import kept_results

ARRAYS = [
    np.random.default_rng(0).standard_normal((300, 1000)),
    np.random.default_rng(1).standard_normal((2, 3)).astype(ml_dtypes.bfloat16),
]
ENTRIES = [Result(str(i), TensorSpec(a.shape, dtype_of(a.dtype))) for i, a in enumerate(ARRAYS)]
TARGET = Target.of("cpu:0")


def made() -> list[Any]:
    return [TARGET.place(array, entry.spec) for array, entry in zip(ARRAYS, ENTRIES, strict=True)]


def test_where_there_is_room_they_stay_on_the_device(tmp_path: Path) -> None:
    kept = kept_results(tmp_path / "results", ENTRIES, Target("xla", (Device("cuda", 0, 1 << 30),)), made)
    assert kept.folder is None
    assert kept.bytes == sum(array.nbytes for array in ARRAYS)
    assert [TARGET.runner.is_buffer(each) for each in kept] == [True, True]
    assert not (tmp_path / "results").exists()
    kept.close()
    assert kept.bytes == 0


def test_elsewhere_they_go_to_files_which_another_child_finds(tmp_path: Path) -> None:
    for target in (Target("xla", (Device("cuda", 0, 1 << 20),)), TARGET):
        folder = tmp_path / target.platform
        kept = kept_results(folder, ENTRIES, target, made)
        assert kept.folder == folder
        for array, found in zip(ARRAYS, kept, strict=True):
            assert found.dtype == array.dtype
            assert np.array_equal(found, array)
        again = kept_results(folder, ENTRIES, target, list)
        assert len(list(again)) == 2
        again.close()
        assert not folder.exists()
