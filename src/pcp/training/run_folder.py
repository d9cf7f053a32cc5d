"""The folder of a run: where its settings, data, checkpoints, metrics and pictures lie."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcp.errors import PCPError
from pcp.ir.program_file import write_atomically, writing
from pcp.ir.tree import Tree, flatten
from pcp.training import checkpoint
from pcp.training.data.saved_tokenizer import tokenizer_from_json
from pcp.training.data.tokenizer import Tokenizer
from pcp.training.recipes.config import TrainingConfig


class NotARun(PCPError):
    """A folder that holds no run, or a run that stands there already."""


class _Inside:
    """A place in the folder of a run, by its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: "RunFolder", _: type) -> Path:
        return folder.path / self._name


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The files of one run."""

    path: Path

    config_file = _Inside("config.json")
    """The settings, JSON."""
    tokenizer_file = _Inside("tokenizer.json")
    """The tokenizer, JSON."""
    token_file = _Inside("tokens.bin")
    """The tokens of the corpus."""
    shard_index_file = _Inside("shards.json")
    """The index of data in shards."""
    shard_folder = _Inside("shards")
    """Shards that were fetched."""
    loss_file = _Inside("loss.pcp")
    """The program of a loss that came from a file."""
    evaluation_file = _Inside("evaluation.pcp")
    """The program of that loss without dropout, where the other has it."""
    weights_file = _Inside("weights.safetensors")
    """The weights that such a loss begins with."""
    held_file = _Inside("held.safetensors")
    """Weights beside them that stay as they are."""
    trained_file = _Inside("trained.safetensors")
    """The weights that such a loss ends with, under the same names."""
    lora_file = _Inside("lora.json")
    """Which matrices of those are adapted, and how."""
    adapter_folder = _Inside("adapter")
    """Low-rank matrices that were trained, as the library peft reads them."""
    source_folder = _Inside("source")
    """What a run keeps of the folder of a model that it began with: everything but the weights that it trains."""
    model_folder = _Inside("model")
    """The model that such a run ends with, as a folder that transformers loads."""
    training_file = _Inside("training.safetensors")
    """The samples that are trained on, where the data is no text."""
    validation_file = _Inside("validation.safetensors")
    """The samples that are not trained on."""
    running_file = _Inside("running.lock")
    """Held by the process of a run of one process, which says there how it ended."""
    metrics_file = _Inside("metrics.jsonl")
    """What was measured, one JSON object a line."""
    checkpoints = _Inside("checkpoints")
    """Checkpoints, a folder each."""
    plot_file = _Inside("loss.png")
    """The loss curves."""
    picture_file = _Inside("samples.png")
    """Images from the trained model."""
    sample_file = _Inside("sample.txt")
    """Text from the trained model."""

    @staticmethod
    def create(path: Path, config: TrainingConfig, continuing: str = "") -> "RunFolder":
        """A folder for a new run.

        Arguments:
            path: of the folder.
            config: of the run.
            continuing: what continues a run that stands there, to be said (default: `--resume`).

        Raises:
            NotARun: a run stands there already.
            UnwritableFile: the folder cannot be made.
        """
        folder = RunFolder(path)
        if folder.config_file.exists():
            raise NotARun(
                f"{path} already holds a run; give another folder, or {continuing or f'--resume {path}'} to continue it"
            )
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            write_atomically(folder.config_file, config.to_json().encode())
        return folder

    def discard(self) -> None:
        """Remove what a run wrote that never began to train, so that its folder can be taken by another."""
        data = (
            self.tokenizer_file,
            self.token_file,
            self.shard_index_file,
            self.training_file,
            self.validation_file,
        )
        for inner in (self.shard_folder, self.source_folder):
            shutil.rmtree(inner, ignore_errors=True)
        for file in (
            self.config_file,
            self.loss_file,
            self.evaluation_file,
            self.weights_file,
            self.held_file,
            self.lora_file,
            *data,
        ):
            file.unlink(missing_ok=True)
        if not any(self.path.iterdir()):
            self.path.rmdir()

    @staticmethod
    def open(path: Path) -> "RunFolder":
        """The folder of a run that was begun.

        Raises:
            NotARun: there is none.
        """
        folder = RunFolder(path)
        if not folder.config_file.exists():
            raise NotARun(
                f"{path} is not the folder of a run: there is no {folder.config_file.name} in it; "
                "give the folder of a run, such as runs/gpt2-nano"
            )
        return folder

    def config(self) -> TrainingConfig:
        """The settings of the run."""
        return TrainingConfig.from_json(self.config_file.read_text(encoding="utf-8"))

    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the run.

        Raises:
            NotARun: the run has not got so far.
        """
        if not self.tokenizer_file.exists():
            raise NotARun(
                f"the run in {self.path} has no tokenizer yet, because it was stopped before it had read its data; "
                "begin it again with pcp train"
            )
        return tokenizer_from_json(self.tokenizer_file.read_text(encoding="utf-8"))

    def write_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Keep the tokenizer."""
        write_atomically(self.tokenizer_file, tokenizer.to_json().encode())


def save_state(
    folder: RunFolder, step: int, state: Any, metadata: dict[str, Any], program_digest: str
) -> Path:
    """A checkpoint of nested arrays; see `checkpoint.save`."""
    leaves, tree = flatten(state)
    arrays = dict(zip(tree.names(), leaves, strict=True))
    structure = json.loads(tree.to_json())
    return checkpoint.save(
        folder.checkpoints, step, arrays, metadata, structure=structure, program_digest=program_digest
    )


def load_state(
    folder: RunFolder, step: int | None = None, expected: Any = None
) -> tuple[int, Any, dict[str, Any]]:
    """The step, nested arrays and metadata of a checkpoint; see `checkpoint.load`.

    Arguments:
        expected: nested arrays of the names, shapes and element types that it must hold; None accepts any.
    """
    wanted = layout = None
    if expected is not None:
        leaves, layout = flatten(expected)
        wanted = dict(zip(layout.names(), leaves, strict=True))
    stored = checkpoint.load(folder.checkpoints, step, expected=wanted)
    tree = Tree.from_json(json.dumps(stored.manifest.structure))
    tree = layout if layout == tree else tree  # which has the caller's order of keys, too
    return stored.step, tree.unflatten(stored.arrays[name] for name in tree.names()), stored.metadata
