"""The elements of constants, those too that the bindings cannot read."""

import re
from typing import Any

import numpy as np

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir

_READABLE = {"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "f32", "f64"}
_NUMBER = re.compile(r"0x[0-9A-Fa-f]+|true|false|[-+]?\d[\d.]*(?:[eE][-+]?\d+)?")


def array_of(op: ir.Operation, spec: TensorSpec) -> "np.ndarray[Any, Any]":
    """What a constant is: a scalar where all elements are equal, else an array of its shape."""
    if spec.dtype in _READABLE:
        value = op.attributes["value"]
        assert isinstance(value, ir.DenseElementsAttr)
        if value.is_splat and spec.size > 1:
            number: Any = value.get_splat_value()
            return np.array(number.value, spec.dtype.numpy)
        return np.array(value).astype(spec.dtype.numpy, copy=False).reshape(spec.shape)
    text = str(op)  # the bindings fail at the attributes of a complex constant
    return _parsed(text[text.index("dense<") + 6 : text.rindex("> : tensor")], spec)


def _parsed(text: str, spec: TensorSpec) -> "np.ndarray[Any, Any]":
    dtype = spec.dtype.numpy
    if text.startswith('"0x'):
        raw = bytes.fromhex(text[3:-1])
        if spec.dtype is DType.bool:
            elements = np.frombuffer(raw, np.uint8).astype(bool)
            if len(raw) < spec.size and spec.size > 8:  # one bit each
                elements = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little")[: spec.size].astype(
                    bool
                )
        else:
            elements = np.frombuffer(raw, dtype)
        return elements.reshape(spec.shape) if elements.size == spec.size else elements.reshape(())
    complex_ = spec.dtype.kind == "complex"
    part = np.empty(0, dtype).real.dtype if complex_ else dtype
    elements = np.array([_number(token, part) for token in _NUMBER.findall(text)], part)
    elements = elements.view(dtype) if complex_ else elements
    return elements.reshape(spec.shape) if elements.size == spec.size else elements.reshape(())


def _number(token: str, dtype: "np.dtype[Any]") -> Any:
    if token in ("true", "false"):
        return token == "true"
    if token.startswith("0x") and dtype.kind != "i":
        return np.array([int(token, 16)], f"u{dtype.itemsize}").view(dtype)[0]
    integer = dtype.kind in "iu" or dtype.name.startswith(("int", "uint"))
    return int(token, 0) if integer else np.float64(token).astype(dtype)
