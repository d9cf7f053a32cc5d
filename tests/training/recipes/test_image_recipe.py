"""Models of images that are trained: what is read, what is refused, and runs that learn."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcp.cli.main import main
from pcp.diffusion.grid import grid
from pcp.diffusion.pipeline import NoImageModel, open_pipeline
from pcp.diffusion.sample import InvalidSampling, sample
from pcp.models.diffusion import published
from pcp.models.diffusion.samplers import UnsupportedSchedule
from pcp.tensor import ShapeMismatch
from pcp.training.data.pictures import WrongPictures, read_pictures
from pcp.training.loop import train
from pcp.training.recipes.config import InvalidTrainingConfig
from pcp.training.recipes.prepare import configured, prepare, write_trained_weights
from pcp.training.run_folder import RunFolder

RNG = np.random.default_rng()


def bright_and_dark(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of one shade, of two classes that differ in it."""
    labels = RNG.integers(0, 2, count)
    shades = np.where(labels, 220, 30)[:, None, None, None] + RNG.integers(-5, 6, (count, 1, 1, 1))
    return np.broadcast_to(shades, (count, 4, 4, 1)).astype(np.uint8), labels.astype(np.int32)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of a small model of the two classes."""
    tmp = tmp_path_factory.mktemp("images")
    images, labels = bright_and_dark(64)
    np.savez(tmp / "shades.npz", images=images, labels=labels)
    with pytest.MonkeyPatch.context() as patch:
        small = published.Published(published._dit(1, 2, 16), published._FLOW)
        patch.setitem(published.IMAGE_MODELS, "dit-nano", small)
        settings = {
            "model": "dit-nano",
            "data": str(tmp / "shades.npz"),
            "steps": 140,
            "batch": 16,
            "learning_rate": 1e-2,
        }
        folder = RunFolder.create(
            tmp / "run", configured({**settings, "checkpoint_every": 0, "evaluate_every": 0})
        )
        recipe = prepare(folder)
        records: list[dict[str, Any]] = []
        train(recipe, folder, records.append)
        losses = [record["loss"] for record in records if "loss" in record]
        assert losses[-1] < losses[0] / 3
        assert records[-1]["validation_loss"] < losses[0] / 3
        write_trained_weights(folder, recipe)
    return folder


def test_a_trained_model_makes_images_of_its_classes(run: RunFolder) -> None:
    pipeline = open_pipeline(run.model_folder)
    assert (pipeline.classes, pipeline.no_class) == (2, 2)
    made = sample(pipeline, 6, 8, seed=5, labels=[0, 1, 1, 0, 0, 1])
    assert made.shape == (6, 4, 4, 1)
    means = made.reshape(6, -1).mean(1)
    assert np.abs(means - [30, 220, 220, 30, 30, 220]).max() < 50
    again = sample(pipeline, 6, 8, seed=5, labels=[0, 1, 1, 0, 0, 1], batch=4)
    assert np.abs(again.astype(int) - made).max() <= 1
    told: list[tuple[int, int]] = []
    few = sample(
        pipeline,
        3,
        8,
        seed=5,
        labels=1,
        batch=2,
        guidance=2.0,
        progress=lambda done, of, _: told.append((done, of)),
    )
    assert told == [(2, 3), (3, 3)]
    assert few.mean() > 180


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"steps": 0}, UnsupportedSchedule, "steps is 0; expected a whole number from 1 to 1000"),
        ({"count": 0}, InvalidSampling, "count is 0; expected a number of images, at least 1"),
        (
            {"sampler": "ddim"},
            UnsupportedSchedule,
            r"ddim is not for a model of flows; choose euler or dpm\+\+",
        ),
        ({"labels": 2}, InvalidSampling, "labels are 2; expected one class from 0 to 1, or 16 of them"),
        (
            {"labels": [0, 1]},
            InvalidSampling,
            r"labels are \[0, 1\]; expected one class from 0 to 1, or 16 of them",
        ),
        ({"labels": 1.5}, InvalidSampling, r"labels are 1\.5; expected one class from 0 to 1"),
        ({"guidance": float("nan")}, InvalidSampling, "guidance is nan; expected a finite number"),
        ({"batch": 0}, InvalidSampling, "batch is 0; expected at least 1"),
        ({"size": (4, 8)}, ShapeMismatch, "this DiTTransformer2DModel takes .* both the same"),
        (
            {"scheduler": {}},
            InvalidSampling,
            "scheduler is for imported models; a folder has its own: choose by sampler",
        ),
    ],
)
def test_what_cannot_be_sampled_is_told(
    run: RunFolder, given: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        sample(run.model_folder, **given)


def test_the_command_writes_a_picture(
    run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from PIL import Image

    out = tmp_path / "grid.png"
    assert (
        main(
            [
                "sample",
                str(run.model_folder),
                "--steps",
                "8",
                "--count",
                "3",
                "--labels",
                "1",
                "--out",
                str(out),
                "--json",
            ]
        )
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert {name: told[name] for name in ("images", "shape", "sampler", "steps")} == {
        "images": 3, "shape": [4, 4, 1], "sampler": "euler", "steps": 8,
    }  # fmt: skip
    with Image.open(out) as picture:
        assert picture.size == (129, 129)
        assert np.asarray(picture.convert("L"))[:64, :64].mean() > 150
    for options, words in (
        (["--labels", "one"], "--labels is 'one'; expected whole numbers with ',' between them"),
        (["--out", "grid.jpg"], "--out is grid.jpg; expected the name of a PNG"),
        (["--out", "nowhere/grid.png"], "there is no folder nowhere to write grid.png in"),
        (["--size", "8x8x8"], "--size is '8x8x8'; expected"),
        (["--sampler", "dmp++"], "there is no sampler 'dmp++' (did you mean 'dpm++'?)"),
        (["--guidance", "2", "--labels", "7"], "labels are 7; expected one class from 0 to 1"),
    ):
        assert main(["sample", str(run.model_folder), *options]) == 2
        assert words in capsys.readouterr().err


def test_folders_without_a_model_of_images_are_told(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(NoImageModel, match="is not there; give a folder that diffusers wrote"):
        open_pipeline(tmp_path / "nothing")
    (tmp_path / "other" / "text").mkdir(parents=True)
    with pytest.raises(NoImageModel, match="holds no model of images"):
        open_pipeline(tmp_path / "other")
    (tmp_path / "other" / "model_index.json").write_text("{}")
    with pytest.raises(NoImageModel, match=r"has neither unet/config.json nor transformer/config.json"):
        open_pipeline(tmp_path / "other")
    part = tmp_path / "other" / "transformer"
    part.mkdir()
    (part / "config.json").write_bytes((run.model_folder / "transformer" / "config.json").read_bytes())
    with pytest.raises(
        NoImageModel, match=r"has no diffusion_pytorch_model.safetensors; write it with diffusers"
    ):
        open_pipeline(tmp_path / "other")


def test_pictures_are_read_as_bytes_with_labels(tmp_path: Path) -> None:
    from PIL import Image

    images, labels = bright_and_dark(6)
    for scale, low in ((1.0, 0.0), (2.0, -1.0)):
        np.savez(tmp_path / "floats.npz", x=images[..., 0] / 255 * scale + low, y=labels)
        read = read_pictures(str(tmp_path / "floats.npz"), 0)
        np.testing.assert_array_equal(read[0], images)
        np.testing.assert_array_equal(read[1], labels)
    colours = RNG.integers(0, 256, (4, 9, 7, 3), dtype=np.uint8)
    for number, each in enumerate(colours):
        place = tmp_path / "files" / ("a", "b")[number // 2] / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(each).save(place)
    pixels, classes = read_pictures(str(tmp_path / "files"), 8)
    assert (pixels.shape, pixels.dtype, classes.tolist()) == ((4, 8, 8, 3), np.uint8, [0, 0, 1, 1])
    (alone,) = read_pictures(str(tmp_path / "files" / "a"), 0)
    assert alone.shape == (2, 32, 32, 3)


def test_pictures_of_16_bits_keep_their_shades(tmp_path: Path) -> None:
    from PIL import Image

    shades = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
    Image.fromarray(shades).save(tmp_path / "a.png")
    (pixels,) = read_pictures(str(tmp_path), 16)
    np.testing.assert_array_equal(pixels[0], np.repeat((shades >> 8)[..., None], 3, 2))


@pytest.mark.parametrize(
    "labels", [[0, 1 << 32], [0, 2_000_000_000], np.array([0, 1 << 63], np.uint64), np.zeros(0, int)]
)
def test_labels_that_are_no_classes_are_told(tmp_path: Path, labels: Any) -> None:
    np.savez(tmp_path / "arrays.npz", images=np.zeros((2, 4, 4, 3), np.uint8), labels=labels)
    with pytest.raises(WrongPictures, match=r"labels.*; expected one from 0 to 65535 for each image"):
        read_pictures(str(tmp_path / "arrays.npz"), 0)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        (
            {"x": np.zeros((3, 4, 5, 1), np.uint8)},
            r"are uint8\[3, 4, 5, 1\]; expected square ones, channels last",
        ),
        ({"x": np.zeros((3, 4, 4, 2), np.uint8)}, r"are uint8\[3, 4, 4, 2\]; expected square ones"),
        ({"x": np.full((3, 4, 4), 16.0)}, "are float64 from 16 to 16; expected u8, or floats from 0 to 1"),
        (
            {"x": np.zeros((3, 4, 4), np.uint8), "y": np.array([0, 1])},
            "has 3 images, and 2 labels from 0 to 1; expected one from 0",
        ),
        ({"y": np.array([0, 1])}, r"holds y int64\[2\]; expected an array of images"),
        ({"x": np.zeros((3, 6, 6), np.uint8)}, "size is 4, but the images of .* have 6 pixels a side"),
    ],
)
def test_other_arrays_are_told(tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    np.savez(tmp_path / "arrays.npz", **arrays)
    with pytest.raises(WrongPictures, match=words):
        read_pictures(str(tmp_path / "arrays.npz"), 4 if "6 pixels" in words else 0)


def test_a_run_of_images_needs_images(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("no image")
    for data, error, words in (
        (
            "shakespeare",
            InvalidTrainingConfig,
            "dit-nano learns to make images, and no data was given; give --data a folder",
        ),
        (
            str(tmp_path / "text.txt"),
            WrongPictures,
            "text.txt, text; a model of images learns from a folder of image files",
        ),
    ):
        folder = RunFolder.create(
            tmp_path / data.replace("/", "_"), configured({"model": "dit-nano", "data": data})
        )
        with pytest.raises(error, match=words):
            prepare(folder)


def test_a_grid_shows_images_beside_one_another() -> None:
    images = RNG.integers(0, 255, (3, 40, 40, 3), dtype=np.uint8)
    picture = grid(images)
    assert picture.shape == (161, 161, 3)
    np.testing.assert_array_equal(picture[:80:2, :80:2], images[0])
    np.testing.assert_array_equal(picture[:80:2, 81::2], images[1])
    np.testing.assert_array_equal(picture[81::2, :80:2], images[2])
    assert np.all(picture[81:, 80:] == 255)
