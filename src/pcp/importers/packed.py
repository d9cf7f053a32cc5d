"""Matrices that GPTQ or AWQ stored in 4 or 8 bits, in a folder of transformers, as PCP keeps them: the same numbers.

A number is an integer less the zero of its group, times the scale of its group. Integers are packed into 32 bits: GPTQ's along
the inputs, AWQ's along the outputs in an order of its own.

Source: Frantar et al., "GPTQ", 2022; Lin et al., "AWQ", 2023; the layouts of their libraries AutoGPTQ and AutoAWQ.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.models.kept import Kept, halves
from pcp.models.names import WeightsMismatch

Array = np.ndarray[Any, Any]
_BLOCK = 32
_OF_AWQ = (0, 2, 4, 6, 1, 3, 5, 7)
"""Which of eight outputs stands in the lowest four bits, and which in those above."""
_METHODS = ("gptq", "awq")
_PARTS = ("qweight", "qzeros", "scales", "g_idx")


class UnsupportedPacking(PCPError):
    """Weights that are stored in fewer bits in a way that is not read."""


class PackedMismatch(WeightsMismatch):
    """Parts of a packed matrix that are missing, or do not belong together."""


def unpacked(tensors: Mapping[str, Any], settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Tensors by their names in transformers, packed ones as `Kept`.

    Arguments:
        tensors: as the files have them.
        settings: `quantization_config` of config.json.
        where: the file, for messages.

    Raises:
        UnsupportedPacking: another method, or one of its forms that is not read.
        PackedMismatch: parts are missing, or of other shapes.
    """
    method, bits = settings.get("quant_method"), settings.get("bits", settings.get("w_bit", 4))
    _check(where, "quant_method", method, _METHODS)
    _check(where, "bits", bits if type(bits) is int else str(bits), (4, 8) if method == "gptq" else (4,))
    if method == "awq":
        _check(where, "version", str(settings.get("version", "gemm")).lower(), ("gemm",))
    form = settings.get("checkpoint_format", "gptq")
    if method == "gptq":
        _check(where, "checkpoint_format", form, ("gptq", "gptq_v2"))
    found = {name: each for name, each in tensors.items() if name.rpartition(".")[2] not in _PARTS}
    for name in tensors:
        stem, _, part = name.rpartition(".")
        if part == "qweight":
            parts = {kind: tensors[f"{stem}.{kind}"] for kind in _PARTS if f"{stem}.{kind}" in tensors}
            zero = (
                1 if method == "gptq" and form == "gptq" else 0
            )  # the former version writes zeros one too small
            found[f"{stem}.weight"] = _matrix(stem, parts, method == "awq", bits, zero)
    return found


def _check(where: str, name: str, value: Any, known: tuple[Any, ...]) -> None:
    if value not in known:
        raise UnsupportedPacking(
            f"{where} has weights whose {name} is {value!r}; {' or '.join(map(repr, known))} is read. Store them so, or use "
            "the model as it was before, with --weights int4"
        )


def _matrix(stem: str, parts: Mapping[str, Array], is_awq: bool, bits: int, zero: int) -> Kept:
    absent = [kind for kind in _PARTS[:3] if kind not in parts]
    if absent:
        raise PackedMismatch(
            f"{stem} has a qweight without {', '.join(absent)}: copy or download its files again"
        )
    given, many = parts["qweight"], 32 // bits
    words = all(parts[kind].dtype.kind in "iu" and parts[kind].dtype.itemsize == 4 for kind in _PARTS[:2])
    if not words or any(np.ndim(parts[kind]) != 2 or not parts[kind].size for kind in _PARTS[:3]):
        raise _unfit(
            stem, parts, f"integers of 32 bits and scales along two axes, {many} numbers in 32 bits,"
        )
    integers = _nibbles(given, bits, _OF_AWQ).T if is_awq else _nibbles(given.T, bits)
    zeros = _nibbles(parts["qzeros"], bits, _OF_AWQ if is_awq else None).T.astype(np.float32) + zero
    scales = np.ascontiguousarray(parts["scales"].T, np.float32)
    outputs, inputs = integers.shape
    groups = scales.shape[1]
    each = inputs // max(groups, 1)
    if scales.shape != zeros.shape or len(scales) != outputs or each * groups != inputs:
        whole = f"with {many} numbers in 32 bits, scales of {outputs} outputs and a whole number of groups of {inputs} inputs"
        raise _unfit(stem, parts, whole)
    if each % _BLOCK:
        raise UnsupportedPacking(
            f"{stem} has groups of {each} inputs; a multiple of {_BLOCK} is read. Store the model in groups of 128"
        )
    if "g_idx" in parts and not np.array_equal(parts["g_idx"], np.arange(inputs) // each):
        raise UnsupportedPacking(
            f"{stem} has inputs in an order of their own (desc_act), which is not read: store the model with desc_act=False"
        )
    half = 1 << bits - 1
    values = (
        halves(integers.reshape(outputs, -1, _BLOCK)).reshape(outputs, -1) if bits == 4 else _signed(integers)
    )
    offsets = (half - zeros) * scales
    more = {"offsets": offsets} if offsets.any() else {}
    return Kept({"values": values, "scales": np.repeat(scales, each // _BLOCK, 1), **more})


def _unfit(stem: str, parts: Mapping[str, Array], expected: str) -> PackedMismatch:
    shapes = {kind: list(part.shape) for kind, part in parts.items()}
    types = ", ".join(dict.fromkeys(str(part.dtype) for part in parts.values()))
    return PackedMismatch(
        f"the parts of {stem} have shapes {shapes} and types {types}, which do not belong together: {expected} are expected"
    )


def _signed(integers: Array) -> Array:
    return (integers ^ np.uint8(128)).view(np.int8)


def _nibbles(packed: Array, bits: int, order: tuple[int, ...] | None = None) -> Array:
    """Integers of 4 or 8 bits along the last axis, from numbers of 32 bits, the lowest first.

    Arguments:
        order: which number stands where in the 32 bits.
    """
    content = np.ascontiguousarray(packed).view(np.uint8).reshape(*packed.shape, 4)
    if bits == 4:
        content = np.stack([content & 15, content >> 4], -1).reshape(*packed.shape, 8)
    if order is not None:
        content = content[..., np.argsort(order)]
    return content.reshape(*packed.shape[:-1], -1)
