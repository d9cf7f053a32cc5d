"""The folder that a run of a model in a folder ends with: one that transformers loads."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from pcp.errors import PCPError
from pcp.ir.tree import flatten
from pcp.training.data.safetensors_file import map_arrays, write_arrays
from pcp.training.recipes.adapters import LoraRecord, merged, write_adapter
from pcp.training.recipes.model_folder import settings_of
from pcp.training.run_folder import RunFolder, load_state

Array = np.ndarray[Any, Any]

REST = "rest.safetensors"
"""In the folder of what a run keeps of its model: tensors that its loss does not read."""
_TYPES = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
TYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
"""Element types that weights are written in, and their names in transformers."""


class NoModelInRun(PCPError):
    """A run that did not begin with a model in a folder."""


class FolderNotFree(PCPError):
    """A folder to write a model to that holds another one."""


def write_model(folder: RunFolder, out: Path, dtype: str = "") -> Path:
    """Write the newest checkpoint of a run as a folder that transformers loads.

    Arguments:
        folder: of a run that began with a model in a folder.
        out: the folder to write; made if needed.
        dtype: of its weights: f32, f16 or bf16; empty for that of the model the run began with.

    Returns:
        `out`.

    Raises:
        NoModelInRun: the run began otherwise.
        FolderNotFree: `out` holds something else.
        CheckpointNotFound, CheckpointCorrupt, CheckpointTruncated: there is no checkpoint that can be read.
    """
    if not folder.source_folder.exists():
        raise NoModelInRun(
            f"the run in {folder.path} trains {folder.config().model}, which is no folder of transformers; its weights are "
            f"{folder.trained_file if folder.trained_file.exists() else folder.checkpoints}"
        )
    expect_free(out, "config.json")
    trained = trained_arrays(folder)
    if folder.lora_file.exists():
        record = LoraRecord.from_json(folder.lora_file.read_text(encoding="utf-8"))
        held = {
            name: array for name, array in map_arrays(folder.held_file).items() if name not in record.buffers
        }
        trained = merged(held, trained, record.matrices, record.alpha / record.rank)
    rest = map_arrays(folder.source_folder / REST)
    write_folder(folder.source_folder, out, {**rest, **trained}, dtype)
    return out


def write_adapter_of(folder: RunFolder, out: Path) -> Path:
    """Write the low-rank matrices of the newest checkpoint of a run as the library peft reads them.

    Raises:
        NoModelInRun: the run trains none.
        FolderNotFree: `out` holds something else.
        CheckpointNotFound, CheckpointCorrupt, CheckpointTruncated: there is no checkpoint that can be read.
    """
    if not folder.lora_file.exists():
        raise NoModelInRun(f"the run in {folder.path} trains no low-rank matrices: it began without --lora")
    expect_free(out, "adapter_config.json")
    record = LoraRecord.from_json(folder.lora_file.read_text(encoding="utf-8"))
    return write_adapter(out, trained_arrays(folder), record.matrices, record.rank, record.alpha, record.base)


def trained_arrays(folder: RunFolder) -> dict[str, Array]:
    """The parameters of the newest checkpoint of a run, by name."""
    _, state, _ = load_state(folder)
    leaves, tree = flatten(state["params"])
    return {name: np.asarray(leaf) for name, leaf in zip(tree.names(), leaves, strict=True)}


def expect_free(out: Path, named: str) -> None:
    """Refuse a folder to write to that holds something, but for one with such a file; raises FolderNotFree."""
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / named).exists())):
        raise FolderNotFree(
            f"{out} is there and holds something else; give a folder that is empty or not there"
        )


def write_folder(source: Path, out: Path, arrays: Mapping[str, Array], dtype: str) -> None:
    """Write weights beside copies of the other files of a model.

    Arguments:
        source: with config.json and what else the model has beside its weights.
        arrays: by the names that transformers gives them.
        dtype: f32, f16, bf16, or empty for what config.json says.
    """
    out.mkdir(parents=True, exist_ok=True)
    settings = settings_of(source)
    key = "torch_dtype" if "torch_dtype" in settings else "dtype"
    name = TYPES.get(dtype) or str(settings.get(key) or "float32")
    kind = _TYPES.get(name, _TYPES["float32"])
    for file in source.iterdir():
        if file.name not in (REST, "config.json"):
            shutil.copyfile(file, out / file.name)
    settings[key] = name
    (out / "config.json").write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    cast = {name: _cast(array, kind) for name, array in arrays.items()}
    partial = out / ".model.safetensors.incomplete"
    with partial.open("wb") as written:
        write_arrays(written, cast, {"format": "pt"})
    partial.rename(out / "model.safetensors")


def _cast(array: Array, kind: np.dtype[Any]) -> Array:
    """A floating-point array in another element type; others as they are."""
    is_float = array.dtype in _TYPES.values()
    return array.astype(kind) if is_float and array.dtype != kind else array
