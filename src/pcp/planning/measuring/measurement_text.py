"""A measurement as JSON, for the database and between processes; what comes from outside is checked."""

import json
import math
import re
from dataclasses import asdict, fields
from typing import Any

from pcp.errors import PCPError
from pcp.planning.measuring.measurement import Failure, Judgement, Measurement

_LONGEST_WORDS = 4096
_DIGEST = re.compile(r"[0-9a-f]{16,64}")
_NAMES = [field.name for field in fields(Measurement)]


class InvalidRows(PCPError):
    """Lines to be merged that are no rows of a profile database."""


def measurement_text(measurement: Measurement) -> str:
    """A measurement as canonical JSON without a line break; `measurement_of` reads its values."""
    return canonical(plain(asdict(measurement)))


def measurement_of(value: Any) -> Measurement:
    """The measurement in a value of JSON.

    Raises:
        InvalidRows: it holds no measurement.
    """
    entries = dict(zip(_NAMES, members(value, tuple(_NAMES)), strict=True))
    failure = entries["failure"]
    if failure is not None and failure not in list(Failure):
        raise InvalidRows(f"the failure is {failure!r}; expected null or one of {', '.join(Failure)}")
    peak = entries["peak_bytes"]
    if peak is not None and (type(peak) is not int or not 0 <= peak < 2**63):
        raise InvalidRows(f"peak_bytes is {peak!r}; expected null or a number of bytes")
    return Measurement(
        digest(entries["subject"], "subject"),
        words(entries["path"], "path"),
        digest(entries["hardware"], "hardware"),
        words(entries["versions"], "versions"),
        _times(entries["seconds"], "seconds"),
        _times(entries["plain_seconds"], "plain_seconds"),
        _error(entries["error"], "error"),
        _error(entries["plain_error"], "plain_error"),
        peak,
        None if failure is None else Failure(failure),
        words(entries["detail"], "detail"),
        _number(entries["when"], "when"),
        judgement_of(entries["judgement"]),
    )


def judgement_of(value: Any) -> Judgement | None:
    """The judgement in a value of JSON.

    Raises:
        InvalidRows: it holds no judgement.
    """
    if value is None:
        return None
    names = tuple(field.name for field in fields(Judgement))
    value = {"missed": [], **value} if isinstance(value, dict) else value  # older rows say of none
    entries = dict(zip(names, members(value, names), strict=True))
    return Judgement(
        words(entries["result"], "result"),
        _error(entries["slice_error"], "slice_error") or 0.0,
        words(entries["slice"], "slice"),
        _error(entries["plain_slice"], "plain_slice") or 0.0,
        words(entries["reference"], "reference"),
        _named_errors(entries["grouped"], "grouped"),
        _named_errors(entries["shares"], "shares"),
        tuple(words(each, "ignored") for each in _list(entries["ignored"], "ignored")),
        _named_errors(entries["missed"], "missed"),
    )


def _named_errors(value: Any, name: str) -> tuple[tuple[str, float], ...]:
    pairs = [_list(each, name) for each in _list(value, name)]
    if any(len(pair) != 2 for pair in pairs):
        raise InvalidRows(f"{name} is {repr(value)[:40]}; expected pairs of a name and an error")
    return tuple((words(each, name), _error(error, name) or 0.0) for each, error in pairs)


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidRows(f"{name} is {repr(value)[:40]}; expected a list")
    return value


def members(value: Any, names: tuple[str, ...]) -> list[Any]:
    """The values of an object with exactly these names, in their order."""
    if not isinstance(value, dict) or set(value) != set(names):
        held = ", ".join(map(str, value))[:80] if isinstance(value, dict) else repr(value)[:80]
        raise InvalidRows(f"it holds {held}; expected {', '.join(names)}")
    return [value[name] for name in names]


def words(value: Any, name: str, longest: int = _LONGEST_WORDS) -> str:
    """A text that is not too long."""
    if not isinstance(value, str) or (len(value) > longest and name != "the path"):
        raise InvalidRows(f"{name} is {repr(value)[:40]}; expected text of at most {longest} characters")
    return value


def digest(value: Any, name: str) -> str:
    """A digest in hexadecimal digits."""
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


def plain(value: Any) -> Any:
    """A value that JSON has; it has no infinity."""
    match value:
        case float() if math.isinf(value):
            return "inf"
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case tuple() | list():
            return [plain(each) for each in value]
        case _:
            return value


def judgement_text(judgement: Judgement | None) -> str | None:
    """A judgement as JSON; `judgement_of` reads it."""
    return None if judgement is None else canonical(plain(asdict(judgement)))


def canonical(value: Any) -> str:
    """A value as JSON without spaces."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
