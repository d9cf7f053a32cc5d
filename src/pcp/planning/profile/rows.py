"""What a profile database holds, as lines of JSON: written for other machines, and checked when they come from one."""

import hashlib
import json
import math
import re
from dataclasses import asdict, dataclass, fields
from typing import Any

from pcp.errors import PCPError
from pcp.planning.measuring.measurement import Failure, Judgement, Measurement
from pcp.planning.paths.path import NotAPath, Path
from pcp.planning.prediction.region import LONGEST_PACKED, NotARegion, Region
from pcp.planning.profile.hardware import Hardware

LONGEST_LINE = 1 << 24
_LONGEST_WORDS = 4096
_DIGEST = re.compile(r"[0-9a-f]{16,64}")
_NAMES = [field.name for field in fields(Measurement)]


class InvalidRows(PCPError):
    """Lines to be merged that are no rows of a profile database."""


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


def line_of(row: Row) -> str:
    """A row as canonical JSON without a line break."""
    match row:
        case Measurement():
            made: Any = {name: _plain(value) for name, value in asdict(row).items()}
            return _json({"measurement": made})
        case Path():
            return _json({"path": row.to_json()})
        case Hardware():
            return _json({"hardware": asdict(row)})
        case About():
            return _json({"about": asdict(row)})
        case Region():
            return _json({"region": {"digest": row.digest, "program": row.to_text()}})


def row_of(line: str) -> Row:
    """The row in a line.

    Raises:
        InvalidRows: there is none in it; the message says what is wrong.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise InvalidRows(f"it is not JSON: {line[:40]!r}") from None
    if not isinstance(found, dict) or len(found) != 1:
        raise InvalidRows(f"it begins with {line[:40]!r}; expected one object with one of {_KINDS}")
    [(kind, value)] = found.items()
    if kind == "measurement":
        return _measurement(value)
    if kind == "path":
        try:
            return Path.from_json(_text(value, "the path"))
        except NotAPath as error:
            raise InvalidRows(str(error)) from None
    if kind == "hardware":
        name, facts = _members(value, ("name", "facts"))
        return Hardware(_text(name, "name"), _text(facts, "facts", 1 << 16))
    if kind == "about":
        digest, text = _members(value, ("digest", "text"))
        return About(_digest(digest, "digest"), _text(text, "text"))
    if kind == "region":
        return _region(value)
    raise InvalidRows(f"it holds {kind[:40]!r}; expected one of {_KINDS}")


_KINDS = "measurement, path, hardware, about, region"


def _region(value: Any) -> Region:
    digest, text = _members(value, ("digest", "program"))
    try:
        return Region.from_text(_digest(digest, "digest"), _text(text, "program", 2 * LONGEST_PACKED))
    except NotARegion as error:
        raise InvalidRows(str(error)) from None


def _measurement(value: Any) -> Measurement:
    found = dict(zip(_NAMES, _members(value, tuple(_NAMES)), strict=True))
    failure = found["failure"]
    if failure is not None and failure not in list(Failure):
        raise InvalidRows(f"the failure is {failure!r}; expected null or one of {', '.join(Failure)}")
    peak = found["peak_bytes"]
    if peak is not None and (type(peak) is not int or not 0 <= peak < 2**63):
        raise InvalidRows(f"peak_bytes is {peak!r}; expected null or a number of bytes")
    return Measurement(
        _digest(found["subject"], "subject"),
        _text(found["path"], "path"),
        _digest(found["hardware"], "hardware"),
        _text(found["versions"], "versions"),
        _times(found["seconds"], "seconds"),
        _times(found["plain_seconds"], "plain_seconds"),
        _error(found["error"], "error"),
        _error(found["plain_error"], "plain_error"),
        peak,
        None if failure is None else Failure(failure),
        _text(found["detail"], "detail"),
        _number(found["when"], "when"),
        judgement_of(found["judgement"]),
    )


def judgement_of(value: Any) -> Judgement | None:
    """The judgement in a value of JSON.

    Raises:
        InvalidRows: there is none in it.
    """
    if value is None:
        return None
    names = tuple(field.name for field in fields(Judgement))
    found = dict(zip(names, _members(value, names), strict=True))
    return Judgement(
        _text(found["result"], "result"),
        _error(found["slice_error"], "slice_error") or 0.0,
        _text(found["slice"], "slice"),
        _error(found["plain_slice"], "plain_slice") or 0.0,
        _text(found["reference"], "reference"),
        _named_errors(found["grouped"], "grouped"),
        _named_errors(found["shares"], "shares"),
        tuple(_text(each, "ignored") for each in _list(found["ignored"], "ignored")),
    )


def _named_errors(value: Any, name: str) -> tuple[tuple[str, float], ...]:
    pairs = [_list(each, name) for each in _list(value, name)]
    if any(len(pair) != 2 for pair in pairs):
        raise InvalidRows(f"{name} is {repr(value)[:40]}; expected pairs of a name and an error")
    return tuple((_text(each, name), _error(error, name) or 0.0) for each, error in pairs)


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidRows(f"{name} is {repr(value)[:40]}; expected a list")
    return value


def _members(value: Any, names: tuple[str, ...]) -> list[Any]:
    if not isinstance(value, dict) or set(value) != set(names):
        given = ", ".join(map(str, value))[:80] if isinstance(value, dict) else repr(value)[:80]
        raise InvalidRows(f"it holds {given}; expected {', '.join(names)}")
    return [value[name] for name in names]


def _text(value: Any, name: str, longest: int = _LONGEST_WORDS) -> str:
    if not isinstance(value, str) or (len(value) > longest and name != "the path"):
        raise InvalidRows(f"{name} is {repr(value)[:40]}; expected text of at most {longest} characters")
    return value


def _digest(value: Any, name: str) -> str:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise InvalidRows(f"{name} is {repr(value)[:40]}; expected 16 to 64 hexadecimal digits")
    return value


def _times(value: Any, name: str) -> tuple[float, ...]:
    if not isinstance(value, list) or not all(_number(each, name) > 0 for each in value):
        raise InvalidRows(f"{name} is {repr(value)[:40]}; expected a list of seconds above 0")
    return tuple(map(float, value))


def _error(value: Any, name: str) -> float | None:
    return None if value is None else math.inf if value == "inf" else _number(value, name)


def _number(value: Any, name: str) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1e300:
        raise InvalidRows(f"{name} is {repr(value)[:40]}; expected a number from 0")
    return float(value)


def _plain(value: Any) -> Any:
    """A value that JSON has; it has no infinity."""
    match value:
        case float() if math.isinf(value):
            return "inf"
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case tuple() | list():
            return [_plain(each) for each in value]
        case _:
            return value


def judgement_text(judgement: Judgement | None) -> str | None:
    """A judgement as JSON; `judgement_of` reads it."""
    return None if judgement is None else _json(_plain(asdict(judgement)))


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
