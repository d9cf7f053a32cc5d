"""Writes tiny GGUF files, number by number, and says what blocks mean, bit by bit, as their specification does."""

import struct
from pathlib import Path
from typing import Any

import numpy as np

SIZES = {"F32": (1, 4), "F16": (1, 2), "Q4_0": (32, 18), "Q4_1": (32, 20), "Q5_0": (32, 22), "Q5_1": (32, 24), "Q8_0": (32, 34),
         "Q4_K": (256, 144), "Q5_K": (256, 176), "Q6_K": (256, 210), "BF16": (1, 2)}  # fmt: skip
NUMBERS = {
    "F32": 0,
    "F16": 1,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q5_0": 6,
    "Q5_1": 7,
    "Q8_0": 8,
    "Q4_K": 12,
    "Q5_K": 13,
    "Q6_K": 14,
    "BF16": 30,
}


def text(value: str) -> bytes:
    content = value.encode()
    return struct.pack("<Q", len(content)) + content


def value_of(value: Any) -> bytes:
    if isinstance(value, list):
        inner = [value_of(each) for each in value]
        return (
            struct.pack("<I", 9)
            + inner[0][:4]
            + struct.pack("<Q", len(value))
            + b"".join(each[4:] for each in inner)
        )
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    return struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<I", 8) + text(value)


def write(
    path: Path, settings: dict[str, Any], tensors: dict[str, tuple[str, Any]], version: int = 3
) -> None:
    """Write a file; tensors are kinds and arrays, of blocks bytes (rows, bytes of a row)."""
    head, data = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(settings)), b""
    for name, value in settings.items():
        head += text(name) + value_of(value)
    for name, (kind, array) in tensors.items():
        numbers, size = SIZES[kind]
        shape = array.shape if numbers == 1 else (array.shape[0], array.shape[1] // size * numbers)
        axes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        head += text(name) + axes + struct.pack("<IQ", NUMBERS[kind], len(data))
        data += array.tobytes() + bytes(-array.nbytes % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + data)


def blocks(kind: str, rows: int, inputs: int, seed: int) -> Any:
    """Random bytes whose scales are small numbers, (rows, bytes of a row)."""
    numbers, size = SIZES[kind]
    found = np.random.default_rng(seed).integers(0, 256, (rows * inputs // numbers, size), np.uint8)
    places = {"Q6_K": [(208, 2e-4)], "Q4_K": [(0, 2e-3), (2, 2e-3)], "Q5_K": [(0, 1e-3), (2, 1e-3)]}
    of_fifth = {"Q4_1": -0.07, "Q5_1": -0.1}
    scale = {"Q8_0": 7e-4, "Q5_0": 6e-3, "Q5_1": 6e-3}.get(kind, 1e-2)
    for place, number in places.get(kind, [(0, scale)] + ([(2, of_fifth[kind])] if kind in of_fifth else [])):
        varied = np.random.default_rng(seed + place).uniform(0.8, 1.2, (len(found), 1)) * number
        found[:, place : place + 2] = varied.astype(np.float16).view(np.uint8)
    return found.reshape(rows, -1)


def meaning(kind: str, content: Any, inputs: int) -> Any:
    """The numbers that blocks mean, in float64, (rows, inputs)."""
    _, size = SIZES[kind]
    parts = [_of_block(kind, bytes(block)) for block in content.reshape(-1, size)]
    return np.array(parts, np.float64).reshape(-1, inputs)


def _half(block: bytes, place: int) -> float:
    return float(struct.unpack_from("<e", block, place)[0])


def _of_block(kind: str, block: bytes) -> list[float]:
    scale = _half(block, 208 if kind == "Q6_K" else 0)
    if kind == "Q8_0":
        return [scale * number for number in struct.unpack_from("<32b", block, 2)]
    if kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1"):
        return _of_small_block(kind, block, scale)
    return _of_six(block, scale) if kind == "Q6_K" else _of_large_block(kind, block, scale)


def _of_small_block(kind: str, block: bytes, scale: float) -> list[float]:
    least = _half(block, 2) if kind[-1] == "1" else 0.0
    place, found = (4 if kind[-1] == "1" else 2), []
    high = 0
    if kind[1] == "5":
        high, place = struct.unpack_from("<I", block, place)[0], place + 4
    for i in range(32):
        byte = block[place + i % 16]
        number = (byte >> 4 if i >= 16 else byte & 15) | (high >> i & 1) << 4
        below = 0 if kind[-1] == "1" else 8 if kind[1] == "4" else 16
        found.append(scale * (number - below) + least)
    return found


def _of_large_block(kind: str, block: bytes, scale: float) -> list[float]:
    below, packed, found = _half(block, 2), block[4:16], []
    for i in range(256):
        part = i // 32
        if part < 4:
            times, least = packed[part] & 63, packed[part + 4] & 63
        else:
            times = packed[part + 4] & 15 | packed[part - 4] >> 6 << 4
            least = packed[part + 4] >> 4 | packed[part] >> 6 << 4
        byte = block[(48 if kind == "Q5_K" else 16) + part // 2 * 32 + i % 32]
        number = byte >> 4 if part % 2 else byte & 15
        if kind == "Q5_K":
            number |= (block[16 + i % 32] >> part & 1) << 4
        found.append(scale * times * number - below * least)
    return found


def _of_six(block: bytes, scale: float) -> list[float]:
    found = []
    for i in range(256):
        half, part, place = i // 128, i % 128 // 32, i % 32
        low = block[64 * half + 32 * (part % 2) + place] >> (4 if part >= 2 else 0) & 15
        high = block[128 + 32 * half + place] >> 2 * part & 3
        times = struct.unpack_from("<b", block, 192 + i // 16)[0]
        found.append(scale * times * ((low | high << 4) - 32))
    return found
