"""The order of samples: every one once in an epoch, each batch a function of its number; and files that hold none."""

from pathlib import Path

import numpy as np
import pytest
from tests.training.loss_files import Arrays, save_arrays

from pcp.training.data.batches import InvalidBatches
from pcp.training.data.safetensors_file import read_arrays
from pcp.training.data.samples import SampleBatches, Samples, SamplesCorrupt, TooFewSamples, split


def numbered(path: Path, count: int) -> Samples:
    """Samples that are their own numbers, and the squares of these."""
    numbers = np.arange(count, dtype=np.int32)
    return Samples.write(path / "samples.safetensors", [numbers, (numbers**2).astype(np.float32)])


def test_every_sample_comes_once_in_an_epoch_and_epochs_differ(tmp_path: Path) -> None:
    batches = SampleBatches(numbered(tmp_path, 10), 4, 3)
    drawn = np.concatenate([batches.batch(index)[0] for index in range(5)])
    first, second = drawn[:10].tolist(), drawn[10:].tolist()
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second != list(range(10))


def test_a_batch_is_a_function_of_seed_and_number(tmp_path: Path) -> None:
    samples = numbered(tmp_path, 10)
    numbers, squares = SampleBatches(samples, 4, 3).batch(2**40)
    assert (numbers.astype(np.float32) ** 2 == squares).all()
    again = SampleBatches(Samples.open(samples.path), 4, 3)
    again.batch(0)
    assert (again.batch(2**40)[0] == numbers).all()
    assert (SampleBatches(samples, 4, 4).batch(2**40)[0] != numbers).any()
    # Pinned: every machine and version draws this.
    assert SampleBatches(samples, 4, 3).batch(1)[0].tolist() == [2, 7, 9, 4]


@pytest.mark.parametrize(("count", "batch", "held"), [(16, 8, 8), (1000, 8, 96), (100, 30, 30), (23, 10, 10)])
def test_validation_is_whole_batches(count: int, batch: int, held: int) -> None:
    training, validation = split(count, batch, 5)
    assert len(validation) == held
    assert sorted([*training, *validation]) == list(range(count))
    assert (np.diff(validation) < 0).any()


def test_sizes_that_cannot_be(tmp_path: Path) -> None:
    samples = numbered(tmp_path, 10)
    with pytest.raises(
        TooFewSamples, match="the training part has 10 samples, which do not fill a batch of 11"
    ):
        SampleBatches(samples, 11, 0)
    with pytest.raises(InvalidBatches, match="Batches of 0 samples with seed 0"):
        SampleBatches(samples, 0, 0)
    with pytest.raises(
        InvalidBatches, match="with seed -1 were asked for; expected at least 1, and 0 <= seed"
    ):
        SampleBatches(samples, 1, -1)
    with pytest.raises(InvalidBatches, match="Batch -1 was asked for"):
        SampleBatches(samples, 1, 1).batch(-1)


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"0": np.ones(3, "f4"), "2": np.ones(3, "f4")},
        {"0": np.ones(3, "f4"), "1": np.ones(4, "f4")},
        {"0": np.ones((), "f4")},
    ],
)
def test_files_that_hold_no_samples(arrays: Arrays, tmp_path: Path) -> None:
    with pytest.raises(SamplesCorrupt, match="holds no samples: expected arrays named 0, 1, "):
        Samples.open(save_arrays(tmp_path / "s.safetensors", arrays))


def test_a_file_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(b"PCPTOKEN and more of that")
    with pytest.raises(SamplesCorrupt, match=r"the samples cannot be read: .* is not a safetensors file"):
        Samples.open(tmp_path / "s")


def test_what_is_written_in_parts_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcp.training.data.samples._PART_BYTES", 40)
    random = np.random.default_rng()
    arrays = [
        random.integers(0, 256, (17, 3), np.uint8),
        random.normal(size=(17, 2, 5)),
        np.asfortranarray(random.normal(size=(17, 4)).astype(">f4")),
        random.integers(-9, 9, 17),
    ]
    rows = random.permutation(17)[:13]
    for written, expected in (
        (Samples.write(tmp_path / "all", arrays), arrays),
        (Samples.write(tmp_path / "some", arrays, rows), [array[rows] for array in arrays]),
    ):
        read, _ = read_arrays(written.path)  # as any reader of such files does
        for number, array in enumerate(expected):
            np.testing.assert_array_equal(read[str(number)], array)
            np.testing.assert_array_equal(written.arrays[number], array)
            assert isinstance(written.arrays[number].base, np.ndarray)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["all", "some"]
