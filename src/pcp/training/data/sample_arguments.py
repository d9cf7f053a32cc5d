"""From the arrays of a user's file to those that a loss takes: found by name or order, and checked against its arguments."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.training.data.array_file import map_array_file
from pcp.training.recipes.loss_program import LossProgram

Array = np.ndarray[Any, Any]


class WrongSamples(PCPError):
    """Samples that are not what the loss takes: other arrays, or of other shapes, element types or lengths."""


def arrays_of_batch(path: Path, loss: LossProgram) -> list[Array]:
    """The samples for each argument that is the batch, in order.

    Arguments:
        path: an `.npz` or safetensors file; its arrays are named as the arguments, or by their order as np.savez does.

    Raises:
        UnreadableFile: there is no such file.
        WrongSamples: it does not hold what the loss takes.
    """
    arrays = map_array_file(path)
    keys = _keys(arrays, loss)
    missing = [e.name for e, key in zip(loss.batch, keys, strict=True) if key is None]
    unexpected = [name for name in arrays if name not in keys]
    if missing or unexpected:
        raise WrongSamples(
            f"{path} has the arrays {', '.join(arrays) or 'none'}; the loss takes batches of {loss.describe_batch()}. "
            "Name the arrays as these arguments, or give all of them in this order without names, as in np.savez(file, x, y)"
        )
    samples = [arrays[key] for key in keys if key is not None]
    for entry, key, array in zip(loss.batch, keys, samples, strict=True):
        wanted, shape = entry.spec.dtype.numpy, entry.spec.shape[1:]
        if array.ndim < 1 or array.shape[1:] != shape or array.dtype != wanted:
            expected = ", ".join(map(str, ("samples", *shape)))
            raise WrongSamples(
                f"the array {key!r} of {path} is {array.dtype}{list(array.shape)}; the loss takes {wanted}[{expected}]"
            )
    if len({len(array) for array in samples}) > 1:
        counts = ", ".join(f"{len(array)} in {key!r}" for key, array in zip(keys, samples, strict=True))
        raise WrongSamples(f"the arrays of {path} have different numbers of samples: {counts}")
    return samples


def _keys(arrays: Mapping[str, Array], loss: LossProgram) -> list[str | None]:
    """The name among `arrays` of each argument of the batch."""
    in_order = [f"arr_{number}" for number in range(len(loss.batch))]
    if set(arrays) == set(in_order):
        return [*in_order]
    keys: list[str | None] = []
    for entry, position in zip(loss.batch, loss.positions, strict=True):
        names = (entry.name, entry.name.partition(".")[2], f"arg{position}")
        keys.append(next((name for name in names if name in arrays and name not in keys), None))
    return keys
