"""The folder that a run of a model of images ends with: one that diffusers loads."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from pcp.ir.program_file import write_atomically
from pcp.models.diffusion.families import INDEX, PARTS, SCHEDULER, WEIGHTS, turned
from pcp.training.data.safetensors_file import write_arrays
from pcp.training.recipes.image_recipe import ImageRecipe
from pcp.training.recipes.written_model import expect_free
from pcp.training.run_folder import RunFolder, load_state


def write_pipeline(folder: RunFolder, recipe: ImageRecipe, out: Path) -> Path:
    """Write the newest checkpoint of a run as a folder that diffusers loads: the model, and the scheduler of its noise.

    Returns:
        `out`.

    Raises:
        FolderNotFree: `out` holds something else.
        CheckpointNotFound, CheckpointCorrupt, CheckpointTruncated: there is no checkpoint that can be read.
    """
    expect_free(out, INDEX)
    model, schedule = recipe.described
    _, state, _ = load_state(folder)
    part, pipeline = PARTS[model.family]
    (out / part).mkdir(parents=True, exist_ok=True)
    (out / "scheduler").mkdir(exist_ok=True)
    scheduler = schedule.settings["_class_name"]
    index = {
        "_class_name": pipeline,
        part: ["diffusers", model.family],
        "scheduler": ["diffusers", scheduler],
    }
    _write(out / INDEX, index)
    _write(out / part / "config.json", {"_class_name": model.family, **model.settings})
    _write(out / "scheduler" / SCHEDULER, dict(schedule.settings))
    arrays = {name: turned(name, np.asarray(array), back=True) for name, array in state["params"].items()}
    partial = out / part / f".{WEIGHTS}.incomplete"
    with partial.open("wb") as file:
        write_arrays(file, arrays, {"format": "pt"})
    partial.rename(out / part / WEIGHTS)
    return out


def _write(path: Path, content: dict[str, Any]) -> None:
    write_atomically(path, (json.dumps(content, indent=2) + "\n").encode())
