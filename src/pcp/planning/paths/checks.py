"""What values of a file may be, and the errors of a path: one that is none, and one that is not for what it is used for."""

import math
import re
from collections.abc import Callable
from typing import Any

from pcp.backends import backend_names
from pcp.errors import PCPError

_DIGEST = re.compile("[0-9a-f]{64}")
_PLACE = re.compile(r"[^:\s]+:[^:\s]+:[0-9]{1,6}")
_LARGEST = 2**63


class NotAPath(PCPError):
    """A file that holds no Path."""


def refused(what: str, value: object, expected: str) -> NotAPath:
    """The error of an entry that is something else."""
    verb = "are" if what.endswith("s") else "is"
    return NotAPath(
        f"the {what} of the path {verb} {value!r:.60}; expected {expected}: plan again and save that"
    )


def is_digest(value: object) -> bool:
    """Whether it is a SHA-256."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def is_place(value: object) -> bool:
    """Whether it is a backend and one of its devices."""
    return isinstance(value, str) and _PLACE.fullmatch(value) is not None


def is_integer(value: object) -> bool:
    """Whether it is a whole number of 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and -_LARGEST <= value < _LARGEST


def is_scalar(value: object) -> bool:
    """Whether it is a text, a truth value or a finite number."""
    return (
        isinstance(value, str | bool)
        or is_integer(value)
        or (isinstance(value, float) and math.isfinite(value))
    )


def are_numbers(value: object) -> bool:
    """Whether it is a list of whole numbers from 0."""
    return is_list_of(value, lambda number: is_integer(number) and number >= 0)


def is_list_of(value: object, is_entry: Callable[[Any], bool]) -> bool:
    """Whether it is a list, and each of its entries is allowed."""
    return isinstance(value, list) and all(map(is_entry, value))


class PathMismatch(PCPError):
    """A Path that belongs to another program, other hardware, or other versions of what it names."""


def expect_backend(name: str, said: str) -> None:
    """Look whether a backend is registered here.

    Arguments:
        said: who asks for it, as the beginning of a message.

    Raises:
        PathMismatch: it is not; the message lists those that are.
    """
    if name not in backend_names():
        raise PathMismatch(
            f"{said} is not here; there are: {', '.join(backend_names())}; plan again for one of them, or register it with "
            "pcp.backends.register_backend(name, 'module:Class') first"
        )
