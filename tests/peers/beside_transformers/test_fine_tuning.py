"""`pcp train --model FOLDER`: what transformers wrote is trained, and transformers loads what comes out."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from tests.peers.beside_transformers.families import BIDIRECTIONAL, CAUSAL, PICTURE

from pcp.cli import main
from pcp.importers.training_folder import bring_model
from pcp.training.data.safetensors_file import read_arrays
from pcp.training.data.validation import validation_windows
from pcp.training.loop import train
from pcp.training.recipes.prepare import configured, prepare, write_trained_weights
from pcp.training.run_folder import RunFolder

TEXT = "To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer. " * 12
QUICK = "qwen2"
SHORT = {"steps": 12, "warmup_steps": 2, "batch": 4, "learning_rate": 1e-2, "evaluate_every": 0}


def saved(family: str, folder: Path, dtype: Any = torch.float32, **more: Any) -> Any:
    """A tiny model of a family in a folder, of bytes."""
    head, settings = CAUSAL[family]
    kind = getattr(transformers, head)
    torch.manual_seed(0)
    model = kind(kind.config_class(**{**settings, "vocab_size": 256})).to(dtype)
    model.save_pretrained(folder, **more)
    return kind


def trained(folder: Path, settings: dict[str, Any]) -> tuple[Any, list[dict[str, Any]], Path]:
    """A run to its end: recipe, records and the folder that was written."""
    run = RunFolder.create(folder, configured(SHORT | settings))
    bring_model(run)
    recipe, records = prepare(run), []
    train(recipe, run, records.append)
    out = write_trained_weights(run, recipe)
    assert out is not None
    return recipe, records, out


def loss_of(model: Any, recipe: Any) -> float:
    """The mean loss of a model of transformers over the validation part of a run."""
    losses = []
    for chunk in validation_windows(recipe.data.tokens.validation, 16, 4):
        if chunk.windows == 4:
            x, y = (torch.from_numpy(each.astype(np.int64)) for each in (chunk.inputs, chunk.targets))
            with torch.no_grad():
                losses.append(F.cross_entropy(model.eval()(x).logits.flatten(0, 1), y.flatten()).item())
    return float(np.mean(losses))


def own_loss_of(model: Any, recipe: Any) -> float:
    """The mean of the loss that a model of transformers computes itself over the validation part of a run."""
    names = [entry.name for entry in recipe.imported.batch]
    losses = []
    for batch in recipe.data.validation.in_batches(4):
        given = {name: torch.from_numpy(np.array(each)) for name, each in zip(names, batch, strict=True)}
        with torch.no_grad():
            losses.append(model.eval()(**given).loss.item())
    return float(np.mean(losses))


@pytest.mark.parametrize(
    "family",
    [QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in CAUSAL if name != QUICK)],
)
def test_a_decoder_learns_a_text_and_transformers_agrees(family: str, tmp_path: Path) -> None:
    """The validation loss of what transformers loads is that of the run."""
    kind = saved(family, tmp_path / "model")
    text = tmp_path / "my.txt"
    text.write_text(TEXT)
    settings = {"model": str(tmp_path / "model"), "data": str(text), "tokenizer": "bytes", "context": 16}
    recipe, records, out = trained(tmp_path / "run", settings)
    losses = [record["loss"] for record in records if "loss" in record]
    assert losses[-1] < losses[0]
    loaded, report = kind.from_pretrained(out, output_loading_info=True)
    assert not any(report.values()), report
    assert records[-1]["validation_loss"] == pytest.approx(loss_of(loaded, recipe), rel=1e-5)


def test_weights_in_bfloat16_and_several_files_train_in_float32_and_come_back_as_they_were(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved("gpt2", tmp_path / "model", torch.bfloat16, max_shard_size="8KB")
    assert (tmp_path / "model" / "model.safetensors.index.json").exists()
    text, run, out = tmp_path / "my.txt", tmp_path / "run", tmp_path / "out"
    text.write_text(TEXT)
    command = ["train", "--model", str(tmp_path / "model"), "--data", str(text), "--tokenizer", "bytes"]
    short = ["--steps", "3", "--batch", "2", "--context", "8", "--run", str(run)]
    assert main([*command, *short]) == 0
    assert f"model        {run / 'model'}, a folder that transformers loads" in capsys.readouterr().out
    state = read_arrays(next((run / "checkpoints").glob("*/arrays.safetensors")))[0]
    assert {str(array.dtype) for array in state.values()} == {"float32", "int32"}
    assert main(["export", str(run), str(out)]) == 0
    names = [read_arrays(folder / "model.safetensors")[0] for folder in (run / "model", out)]
    assert {str(array.dtype) for array in names[0].values()} == {"bfloat16"}
    assert all((names[0][name] == names[1][name]).all() for name in names[0])
    model = transformers.AutoModelForCausalLM.from_pretrained(out)
    assert model.dtype == torch.bfloat16
    assert not (out / "model.safetensors.index.json").exists()


def test_low_rank_matrices_alone_are_trained_and_merged_into_what_transformers_loads(tmp_path: Path) -> None:
    kind = saved("llama", tmp_path / "model")
    text = tmp_path / "my.txt"
    text.write_text(TEXT)
    lora = {"lora": "rank=2,alpha=4,targets=q_proj,down_proj", "learning_rate": 5e-2, "context": 16}
    settings = {"model": str(tmp_path / "model"), "data": str(text), "tokenizer": "bytes"}
    recipe, records, out = trained(tmp_path / "run", settings | lora)
    losses = [record["loss"] for record in records if "loss" in record]
    assert losses[-1] < losses[0]
    state = read_arrays(next((tmp_path / "run" / "checkpoints").glob("*/arrays.safetensors")))[0]
    assert {name for name in state if ".lora_" not in name} == {"step", "optimizer.count"}
    loaded, report = kind.from_pretrained(out, output_loading_info=True)
    assert not any(report.values()), report
    assert records[-1]["validation_loss"] == pytest.approx(loss_of(loaded, recipe), rel=1e-4)
    again = tmp_path / "again"
    assert main(["export", str(tmp_path / "run"), str(again), "--adapter"]) == 0
    files = [read_arrays(each / "adapter_model.safetensors")[0] for each in (again, out.parent / "adapter")]
    assert files[0].keys() == files[1].keys()
    assert "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight" in files[0]


def test_arrays_by_name_train_what_is_no_decoder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A classifier; the loss is the model's own, and what the loss does not read stays as it was."""
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**BIDIRECTIONAL, num_labels=3))
    model.save_pretrained(tmp_path / "model")
    rng = np.random.default_rng(0)
    tokens = rng.integers(3, 43, (80, 9))
    labels = tokens[:, 4] % 3
    arrays = {"input_ids": tokens, "attention_mask": np.ones_like(tokens), "labels": labels}
    np.savez(tmp_path / "samples.npz", **arrays)
    settings = {"model": str(tmp_path / "model"), "data": str(tmp_path / "samples.npz"), "steps": 40}
    recipe, records, out = trained(tmp_path / "run", settings)
    losses = [record["loss"] for record in records if "loss" in record]
    assert losses[-1] < losses[0]
    loaded, report = type(model).from_pretrained(out, output_loading_info=True)
    assert not any(report.values()), report
    assert records[-1]["validation_loss"] == pytest.approx(own_loss_of(loaded, recipe), rel=1e-5)

    np.savez(tmp_path / "others.npz", input_idss=tokens, labels=labels)
    refused = ["train", "--model", str(tmp_path / "model"), "--run", str(tmp_path / "other")]
    assert main([*refused, "--data", str(tmp_path / "others.npz")]) == 2
    assert "BertForSequenceClassification takes no input_idss; name the arrays" in capsys.readouterr().err
    (tmp_path / "my.txt").write_text(TEXT)
    assert main([*refused, "--data", str(tmp_path / "my.txt"), "--tokenizer", "bytes"]) == 2
    assert "is BertForSequenceClassification, which is no decoder of text" in capsys.readouterr().err


def test_images_in_folders_of_classes_train_a_classifier(tmp_path: Path) -> None:
    """They have the size that the model's settings name, and go to the model as `pixel_values` and `labels`."""
    image = pytest.importorskip("PIL.Image")
    torch.manual_seed(0)
    model = transformers.ViTForImageClassification(transformers.ViTConfig(**PICTURE, num_labels=2))
    model.save_pretrained(tmp_path / "model")
    rng = np.random.default_rng(0)
    for shade, base in (("dark", 40), ("light", 200)):
        (tmp_path / "pictures" / shade).mkdir(parents=True)
        for number in range(20):
            pixels = (base + rng.integers(-30, 30, (10, 12, 3))).astype(np.uint8)
            image.fromarray(pixels).save(tmp_path / "pictures" / shade / f"{number}.png")
    settings = {"model": str(tmp_path / "model"), "data": str(tmp_path / "pictures"), "steps": 10}
    recipe, records, out = trained(tmp_path / "run", settings)
    loaded, report = type(model).from_pretrained(out, output_loading_info=True)
    assert not any(report.values()), report
    assert records[-1]["validation_loss"] == pytest.approx(own_loss_of(loaded, recipe), rel=1e-5)


@pytest.mark.long
def test_two_workers_train_low_rank_matrices_on_conversations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole way of a user: messages, a Shepherd and Workers, an exported folder, text."""
    kind = saved("llama", tmp_path / "model")
    lines = [
        {
            "messages": [
                {"role": "user", "content": f"{n} plus 1?"},
                {"role": "assistant", "content": f"It is {n + 1}."},
            ]
        }
        for n in range(200)
    ]
    chat, run, out = tmp_path / "chat.jsonl", tmp_path / "run", tmp_path / "out"
    chat.write_text("\n".join(map(json.dumps, lines)))
    command = [
        "train",
        "--model",
        str(tmp_path / "model"),
        "--data",
        str(chat),
        "--tokenizer",
        "bytes",
        "--run",
        str(run),
    ]
    command += ["--lora", "rank=2", "--steps", "20", "--inner-steps", "5", "--workers", "2", "--batch", "4"]
    assert main([*command, "--context", "32", "--learning-rate", "0.02"]) == 0
    capsys.readouterr()
    assert main(["export", str(run), str(out), "--dtype", "f32"]) == 0
    merged, before = (kind.from_pretrained(folder).state_dict() for folder in (out, tmp_path / "model"))
    moved = {name for name in before if not torch.equal(before[name], merged[name])}
    assert moved == {name for name in before if name.endswith("_proj.weight")}
