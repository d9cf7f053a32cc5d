"""What a profile database holds, as lines of JSON: written for other machines, and checked when they come from one."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

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
from pcp.planning.paths.entries import NotAPath
from pcp.planning.paths.path import Path
from pcp.planning.profile.region import LONGEST_PACKED, NotARegion, Region

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
