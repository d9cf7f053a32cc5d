"""GPT-2's weights from and to safetensors files with the published names."""

import os
from pathlib import Path

import numpy as np

from pcp.errors import PCPError
from pcp.ir import DTypeLike
from pcp.models.gpt2 import GPT2Config, Parameters
from pcp.models.gpt2_weights import named_weights, parameters_from
from pcp.training.safetensors_file import read_arrays, write_arrays


class WeightsFileMissing(PCPError):
    """There is no file of weights, or it cannot be read."""


def load_gpt2(path: Path, config: GPT2Config, dtype: DTypeLike = "f32") -> Parameters:
    """Read parameters, nested as `gpt2.initial_parameters` makes them.

    Arguments:
        path: a safetensors file such as the published `model.safetensors`.
        config: the sizes that the weights must have.
        dtype: what they are converted to.

    Raises:
        WeightsFileMissing: the file cannot be read.
        SafetensorsForeign, SafetensorsTruncated, SafetensorsCorrupt: it is no safetensors file, or a damaged one.
        WeightsMismatch: it holds weights of another model.
    """
    try:
        arrays, _ = read_arrays(path)
    except OSError as error:
        raise WeightsFileMissing(
            f"the weights {path} cannot be read: {error.strerror}; give a safetensors file"
        ) from None
    return parameters_from(arrays, config, dtype)


def save_gpt2(path: Path, parameters: Parameters) -> None:
    """Write parameters with their published names to a safetensors file, which appears whole or not at all.

    Arguments:
        path: the file to make or replace.
        parameters: arrays, nested as `gpt2.initial_parameters` makes them.
    """
    arrays = {name: np.asarray(leaf) for name, leaf in named_weights(parameters).items()}
    temporary = path.with_name(f".{path.name}.new")
    try:
        with temporary.open("wb") as file:
            write_arrays(file, arrays)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
