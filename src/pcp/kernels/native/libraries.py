"""The native libraries that PCP ships as source: one file of C++ each, with the headers that it includes.

`setup.py` loads this file alone, so it imports nothing but the standard library.
"""

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
_GAP = rb"(?:\s|/\*.*?\*/)*"
_INCLUDE = re.compile(
    rb"^(?:\xef\xbb\xbf)?" + _GAP.join((b"", b"#", rb"(?:include(?:_next)?|import|embed)", rb'"([^"\n]+)"')),
    re.MULTILINE | re.DOTALL,
)
_HANDLER = re.compile(r"^PCP_[A-Z]+\(pcp_(\w+),", re.MULTILINE)
_CONTINUED = re.compile(rb"\\\r?\n")


@dataclass(frozen=True, slots=True)
class Library:
    """C++ that becomes one shared library.

    Arguments:
        name: what it is called in features and allow-lists: `library:normalisation`.
        folder: where the source is.
    """

    name: str
    folder: Path = FOLDER

    @property
    def source(self) -> Path:
        """The file that is compiled."""
        return self.folder / f"{self.name}.cc"

    @property
    def handlers(self) -> tuple[str, ...]:
        """Of XLA's foreign function interface that the source defines; `norm` is the symbol `pcp_norm`."""
        return tuple(_HANDLER.findall(self.source.read_text(encoding="utf-8")))

    @property
    def source_digest(self) -> str:
        """Of the source and its headers, as they are now."""
        hasher = hashlib.sha256()
        for file, content in included_by(self.source).items():
            hasher.update(f"{file.name} {len(content)} ".encode() + content)
        return hasher.hexdigest()


def included_by(source: Path) -> dict[Path, bytes]:
    """A file of C++ and those beside it that it includes, or that these include: the file first, then the nearest.

    What is not where an `#include` says is a header of XLA's, which has a digest of its own, or is missed by the compiler.
    """
    contents: dict[Path, bytes] = {}
    waiting = [source]
    while waiting:
        file = waiting.pop()
        if file in contents:
            continue
        content = contents[file] = file.read_bytes()
        named = (Path(os.fsdecode(name)) for name in _INCLUDE.findall(_CONTINUED.sub(b"", content)))
        waiting += (
            beside for name in named if (beside := Path(os.path.normpath(file.parent / name))).is_file()
        )
    ways = {file: Path(os.path.relpath(file, source.parent)).parts for file in contents}
    return {
        file: contents[file]
        for file in sorted(contents, key=lambda file: (file != source, len(ways[file]), ways[file]))
    }


_SOURCES = (*FOLDER.parent.glob("*/*.cc"), FOLDER.parents[1] / "backends" / "arena" / "steps.cc")
LIBRARIES = {
    each.stem: Library(each.stem, each.parent) for each in sorted(_SOURCES, key=lambda file: file.stem)
}
"""Every library by its name, which its file has."""
