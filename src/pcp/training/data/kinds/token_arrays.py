"""Files of token numbers: those that nanoGPT and llm.c prepare, and vectors of NumPy; mapped, not read."""

import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pcp.errors import PCPError
from pcp.training.data.kinds.plain_text import expect_file

TokenVector = npt.NDArray[np.integer[Any]]

_HEADER = 256 * 4
_BYTES = {(20240520, 1): 2, (20240801, 7): 4}
"""Of llm.c: 256 numbers of 32 bits, the first two say of how many bytes each token is, and the third how many there are."""
_LOOKED_AT = 1 << 20


class NotTokens(PCPError):
    """A file that should hold token numbers holds something else."""


def bin_tokens(path: Path) -> Iterator[TokenVector]:
    """The tokens of a `.bin` file: uint16 or uint32 one after another, as nanoGPT writes them, or with the header of llm.c.

    Without a header they are uint32 where the upper half of most such numbers is 0 and of none above 15; a file of uint16
    has tokens in their place.

    Raises:
        NotTokens: it is empty, cut off, or of another format.
        OSError: it cannot be read.
    """
    expect_file(path)
    size = path.stat().st_size
    header = np.fromfile(path, "<u4", 3) if size >= _HEADER else np.zeros(3, np.uint32)
    width, count = _BYTES.get((int(header[0]), int(header[1])), 0), int(header[2])
    if width:
        if size != _HEADER + count * width:
            raise NotTokens(
                f"{path} has {size} bytes; its header says {count} tokens of {width} bytes after {_HEADER}. The file is cut "
                "off, or of another version"
            )
        yield np.memmap(path, f"<u{width}", "r", offset=_HEADER, shape=(count,))
        return
    if size == 0 or size % 2:
        raise NotTokens(
            f"{path} has {size} bytes; expected token numbers of 2 or 4 bytes each, as numpy.ndarray.tofile writes them"
        )
    yield np.memmap(path, "<u4" if _is_wide(path, size) else "<u2", "r")


def npy_tokens(path: Path) -> Iterator[TokenVector]:
    """The tokens of a `.npy` file: a vector of integers, or a matrix whose rows follow one another.

    Raises:
        NotTokens: it holds something else.
        OSError: it cannot be read.
    """
    expect_file(path)
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, SyntaxError, tokenize.TokenError) as error:
        raise NotTokens(
            f"{path} cannot be read as np.save writes it: {str(error).partition(chr(10))[0]}"
        ) from None
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iu" or array.ndim not in (1, 2):
        held = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else "several arrays"
        raise NotTokens(
            f"{path} holds {held}; token numbers are integers in a vector, or in a matrix whose rows follow one another. "
            "To train a loss from a file on arrays, save one for each argument of its batch: np.savez('samples.npz', x, y)"
        )
    yield array.reshape(-1)


def holds_a_vector(path: Path, head: bytes = b"PK") -> bool:
    """Whether a `.npz` file holds one array, a vector of integers, which then is token numbers."""
    if path.suffix.lower() != ".npz" or not head.startswith(b"PK"):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            [name] = archive.namelist()
            with archive.open(name) as member:
                version = np.lib.format.read_magic(member)
                shape, _, dtype = _HEADERS[version](member)
        return len(shape) == 1 and dtype.kind in "iu"
    except (OSError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error):
        return False  # whoever reads it says what is wrong


def npz_tokens(path: Path) -> Iterator[TokenVector]:
    """The tokens of a `.npz` file with one vector, which is read whole.

    Raises:
        NotTokens: it is damaged.
        OSError: it cannot be read.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            [name] = file.files
            yield file[name]
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise NotTokens(f"{path} cannot be read as np.savez writes it: {error}") from None


_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def _is_wide(path: Path, size: int) -> bool:
    if size % 4:
        return False
    upper = np.fromfile(path, "<u4", min(size // 4, _LOOKED_AT)) >> 16
    return bool(upper.max() < 16 and (upper == 0).mean() > 0.5)
