"""Weights in files: there and back, and files that hold none."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from pcp.importers import WeightsFileMissing, load_gpt2, save_gpt2
from pcp.ir.tree import flatten
from pcp.models.gpt2 import GPT2Config, initial_parameters
from pcp.models.gpt2_weights import WeightsMismatch
from pcp.training.safetensors_file import SafetensorsForeign, SafetensorsTruncated

CONFIG = GPT2Config(layers=2, heads=2, width=4, context=6, vocabulary=9)


def test_there_and_back(tmp_path: Path) -> None:
    parameters = initial_parameters(CONFIG, 3)
    save_gpt2(tmp_path / "model.safetensors", parameters)
    found, tree = flatten(load_gpt2(tmp_path / "model.safetensors", CONFIG))
    expected, wanted = flatten(parameters)
    assert tree == wanted
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    # As everybody else reads it.
    others = load_file(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(others["transformer.wte.weight"], parameters["wte"])


def test_weights_of_another_model(tmp_path: Path) -> None:
    save_gpt2(tmp_path / "model.safetensors", initial_parameters(CONFIG))
    with pytest.raises(
        WeightsMismatch, match=r"weight .* has shape .*; GPT2Config\(layers=2, heads=2, width=8"
    ):
        load_gpt2(tmp_path / "model.safetensors", GPT2Config(2, 2, 8, 6, 9))


def test_files_that_hold_no_weights(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    with pytest.raises(
        WeightsFileMissing, match=r"model.safetensors cannot be read: No such file .*; give a saf"
    ):
        load_gpt2(file, CONFIG)
    with pytest.raises(WeightsFileMissing, match="Is a directory"):
        load_gpt2(tmp_path, CONFIG)
    file.write_bytes(b"PK\x03\x04 is another format")
    with pytest.raises(SafetensorsForeign, match="is not a safetensors file"):
        load_gpt2(file, CONFIG)
    save_gpt2(file, initial_parameters(CONFIG))
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(SafetensorsTruncated, match="The file is incomplete"):
        load_gpt2(file, CONFIG)
