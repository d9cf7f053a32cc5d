"""What a kind of training data is: by what its files are recognised, and what they give."""

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcp.errors import PCPError


class UnknownKind(PCPError):
    """Data of a kind that is not recognised."""


class CorpusNotText(UnknownKind):
    """What is read as text is none, or not in UTF-8."""


class NotAFile(PCPError):
    """A pipe, a socket or a device where a file is expected, which is read more than once."""


class Gives(enum.StrEnum):
    """What is made of data."""

    text = "text"
    records = "records"  # of which a field is the text, or messages
    tokens = "tokens"
    samples = "samples"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file that is trained on.

    Arguments:
        name: in the plural, as in "FILE and OTHER are ...".
        gives: what `read` yields of a file: bytes of a text in pieces; a place and a record, a dictionary, for each record;
            vectors of token numbers; nothing for samples, which the loss reads.
        recognised: by what, for messages and the documentation.
        option: how it is asked for.
        is_of: whether a file is of this kind, from its path and its first bytes.
    """

    name: str
    gives: Gives
    recognised: str
    option: str
    is_of: Callable[[Path, bytes], bool]
    read: Callable[[Path], Iterator[Any]]


def named(*suffixes: str) -> Callable[[Path, bytes], bool]:
    """Whether a file is called so."""
    return lambda path, _: path.suffix.lower() in suffixes
