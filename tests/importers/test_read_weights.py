"""Weights of a folder of `transformers` brought to a device tensor by tensor, from several files, as they are stored."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from pcp.importers.transformers_folder import read_weights
from pcp.importers.weights import WeightsUnreadable
from pcp.ir.tree import flatten, map_tree
from pcp.models import decoder
from pcp.models.names import MisshapenWeights, to_transformers
from pcp.models.published import llama_config

CONFIG = llama_config(2, heads=4, key_value_heads=2, width=16, hidden=24, context=32, vocabulary=40)


@pytest.fixture(name="parameters")
def _parameters() -> Any:
    rng = np.random.default_rng(2)
    shapes = decoder.parameter_shapes(CONFIG)
    return map_tree(lambda spec: rng.normal(size=spec.shape).astype(ml_dtypes.bfloat16), shapes)


@pytest.fixture(name="folder")
def _folder(parameters: Any, tmp_path: Path) -> Path:
    tensors = list(to_transformers(parameters, CONFIG).items())
    halves = {"a.safetensors": dict(tensors[:9]), "b.safetensors": dict(tensors[9:])}
    for file, half in halves.items():
        save_file(half, tmp_path / file)
    places = {name: file for file, half in halves.items() for name in half}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return tmp_path


@pytest.mark.parametrize("device", [None, "cpu:0"])
@pytest.mark.parametrize("dtype", [None, "f32"])
def test_weights_reach_a_device_as_they_are_or_in_another_type(
    parameters: Any, folder: Path, device: str | None, dtype: str | None
) -> None:
    found = read_weights(folder, CONFIG, device, dtype)
    leaves, tree = flatten(found)
    assert tree == flatten(parameters)[1]
    for ours, wanted in zip(leaves, flatten(parameters)[0], strict=True):
        assert str(ours.dtype) == ("float32" if dtype else "bfloat16")
        np.testing.assert_array_equal(np.asarray(ours, np.float32), wanted.astype(np.float32))
    assert isinstance(leaves[0], np.ndarray) is (device is None)


def test_another_vocabulary_and_a_missing_shard_are_named(folder: Path) -> None:
    other = llama_config(2, heads=4, key_value_heads=2, width=16, hidden=24, context=32, vocabulary=41)
    message = r"model.embed_tokens.weight is bfloat16\[40, 16\]; llama\(.* needs floats of shape \[41, 16\]"
    with pytest.raises(MisshapenWeights, match=message):
        read_weights(folder, other)
    (folder / "b.safetensors").unlink()
    with pytest.raises(WeightsUnreadable, match=r"places tensors in .*b.safetensors, which is not there"):
        read_weights(folder, CONFIG)
