"""A model in a folder of transformers as the loss of a run: its program and weights are made here, once, by PyTorch.

Text makes a decoder learn the next token of each. Samples in arrays are given to the model under their names, with the `labels`
from which models of transformers compute a loss themselves; so every family can be trained.
"""

import dataclasses
import importlib
import inspect
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.importers.lora import Adapted, lora
from pcp.importers.torch.arrays import array_from_torch
from pcp.importers.torch.exporting import TorchMissing, torch_package
from pcp.importers.torch.imported import RANDOM_KEY, Imported, from_torch
from pcp.ir import Program
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.tree import flatten
from pcp.tracing import call, spec, trace
from pcp.training.data.array_file import SUFFIXES, read_array_file
from pcp.training.data.safetensors_file import write_arrays
from pcp.training.recipes.adapters import LoraRecord, LoraSettings
from pcp.training.recipes.config import TrainingConfig
from pcp.training.recipes.data_of_run import gives_tokens
from pcp.training.recipes.loss_program import KEY
from pcp.training.recipes.model_folder import holds_transformers_model, settings_of
from pcp.training.recipes.written_model import REST
from pcp.training.run_folder import RunFolder

_DTYPES = {"": "float32", "f32": "float32", "bf16": "bfloat16"}
_KEPT = (".json", ".txt", ".model", ".jinja")
_WEIGHTS = ".index.json"
_IGNORED = -100
"""The label that PyTorch leaves out."""


class ModelNotTrainable(PCPError):
    """A model in a folder that cannot be trained on this data."""


class ModelUnreadable(PCPError):
    """A folder whose model transformers cannot load."""


def bring_model(folder: RunFolder) -> None:
    """Write the program and the weights of a model that a run names by its folder into the folder of the run.

    Nothing is done where they are there, or where the run names no such model.

    Raises:
        TorchMissing: PyTorch or transformers is not installed.
        ModelUnreadable: transformers cannot load the model.
        ModelNotTrainable: the model has no loss of such data.
        CannotExport, UnsupportedOperations, CannotImport: see `from_torch`.
        UnreadableFile: the samples cannot be read.
    """
    config = folder.config()
    path = Path(config.model)
    if folder.loss_file.exists() or not holds_transformers_model(path):
        return
    model = _loaded(path, config.dtype)
    imported = _loss_of(model, config)
    _keep_source(path, folder.source_folder, _rest(model, imported))
    if config.dropout:
        (_adapted(imported, config) if config.lora else imported).program.save(folder.evaluation_file)
        imported = _with_dropout(model, config)
    if config.lora:
        adapted = _adapted(imported, config)
        _write_adapted(adapted, imported, config, folder)
        imported = adapted
    else:
        _write(folder.weights_file, {**imported.weights, **imported.buffers})
    imported.program.save(folder.loss_file)


def _loss_of(model: Any, config: TrainingConfig, seed: int | None = None) -> Imported:
    """The loss of one micro-batch of the run's data."""
    size = config.batch // config.accumulate
    if gives_tokens(config.data, config.field):
        return _of_text(model, size, config, seed)
    return _of_samples(model, size, _arrays(model, config.data), seed)


def _with_dropout(model: Any, config: TrainingConfig) -> Imported:
    """The loss in training mode, `(weights, [buffers], *batch, key)`: what it draws follows from a key that it is given.

    Raises:
        ModelNotTrainable: it draws nothing, or changes buffers beside the key.
    """
    imported = _loss_of(model.train(), config, config.seed)
    names = [name for name in imported.buffers if name != RANDOM_KEY]
    weights, held, *batch = imported.program.argument_tree.unflatten(
        [spec(entry.spec.shape, entry.spec.dtype, entry.role) for entry in imported.program.arguments]
    )
    changed = _changed(imported.program, flatten(weights)[1].leaf_count, len(imported.buffers))
    changing = [name for name in changed if name != RANDOM_KEY]
    if changing or not changed:
        rates = {name: value for name, value in model.config.to_dict().items() if "drop" in name}
        raise ModelNotTrainable(
            f"dropout was asked for, but {type(model).__name__} in training mode "
            + (
                f"changes {', '.join(changing[:3])}"
                if changing
                else f"drops nothing: its config.json has {rates or 'no rates'}"
            )
            + "; leave dropout out"
            + ("" if changing else ", or write a rate into config.json")
        )

    def loss(weights: Any, *rest: Any) -> Any:
        kept, (*arrays, random_key) = (rest[0], rest[1:]) if names else ({}, rest)
        return call(imported.program, weights, {**kept, RANDOM_KEY: random_key}, *arrays)[1]

    taken = [entry.name for entry in imported.program.arguments[-len(batch) :]]
    own = ("weights", *["buffers"] * bool(names), *taken, KEY)
    kind = inspect.Parameter.POSITIONAL_ONLY
    loss.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in own])  # type: ignore[attr-defined]  # functions may have attributes
    stays = (
        [{name: spec(held[name].spec.shape, held[name].spec.dtype, "weight") for name in names}]
        if names
        else []
    )
    program = trace(loss, weights, *stays, *batch, spec((2,), "u32"))
    begins = {name: each for name, each in imported.program.begins.items() if name != f"buffers.{RANDOM_KEY}"}
    return Imported(
        dataclasses.replace(program, begins=begins),
        imported.weights,
        {name: imported.buffers[name] for name in names},
    )


def _changed(program: Program, first: int, count: int) -> list[str]:
    """The names of the buffers, from one argument on, that the first results of a program do not return as they were."""
    module = program.module()
    block = entry_block(module)
    *_, end = block.operations
    returned = zip(program.arguments, block.arguments, strict=True)
    pairs = zip(list(returned)[first : first + count], end.operation.operands, strict=False)
    return [entry.name.removeprefix("buffers.") for (entry, given), result in pairs if result != given]


def _adapted(imported: Imported, config: TrainingConfig) -> Adapted:
    """The same with low-rank matrices as its weights."""
    given = LoraSettings.parse(config.lora)
    return lora(imported, rank=given.rank, alpha=given.alpha, targets=given.targets, seed=config.seed)


def _write_adapted(adapted: Adapted, imported: Imported, config: TrainingConfig, folder: RunFolder) -> None:
    """Write low-rank matrices, what stays beside them, and which matrices they are."""
    base = str(Path(config.model).resolve()) if Path(config.model).exists() else config.model
    record = LoraRecord(adapted.rank, adapted.alpha, dict(adapted.matrices), tuple(imported.buffers), base)
    _write(folder.weights_file, adapted.weights)
    _write(folder.held_file, adapted.buffers)
    folder.lora_file.write_text(record.to_json(), encoding="utf-8")


def _write(file: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    with file.open("wb") as written:
        write_arrays(written, arrays, {"format": "pt"})


def transformers_package() -> Any:
    """The library transformers, and PyTorch with it.

    Raises:
        TorchMissing: one of them is not installed.
    """
    try:
        torch_package()
        return importlib.import_module("transformers")
    except (TorchMissing, ModuleNotFoundError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name != "transformers":
            raise
        raise TorchMissing(
            "a run that begins with a model in a folder needs PyTorch and transformers where it begins, to make its program; "
            "install them: pip install 'planetary-compute-protocol[torch]'. Workers, and a run that goes on, need neither"
        ) from None


def _loaded(path: Path, dtype: str) -> Any:
    """The model in a folder, with the head that its settings name, in evaluation mode: without dropout."""
    transformers = transformers_package()
    named = next(iter(settings_of(path).get("architectures") or ()), "")
    kind = getattr(transformers, str(named), None)
    if kind is None or not hasattr(kind, "from_pretrained"):
        kind = transformers.AutoModelForCausalLM
    wanted = getattr(torch_package(), _DTYPES[dtype])
    bars = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()
    try:
        model = kind.from_pretrained(path, dtype=wanted, local_files_only=True, use_safetensors=True)
    except Exception as error:  # whatever a damaged or unknown folder makes it raise
        first = str(error).strip().partition("\n")[0]
        raise ModelUnreadable(
            f"transformers {transformers.__version__} cannot load the model in {path}: {type(error).__name__}: {first}"
        ) from error
    finally:
        if bars:
            transformers.utils.logging.enable_progress_bar()
    return model.eval()


def _of_text(model: Any, size: int, config: TrainingConfig, seed: int | None) -> Imported:
    """The mean loss of the next token over those that are counted: targets below zero are not."""
    functional = importlib.import_module("torch.nn.functional")
    if not model.can_generate() or getattr(model.config, "is_encoder_decoder", False):
        raise ModelNotTrainable(
            f"the model in {config.model} is {type(model).__name__}, which is no decoder of text; give --data an .npz or "
            ".safetensors file with the arrays that it takes, by name, samples along the first axis: input_ids, labels, ..."
        )

    def next_token(self: Any, tokens: Any, targets: Any) -> Any:
        logits = type(model).forward(self, input_ids=tokens).logits
        labels = targets.flatten().long()
        counted = labels >= 0
        total = functional.cross_entropy(
            logits.flatten(0, 1).float(),
            labels.where(counted, _IGNORED),
            ignore_index=_IGNORED,
            reduction="sum",
        )
        return total / counted.sum().clamp(min=1)

    tokens = spec((size, config.context), "i32")
    return from_torch(_calling(model, next_token), tokens, tokens, seed=seed)


def _arrays(model: Any, data: str) -> Mapping[str, np.ndarray[Any, Any]]:
    """Arrays with the names, shapes and element types of samples: those of a file, or an image and its label."""
    if Path(data).suffix in SUFFIXES:
        return read_array_file(Path(data))
    size = getattr(model.config, "image_size", None)
    if size is None:
        raise ModelNotTrainable(
            f"{data} holds images, and {type(model).__name__} has no image_size in its config.json; give --data an .npz or "
            ".safetensors file with the arrays that it takes, by name"
        )
    shape = (model.config.num_channels, *(size if isinstance(size, list | tuple) else (size, size)))
    return {"pixel_values": np.zeros((1, *shape), np.float32), "labels": np.zeros(1, np.int64)}


def _of_samples(
    model: Any, size: int, arrays: Mapping[str, np.ndarray[Any, Any]], seed: int | None
) -> Imported:
    """The loss that the model computes itself of arrays by their names."""
    taken = list(inspect.signature(type(model).forward).parameters)
    unknown = [name for name in arrays if name not in taken]
    if unknown:
        raise ModelNotTrainable(
            f"{type(model).__name__} takes no {', '.join(unknown)}; name the arrays of --data as its arguments: "
            f"{', '.join(taken[1:13])}"
        )

    def own_loss(self: Any, **tensors: Any) -> Any:
        loss = getattr(type(model).forward(self, **tensors), "loss", None)
        if loss is None:
            raise ModelNotTrainable(
                f"{type(model).__name__} computes no loss of {', '.join(tensors)}; add an array of labels, as labels"
            )
        return loss

    specs = {name: spec((size, *array.shape[1:]), array.dtype) for name, array in arrays.items()}
    return from_torch(_calling(model, own_loss), keywords=specs, seed=seed)


def _calling(model: Any, forward: Any) -> Any:
    """The same model, called by another `forward`: so its parameters keep their names."""
    kind = type(model)
    called: Any = type(kind.__name__, (kind,), {"forward": forward})
    copy = called.__new__(called)
    copy.__dict__ = model.__dict__
    return copy


def _rest(model: Any, imported: Imported) -> dict[str, np.ndarray[Any, Any]]:
    """Tensors that a folder of the model holds and that are not trained; of tied ones, none."""
    names: dict[int, list[str]] = {}
    tensors = model.state_dict(keep_vars=True)
    for name, tensor in tensors.items():
        names.setdefault(id(tensor), []).append(name)
    left = [same[0] for same in names.values() if not imported.weights.keys() & {*same}]
    return {name: array_from_torch(tensors[name]) for name in left}


def _keep_source(path: Path, kept: Path, rest: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Copy what a model has beside its weights, and write what is not trained of these."""
    kept.mkdir(parents=True, exist_ok=True)
    for file in path.iterdir():
        if file.suffix in _KEPT and not file.name.endswith(_WEIGHTS):
            shutil.copyfile(file, kept / file.name)
    _write(kept / REST, rest)
