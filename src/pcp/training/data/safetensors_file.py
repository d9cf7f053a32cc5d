"""Named arrays in a safetensors file, streamed: written and read in one pass that also computes the digest.

The package `safetensors` reads and writes the same files, but it hides from the caller what a full disk or an
interrupted write is, and its NumPy side knows bfloat16 only in part.
"""

import hashlib
import io
import json
import math
import mmap
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np
import numpy.typing as npt

from pcp.errors import PCPError

Array = npt.NDArray[Any]

_CODES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "I16": np.dtype(np.int16),
    "I8": np.dtype(np.int8),
    "U64": np.dtype(np.uint64),
    "U32": np.dtype(np.uint32),
    "U16": np.dtype(np.uint16),
    "U8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}
_CODE_OF = {dtype: code for code, dtype in _CODES.items()}
LARGEST_HEADER_BYTES = 100_000_000


class UnsupportedArray(PCPError):
    """An array's dtype has no place in a safetensors file."""


class SafetensorsForeign(PCPError):
    """The file is not a safetensors file."""


class SafetensorsTruncated(PCPError):
    """The file is shorter than its header says."""


class SafetensorsCorrupt(PCPError):
    """The header describes arrays that cannot be."""


def header_of(arrays: Mapping[str, Array], metadata: Mapping[str, str] | None = None) -> bytes:
    """The header of a file of these arrays, after the eight bytes of its length; only element types and shapes matter.

    Arguments:
        metadata: what else it says, as `{"format": "pt"}`, which transformers wants.

    Raises:
        UnsupportedArray: an array's dtype is not one of the format's.
    """
    for name, array in arrays.items():
        if array.dtype.newbyteorder("=") not in _CODE_OF:
            raise UnsupportedArray(
                f"Array {name!r} has dtype {array.dtype}; a safetensors file holds "
                f"{', '.join(str(dtype) for dtype in _CODE_OF)}."
            )
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name in _in_file_order(arrays):
        array = arrays[name]
        end = offset + array.nbytes
        code = _CODE_OF[array.dtype.newbyteorder("=")]
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % 8)


def _in_file_order(arrays: Mapping[str, Array]) -> list[str]:
    return sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))


def write_arrays(
    file: BinaryIO, arrays: Mapping[str, Array], metadata: Mapping[str, str] | None = None
) -> str:
    """Write arrays to an open file, largest elements first so that every array is aligned.

    Arguments:
        file: where the bytes go; only `write` is used.
        arrays: name -> array of any shape and memory order.
        metadata: texts by name beside them.

    Returns:
        SHA-256 of what was written, in hex.

    Raises:
        UnsupportedArray: an array's dtype is not one of the format's.
        OSError: as the file raises it, for example when the disk is full.
    """
    digest = hashlib.sha256()
    for piece in pieces_of(arrays, metadata):
        file.write(piece)
        digest.update(piece)
    return digest.hexdigest()


def pieces_of(
    arrays: Mapping[str, Array], metadata: Mapping[str, str] | None = None
) -> Iterator[bytes | memoryview]:
    """The bytes of a file of arrays, in order: the header, then each array, copied only where its memory is in another order.

    Raises:
        UnsupportedArray: an array's dtype is not one of the format's.
    """
    text = header_of(arrays, metadata)
    yield struct.pack("<Q", len(text)) + text
    for name in _in_file_order(arrays):
        array = arrays[name]
        yield _bytes_of(np.array(array, array.dtype.newbyteorder("="), order="C", copy=None))


def read_arrays(path: Path, largest_header: int = LARGEST_HEADER_BYTES) -> tuple[dict[str, Array], str]:
    """Read every array of a file into memory of its own.

    Arguments:
        largest_header: bytes that its header may have; reading one takes many times its size in memory.

    Returns:
        Name -> array, and SHA-256 of the whole file in hex.

    Raises:
        SafetensorsForeign: the file is of another format.
        SafetensorsTruncated: it ends early.
        SafetensorsCorrupt: its header is inconsistent.
        OSError: it cannot be opened or read.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        digest = hashlib.sha256()
        layout, data_start = _read_header(path, file, size, digest, largest_header)
        arrays: dict[str, Array] = {}
        for name, dtype, shape, _, _ in _checked_layout(path, layout, data_start, size):
            array = np.empty(shape, dtype)
            file.readinto(_bytes_of(array))
            digest.update(_bytes_of(array))
            arrays[name] = array
    return arrays, digest.hexdigest()


def map_arrays(path: Path) -> dict[str, Array]:
    """Views of every array of a file, mapped into memory: nothing is read before it is used, nothing is copied.

    The file must not change while the arrays live. They are read-only, and lie where the file has them, so any address may be
    that of an array.

    Raises:
        SafetensorsForeign, SafetensorsTruncated, SafetensorsCorrupt, OSError: as `read_arrays`.
    """
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return view_arrays(path, np.empty(0, np.uint8))  # nothing cannot be mapped
        return view_arrays(
            path, np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        )


def view_arrays(
    path: Path, content: npt.NDArray[np.uint8], largest_header: int = LARGEST_HEADER_BYTES
) -> dict[str, Array]:
    """Views of every array of a file whose bytes are in memory already; see `map_arrays`.

    Arguments:
        path: of the file, for messages.
        content: all of its bytes.
        largest_header: as `read_arrays`.
    """
    length = int.from_bytes(content[:8].tobytes(), "little")
    header = io.BytesIO(content[: 8 + min(length, largest_header)].tobytes())
    layout, data_start = _read_header(path, header, content.size, hashlib.sha256(), largest_header)
    rows = _checked_layout(path, layout, data_start, content.size)
    data = content[data_start:]
    return {name: data[start:stop].view(dtype).reshape(shape) for name, dtype, shape, start, stop in rows}


def _checked_layout(path: Path, layout: list["Row"], data_start: int, size: int) -> list["Row"]:
    """The rows of a header in the order of the file, which they cover without gaps."""
    rows = sorted(layout, key=lambda row: (row[3], row[4]))
    end = 0
    for name, dtype, shape, start, stop in rows:
        if not _can_be(dtype, shape):
            raise SafetensorsCorrupt(
                f"{path}: array {name!r} has {len(shape)} dimensions, the largest of {max(shape)}: no array is like that."
            )
        if start != end or stop - start != int(np.prod(shape, dtype=object)) * dtype.itemsize:
            raise SafetensorsCorrupt(
                f"{path}: array {name!r} of shape {tuple(shape)} and dtype {dtype} is said to lie at bytes "
                f"{start} to {stop}, which does not fit. The header is damaged."
            )
        end = stop
        if data_start + stop > size:
            raise SafetensorsTruncated(
                f"{path} has {size} bytes; its header places array {name!r} up to byte "
                f"{data_start + stop}. The file is incomplete."
            )
    if data_start + end != size:
        raise SafetensorsCorrupt(f"{path} has {size - data_start - end} bytes more than its header says.")
    return rows


def _can_be(dtype: np.dtype[Any], shape: list[int]) -> bool:
    """Whether NumPy has arrays of a shape, which may be empty and still too large in other directions."""
    try:
        np.empty([min(1, each) for each in shape], dtype)
        return math.prod(each for each in shape if each) * dtype.itemsize < 1 << 63
    except ValueError:
        return False


def _bytes_of(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


Row = tuple[str, np.dtype[Any], list[int], int, int]


def _read_header(path: Path, file: BinaryIO, size: int, digest: Any, largest: int) -> tuple[list[Row], int]:
    prefix = file.read(8)
    length = int.from_bytes(prefix, "little")
    first = file.read(1)
    if len(prefix) < 8 or not 2 <= length <= LARGEST_HEADER_BYTES or first not in (b"{", b""):
        raise SafetensorsForeign(
            f"{path} is not a safetensors file: it begins with {(prefix + first)[:12]!r}, "
            f"expected the length of a JSON header and the header."
        )
    if length > largest:
        raise SafetensorsCorrupt(
            f"{path} has a header of {length} bytes; that of the arrays that are expected has at most {largest}."
        )
    if 8 + length > size:
        raise SafetensorsTruncated(
            f"{path} ends inside its header, after {size} bytes. The file is incomplete."
        )
    text = first + file.read(length - 1)
    digest.update(prefix)
    digest.update(text)
    try:
        header = json.loads(text)
        layout = [_row(name, entry) for name, entry in header.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SafetensorsCorrupt(f"{path}: the header cannot be read: {error!r}.") from error
    return layout, 8 + length


def _row(name: str, entry: dict[str, Any]) -> Row:
    shape, (start, stop) = entry["shape"], entry["data_offsets"]
    if type(shape) is not list:
        raise ValueError(f"array {name!r} has a shape that is no list")
    if not all(type(number) is int and 0 <= number < 1 << 63 for number in [*shape, start, stop]):
        raise ValueError(f"array {name!r} has a size or place that is not a whole number below 2^63")
    return name, _CODES[entry["dtype"]], shape, start, stop
