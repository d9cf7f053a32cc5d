"""Atomic checkpoints: a folder that appears complete under its name, or not at all.

`FOLDER/step-00001000/` holds `arrays.safetensors` and `manifest.json`. Both are written to a temporary
folder beside it, flushed to the disk, and moved into place by one rename; so a crash, a kill or a full disk
leaves the older checkpoints as they were. A step that is saved again becomes `step-00001000-2`. A folder has
one writer and any number of readers.
"""

import contextlib
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from pcp.errors import PCPError
from pcp.training.data.safetensors_file import (
    Array,
    SafetensorsCorrupt,
    SafetensorsForeign,
    SafetensorsTruncated,
    read_arrays,
    write_arrays,
)
from pcp.training.manifest import (
    ARRAYS_NAME,
    MANIFEST_NAME,
    CheckpointCorrupt,
    CheckpointTruncated,
    Manifest,
    read_manifest,
    write_manifest,
)

logger = logging.getLogger("pcp.training.checkpoint")

_NAME = re.compile(r"step-(\d{8,})(?:-(\d+))?")
_TEMPORARY = ".incomplete-"


class CheckpointNotFound(PCPError):
    """There is no checkpoint, or none of that step."""


class CheckpointMismatch(PCPError):
    """The checkpoint is of another model or program."""


class CheckpointNotSaved(PCPError):
    """A checkpoint could not be written; those before it are intact."""


class ArraySpec(Protocol):
    """Anything that tells a shape and a dtype: an array, or a description of one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""

    @property
    def dtype(self) -> Any:
        """The element type."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A checkpoint that was read and verified: its manifest, and its arrays by name."""

    path: Path
    manifest: Manifest
    arrays: dict[str, Array]

    @property
    def step(self) -> int:
        """The step after which it was saved."""
        return self.manifest.step

    @property
    def metadata(self) -> dict[str, Any]:
        """What the caller stored with it."""
        return self.manifest.metadata


def save(
    folder: Path,
    step: int,
    arrays: Mapping[str, Array],
    metadata: Mapping[str, Any] | None = None,
    *,
    model: Mapping[str, Any] | None = None,
    program_digest: str = "",
    structure: Any = None,
    keep: int = 3,
) -> Path:
    """Write a checkpoint, then remove all but the newest ones.

    Arguments:
        folder: where the run's checkpoints lie; made if needed.
        step: steps done, at least 0.
        arrays: name -> array; the caller flattens its tree.
        metadata: anything JSON can hold: data order, random state, plan, tokenizer.
        model: the model's configuration.
        program_digest: digest of the Program that the arrays belong to.
        structure: the tree that the names came from, as JSON.
        keep: checkpoints to keep, at least 1.

    Returns:
        The checkpoint's own folder.

    Raises:
        CheckpointNotSaved: the disk is full, or the folder cannot be written.
        UnsupportedArray: an array's dtype cannot be stored.
        MetadataNotJSON: the model, structure or metadata hold something that JSON cannot.
    """
    if step < 0 or keep < 1:
        raise CheckpointNotSaved(
            f"A checkpoint of step {step} keeping {keep} was asked for; expected >= 0 and >= 1."
        )
    temporary: Path | None = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(folder)
        temporary = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=folder))
        temporary.chmod(0o755)
        with (temporary / ARRAYS_NAME).open("wb") as file:
            digest = write_arrays(file, arrays)
            size = file.tell()
            _flush(file)
        manifest = Manifest(
            step=step,
            model=dict(model or {}),
            program_digest=program_digest,
            structure=structure,
            metadata=dict(metadata or {}),
            arrays={name: (str(array.dtype), tuple(array.shape)) for name, array in arrays.items()},
            arrays_sha256=digest,
            arrays_bytes=size,
        )
        with (temporary / MANIFEST_NAME).open("wb") as file:
            write_manifest(file, manifest)
            _flush(file)
        _flush_folder(temporary)
        final = folder / _free_name(folder, step)
        temporary.rename(final)
        _flush_folder(folder)
    except OSError as error:
        raise CheckpointNotSaved(
            f"The checkpoint of step {step} could not be written to {folder}: {error.strerror or error}. "
            f"{_describe_intact(folder)} Make room or choose another folder."
        ) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    _prune(folder, keep)
    return final


def latest(folder: Path) -> int | None:
    """Tell the newest step that has a checkpoint; None where there is none."""
    checkpoints = _list(folder)
    return checkpoints[-1][0] if checkpoints else None


def steps(folder: Path) -> list[int]:
    """List the steps that have checkpoints, oldest first."""
    return sorted({step for step, _, _ in _list(folder)})


def load(
    folder: Path,
    step: int | None = None,
    *,
    expected: Mapping[str, ArraySpec] | None = None,
    program_digest: str | None = None,
) -> Checkpoint:
    """Read a checkpoint and verify every byte of it.

    Arguments:
        folder: where the run's checkpoints lie.
        step: the step wanted; the newest when None.
        expected: the arrays that the caller's model has, name -> array or description.
        program_digest: digest of the caller's Program.

    Raises:
        CheckpointNotFound: no such checkpoint.
        CheckpointForeign: its folder is not a PCP checkpoint.
        CheckpointNewer: it was written by a newer version.
        CheckpointTruncated, CheckpointCorrupt: its files are not what was written.
        CheckpointMismatch: it is of another model or program.
    """
    path = _find(folder, step)
    manifest = read_manifest(path / MANIFEST_NAME)
    _check_match(path, manifest, expected, program_digest)
    file = path / ARRAYS_NAME
    try:
        if file.stat().st_size < manifest.arrays_bytes:
            raise SafetensorsTruncated(f"{file} has {file.stat().st_size} of {manifest.arrays_bytes} bytes.")
        arrays, digest = read_arrays(file)
    except (FileNotFoundError, SafetensorsTruncated) as error:
        raise CheckpointTruncated(
            f"The checkpoint {path} is incomplete: {error} {_advice(folder, path)}"
        ) from error
    except (SafetensorsCorrupt, SafetensorsForeign) as error:
        raise CheckpointCorrupt(
            f"The checkpoint {path} is damaged: {error} {_advice(folder, path)}"
        ) from error
    if digest != manifest.arrays_sha256:
        raise CheckpointCorrupt(
            f"The checkpoint {path} is damaged: {ARRAYS_NAME} has SHA-256 {digest}, its manifest says "
            f"{manifest.arrays_sha256}. {_advice(folder, path)}"
        )
    return Checkpoint(path, manifest, arrays)


def _check_match(
    path: Path, manifest: Manifest, expected: Mapping[str, ArraySpec] | None, program_digest: str | None
) -> None:
    if expected is not None:
        for name in sorted(expected.keys() | manifest.arrays.keys()):
            stored = manifest.arrays.get(name)
            wanted = (str(expected[name].dtype), tuple(expected[name].shape)) if name in expected else None
            if stored != wanted:
                raise CheckpointMismatch(
                    f"The checkpoint {path} is of another model: array {name!r} is {_describe(stored)} in the "
                    f"checkpoint and {_describe(wanted)} in the model. Its model is {manifest.model}."
                )
    if program_digest is not None and manifest.program_digest != program_digest:
        raise CheckpointMismatch(
            f"The checkpoint {path} belongs to program {manifest.program_digest!r}, expected {program_digest!r}. "
            f"Resume with the model, optimizer and settings that it was saved with: {manifest.model}."
        )


def _describe(spec: tuple[str, tuple[int, ...]] | None) -> str:
    return "absent" if spec is None else f"{spec[0]}{list(spec[1])}"


def _list(folder: Path) -> list[tuple[int, int, Path]]:
    checkpoints = []
    for path in folder.iterdir() if folder.is_dir() else ():
        match = _NAME.fullmatch(path.name)
        if match:
            checkpoints.append((int(match[1]), int(match[2] or 1), path))
    return sorted(checkpoints)


def _find(folder: Path, step: int | None) -> Path:
    checkpoints = _list(folder)
    if not checkpoints:
        raise CheckpointNotFound(
            f"There is no checkpoint in {folder}. Give the folder of a run that saved one."
        )
    matching = [path for number, _, path in checkpoints if step is None or number == step]
    if not matching:
        have = ", ".join(str(number) for number in steps(folder))
        raise CheckpointNotFound(f"There is no checkpoint of step {step} in {folder}; there are: {have}.")
    return matching[-1]


def _advice(folder: Path, broken: Path) -> str:
    others = sorted({number for number, _, path in _list(folder) if path != broken})
    if not others:
        return "There is no other checkpoint in this folder."
    return f"Remove it, and the run continues from step {others[-1]}."


def _describe_intact(folder: Path) -> str:
    with contextlib.suppress(OSError):
        newest = latest(folder)
        if newest is not None:
            return f"The checkpoint of step {newest} is intact."
    return "There is no earlier checkpoint."


def _free_name(folder: Path, step: int) -> str:
    revisions = [revision for number, revision, _ in _list(folder) if number == step]
    return f"step-{step:08d}" + (f"-{max(revisions) + 1}" if revisions else "")


def _prune(folder: Path, keep: int) -> None:
    checkpoints = _list(folder)
    newest = {step: path for step, _, path in checkpoints}
    kept = {newest[step] for step in sorted(newest)[-keep:]}
    for _, _, path in checkpoints:
        if path not in kept:
            # Renamed first: a folder that is half removed must not look like a checkpoint.
            doomed = folder / f"{_TEMPORARY}{path.name}"
            try:
                path.rename(doomed)
                shutil.rmtree(doomed)
            except OSError as error:
                logger.warning("the old checkpoint %s could not be removed: %s", path, error)


def _remove_leftovers(folder: Path) -> None:
    for path in folder.glob(f"{_TEMPORARY}*"):
        logger.warning("removing %s, left by an interrupted write", path)
        shutil.rmtree(path, ignore_errors=True)


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
