"""Arrays of other libraries as NumPy's, without importing these libraries."""

import sys
from typing import Any

import ml_dtypes
import numpy as np

from pcp.errors import PCPError

Array = np.ndarray[Any, Any]

# What NumPy has no type of its own for, by the names of PyTorch: the integer of its width, and the type of ml_dtypes.
_BITS = {
    "bfloat16": ("int16", ml_dtypes.bfloat16),
    "float8_e4m3fn": ("uint8", ml_dtypes.float8_e4m3fn),
    "float8_e4m3fnuz": ("uint8", ml_dtypes.float8_e4m3fnuz),
    "float8_e5m2": ("uint8", ml_dtypes.float8_e5m2),
    "float8_e5m2fnuz": ("uint8", ml_dtypes.float8_e5m2fnuz),
}


class NotAnArray(PCPError):
    """Something that no array can be made from."""


def is_torch(value: object) -> bool:
    """Whether a value is a tensor of PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_module(value: object) -> bool:
    """Whether a value is a module of PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def is_foreign(value: object) -> bool:
    """Whether a value is an array of a library, whichever."""
    is_array = hasattr(value, "__array__") or hasattr(value, "__dlpack__")
    return is_array and not isinstance(value, type)


def element_type(value: Any) -> Any:
    """The element type of an array of any library, as NumPy or PCP names it."""
    if not is_torch(value):
        return value.dtype
    name = str(value.dtype).removeprefix("torch.")
    return np.dtype(_BITS[name][1]) if name in _BITS else name


def to_torch(array: Array) -> Any:
    """A tensor of PyTorch, which is imported already, with a copy of the elements."""
    torch = sys.modules["torch"]
    for name, (bits, dtype) in _BITS.items():
        if array.dtype == dtype:
            return torch.tensor(array.view(bits)).view(getattr(torch, name))
    return torch.tensor(np.array(array))


def on_host(value: Any) -> Array:
    """An array of any library as one of NumPy, which shares its memory where it can.

    A tensor of PyTorch may require a gradient, which is not followed, be of bfloat16, or lie on another device, from which it
    is copied.

    Raises:
        NotAnArray: no array can be made from it.
    """
    if isinstance(value, np.ndarray):
        return value
    try:
        if is_torch(value):
            return _of_torch(value)
        return np.asarray(value) if hasattr(value, "__array__") else np.from_dlpack(value)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise NotAnArray(
            f"no array can be made from a {type(value).__module__}.{type(value).__name__}: {error}; give an array of NumPy"
        ) from error


def _of_torch(tensor: Any) -> Array:
    torch = sys.modules["torch"]
    held = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    bits = _BITS.get(str(held.dtype).removeprefix("torch."))
    if bits is None:
        return np.asarray(held.numpy())
    return np.asarray(held.view(getattr(torch, bits[0])).numpy()).view(bits[1])
