"""Tensors of PyTorch over the memory of NumPy's arrays."""

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import torch

Array = np.ndarray[Any, Any]

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

with (
    warnings.catch_warnings()
):  # once in a process torch warns that it could write into what NumPy calls read-only
    warnings.simplefilter("ignore")
    _read_only = np.zeros(1)
    _read_only.flags.writeable = False
    torch.from_numpy(_read_only)


def tensor_over(array: Array) -> torch.Tensor:
    """A tensor whose elements are those of an array; nothing is copied."""
    if array.dtype == _BFLOAT16:  # NumPy has no such type of its own
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
