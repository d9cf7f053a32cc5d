"""Low-rank matrices that were trained beside weights: merged into them, and as the files of the library `peft`.

Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021, section 4.1.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pcp.training.data.safetensors_file import write_arrays
from pcp.training.recipes.config import InvalidTrainingConfig

Array = np.ndarray[Any, Any]

DOWN, UP = "lora_A.weight", "lora_B.weight"
"""What stands behind the name of a module in those of A (rank, inputs) and B (outputs, rank)."""


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """What `--lora` says.

    Arguments:
        rank: of the matrices.
        alpha: what is added is B A alpha / rank; twice the rank if None.
        targets: names of modules, or how they end; none: all matrices of products but the head.
    """

    rank: int
    alpha: float | None
    targets: tuple[str, ...]

    @staticmethod
    def parse(text: str) -> "LoraSettings":
        """The settings in a text such as `rank=8,alpha=16,targets=q_proj,v_proj`.

        Raises:
            InvalidTrainingConfig: it is another one.
        """
        values: dict[str, list[str]] = {}
        name = ""
        for part in filter(None, (part.strip() for part in text.split(","))):
            before, sign, value = part.partition("=")
            name = before if sign else name
            values.setdefault(name, []).append(value if sign else part)
        targets = tuple(values.pop("targets", []))
        rank, alpha = (values.pop(name, default) for name, default in (("rank", ["8"]), ("alpha", [])))
        fits = not values and len(rank) == 1 and rank[0].isdecimal() and int(rank[0]) > 0
        if not fits or len(alpha) > 1 or any(_number(each) is None for each in alpha):
            raise InvalidTrainingConfig(
                f"lora is {text!r}; expected a rank of at least 1 and what else is to be set, as rank=8,alpha=16,"
                "targets=q_proj,v_proj"
            )
        return LoraSettings(int(rank[0]), float(alpha[0]) if alpha else None, targets)


@dataclass(frozen=True, slots=True)
class LoraRecord:
    """What a run keeps of its adapters.

    Arguments:
        rank, alpha: of the matrices.
        matrices: of each module, the name of its weight and the axis of that which products sum over.
        buffers: what is held beside the weights.
        base: the model that they belong to.
    """

    rank: int
    alpha: float
    matrices: dict[str, tuple[str, int]]
    buffers: tuple[str, ...]
    base: str

    def to_json(self) -> str:
        """The record as JSON."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__}, indent=2) + "\n"

    @staticmethod
    def from_json(text: str) -> "LoraRecord":
        """The record that `to_json` wrote."""
        content = json.loads(text)
        content["matrices"] = {name: (own, axis) for name, (own, axis) in content["matrices"].items()}
        content["buffers"] = tuple(content["buffers"])
        return LoraRecord(**content)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def merged(
    held: Mapping[str, Array],
    weights: Mapping[str, Any],
    matrices: Mapping[str, tuple[str, int]],
    scale: float,
) -> dict[str, Array]:
    """Weights with low-rank matrices added, computed in float32 and kept in the element type of each."""
    whole = dict(held)
    for module, (name, axis) in matrices.items():
        up, down = (np.asarray(weights[f"{module}.{part}"], np.float32) for part in (UP, DOWN))
        more = (up @ down) * np.float32(scale)
        own = np.asarray(held[name])
        whole[name] = (own.astype(np.float32) + (more if axis else more.T)).astype(own.dtype)
    return whole


def write_adapter(
    folder: Path,
    weights: Mapping[str, Any],
    matrices: Mapping[str, tuple[str, int]],
    rank: int,
    alpha: float,
    base: str,
) -> Path:
    """Write the files of an adapter as `peft` has them; see `Adapted.save`."""
    folder.mkdir(parents=True, exist_ok=True)
    axes = {axis for _, axis in matrices.values()}
    settings = {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": axes == {0},
        "target_modules": sorted(matrices),
        "modules_to_save": None,
        "init_lora_weights": True,
        "inference_mode": True,
    }
    (folder / "adapter_config.json").write_text(
        json.dumps(settings, indent=2, sort_keys=True) + "\n", "utf-8"
    )
    arrays = {f"base_model.model.{name}": np.asarray(array) for name, array in weights.items()}
    partial = folder / ".adapter_model.incomplete"
    with partial.open("wb") as file:
        write_arrays(file, arrays, {"format": "pt"})
    partial.rename(folder / "adapter_model.safetensors")
    return folder
