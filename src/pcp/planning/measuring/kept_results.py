"""Results that candidates are compared with: in the memory of a GPU, where there is room, else in files.

Memory is short where a program is large and the processor runs it. Files of float64 results outlast the child that made them,
should a candidate end it, so that the next one need not compute them again.
"""

import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pcp.backends import Target
from pcp.backends.base import Buffer
from pcp.ir import Result

ROOM = 0.2
"""The part of a GPU's memory that the results of one call may take, as float64."""
_SMALL = 1 << 20

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Results:
    """Results of one call, kept.

    Arguments:
        entries: of all of them.
        buffers: that stay on the device; none where they are in files.
        folder: of files, which are read one at a time.
    """

    entries: Sequence[Result]
    buffers: list[Buffer]
    folder: Path | None = None

    @property
    def bytes(self) -> int:
        """Memory that they take on the device."""
        return sum(math.prod(each.shape) * np.dtype(each.dtype).itemsize for each in self.buffers)

    def __iter__(self) -> Iterator[Any]:
        if self.folder is None:
            yield from self.buffers
        else:
            for index, entry in enumerate(self.entries):
                yield loaded(str(self.folder / f"{index}.npy"), entry.spec.dtype.numpy)

    def close(self) -> None:
        """Let go of them."""
        self.buffers = []
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def kept_results(
    folder: Path, entries: Sequence[Result], target: Target, make: Callable[[], list[Buffer]]
) -> Results:
    """Results of a call, which is made unless its files are there."""
    wide = sum(entry.spec.size * 8 for entry in entries)
    if target.platform != "cpu" and wide <= ROOM * target.capacity:
        return Results(entries, make())
    if not folder.exists():
        _write(folder, make())
    return Results(entries, [], folder)


def _write(folder: Path, results: Sequence[Any]) -> None:
    """Write results to a folder, which is there only when it is whole."""
    temporary = folder.with_name(f"{folder.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    for index, result in enumerate(results):
        np.save(temporary / f"{index}.npy", np.asarray(result))
    temporary.rename(folder)


def loaded(path: str, dtype: Any) -> Array:
    """An array of a file, by mmap if it is large; NumPy does not remember the types it does not have, like bf16."""
    large = os.path.getsize(path) > _SMALL
    array: Array = np.load(path, mmap_mode="r" if large else None, allow_pickle=False)
    return array.view(dtype) if array.dtype.kind == "V" else array
