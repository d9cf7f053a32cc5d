"""Results stay on a GPU that has room for them, and go to files otherwise."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from pcp import backends
from pcp.backends import Device
from pcp.ir import Result, TensorSpec
from pcp.ir.types import dtype_of
from pcp.planning.measuring.kept_results import InFiles, InMemory, kept_results

ARRAYS = [
    np.random.default_rng(0).standard_normal((300, 1000)),
    np.random.default_rng(1).standard_normal((2, 3)).astype(ml_dtypes.bfloat16),
]
ENTRIES = [Result(str(i), TensorSpec(a.shape, dtype_of(a.dtype))) for i, a in enumerate(ARRAYS)]


def made() -> list[Any]:
    host = backends.device("cpu:0")
    return [
        backends.backend().place(array, entry.spec, host, alias=False)
        for array, entry in zip(ARRAYS, ENTRIES, strict=True)
    ]


def test_where_there_is_room_they_stay_on_the_device(tmp_path: Path) -> None:
    kept = kept_results(tmp_path / "results", ENTRIES, Device("cuda", 0, 1 << 30), made)
    assert isinstance(kept, InMemory)
    assert kept.bytes == sum(array.nbytes for array in ARRAYS)
    assert [backends.backend().is_buffer(each) for each in kept] == [True, True]
    assert not (tmp_path / "results").exists()
    kept.close()
    assert kept.bytes == 0


def test_elsewhere_they_go_to_files_which_another_child_finds(tmp_path: Path) -> None:
    for device in (Device("cuda", 0, 1 << 20), Device("cpu", 0, 1 << 30)):
        folder = tmp_path / device.kind
        kept = kept_results(folder, ENTRIES, device, made)
        assert isinstance(kept, InFiles)
        for array, found in zip(ARRAYS, kept, strict=True):
            assert found.dtype == array.dtype
            assert np.array_equal(found, array)
        again = kept_results(folder, ENTRIES, device, list)
        assert len(list(again)) == 2
        again.close()
        assert not folder.exists()
