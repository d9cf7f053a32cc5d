"""What a profile database holds, as lines of JSON: written for other machines, and checked when they come from one. A region is
kept beside its measurements, so that they say something of similar regions, too."""

import base64
import binascii
import hashlib
import json
import zlib
from dataclasses import asdict, dataclass
from typing import Any

from pcp.errors import PCPError
from pcp.ir import InvalidProgram, Program
from pcp.kernels import current_name
from pcp.planning.measuring.hardware import Hardware
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.measuring.measurement_text import (
    InvalidRows,
    canonical,
    digest,
    measurement_of,
    measurement_text,
    members,
    words,
)
from pcp.planning.paths.checks import NotAPath
from pcp.planning.paths.path import Path

LONGEST_TEXT = 1 << 20
"""Characters of a region's MLIR text; one operation has some hundreds."""
LONGEST_PACKED = 1 << 16
"""Bytes that it may take compressed; a longer one is not kept."""


class NotARegion(PCPError):
    """Bytes that are not the region they are said to be."""


@dataclass(frozen=True, slots=True)
class Region:
    """The program of a region, packed.

    Arguments:
        digest: of the program.
        packed: its MLIR text, compressed. Text, because MLIR's parser of text refuses what is damaged, whoever sent it.
    """

    digest: str
    packed: bytes

    @staticmethod
    def of(program: Program) -> "Region | None":
        """The region of a program; None if it is too large to be kept."""
        packed = zlib.compress(program.text.encode(), 9)
        return Region(program.digest, packed) if len(packed) <= LONGEST_PACKED else None

    def program(self) -> Program:
        """The program.

        Raises:
            NotARegion: it holds no region, or another one.
        """
        unpacking = zlib.decompressobj()
        try:
            text = unpacking.decompress(self.packed, LONGEST_TEXT)
            if not unpacking.eof:
                raise NotARegion(f"the region is longer than {LONGEST_TEXT} characters, or cut off")
            program = Program.parse(text.decode())
            digest = program.digest
        except (zlib.error, UnicodeDecodeError, InvalidProgram) as error:
            raise NotARegion(f"the region is no program: {str(error)[:80]}") from None
        if digest != self.digest:
            raise NotARegion(f"the region has digest {digest[:12]}; expected {self.digest[:12]}")
        return program

    def to_text(self) -> str:
        """The packed program in letters."""
        return base64.b64encode(self.packed).decode()

    @staticmethod
    def from_text(digest: str, text: str) -> "Region":
        """The region in letters, checked.

        Raises:
            NotARegion: the letters hold no region.
        """
        if len(text) > 2 * LONGEST_PACKED:
            raise NotARegion(f"the region takes {len(text)} letters; expected at most {2 * LONGEST_PACKED}")
        try:
            region = Region(digest, base64.b64decode(text, validate=True))
        except binascii.Error as error:
            raise NotARegion(f"the region is not in base64: {error}") from None
        region.program()
        return region


LONGEST_LINE = 1 << 24


@dataclass(frozen=True, slots=True)
class About:
    """What a subject is, for people.

    Arguments:
        digest: of the program.
        text: one line.
    """

    digest: str
    text: str


Row = Measurement | Path | Hardware | About | Region


def digest_of(measurement: Measurement) -> str:
    """A name for a measurement: the SHA-256 of its line, so that adding it twice adds it once."""
    return hashlib.sha256(line_of(measurement).encode()).hexdigest()


def current_label(label: str) -> str:
    """What measurements of a kernel, NAME@VERSION, are called by the name that it has now; other labels stay."""
    name, at, rest = label.partition("@")
    return f"{current_name(name)}{at}{rest}" if at else label


def digest_written(line: str) -> str:
    """The digest that the path in a line had where the line was written: its kernels may have had other names there."""
    chosen = json.loads(json.loads(line)["path"])
    for place in ("hardware", "versions"):
        chosen.pop(place, None)
    return hashlib.sha256(json.dumps(chosen, separators=(",", ":")).encode()).hexdigest()


def line_of(row: Row) -> str:
    """A row as canonical JSON without a line break."""
    match row:
        case Measurement():
            return f'{{"measurement":{measurement_text(row)}}}'
        case Path():
            return canonical({"path": row.to_json()})
        case Hardware():
            return canonical({"hardware": asdict(row)})
        case About():
            return canonical({"about": asdict(row)})
        case Region():
            return canonical({"region": {"digest": row.digest, "program": row.to_text()}})


def row_of(line: str) -> Row:
    """The row in a line.

    Raises:
        InvalidRows: there is none in it; the message says what is wrong.
    """
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        raise InvalidRows(f"it is not JSON: {line[:40]!r}") from None
    if not isinstance(entry, dict) or len(entry) != 1:
        raise InvalidRows(f"it begins with {line[:40]!r}; expected one object with one of {_KINDS}")
    [(kind, value)] = entry.items()
    if kind == "measurement":
        return measurement_of(value)
    if kind == "path":
        try:
            return Path.from_json(words(value, "the path"))
        except NotAPath as error:
            raise InvalidRows(str(error)) from None
    if kind == "hardware":
        name, facts = members(value, ("name", "facts"))
        return Hardware(words(name, "name"), words(facts, "facts", 1 << 16))
    if kind == "about":
        of, text = members(value, ("digest", "text"))
        return About(digest(of, "digest"), words(text, "text"))
    if kind == "region":
        return _region(value)
    raise InvalidRows(f"it holds {kind[:40]!r}; expected one of {_KINDS}")


_KINDS = "measurement, path, hardware, about, region"


def _region(value: Any) -> Region:
    of, text = members(value, ("digest", "program"))
    try:
        return Region.from_text(digest(of, "digest"), words(text, "program", 2 * LONGEST_PACKED))
    except NotARegion as error:
        raise InvalidRows(str(error)) from None
