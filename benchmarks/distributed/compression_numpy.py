"""The codecs in NumPy, as one would write them there: the peer of compression.py."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
Payload = tuple[Array, ...]


def _blocks(x: Array, block: int, lowest: int) -> tuple[Array, Array]:
    blocks = np.pad(x, (0, -x.size % block)).reshape(-1, block)
    most, least = blocks.max(1), blocks.min(1)
    scales = np.where(most > -least, most, least) * np.float32(1 / lowest)
    scales = ((scales.view(np.uint32) + np.uint32(0xFFFF)) & np.uint32(0xFFFF0000)).view(np.float32)
    return scales, np.clip(np.rint(blocks / np.where(scales != 0, scales, 1)[:, None]), lowest, -lowest - 1)


def _int8(x: Array) -> Payload:
    scales, integers = _blocks(x, 128, -128)
    return scales.astype(ml_dtypes.bfloat16), integers.astype(np.int8)


def _from_int8(payload: Payload, n: int) -> Array:
    scales, integers = payload
    decoded: Array = (integers * scales.astype(np.float32)[:, None]).ravel()[:n]
    return decoded


def _int4(x: Array) -> Payload:
    scales, integers = _blocks(x, 128, -8)
    nibbles = (integers + 8).astype(np.uint8)
    return scales.astype(ml_dtypes.bfloat16), nibbles[:, :64] | nibbles[:, 64:] << 4


def _from_int4(payload: Payload, n: int) -> Array:
    scales, nibbles = payload
    integers = np.concatenate([nibbles & 15, nibbles >> 4], 1).astype(np.float32) - 8
    decoded: Array = (integers * scales.astype(np.float32)[:, None]).ravel()[:n]
    return decoded


def _top_k(x: Array) -> Payload:
    chunks = np.pad(x, (0, -x.size % 4096)).reshape(-1, 4096)
    places = np.argpartition(abs(chunks), 4096 - 64, axis=1)[:, -64:]
    values = np.take_along_axis(chunks, places, 1)
    size = abs(values)
    cut = size.mean(1, keepdims=True)
    smaller = size < cut
    larger_mean = np.where(smaller, 0, size).sum(1) / np.maximum((~smaller).sum(1), 1)
    smaller_mean = np.where(smaller, size, 0).sum(1) / np.maximum(smaller.sum(1), 1)
    codes = ((values < 0) * 2 + smaller).astype(np.uint8).reshape(-1, 4, 16)
    first, second = places[:, :32], places[:, 32:]
    packed = np.concatenate([first & 255, first >> 8 | second >> 8 << 4, second & 255], 1).astype(np.uint8)
    magnitudes = np.stack([larger_mean, smaller_mean], 1).astype(ml_dtypes.bfloat16)
    return magnitudes, packed, codes[:, 0] | codes[:, 1] << 2 | codes[:, 2] << 4 | codes[:, 3] << 6


def _from_top_k(payload: Payload, n: int) -> Array:
    magnitudes, packed, codes = payload
    first, nibbles, second = np.split(packed.astype(np.int64), 3, 1)
    places = np.concatenate([first | (nibbles & 15) << 8, second | nibbles >> 4 << 8], 1)
    codes = np.concatenate([codes >> 2 * i & 3 for i in range(4)], 1)
    values = np.take_along_axis(magnitudes.astype(np.float32), (codes & 1).astype(np.int64), 1)
    chunks = np.zeros((len(codes), 4096), np.float32)
    np.put_along_axis(chunks, places, np.where(codes > 1, -values, values), 1)
    return chunks.ravel()[:n]


ENCODE: dict[str, Callable[[Array], Payload]] = {
    "f32": lambda x: (x.copy(),),
    "bf16": lambda x: (x.astype(ml_dtypes.bfloat16),),
    "int8": _int8,
    "int4": _int4,
    "top-k": _top_k,
}
DECODE: dict[str, Callable[[Payload, int], Array]] = {
    "f32": lambda payload, n: payload[0][:n].copy(),
    "bf16": lambda payload, n: payload[0].astype(np.float32)[:n],
    "int8": _from_int8,
    "int4": _from_int4,
    "top-k": _from_top_k,
}
