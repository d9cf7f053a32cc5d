"""The entries of a Path in a file of JSON, checked: whoever wrote the file, what comes out of it is a path."""

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from pcp.backends import Placement
from pcp.errors import PCPError
from pcp.rewrite.equality import Form, PartForm, Step
from pcp.rewrite.memory.recomputation import Recomputation

FORMAT = 1


class NotAPath(PCPError):
    """A file that holds no Path."""


_DIGEST = re.compile("[0-9a-f]{64}")
_LIBRARY = re.compile("[0-9a-f]{32}")
_PLACE = re.compile(r"[^:\s]+:[^:\s]+:[0-9]{1,6}")
_LARGEST = 2**63
_FIELDS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("program", lambda v: _is_digest(v), "64 hexadecimal digits"),
    ("prepared", lambda v: v == "" or _is_digest(v), "64 hexadecimal digits, or nothing"),
    ("backend", lambda v: isinstance(v, str) and v != "", "the name of a backend, as xla"),
    ("hardware", lambda v: isinstance(v, str), "a text"),
    ("versions", lambda v: isinstance(v, str), "a text"),
    ("options", lambda v: _is_list_of(v, _is_option), "pairs of a name, and a text, number or boolean"),
    (
        "choices",
        lambda v: _is_list_of(v, _is_choice),
        "a site of 64 hexadecimal digits, a kernel and its version, and of a native library the digest, each",
    ),
)
"""Of the entries of a file, all of which it must have: whether a value is one, and what is expected."""


def entries_of(text: str) -> dict[str, Any]:
    """The entries of a path in a JSON text, all there and each of its kind.

    Raises:
        NotAPath: there is no path in it.
    """
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotAPath(
            f"this is not a path: {text[:40]!r} is not JSON ({error}); expected what Path.save writes"
        ) from None
    if not isinstance(found, dict) or "format" not in found:
        raise NotAPath(f"this is not a path: {text[:40]!r}; expected JSON as Path.save writes it")
    if found["format"] != FORMAT:
        raise NotAPath(
            f"the path has format {found['format']!r:.40}; this version of PCP reads format {FORMAT}"
        )
    for name, is_right, expected in _FIELDS:
        if name not in found:
            raise NotAPath(
                f"the path has no {name}; expected JSON as Path.save writes it: plan again and save that"
            )
        if not is_right(found[name]):
            raise NotAPath(
                f"the {name} of the path is {found[name]!r:.60}; expected {expected}: plan again and save that"
            )
    sites, options = ([entry[0] for entry in found[name]] for name in ("choices", "options"))
    if len(set(sites)) < len(sites) or len(set(options)) < len(options):
        raise NotAPath(
            "the path chooses twice for one site or option; expected one choice for each: plan again"
        )
    return found


def recomputation_of(value: Any) -> Recomputation | None:
    """What a path makes again, from its entry in a file; a path that makes nothing again has none.

    Raises:
        NotAPath: the entry is something else.
    """
    if value is None:
        return None
    entries: dict[str, Any] = value if isinstance(value, dict) else {}
    parts, begin, kept, makes = (entries.get(name) for name in ("parts", "begin", "kept", "makes"))
    numbers = [parts, begin, *kept] if isinstance(kept, list) else [-1]
    if (
        not all(_is_integer(number) and number >= 0 for number in numbers)
        or not numbers[0]
        or not _is_digest(makes)
    ):
        raise NotAPath(
            f"the recomputation of the path is {value!r:.60}; expected parts, begin and kept, numbers from 0, and "
            "makes, 64 hexadecimal digits: plan again and save that"
        )
    return Recomputation(numbers[0], numbers[1], tuple(sorted(numbers[2:])), str(makes))


def parts_in(entries: Mapping[str, Any]) -> int:
    """In how many parts a path computes the batch; a path that computes it at once does not say so.

    Raises:
        NotAPath: its entry is something else.
    """
    parts = entries.get("parts", 1)
    if not _is_integer(parts) or parts < 1 or (parts > 1 and not entries["prepared"]):
        raise NotAPath(
            f"the parts of the path are {parts!r:.60}; expected a number from 1, of a program that is prepared: plan again and "
            "save that"
        )
    return int(parts)


def placement_of(value: Any) -> Placement | None:
    """Where a path has operations run, from its entry in a file; a path that runs in one place has none.

    Raises:
        NotAPath: the entry is something else.
    """
    if value is None:
        return None
    if isinstance(value, dict):
        return Placement((), _streamed(value))
    if not _is_list_of(value, _is_placed) or not value or len({key for key, _ in value}) < len(value):
        raise NotAPath(
            f"the placement of the path is {value!r:.60}; expected pairs of an operation of 64 hexadecimal digits, each once, "
            "and its place, as arena:cpu:0: plan again and save that"
        )
    return Placement.of({key: place for key, place in value})


def _streamed(value: Mapping[str, Any]) -> tuple[str, int]:
    place, most = value.get("streamed"), value.get("bytes", 0)
    if not isinstance(place, str) or _PLACE.fullmatch(place) is None or not _is_integer(most) or most <= 0:
        raise NotAPath(
            f"the placement of the path is {value!r:.60}; expected a place, as xla:cuda:0, and bytes above 0: plan again and "
            "save that"
        )
    return place, int(most)


def _is_placed(entry: Any) -> bool:
    return (
        isinstance(entry, list)
        and len(entry) == 2
        and _is_digest(entry[0])
        and isinstance(entry[1], str)
        and _PLACE.fullmatch(entry[1]) is not None
    )


def form_in(value: Any) -> Form | None:
    """The equal program that a path computes, from its entry in a file; a path that computes the program as written has none.

    Raises:
        NotAPath: the entry is something else.
    """
    if value is None:
        return None
    entries: dict[str, Any] = value if isinstance(value, dict) else {}
    parts, makes = entries.get("parts"), entries.get("makes")
    if not _is_list_of(parts, _is_part) or not parts or not _is_digest(makes):
        raise NotAPath(
            f"the equal program of the path is {value!r:.60}; expected parts, each with numbers of parts, steps and roots, and "
            "makes, 64 hexadecimal digits: plan again and save that"
        )
    return Form(
        tuple(
            PartForm(
                tuple(part["parts"]),
                tuple(
                    Step(step["op"], tuple(step["operands"]), tuple(step["numbers"]))
                    for step in part["steps"]
                ),
                tuple(part["roots"]),
            )
            for part in parts or ()
        ),
        str(makes),
    )


def _is_part(entry: Any) -> bool:
    if not isinstance(entry, dict) or not all(_is_numbers(entry.get(name)) for name in ("parts", "roots")):
        return False
    return bool(entry["parts"]) and _is_list_of(entry.get("steps"), _is_step)


def _is_step(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("op"), str)
        and all(_is_numbers(entry.get(name)) for name in ("operands", "numbers"))
    )


def _is_numbers(value: object) -> bool:
    return _is_list_of(value, lambda number: _is_integer(number) and number >= 0)


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -_LARGEST <= value < _LARGEST


def _is_list_of(value: object, is_entry: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(is_entry, value))


def _is_option(entry: Any) -> bool:
    if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str):
        return False
    value = entry[1]
    is_real = isinstance(value, float) and math.isfinite(value)
    return isinstance(value, str | bool) or is_real or _is_integer(value)


def _is_choice(entry: Any) -> bool:
    return (
        isinstance(entry, list)
        and len(entry) in (3, 4)
        and _is_digest(entry[0])
        and isinstance(entry[1], str)
        and _is_integer(entry[2])
        and all(isinstance(library, str) and _LIBRARY.fullmatch(library) for library in entry[3:])
    )
