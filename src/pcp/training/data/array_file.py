"""Named arrays that a user made: an `.npz` file, or a safetensors file."""

import struct
import tokenize
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from pcp.ir.program_file import UnreadableFile
from pcp.systems import memory_bytes
from pcp.training.data.kinds.plain_text import expect_file
from pcp.training.data.safetensors_file import (
    SafetensorsCorrupt,
    SafetensorsForeign,
    SafetensorsTruncated,
    map_arrays,
    read_arrays,
)

SUFFIXES = (".npz", ".safetensors")
_PIECE = 1 << 22
_LOCAL_HEADER, _NAME_LENGTH = 30, 26
"""Bytes before the name of a member of a zip archive, and where among them its length stands."""


_DAMAGES = (
    OSError,
    ValueError,
    EOFError,
    RuntimeError,
    MemoryError,
    OverflowError,
    RecursionError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What NumPy may raise of a file that somebody damaged, or made up."""


Array = np.ndarray[Any, Any]


def map_array_file(path: Path) -> dict[str, Array]:
    """The arrays of a file by their names, mapped into memory but for those that are compressed; see `read_array_file`.

    The file must not change while the arrays live.
    """
    return _arrays_in(path, map_arrays, _mapped)


def read_array_file(path: Path) -> dict[str, Array]:
    """The arrays of a file by their names; `.safetensors` files are read as safetensors, others as what np.savez writes.

    Raises:
        UnreadableFile: it is not there, or holds no arrays; objects are never unpickled.
        NotAFile: it is a pipe, a socket or a device.
    """
    return _arrays_in(path, lambda file: read_arrays(file)[0], lambda _path, _archive, _info: None)


def _arrays_in(
    path: Path,
    of_safetensors: Callable[[Path], dict[str, Array]],
    mapped: Callable[[Path, zipfile.ZipFile, zipfile.ZipInfo], Array | None],
) -> dict[str, Array]:
    try:
        expect_file(path)
    except OSError as error:
        raise UnreadableFile(f"cannot read arrays from {path}: {error.strerror or error}") from None
    if path.suffix == ".safetensors":
        try:
            return of_safetensors(path)
        except OSError as error:
            raise UnreadableFile(f"cannot read arrays from {path}: {error.strerror or error}") from None
        except (SafetensorsCorrupt, SafetensorsForeign, SafetensorsTruncated, ValueError) as error:
            raise UnreadableFile(f"cannot read arrays from {path}: {error}") from None
    try:
        with open(path, "rb") as raw:
            file = np.load(raw, allow_pickle=False)
            if isinstance(file, np.lib.npyio.NpzFile):
                archive = cast(zipfile.ZipFile, file.zip)
                arrays: dict[str, Array] = {}
                for name in _once(archive):
                    array = mapped(path, archive, archive.getinfo(name))
                    arrays |= {} if array is None else {name.removesuffix(".npy"): array}
                packed = [name for name in file.files if name not in arrays]
                _expect_room(archive, packed)
                arrays = {name: arrays[name] if name in arrays else file[name] for name in file.files}
                others = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]
                if others:
                    raise ValueError(f"{others[0]!r} in it is no array")
                return arrays
    except _DAMAGES as error:
        raise UnreadableFile(
            f"cannot read arrays from {path}: {str(error).partition(chr(10))[0]}; expected what np.savez writes"
        ) from None
    raise UnreadableFile(f"{path} holds one array; expected several by name, as np.savez writes them")


def _once(archive: zipfile.ZipFile) -> list[str]:
    """The names of what a packed file holds, each of which must be there once."""
    names = archive.namelist()
    name, count = Counter(names).most_common(1)[0] if names else ("", 1)
    if count > 1:
        raise ValueError(f"{name!r} is in it {count} times")
    return names


def _expect_room(archive: zipfile.ZipFile, names: Sequence[str]) -> None:
    """Check that what is unpacked from a packed file fits in memory, before it is."""
    infos = [info for info in archive.infolist() if info.filename.removesuffix(".npy") in names]
    total, room = sum(each.file_size for each in infos), memory_bytes()
    if total > room:
        raise ValueError(f"it unpacks to {total} bytes, and this machine has {room} bytes of memory")


def _mapped(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array | None:
    """An array that lies in a packed file as it is; None for one that is compressed."""
    if info.compress_type != zipfile.ZIP_STORED or not info.filename.endswith(".npy"):
        return None
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(
            version
        )
        if read is None:
            return None
        shape, is_fortran, dtype = read(member)
        begin = member.tell()
        while member.read(_PIECE):  # which checks the sum of it all
            pass
    if dtype.hasobject or 0 in shape or not shape:
        return None
    with path.open("rb") as raw:
        raw.seek(info.header_offset + _NAME_LENGTH)
        name, extra = struct.unpack("<HH", raw.read(4))
    offset = info.header_offset + _LOCAL_HEADER + name + extra + begin
    return np.memmap(path, dtype, "r", offset, shape, "F" if is_fortran else "C")
