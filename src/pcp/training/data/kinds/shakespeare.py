"""The corpus that PCP brings: Shakespeare's works in modern spelling, 5,057,321 characters of ASCII, 84 different ones.

These are 42 texts of Project Gutenberg (37 plays, the sonnets and the poems) without its licence headers: the files
`*_gut.txt` of the package `shakespeare` 0.6 in alphabetic order, with line ends "\\n", no blank lines around a text, two
between texts and one newline at the end.
"""

from collections.abc import Iterator
from pathlib import Path

from pcp.training.data.kinds.kind import Gives, Kind
from pcp.training.data.kinds.plain_text import HEAD_BYTES

PACKED = Path(__file__).with_name("shakespeare.txt.xz")
DIGEST = "04decea0dd965df5e6cfc4a538b0c62623aaa3bfd848ac7fad6734e59c96624d"
"""SHA-256 of the text, in hex."""


def _unpacked(path: Path) -> Iterator[bytes]:
    import lzma  # a Python may be built without it

    with lzma.open(path) as file:
        while piece := file.read(HEAD_BYTES):
            yield piece


SHAKESPEARE = Kind(
    "Shakespeare's works", Gives.text, "its name", "--data shakespeare", lambda *_: False, _unpacked
)
