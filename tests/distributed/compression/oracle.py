"""The codecs once more, in NumPy and float64, one element after another: what each is by its definition."""

from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]


def bf16_above(value: float) -> float:
    """The smallest number of 8 significant bits that is not below a positive one."""
    step = 2.0 ** (np.floor(np.log2(value)) - 7)
    return float(np.ceil(value / step) * step)


def blockwise(x: Array, block: int, lowest: int) -> tuple[Array, Array]:
    """Scales of shape (blocks,) and integers of shape (blocks, block)."""
    padded = np.zeros(-(-x.size // block) * block)
    padded[: x.size] = x
    blocks = padded.reshape(-1, block)
    largest = [row[abs(row).argmax()] for row in blocks]
    scales = np.array([np.copysign(bf16_above(abs(m / lowest)), m / lowest) for m in largest])
    return scales, np.clip(np.rint(blocks / scales[:, None]), lowest, -lowest - 1).astype(int)


def nibbles(integers: Array) -> Array:
    """Two integers in a byte: an element of the first half of its row, and above it one of the second half."""
    half = integers.shape[1] // 2
    rows = [[(row[i] + 8) | (row[half + i] + 8) << 4 for i in range(half)] for row in integers.tolist()]
    return np.array(rows, np.uint8)


def top_k(x: Array, k: int) -> tuple[Array, float]:
    """What is decoded, before the magnitudes become bf16; and the lowest squared error of the values that are sent."""
    decoded, error = np.zeros(x.size), 0.0
    for start in range(0, x.size, 4096):
        chunk = x[start : start + 4096].astype(np.float64)
        places = np.argsort(-abs(chunk), kind="stable")[:k]
        size = abs(chunk[places])
        errors = [size[:j].var() * j + size[j:].var() * (size.size - j) for j in range(1, size.size)]
        cut = int(np.argmin(errors)) + 1
        means = np.where(np.arange(size.size) < cut, size[:cut].mean(), size[cut:].mean())
        decoded[start + places] = means * np.sign(chunk[places])
        error += min(errors)
    return decoded, error


def bf16(x: Array) -> Array:
    """Rounded as ml_dtypes does."""
    return x.astype(ml_dtypes.bfloat16)
