"""Named arrays that a user made: an `.npz` file, or a safetensors file."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.training.data.kinds.plain_text import expect_file
from pcp.training.data.safetensors_file import (
    SafetensorsCorrupt,
    SafetensorsForeign,
    SafetensorsTruncated,
    read_arrays,
)

SUFFIXES = (".npz", ".safetensors")


class UnreadableFile(PCPError):
    """A file that is not there, or is not of the kind that was asked for."""


def read_array_file(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a file by their names; a file called `.safetensors` is read as such, any other as what np.savez writes.

    Raises:
        UnreadableFile: it is not there, or no such file; objects are never unpickled.
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
                arrays = {name: file[name] for name in file.files}
                others = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]
                if others:
                    raise ValueError(f"{others[0]!r} in it is no array")
                return arrays
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise UnreadableFile(
            f"cannot read arrays from {path}: {error}; expected what np.savez writes"
        ) from None
    raise UnreadableFile(f"{path} holds one array; expected several by name, as np.savez writes them")
