"""A GGUF file: what it says of a model, and its tensors, mapped into memory.

Source: the specification of GGUF, versions 2 and 3, in docs/gguf.md of the repository ggml.
"""

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.importers.gguf.blocks import KINDS, Array, Kind

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_SCALARS = dict(enumerate(("B", "b", "H", "h", "I", "i", "f", "?"))) | {10: "Q", 11: "q", 12: "d"}
"""Number of a type -> its code in `struct`."""
_TEXT, _LIST = 8, 9
_MOST_AXES = 4
_NAMES = {
    10: "Q2_K", 11: "Q3_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S",
    23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip
"""Kinds that are not read, for messages."""


class GgufForeign(PCPError):
    """A file that is no GGUF file."""


class GgufVersion(PCPError):
    """A GGUF file of a version that is not read."""


class GgufTruncated(PCPError):
    """A GGUF file that ends before what it says it holds."""


class GgufCorrupt(PCPError):
    """A GGUF file that says what cannot be."""


class UnknownQuantisation(PCPError):
    """A tensor in a form that is not read."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor as it lies in a file.

    Arguments:
        name: of the tensor.
        kind: how its numbers are written.
        shape: rows first.
        content: its bytes.
    """

    name: str
    kind: Kind
    shape: tuple[int, ...]
    content: Array


@dataclass(frozen=True, slots=True)
class Container:
    """What a GGUF file holds.

    Arguments:
        settings: by name.
        tensors: by name.
    """

    settings: dict[str, Any]
    tensors: dict[str, Stored]


def opened(path: Path) -> Container:
    """What a file holds; tensors stay in the file, which must not change while they live.

    Raises:
        GgufForeign, GgufVersion, GgufTruncated, GgufCorrupt, UnknownQuantisation: see their names.
    """
    with path.open("rb") as file:
        if file.read(4) != MAGIC:
            raise GgufForeign(f"{path} is no GGUF file: it does not begin with {MAGIC.decode()}")
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    reader = _Reader(path, content)
    version, tensors, settings = reader.numbers("<IQQ")
    if version not in _VERSIONS:
        raise GgufVersion(
            f"{path} is of version {version} of GGUF; expected 2 or 3, written by little-endian machines: convert it again "
            "with convert_hf_to_gguf.py of llama.cpp"
        )
    said: dict[str, Any] = {}
    for _ in range(settings):
        name = reader.text()
        said[name] = reader.value()
    rows = [reader.tensor() for _ in range(tensors)]
    return Container(said, reader.placed(rows, said.get("general.alignment", 32)))


_Row = tuple[str, Kind, tuple[int, ...], int]
"""Name, kind, shape and place of a tensor."""


class _Reader:
    """Reads one thing after another.

    Arguments:
        path: of the file, for messages.
        content: all of it.
    """

    def __init__(self, path: Path, content: Any) -> None:
        self._path, self._content, self._place = path, content, len(MAGIC)
        self._of_scalar: dict[int, Callable[[], Any]] = {
            number: lambda code="<" + code: self.numbers(code)[0]  # type: ignore[misc]  # mypy infers no type of a default
            for number, code in _SCALARS.items()
        }

    def numbers(self, form: str) -> tuple[Any, ...]:
        """Numbers as `struct` writes them."""
        return struct.unpack(form, self._taken(struct.calcsize(form)))

    def _taken(self, size: int) -> bytes:
        place, end = self._place, self._place + size
        if end > len(self._content):
            raise GgufTruncated(
                f"{self._path} has {len(self._content)} bytes and ends within what it says of its model: copy or download it "
                "again"
            )
        self._place = end
        found: bytes = self._content[place:end]
        return found

    def text(self) -> str:
        """A text behind its length."""
        return self._taken(self.numbers("<Q")[0]).decode("utf-8", "replace")

    def value(self) -> Any:
        """A value behind the number of its type."""
        kind = self.numbers("<I")[0]
        if kind != _LIST:
            return self._read(kind)()
        kind, count = self.numbers("<IQ")
        if kind in _SCALARS:
            code = np.dtype(f"<{_SCALARS[kind]}")
            return np.frombuffer(self._taken(count * code.itemsize), code).tolist()
        read = self._read(kind)
        return [read() for _ in range(count)]

    def _read(self, kind: int) -> Callable[[], Any]:
        if kind == _TEXT:
            return self.text
        if kind not in _SCALARS:
            raise GgufCorrupt(
                f"{self._path} has a value of type {kind} before byte {self._place}; expected one of 0 to 12, and no list "
                "within a list"
            )
        return self._of_scalar[kind]

    def tensor(self) -> _Row:
        """What the file says of a tensor."""
        name, axes = self.text(), self.numbers("<I")[0]
        if axes > _MOST_AXES:
            raise GgufCorrupt(f"{self._path}: tensor {name} has {axes} axes; expected at most {_MOST_AXES}")
        *sizes, kind, place = self.numbers(f"<{axes}QIQ")
        known = KINDS.get(kind)
        if known is None:
            names = ", ".join(each.name for each in KINDS.values())
            raise UnknownQuantisation(
                f"{self._path}: tensor {name} is in {_NAMES.get(kind, f'form {kind}')}; {names} are "
                "read. Quantise the model again, with `llama-quantize MODEL-F16.gguf OUT.gguf Q4_K_M`, say"
            )
        is_flat = known.parts is not None and len(sizes) < 2
        if not sizes or 0 in sizes or is_flat or sizes[0] % known.numbers:
            raise GgufCorrupt(
                f"{self._path}: tensor {name} of shape {sizes[::-1]} is in {known.name}, which needs rows of a multiple of "
                f"{known.numbers} numbers, and two axes that are not empty"
            )
        return name, known, tuple(sizes[::-1]), place

    def placed(self, rows: list[_Row], alignment: Any) -> dict[str, Stored]:
        """The tensors where they lie."""
        if type(alignment) is not int or alignment < 1:
            raise GgufCorrupt(
                f"{self._path} sets general.alignment to {alignment!r}; expected a positive number"
            )
        start = -(-self._place // alignment) * alignment
        content, found = np.frombuffer(self._content, np.uint8), dict[str, Stored]()
        for name, kind, shape, place in rows:
            count = 1
            for size in shape:
                count *= size
            begin = start + place
            end = begin + count // kind.numbers * kind.size
            if end > len(content):
                raise GgufTruncated(
                    f"{self._path} has {len(content)} bytes, and tensor {name} ends at byte {end}: copy or download it again"
                )
            if name in found:
                raise GgufCorrupt(f"{self._path} has two tensors {name}")
            found[name] = Stored(name, kind, shape, content[begin:end])
        return found
