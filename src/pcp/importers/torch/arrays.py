"""Values and containers of PyTorch as those of PCP: arrays, examples of arguments, nested outputs."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.importers.torch.element_types import TORCH_NAMES, dtype_from_torch
from pcp.importers.torch.exporting import torch_package
from pcp.ir import DType
from pcp.ir.types import dtype_of
from pcp.tracing import ArgumentSpec

Arrays = dict[str, np.ndarray[Any, Any]]

CONSTANTS = (bool, int, float, complex, str, type(None))
"""What an argument may be that is no tensor: the program is made for this one value."""


class UnsupportedContainer(PCPError):
    """An argument or a result nested in something that is neither a list, a tuple, a mapping nor a dataclass."""


def array_from_torch(tensor: Any) -> np.ndarray[Any, Any]:
    """A tensor as an array, which shares its memory if that is on the CPU, strided and contiguous."""
    held = tensor.detach().cpu().to_dense().contiguous()
    dtype = dtype_from_torch(held.dtype)
    if dtype is DType.bf16:  # PyTorch makes no array of these, as NumPy has no such type of its own
        return np.asarray(held.view(torch_package().uint16).numpy()).view(dtype.numpy)
    return np.asarray(held.numpy())


def example_from(value: Any) -> Any:
    """An argument for `torch.export`: specs and arrays become tensors of their shapes and element types.

    A tensor becomes another object: a module may ask whether two arguments are the same, and the program's are not.
    """
    torch = torch_package()
    if isinstance(value, torch.Tensor):
        return value.detach().requires_grad_(value.requires_grad)
    if isinstance(value, ArgumentSpec):
        return _zeros(torch, value.spec.shape, value.spec.dtype)
    if isinstance(value, np.ndarray | np.generic):
        return _zeros(torch, value.shape, dtype_of(value.dtype))
    if isinstance(value, dict):
        return {key: example_from(entry) for key, entry in value.items()}
    if type(value) in (list, tuple):
        return type(value)(example_from(entry) for entry in value)
    return value


def numbers_of(value: Any) -> np.ndarray[Any, Any] | None:
    """What an example of one argument holds; None of a spec, of several tensors, and of one that is not of real floats."""
    if isinstance(value, torch_package().Tensor):
        is_known = value.is_floating_point() and not value.is_meta
        return value.detach().cpu().float().numpy() if is_known else None
    return value if isinstance(value, np.ndarray) else None


def _zeros(torch: Any, shape: Sequence[int], dtype: DType) -> Any:
    """Zeros that take memory only where somebody looks at them, which an export does nowhere, however large they are."""
    kind = getattr(torch, TORCH_NAMES[dtype])
    memory = torch.from_numpy(np.zeros(math.prod(shape) * kind.itemsize, np.uint8)).untyped_storage()
    return torch.empty(0, dtype=kind).set_(memory, 0, tuple(shape))


def plain_containers(value: Any, leaf: Any) -> Any:
    """A nested value with mappings and dataclasses as dictionaries, and every tensor replaced by `leaf` of it.

    Raises:
        UnsupportedContainer: something in it is neither a tensor, a constant nor a container.
    """
    if isinstance(value, Mapping):
        return {key: plain_containers(entry, leaf) for key, entry in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {key: plain_containers(getattr(value, key), leaf) for key in value._fields}
    if isinstance(value, list | tuple):
        return type(value)(plain_containers(entry, leaf) for entry in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (field.name for field in dataclasses.fields(value))
        return {name: plain_containers(getattr(value, name), leaf) for name in fields}
    if hasattr(value, "shape") or isinstance(value, CONSTANTS):
        return leaf(value)
    raise UnsupportedContainer(
        f"a {type(value).__name__} was found among arguments or results; expected tensors in lists, tuples, dictionaries and "
        "dataclasses: wrap the module in one that returns such (of transformers: leave use_cache out)"
    )
