"""Named arrays that a user made: an `.npz` file, or a safetensors file."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from pcp.errors import PCPError
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
    """
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
                return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UnreadableFile(
            f"cannot read arrays from {path}: {error}; expected what np.savez writes"
        ) from None
    raise UnreadableFile(f"{path} holds one array; expected several by name, as np.savez writes them")
