"""Writing a task: a folder that is a kernel to be completed, with the region, inputs, and what these come to in float64."""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.planning.added.store import TASK
from pcp.planning.verification.judging import SETS, examples
from pcp.planning.workbench.task import Task
from pcp.planning.workbench.teaching import readme, templates


class CannotExport(PCPError):
    """A folder that a task cannot be written to."""


def write_task(task: Task, folder: Path, language: str = "jax") -> list[str]:
    """Write a task as a folder, which is a kernel to be completed: whole, or not at all.

    Arguments:
        folder: is made; it must not be there, or be empty.
        language: that the template is in, of `teaching.TEMPLATES`.

    Returns:
        The files, relative to the folder.

    Raises:
        CannotExport: it is there and holds something, or cannot be written.
    """
    with new_folder(folder) as draft:
        files = {"README.md": readme(task, language), "region.mlir": task.region.text} | templates(
            task, language
        )
        for name, text in files.items():
            (draft / name).write_text(text, encoding="utf-8")
        (draft / TASK).mkdir()
        (draft / TASK / "task.json").write_text(json.dumps(task.to_json(), indent=2) + "\n", encoding="utf-8")
        for count, (inputs, expected) in enumerate(examples(task.region, SETS)):
            _save(draft / TASK / f"inputs_{count}.npz", task.region.arguments, inputs)
            _save(draft / TASK / f"expected_{count}.npz", task.region.results, expected)
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def check_new(folder: Path) -> None:
    """Look whether a folder can be made, before anything is measured.

    Raises:
        CannotExport: it is there and holds something.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CannotExport(
            f"{folder} is there already and holds something; give a folder that is new or empty"
        )


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder to write to that takes the place of another one when all of it is written.

    Raises:
        CannotExport: that is there and holds something, or cannot be written.
    """
    draft: Path | None = None
    try:
        check_new(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".pcp-export-", dir=folder.parent))
        yield draft
        draft.chmod(0o755)
        os.replace(draft, folder)
    except OSError as error:
        raise CannotExport(f"{folder} cannot be written: {error.strerror or error}") from None
    finally:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)


def _save(file: Path, entries: Sequence[Any], arrays: Sequence[Any]) -> None:
    named = {
        entry.name or str(place): _readable(each)
        for place, (entry, each) in enumerate(zip(entries, arrays, strict=True))
    }
    with open(file, "wb") as stream:
        np.savez(stream, **named)


def _readable(array: Any) -> Any:
    """An array in a type that every NumPy reads: numbers of bfloat16 and the like as float32, which holds them exactly."""
    values = np.asarray(array)
    return values if values.dtype.kind in "biufc" else values.astype(np.float32)
