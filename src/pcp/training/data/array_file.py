"""Named arrays that a user made: an `.npz` file, or a safetensors file."""

import struct
import tokenize
import zipfile
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from pcp.ir.program_file import UnreadableFile
from pcp.systems import memory_bytes
from pcp.training.data.kinds.plain_text import expect_file
from pcp.training.data.safetensors_file import (
    SafetensorsCorrupt,
    SafetensorsForeign,
    SafetensorsTruncated,
    read_arrays,
)

SUFFIXES = (".npz", ".safetensors")


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


def read_array_file(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a file by their names; `.safetensors` files are read as safetensors, others as what np.savez writes.

    Raises:
        UnreadableFile: it is not there, or holds no arrays; objects are never unpickled.
        NotAFile: it is a pipe, a socket or a device.
    """
    try:
        expect_file(path)
    except OSError as error:
        raise UnreadableFile(f"cannot read arrays from {path}: {error.strerror or error}") from None
    if path.suffix == ".safetensors":
        try:
            return read_arrays(path)[0]
        except OSError as error:
            raise UnreadableFile(f"cannot read arrays from {path}: {error.strerror or error}") from None
        except (SafetensorsCorrupt, SafetensorsForeign, SafetensorsTruncated, ValueError) as error:
            raise UnreadableFile(f"cannot read arrays from {path}: {error}") from None
    try:
        with open(path, "rb") as raw:
            file = np.load(raw, allow_pickle=False)
            if isinstance(file, np.lib.npyio.NpzFile):
                _expect_room(file)
                arrays = {name: file[name] for name in file.files}
                others = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]
                if others:
                    raise ValueError(f"{others[0]!r} in it is no array")
                return arrays
    except _DAMAGES as error:
        raise UnreadableFile(
            f"cannot read arrays from {path}: {str(error).partition(chr(10))[0]}; expected what np.savez writes"
        ) from None
    raise UnreadableFile(f"{path} holds one array; expected several by name, as np.savez writes them")


def _expect_room(file: Any) -> None:
    """Check that what a packed file unpacks to fits in memory, before it is unpacked, and that each name is there once."""
    infos = file.zip.infolist()
    total, room = sum(each.file_size for each in infos), memory_bytes()
    if total > room:
        raise ValueError(f"it unpacks to {total} bytes, and this machine has {room} bytes of memory")
    name, count = Counter(each.filename for each in infos).most_common(1)[0] if infos else ("", 1)
    if count > 1:
        raise ValueError(f"{name!r} is in it {count} times")
