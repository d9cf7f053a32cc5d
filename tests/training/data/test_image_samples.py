"""Images in folders of classes: pixels, layouts, labels and parts as a loss takes them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.training.loss_files import save_arrays

import pcp
from pcp.errors import PCPError
from pcp.training.data.image_samples import ImageUnreadable
from pcp.training.data.kinds.source import MixedKinds
from pcp.training.data.sample_arguments import WrongSamples
from pcp.training.data.samples import TooFewSamples
from pcp.training.extras import MissingExtra
from pcp.training.recipes.config import InvalidTrainingConfig, TrainingConfig
from pcp.training.recipes.prepare import configured, prepare
from pcp.training.run_folder import RunFolder

image = pytest.importorskip("PIL.Image")
random = np.random.default_rng()
CLASSES = ("cat", "dog")


def draw(folder: Path, count: int = 6, shape: tuple[int, ...] = (5, 4, 3)) -> dict[str, np.ndarray]:
    """Images of random pixels in a folder for each class, by their paths below it."""
    drawn = {}
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = random.integers(0, 256, shape, np.uint8)
            image.fromarray(pixels).save(folder / name / f"{number}.png")
            drawn[f"{name}/{number}"] = pixels
    return drawn


def prepared(tmp_path: Path, data: Path, *batch: Any, run: str = "run") -> Any:
    """The recipe of a loss that takes such a batch of two samples."""
    weights = {"w": np.ones(1, "f4")}
    save_arrays(tmp_path / "w.safetensors", weights)
    specs = [pcp.spec((2, *shape), dtype) for shape, dtype in batch]
    program = pcp.trace(
        lambda p, *arrays: sum((a.astype("f32").mean() * p["w"][0] for a in arrays), 0.0), weights, *specs
    )
    program.save(tmp_path / "loss.pcp")
    settings = {
        "model": str(tmp_path / "loss.pcp"),
        "weights": str(tmp_path / "w.safetensors"),
        "data": str(data),
    }
    return prepare(RunFolder.create(tmp_path / run, configured(settings)))


LAYOUTS: dict[str, tuple[tuple[int, ...], str, Any]] = {
    "bytes": ((5, 4, 3), "u8", lambda pixels: pixels),
    "channels last": ((5, 4, 3), "f32", lambda pixels: pixels.astype(np.float32) / np.float32(255)),
    "channels first": ((3, 5, 4), "f32", lambda pixels: pixels.transpose(2, 0, 1) / np.float32(255)),
    "grey": (
        (5, 4),
        "f32",
        lambda pixels: np.asarray(image.fromarray(pixels).convert("L")) / np.float32(255),
    ),
    "one channel": (
        (5, 4, 1),
        "u8",
        lambda pixels: np.asarray(image.fromarray(pixels).convert("L"))[..., None],
    ),
    "resized": (
        (8, 6, 3),
        "f32",
        lambda pixels: (
            np.asarray(image.fromarray(pixels).resize((6, 8), image.Resampling.BICUBIC)) / np.float32(255)
        ),
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_loss_gets_its_layout_and_the_label_of_each_folder(layout: str, tmp_path: Path) -> None:
    shape, dtype, expected = LAYOUTS[layout]
    drawn = draw(tmp_path / "images")
    recipe = prepared(tmp_path, tmp_path / "images", ((), "i32"), (shape, dtype))  # in the order of the loss
    samples = [recipe.data.training, recipe.data.validation]
    labels, pixels = (np.concatenate([each.arrays[number] for each in samples]) for number in (0, 1))
    assert [each.count for each in samples] == [10, 2]
    wanted = {name: expected(each) for name, each in drawn.items()}
    for label, found in zip(labels, pixels, strict=True):
        [name] = [name for name, each in wanted.items() if np.array_equal(each, found)]
        assert CLASSES[label] == name.partition("/")[0]
        del wanted[name]
    assert not wanted
    assert labels.dtype == np.int32


def test_folders_that_say_validation_are_it(tmp_path: Path) -> None:
    draw(tmp_path / "images" / "train", 3)
    draw(tmp_path / "images" / "val", 2)
    recipe = prepared(tmp_path, tmp_path / "images", ((5, 4, 3), "u8"), ((), "i64"))
    assert recipe.data.training.arrays[1].tolist() == [0] * 3 + [1] * 3
    assert recipe.data.validation.arrays[1].tolist() == [0] * 2 + [1] * 2


def test_images_alone_need_no_classes(tmp_path: Path) -> None:
    draw(tmp_path / "images")
    recipe = prepared(tmp_path, tmp_path / "images" / "cat", ((5, 4, 3), "u8"))
    assert recipe.data.training.count == 4


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "images"
    draw(data)
    pixels = ((5, 4, 3), "u8")

    def refused(kind: type[PCPError], message: str, *batch: Any, at: Path = data) -> None:
        with pytest.raises(kind, match=message):
            prepared(tmp_path, at, *batch)
        if (tmp_path / "run").exists():
            RunFolder.open(tmp_path / "run").discard()

    numbers = r"holds images, and the loss takes batches of .*; expected an array of images"
    refused(WrongSamples, numbers, ((7,), "f32"), ((), "i32"))
    refused(WrongSamples, numbers, pixels, ((), "f32"))
    refused(
        WrongSamples,
        r"lie in one folder, 'cat'; expected a folder for each class",
        pixels,
        ((), "i32"),
        at=data / "cat",
    )
    with monkeypatch.context() as patch:
        patch.setitem(__import__("sys").modules, "PIL.Image", None)
        refused(MissingExtra, r"Reading .*png needs .*protocol\[images\]", pixels, ((), "i32"))
    (data / "dog" / "3.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    refused(ImageUnreadable, r"3\.png cannot be read as an image: ", pixels, ((), "i32"))
    (data / "dog" / "3.png").unlink()
    (data / "val" / "dog").mkdir(parents=True)
    (data / "dog" / "1.png").rename(data / "val" / "dog" / "1.png")
    refused(TooFewSamples, "has 1 images for validation; .* takes 2 at once", pixels, ((), "i32"))
    (data / "notes.txt").write_text("a text")
    refused(MixedKinds, "notes.txt is text", pixels, ((), "i32"))
    (data / "notes.txt").unlink()
    folder = RunFolder.create(tmp_path / "text", TrainingConfig(data=str(data)))
    with pytest.raises(InvalidTrainingConfig, match="or images, but gpt2-nano takes text"):
        prepare(folder)
